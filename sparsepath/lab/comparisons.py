"""Best mode and what l0 is compared with, as lists of jobs from the same dense networks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparsepath.lab.experiments import STILL, reference
from sparsepath.lab.jobs import Job
from sparsepath.lab.recipes import DENSE, DenseRecipe, PathRecipe
from sparsepath.lab.starts import Reference
from sparsepath.path import Schedule

BEST_START: Mapping[str, DenseRecipe] = {"cnn": replace(DENSE["cnn"], dropout=0.1)}
BEST_DROPOUT: Mapping[str, float] = {"cnn": 0.0}
"""Where best mode trains with less dropout than is usual: in its dense network, on its paths."""


def best_reference(network: str, seed: int = 0) -> Reference:
    """The dense network that best mode and what it is compared with start from."""
    if network not in BEST_START:
        return reference(network, seed)
    return Reference(network, BEST_START[network], seed, variant="best")


BEST_SPAN: Mapping[str, tuple[float, float]] = {"nin": (0.95, 4.2), "cnn": (0.85, 2.8)}
L1_SPAN: Mapping[str, tuple[float, float]] = {"nin": (0.95, 4.2), "cnn": (1.5, 5.5)}
"""Of l0's and l1's paths: from some 40 % of the kernels to 95 %, or 90 where decay is weak."""
BEST_RHO = 0.03
L1_RHO: Mapping[str, float] = {"nin": 0.003, "cnn": 0.001}
KEEP: Mapping[str, tuple[float, ...]] = {
    "cnn": (0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05),
    "nin": (0.5, 0.3, 0.2, 0.1, 0.05),
}
"""The shares of kernels that counting methods keep at their points, as many as ADMM has. NIN, whose
epochs take three times as long, has fewer."""
ONE_SHOT = (0.5, 0.2, 0.1)
"""Those of them that are also reached in one step."""
SPARED: Mapping[str, frozenset[str]] = {"nin": frozenset({"gradual-late", "fine-tuning"})}
"""Arms that a network whose epochs take long goes without where fine-tunes are short."""
LASSO: Mapping[float, float] = {
    0.5: 0.125,
    0.4: 0.25,
    0.3: 0.375,
    0.2: 0.5,
    0.15: 0.75,
    0.1: 1.0,
    0.05: 1.5,
}
"""How far SSL shrinks an idle kernel before it keeps this share of them, in median norms."""
LASSO_TIMES: Mapping[str, float] = {"nin": 1.0, "cnn": 8.0}
"""By how much farther it does so in each network."""
ITERATIONS, EPOCHS = 6, 3
"""ADMM iterations at every mu, where the pull does not grow, and the epochs of each."""
GROWING_RHO, RAMP = 0.005, 1.2
"""A pull that starts weak, and by what it grows after each iteration."""


def best(network: str, *, finetune: int = 40) -> PathRecipe:
    """Best mode: no guard, Gamma restarted, and one cycle of a higher rate at each point."""
    return PathRecipe(
        rho=BEST_RHO,
        reach=(0.02, 0.999),
        span=BEST_SPAN[network],
        points=len(KEEP[network]),
        last=len(KEEP[network]) - 1,
        schedule=Schedule(delta=EPOCHS, nu=1, xi=ITERATIONS, epsilon=0.0, finetune=finetune),
        dropout=BEST_DROPOUT.get(network),
        peak=0.05,
        whole=True,
        guard=None,
        restart=True,
    )


LONG: Mapping[str, int] = {"cnn": 100, "nin": 60}
"""Epochs of the fine-tunes of best mode itself: more than a comparison of many arms can afford."""
STEPS: Mapping[str, int] = {"cnn": 9, "nin": 7}
"""Its points, more than the comparisons': the smaller the steps to a sparsity, the less is lost."""
LONG_TRAINING: Mapping[str, Mapping[str, Any]] = {"cnn": {"hole": 8, "decay": 2e-4}}
"""Where it trains otherwise than the comparisons do, and iterates after every epoch."""
DIVIDED = 5
"""Iterations of an epoch each that may find a support where epochs are few; it has the others."""


def growing(recipe: PathRecipe) -> PathRecipe:
    """The same epochs with an iteration after each, and a pull that grows from one to the next.

    So the network trains freely first and stands close to its support when it is pruned, which
    counts where hardly an epoch is left for the support alone.
    """
    before = recipe.schedule.xi * recipe.schedule.delta
    often = replace(recipe.schedule, delta=1, xi=before)
    return replace(recipe, rho=GROWING_RHO, ramp=RAMP, schedule=often)


def divided(recipe: PathRecipe, iterations: int) -> PathRecipe:
    """The same epochs with so many iterations, two at least, and the rest of them for the support.

    The pull grows from the same to the same.
    """
    schedule = recipe.schedule
    before, growth = schedule.delta * schedule.xi, recipe.ramp ** (schedule.xi - 1)
    left = before + (schedule.finetune or 0) - schedule.delta * iterations
    return replace(
        recipe,
        ramp=growth ** (1 / (iterations - 1)),
        schedule=replace(schedule, xi=iterations, finetune=left),
    )


def best_mode(network: str, *, seeds: int = 3) -> dict[str, list[Job]]:
    """l0 as far as it goes, and as a control the dense networks trained on as long."""
    points = STEPS[network]
    l0 = replace(best(network, finetune=LONG[network]), points=points, last=points - 1)
    if network in LONG_TRAINING:
        l0 = replace(growing(l0), **LONG_TRAINING[network])
    ways = {"l0": l0, "fine-tuning": replace(l0, span=STILL)}
    return {
        method: [
            Job(
                best_reference(network, seed),
                method,
                recipe,
                seed=seed,
                variant=f"best-{seed}",
                keep_all=method == "l0" and seed == 0,
            )
            for seed in range(seeds)
        ]
        for method, recipe in ways.items()
    }


def arms(network: str, *, finetune: int = 40) -> dict[str, tuple[str, PathRecipe]]:
    """Each way to a sparse network: its method and recipe; all have as many points and epochs.

    Gradual magnitude pruning spends all of a point's epochs on its fine-tune, as is usual. Where
    that is short it is also asked to prune late, as ADMM and SSL do; l0's pull grows there, and it
    is also asked to search briefly. What shrinks kernels, l1 and SSL, does so without weight decay;
    all fine-tunes have it.
    """
    l0 = best(network, finetune=finetune)
    before, keep = ITERATIONS * EPOCHS, KEEP[network]
    short = finetune < before
    often = growing(l0)
    counting = replace(l0, span=None, rho=1.0, keep=keep)
    shrinking: dict[str, Any] = {"decay": 0.0, "finetune_decay": l0.decay}
    long = Schedule(delta=0, nu=1, xi=1, epsilon=0.0, finetune=before + finetune)
    late = Schedule(delta=before, nu=1, xi=1, epsilon=0.0, finetune=finetune)
    lasso = tuple(LASSO_TIMES[network] * LASSO[share] for share in keep)
    shortly = {
        "gradual-late": ("magnitude", replace(counting, schedule=late)),
        "l0-divided": ("l0", divided(often, DIVIDED)),
    }
    found = {
        "l0": ("l0", often if short else l0),
        "l1": ("l1", replace(l0, rho=L1_RHO[network], span=L1_SPAN[network], **shrinking)),
        "gradual": ("magnitude", replace(counting, schedule=long)),
        **(shortly if short else {}),
        "ssl": ("ssl", replace(counting, schedule=late, lasso=lasso, **shrinking)),
        "fine-tuning": ("fine-tuning", replace(l0, span=STILL)),
    }
    if short:
        for spared in SPARED.get(network, ()):
            del found[spared]
    # Not where it is short: all epochs of a single step are its fine-tune, as gradual's are.
    for share in () if short else ONE_SHOT:
        # As many epochs as the paths have spent when they come to this share.
        whole = replace(long, finetune=(keep.index(share) + 1) * (before + finetune))
        one = replace(counting, schedule=whole, keep=(share,), points=1, last=0)
        found[f"one-shot-{share:g}"] = ("magnitude", one)
    return found


def comparisons(network: str, *, seeds: int = 3, finetune: int = 40) -> dict[str, list[Job]]:
    """The jobs of every arm, all from the same dense networks; one-shot ones are one arm."""
    found: dict[str, list[Job]] = {}
    for name, (method, recipe) in arms(network, finetune=finetune).items():
        own = name.removeprefix(method).strip("-")
        jobs = [
            Job(
                best_reference(network, seed),
                method,
                recipe,
                seed=seed,
                variant="-".join(filter(None, (own, str(finetune), str(seed)))),
                keep_all=name == "l0" and seed == 0,
            )
            for seed in range(seeds)
        ]
        found.setdefault(name.partition("-0.")[0], []).extend(jobs)
    return found
