"""Answers questions of settings on validation images, before any final run looks at test images.

    python reproduction/explore.py QUESTION ... --data FOLDER --out FOLDER [--minutes M]

5,000 training images are held out and judge; nothing looks at the test images. All candidates of a
data set train side by side on a GPU; a call that is killed is continued by the same call. The
records (JSON) that led to a choice lie in `<data>/exploration/`.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from sparsepath.errors import as_script
from sparsepath.lab.arena import Arena
from sparsepath.lab.comparisons import LASSO, LONG, arms, best, best_reference, growing
from sparsepath.lab.comparisons import divided as divided_into
from sparsepath.lab.data import load
from sparsepath.lab.dense import train_dense
from sparsepath.lab.experiments import FLIPPED, NETWORKS, paper, reference
from sparsepath.lab.jobs import Job
from sparsepath.lab.recipes import DENSE, DenseRecipe, PathRecipe
from sparsepath.lab.records import check_same
from sparsepath.lab.reproduce import checked_minutes, device_named, place_of
from sparsepath.lab.starts import Reference
from sparsepath.lab.walks import check_starts, unfinished, walk_paths
from sparsepath.path import Schedule
from sparsepath.storage import read_json

HELD_OUT = 5000
L1_FIRST = (1.05, 2.8)
"""The range of l1's first walks, in median norms."""
DROPOUTS = (0.0, 0.05, 0.1, 0.15, 0.25)
USUAL_DECAY = 5e-4


@dataclass(frozen=True)
class Question:
    """Candidates that are judged beside each other."""

    data: str
    dense: tuple[Reference, ...] = ()
    walks: tuple[Job, ...] = ()


def dense(data: str, network: str, *recipes: DenseRecipe) -> Question:
    """Which of these recipes makes the best dense network?"""
    return Question(data, tuple(Reference(network, r, variant=named(r)) for r in recipes))


def named(recipe: DenseRecipe) -> str:
    """What tells a recipe from the other candidates."""
    dropout = "" if recipe.dropout is None else f"dropout{recipe.dropout:g}-"
    shift = "" if recipe.shift == DenseRecipe.shift else f"shift{recipe.shift}-"
    hole = f"hole{recipe.hole}-" if recipe.hole else ""
    return f"{dropout}{shift}{hole}rate{recipe.rate:g}-epochs{recipe.epochs}"


def usual(data: str) -> Question:
    """How good are the recipes of another data set here?"""
    return Question(data, tuple(Reference(network, DENSE[network]) for network in NETWORKS))


def walks(
    start: Reference, candidates: Mapping[str, tuple[str, PathRecipe]], *, data: str = "cifar10"
) -> Question:
    """Which of these ways from one dense network is the best?"""
    jobs = (
        Job(start, by, recipe, variant=name, keep_all=True)
        for name, (by, recipe) in candidates.items()
    )
    return Question(data, walks=tuple(jobs))


def finetuned(recipe: PathRecipe, finetune: int = 20) -> PathRecipe:
    """A walk of best mode whose fine-tunes take so many epochs."""
    schedule: Schedule = replace(recipe.schedule, finetune=finetune)
    return replace(recipe, schedule=schedule)


def free_paths(network: str, dropout: float, *ways: tuple[float, float]) -> Question:
    """How much dropout, and how much of a teacher, does a path want? Beside it magnitude's."""
    recipe = replace(DENSE[network], dropout=dropout)
    start = Reference(network, recipe, variant=named(recipe))
    candidates = {
        f"from{dropout:g}-drop{drop:g}-distil{distil:g}": (
            "l0",
            replace(finetuned(best(network)), dropout=drop, distil=distil),
        )
        for drop, distil in dict.fromkeys(ways)
    }
    gradual = ("magnitude", finetuned(arms(network)["gradual"][1], 38))
    return walks(start, {**candidates, f"from{dropout:g}-gradual": gradual})


def ramped(network: str) -> Question:
    """How should l0 pull where hardly an epoch is left for the support? Beside late magnitude's.

    A weak pull lets the network train, a strong one brings it to its support: one may become the
    other, in few long iterations or in many short ones.
    """
    ways = arms(network, finetune=5)
    by, usual = ways["l0"]
    before = usual.schedule.xi * usual.schedule.delta
    candidates = {
        f"late-{xi}x{before // xi}-rho{rho:g}-ramp{ramp:g}": (
            by,
            replace(
                usual,
                rho=rho,
                ramp=ramp,
                schedule=replace(usual.schedule, xi=xi, delta=before // xi),
            ),
        )
        for xi, rho, ramp in (
            (6, 0.03, 1.0),
            (6, 0.1, 1.0),
            (6, 0.005, 2.0),
            (6, 0.001, 3.0),
            (18, 0.03, 1.0),
            (18, 0.005, 1.2),
            (18, 0.001, 1.4),
        )
    }
    return walks(best_reference(network), {**candidates, "late": ways["gradual-late"]})


def divided(network: str) -> Question:
    """How should l0 divide a point of few epochs: how many for its search, and the rest for the
    support it found? Beside magnitude's, which searches none.

    However many the iterations, of an epoch each, the pull grows from the same to the same.
    """
    ways = arms(network, finetune=5)
    by, usual = ways["l0"]
    candidates = {}
    for iterations in (2, 3, 5, 8, 12, 18):
        recipe = divided_into(usual, iterations)
        candidates[f"divided-{iterations}-{recipe.schedule.finetune}"] = (by, recipe)
    return walks(best_reference(network), {**candidates, "divided-0": ways["gradual"]})


def last_points(network: str, count: int, *, threshold: float) -> PathRecipe:
    """The comparisons' last points alone, the first of them at this threshold, in median norms."""
    long = best(network)
    assert long.span is not None
    return replace(long, span=(threshold, long.span[1]), points=count, last=count - 1)


def tuned(network: str, *, threshold: float) -> Question:
    """What training serves sparse networks? Of the last four points alone."""
    brief = last_points(network, 4, threshold=threshold)
    often = growing(brief)
    candidates = {
        "usual": brief,
        "often": often,
        "longer": finetuned(often, LONG[network]),
        # The support is then chosen at a low rate, not near the top of the cycle.
        "apart": replace(often, whole=False, rate=0.01),
        "peak0.1": replace(often, peak=0.1),
        # Dropout made the sparsest networks worse; yet at 91 % zero kernels they name 96 % of the
        # training images rightly, so something else that holds back may make them better.
        "decay0.001": replace(often, decay=1e-3),
        "hole8": replace(often, hole=8),
        "hole8-decay0.0002": replace(often, hole=8, decay=2e-4),
    }
    ways = {f"tuned-{name}": ("l0", recipe) for name, recipe in candidates.items()}
    return walks(best_reference(network), ways)


def tuned_further(network: str, *, threshold: float) -> Question:
    """How far should what served them best, a hole and little decay, be taken?

    Without decay kernels are larger: the less there is, the higher the thresholds.
    """
    few = growing(replace(last_points(network, 4, threshold=threshold), hole=8, decay=2e-4))
    assert few.span is not None
    low, high = few.span
    candidates = {"hole8-decay0.0002": few}
    for decay, by in ((1e-4, 1.1), (5e-5, 1.2), (0.0, 1.3)):
        scaled = (by * low, by * high)
        candidates[f"hole8-decay{decay:g}"] = replace(few, decay=decay, span=scaled)
    candidates["hole0-decay0.0002"] = replace(few, hole=0)
    candidates["hole12-decay0.0002"] = replace(few, hole=12)
    candidates["hole8-decay0.0002-peak0.1"] = replace(few, peak=0.1)
    candidates["hole8-decay0.0002-dropout0.05"] = replace(few, dropout=0.05)
    ways = {f"further-{name}": ("l0", recipe) for name, recipe in candidates.items()}
    return walks(best_reference(network), ways)


def held_back(network: str, *, threshold: float) -> Question:
    """What should keep sparse networks from learning by heart: dropout, a hole, how much decay?

    Of the last three points alone, with fine-tunes of 20.
    """
    last = finetuned(last_points(network, 3, threshold=threshold))
    often = growing(last)
    candidates = {"held-back-usual": last, "held-back-often": often}
    for dropout, hole, decay in (
        (0.1, 0, 5e-4),
        (0.1, 8, 5e-4),
        *((dropout, 8, 2e-4) for dropout in (0.0, 0.1, 0.2, 0.3)),
    ):
        candidates[f"held-back-drop{dropout:g}-hole{hole}-decay{decay:g}"] = replace(
            often, dropout=dropout, hole=hole, decay=decay
        )
    return walks(best_reference(network), {name: ("l0", way) for name, way in candidates.items()})


def shrinking(
    network: str, *pulls: tuple[float, tuple[float, float] | None], shrinks: Sequence[float]
) -> Question:
    """How strongly should l1 and SSL, which shrink every kernel, pull? l1 over these ranges."""
    ways = arms(network, finetune=5)
    (l1, one), (ssl, other) = ways["l1"], ways["ssl"]
    candidates = {}
    for rho, span in pulls:
        shown = f"-span{span[0]:g}-{span[1]:g}" if span else ""
        candidates[f"rho{rho:g}{shown}"] = (l1, replace(one, rho=rho, span=span or L1_FIRST))
    for by in shrinks:
        lasso = tuple(by * LASSO[share] for share in other.keep)
        candidates[f"shrink{by:g}"] = (ssl, replace(other, lasso=lasso))
    return walks(best_reference(network), candidates)


def paper_training(
    network: str,
    *ways: tuple[float, float],
    data: str = "cifar10",
    fast: bool = False,
    hole: int | None = None,
) -> Question:
    """How much dropout and decay does the paper's own path want? Three points, fewer epochs.

    A fast walk takes three times the paper's rate, to see in as few epochs what many would do. The
    images may have a hole.
    """
    schedule = Schedule(delta=5, nu=1, xi=4, epsilon=0.0)
    recipe = replace(paper(network, "l0"), points=5, last=2, schedule=schedule, hole=hole)
    if fast:
        recipe = replace(recipe, rate=3 * recipe.rate)
    candidates = {}
    for dropout, decay in ways:
        shown = "" if decay == USUAL_DECAY else f"-decay{decay:g}"
        name = f"{'fast-' if fast else ''}drop{dropout:g}{shown}{f'-hole{hole}' if hole else ''}"
        candidates[name] = ("l0", replace(recipe, dropout=dropout, decay=decay))
    return walks(reference(network, data=data), candidates, data=data)


def without_momentum(
    network: str, *ways: tuple[str, dict[str, Any]], data: str = "cifar100"
) -> Question:
    """What does a path want whose SGD has no momentum and so learns a tenth as fast?

    A tenth of the epochs, with momentum, stands for it: eight points as far as the paper's last.
    """
    schedule = Schedule(delta=1, nu=1, xi=10, epsilon=0.0)
    candidates = {}
    for by, settings in ways:
        recipe = replace(paper(network, by), points=12, last=7, schedule=schedule, **settings)
        shown = "-".join(f"{name}{value:g}" for name, value in settings.items())
        candidates[f"tenth-{shown}"] = (by, recipe)
    return walks(reference(network, data=data), candidates, data=data)


def together(*questions: Question) -> Question:
    """Questions of one data set, asked side by side; what two of them ask, once."""
    (data,) = {question.data for question in questions}
    dense = dict.fromkeys(each for question in questions for each in question.dense)
    walks = dict.fromkeys(job for question in questions for job in question.walks)
    return Question(data, tuple(dense), tuple(walks))


QUESTIONS: Mapping[str, Callable[[], Question]] = {
    "dense-cnn": lambda: dense(
        "cifar10",
        "cnn",
        *(DenseRecipe(60, 0.05, dropout=rate) for rate in DROPOUTS),
    ),
    "holed-cnn": lambda: dense(
        "cifar10",
        "cnn",
        *(DenseRecipe(60, 0.05, dropout=rate, hole=8) for rate in (0.0, 0.05, 0.1)),
    ),
    "early-cnn": lambda: dense(
        "cifar10",
        "cnn",
        *(DenseRecipe(6, rate) for rate in (0.02, 0.03, 0.05)),
        *(DenseRecipe(epochs, 0.05) for epochs in (8, 10, 13)),
    ),
    "dense-low-rank-nin": lambda: dense(
        "cifar10",
        "low-rank-nin",
        DenseRecipe(150, 0.1, dropout=0.1),
        DenseRecipe(150, 0.1, dropout=0.2),
        DenseRecipe(150, 0.05, dropout=0.15),
    ),
    **{
        f"best-cnn-{dropout:g}": partial(
            free_paths, "cnn", dropout, *product((0.0, dropout), (0.0, 0.5)), (0.0, 0.9)
        )
        for dropout in DROPOUTS
    },
    "taught-cnn": lambda: free_paths("cnn", 0.1, *product((0.0,), (0.0, 0.25, 0.6, 0.95))),
    "ramped-cnn": lambda: ramped("cnn"),
    "divided-cnn": lambda: divided("cnn"),
    "tuned-cnn": lambda: tuned("cnn", threshold=1.54),
    "tuned-cnn-further": lambda: tuned_further("cnn", threshold=1.54),
    "shrinking-cnn": lambda: shrinking(
        "cnn", *((rho, None) for rho in (0.001, 0.003, 0.01)), shrinks=(0.5, 1.0, 2.0)
    ),
    # What that question preferred lay at the edge of what it asked about.
    "shrinking-cnn-further": lambda: shrinking(
        "cnn",
        *((0.001, (1.5, 5.5)), (0.001, (1.5, 7.0))),
        *((0.0003, (5.0, 23.0)), (0.0001, (15.0, 70.0))),
        shrinks=(4.0, 8.0),
    ),
    "shrinking-nin": lambda: shrinking(
        "nin",
        *((rho, (0.95, 4.2)) for rho in (0.003, 0.001)),
        (0.001, (1.5, 7.0)),
        shrinks=(1.0, 4.0, 8.0),
    ),
    "held-back-nin": lambda: held_back("nin", threshold=2.0),
    "dense-nin": lambda: dense(
        "cifar10", "nin", *(DenseRecipe(80, 0.1, dropout=rate) for rate in (0.1, 0.2, 0.3))
    ),
    "best-nin-0.1": lambda: free_paths("nin", 0.1, (0.0, 0.0), (0.1, 0.0)),
    "best-nin-0.2": lambda: free_paths("nin", 0.2, (0.0, 0.0), (0.1, 0.0), (0.2, 0.0)),
    "paper-low-rank-nin": lambda: paper_training(
        "low-rank-nin", *((rate, USUAL_DECAY) for rate in (0.1, 0.2, 0.3)), (0.1, 0.0)
    ),
    "paper-low-rank-nin-holes": lambda: together(
        *(paper_training("low-rank-nin", (0.1, 0.0), hole=hole) for hole in (None, 8, 14))
    ),
    "cifar100": lambda: usual("cifar100"),
    # Which come out near the paper's own dense networks, for gains that can be compared with its
    # own? On CIFAR-100 validation images stand two points below what the same recipes then have of
    # the test images, trained on all.
    "early-low-rank-nin": lambda: dense(
        "cifar10", "low-rank-nin", *(DenseRecipe(n, 0.1, dropout=0.1) for n in (80, 110))
    ),
    "svhn-early-nin": lambda: dense("svhn", "nin", *(DenseRecipe(n, 0.1) for n in (15, 25, 40))),
    "cifar100-early-low-rank-cnn": lambda: dense(
        "cifar100",
        "low-rank-cnn",
        *(DenseRecipe(epochs, 0.05, dropout=0.05) for epochs in (25, 32, 40, 50)),
    ),
    "cifar100-early-nin": lambda: dense(
        "cifar100", "nin", *(DenseRecipe(epochs, 0.1) for epochs in (12, 16, 20, 26, 34))
    ),
    "cifar100-early-low-rank-nin": lambda: dense(
        "cifar100",
        "low-rank-nin",
        *(DenseRecipe(epochs, 0.1, dropout=0.1) for epochs in (16, 22, 30, 40, 55)),
    ),
    "cifar100-low-rank-cnn": lambda: dense(
        "cifar100",
        "low-rank-cnn",
        *(DenseRecipe(60, 0.05, dropout=rate) for rate in (0.0, 0.05, 0.1)),
    ),
    "cifar100-paper-nin": lambda: paper_training(
        "nin", *product((0.3, 0.5), (USUAL_DECAY, 2e-3)), data="cifar100"
    ),
    "cifar100-paper-nins": lambda: together(
        paper_training(
            "nin",
            *((rate, USUAL_DECAY) for rate in (0.3, 0.5, 0.6)),
            (0.5, 0.0),
            data="cifar100",
            fast=True,
        ),
        paper_training(
            "low-rank-nin",
            *((rate, 0.0) for rate in (0.1, 0.3, 0.5)),
            (0.3, USUAL_DECAY),
            data="cifar100",
            fast=True,
        ),
    ),
    "cifar100-paper-momentum": lambda: together(
        *(
            without_momentum(
                network,
                *(("l0", {"rho": rho}) for rho in (0.1, 0.3)),
                *(("l1", {"rho": rho}) for rho in (0.003, 0.01)),
            )
            for network in ("nin", "low-rank-nin")
        )
    ),
    "cifar100-paper-rest": lambda: together(
        without_momentum(
            "nin",
            ("l1", {"rho": 0.006, "dropout": 0.5}),
            ("l1", {"rho": 0.006, "decay": USUAL_DECAY}),
            ("l1", {"rho": 0.006, "dropout": 0.1}),
        ),
        without_momentum(
            "low-rank-nin",
            ("l0", {"rho": 0.3, "dropout": 0.3}),
            ("l0", {"rho": 0.3, "dropout": 0.3, "decay": USUAL_DECAY}),
            ("l0", {"rho": 0.3, "dropout": 0.2, "decay": USUAL_DECAY}),
            ("l1", {"rho": 0.006, "dropout": 0.3}),
            ("l1", {"rho": 0.006, "dropout": 0.3, "decay": USUAL_DECAY}),
        ),
    ),
    # The paper says nothing of how it changes its images: do holes keep from learning by heart?
    "cifar100-paper-holes": lambda: together(
        *(
            without_momentum(
                network,
                *(
                    (by, {"rho": rho, "hole": hole})
                    for by, rho in pulls.items()
                    for hole in (0, 8, 14)
                ),
            )
            for network, pulls in {
                "nin": {"l0": 0.1, "l1": 0.01},
                "low-rank-nin": {"l0": 0.3, "l1": 0.01},
            }.items()
        )
    ),
    "svhn-paper-holes": lambda: without_momentum(
        "nin",
        *((by, {"rho": rho, "hole": h}) for by, rho in (("l0", 0.1), ("l1", 0.01)) for h in (0, 8)),
        data="svhn",
    ),
    "svhn": lambda: usual("svhn"),
    "svhn-low-rank-nin": lambda: dense(
        "svhn",
        "low-rank-nin",
        *(DenseRecipe(100, 0.1, dropout=drop) for drop in (0.1, 0.2, 0.3, 0.5)),
        DenseRecipe(100, 0.05, dropout=0.3),
        DenseRecipe(100, 0.1, dropout=0.1, shift=0),
        *(DenseRecipe(100, 0.1, dropout=drop, shift=2) for drop in (0.1, 0.3, 0.5)),
        DenseRecipe(100, 0.2, dropout=0.3, shift=2),
    ),
    "svhn-low-rank-nin-longer": lambda: dense(
        "svhn",
        "low-rank-nin",
        *(DenseRecipe(epochs, 0.1, dropout=0.3, shift=2) for epochs in (150, 250)),
        DenseRecipe(250, 0.1, dropout=0.2, shift=2),
        *(DenseRecipe(250, 0.1, dropout=drop, shift=2, hole=8) for drop in (0.1, 0.2)),
    ),
}


def main() -> None:
    """Answer the questions that were asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    listed = f"of {', '.join(QUESTIONS)}"
    parser.add_argument("questions", nargs="+", choices=QUESTIONS, metavar="QUESTION", help=listed)
    parser.add_argument("--data", type=Path, required=True, help="where cifar10 or cifar10.npz is")
    parser.add_argument("--out", type=Path, required=True, help="where records and weights go")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop then")
    parser.add_argument("--device", default="cuda", help="a GPU, or cpu")
    asked = parser.parse_args()
    checked_minutes(asked.minutes)
    until = time.monotonic() + 60 * asked.minutes
    questions = [QUESTIONS[name]() for name in asked.questions]
    sets = dict.fromkeys(question.data for question in questions)
    for data in sets:
        place_of(asked.data, data)  # all are there before the first takes its time
    for data in sets:
        # Few networks would leave a GPU idle: all that one data set answers is asked at once.
        question = together(*(each for each in questions if each.data == data))
        answer(question, asked.data, asked.out, device=asked.device, until=until)


def answer(
    question: Question,
    data: Path,
    out: Path,
    *,
    device: str,
    until: float,
    held_out: int = HELD_OUT,
) -> None:
    """Train every candidate as far as time allows, and print how it was judged."""
    loaded = load(place_of(data, question.data), validation=held_out)
    arena = Arena(
        replace(loaded, name=question.data), device_named(device), flip=FLIPPED[question.data]
    )
    place = out / question.data / "exploration"
    asked = dict.fromkeys([*question.dense, *(job.start for job in question.walks)])
    dense = {each: place / "dense" / f"{each.name}.json" for each in asked}
    answered = {each: written for each, written in dense.items() if written.exists()}
    for each, written in answered.items():
        check_same(read_json(written), written, recipe=each.recipe, seed=each.seed, arena=arena)
    # What has been answered stands: records are kept without the weights.
    left = unfinished(question.walks, arena, place)
    lacking = [each for each in question.dense if each not in answered]
    starts = dict.fromkeys([*lacking, *(job.start for job in left)])
    beside = [job for job in question.walks if job.start in starts]
    check_starts(beside, dense=place / "dense", folder=place)
    if train_dense(starts, arena, place / "dense", until=until):
        walk_paths(left, arena, dense=place / "dense", folder=place, until=until)
    for start, written in dense.items():
        if written.exists():
            print(f"{start.name}: {read_json(written)['validation']:.4f}")
    for job in question.walks:
        written = place / f"{job.name}.json"
        points = read_json(written)["points"] if written.exists() else []
        figures = (f"{p['sparsity']['of_blocks']:.3f} {p['validation']:.4f}" for p in points)
        print(f"{job.name}: {', '.join(figures)}", flush=True)


if __name__ == "__main__":
    as_script(main)
