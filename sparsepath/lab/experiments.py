"""The paper's own experiments as lists of jobs: its paths and its t-test."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.jobs import Job
from sparsepath.lab.recipes import DENSE, DenseRecipe, PathRecipe
from sparsepath.lab.starts import Reference
from sparsepath.path import Schedule

NETWORKS = ("nin", "low-rank-nin", "cnn", "low-rank-cnn")
FLIPPED = {"cifar10": True, "cifar100": True, "svhn": False}
"""The data sets, and whether a mirrored image is one of its kind: an object is, a digit is not."""

EARLY: Mapping[tuple[str, str], DenseRecipe] = {
    ("cifar10", "cnn"): DenseRecipe(epochs=10, rate=0.05),
}
"""Dense networks stopped near the paper's own accuracy, so that gains can be compared: the shortest
training that comes near it in validation (the CNN: 79.4 %, the paper's 80)."""

DENSE_ON: Mapping[tuple[str, str], DenseRecipe] = {
    ("cifar100", "low-rank-cnn"): replace(DENSE["low-rank-cnn"], dropout=0.05),
    ("svhn", "low-rank-nin"): replace(DENSE["low-rank-nin"], dropout=0.3, shift=2),
}
"""Where a data set wants another recipe than is usual for the network."""


def reference(network: str, seed: int = 0, *, data: str = "cifar10") -> Reference:
    """The dense network that paths start from."""
    return Reference(network, DENSE_ON.get((data, network), DENSE[network]), seed)


LAST: Mapping[str, int] = {"nin": 12, "low-rank-nin": 12, "cnn": 11, "low-rank-cnn": 11}
"""The index of the last point that the paper reports, of 20."""

SPAN: Mapping[str, tuple[float, float]] = {
    "nin": (0.40, 4.2),
    "low-rank-nin": (0.40, 4.2),
    "cnn": (0.55, 12.0),
    "low-rank-cnn": (0.55, 12.0),
}
"""Of the l1 paths: a third of NIN's kernels die at 1.5 median norms, half of the CNN's at 3."""
L0_DECAY: Mapping[str, float] = {"low-rank-nin": 0.0}
"""Where the l0 paths decay otherwise than by 5e-4."""
EPSILON: Mapping[str, float] = {"nin": 0.4, "low-rank-nin": 0.3, "low-rank-cnn": 0.6}
"""Where the residuals of walks that went on to xi stood when the paper's, by its epochs, stopped:
the medians of `reproduction/tables/iterations.md`. At 0.01 no walk ever stopped."""
SETTLING = (("svhn", "nin", "l1"), ("svhn", "low-rank-nin", "l0"), ("svhn", "low-rank-nin", "l1"))
"""The first walks of a path that had not been begun when epsilon was found, and so settle by it, as
all walks over short ranges on the CIFARs and from early starts do, but for the CNN's."""
PAPER_ON: Mapping[tuple[str, str, str], Mapping[str, Any]] = {
    ("cifar100", "nin", "l0"): {"momentum": 0.0},
    ("cifar100", "nin", "l1"): {"momentum": 0.0, "rho": 0.005},
    ("cifar100", "low-rank-nin", "l0"): {"momentum": 0.0, "rho": 0.3},
    ("cifar100", "low-rank-nin", "l1"): {"momentum": 0.0, "rho": 0.004},
    ("svhn", "nin", "l1"): {"momentum": 0.0, "rho": 0.005},
    ("svhn", "low-rank-nin", "l0"): {"momentum": 0.0, "rho": 0.3},
    ("svhn", "low-rank-nin", "l1"): {"momentum": 0.0, "rho": 0.004},
}
"""Where a data set wants other settings: there the NINs learn too much by heart along the path,
less so by SGD without momentum. It moves a tenth as far, so l1's rho is higher."""


def paper(network: str, penalty: str, *, data: str = "cifar10") -> PathRecipe:
    """Paper mode; what the paper does not give was chosen on validation images (reproduction/).

    l1 walks without weight decay: it shrinks every kernel, and decay would keep the layers between
    from making up for that. So does the low-rank NIN by l0, which loses less so.
    """
    if network not in LAST or penalty not in ("l0", "l1"):
        raise BadInput(
            f"The paper has no {penalty!r} path of {network!r}: choose l0 or l1, and one of "
            f"{', '.join(LAST)}."
        )
    if penalty == "l0":
        decay = L0_DECAY.get(network, 5e-4)
        usual = PathRecipe(rho=0.1, reach=(0.02, 0.999), decay=decay, last=LAST[network])
    else:
        usual = PathRecipe(
            rho=0.001, reach=(0.01, 0.99), span=SPAN[network], decay=0.0, last=LAST[network]
        )
    return replace(usual, **PAPER_ON.get((data, network, penalty), {}))


SHORT_SPAN: Mapping[tuple[str, str], tuple[float, float]] = {
    ("nin", "l0"): (0.27, 1.57),
    ("nin", "l1"): (0.40, 3.0),
    ("low-rank-nin", "l0"): (0.15, 1.68),
    ("low-rank-nin", "l1"): (0.40, 1.7),
    ("low-rank-cnn", "l0"): (0.17, 1.96),
    ("low-rank-cnn", "l1"): (0.55, 3.7),
}
"""Ranges whose last walked point is near the paper's own count, by the counts of longer ones."""
SHORT_ON: Mapping[tuple[str, str, str], tuple[float, float]] = {
    ("cifar100", "nin", "l1"): (0.40, 2.5),
    ("cifar100", "low-rank-nin", "l1"): (0.40, 2.5),
    ("svhn", "nin", "l1"): (0.40, 2.5),
    ("svhn", "low-rank-nin", "l1"): (0.40, 2.5),
    ("cifar10", "cnn", "l0"): (0.35, 1.9),
    ("cifar100", "cnn", "l0"): (0.35, 2.15),
    ("svhn", "cnn", "l0"): (0.35, 2.15),
    ("cifar10", "cnn", "l1"): (0.55, 9.6),
    ("svhn", "cnn", "l1"): (0.55, 7.4),
}
"""Where that depends on the data set; the CNN's are of paths without the guard."""
SHORT_TOO: Mapping[str, Sequence[str]] = {
    "cifar10": ("low-rank-nin",),
    "cifar100": ("nin", "low-rank-nin", "low-rank-cnn"),
}
"""The networks that lost more than they should on ranges that end far above the paper's counts."""


def short(recipe: PathRecipe, data: str, network: str, penalty: str) -> PathRecipe:
    """The same path over a range of mu that ends near the paper's count."""
    usual = SHORT_SPAN.get((network, penalty), recipe.span)
    return replace(recipe, span=SHORT_ON.get((data, network, penalty), usual))


def paths(data: str, networks: Sequence[str], penalties: Sequence[str]) -> list[Job]:
    """The paper's paths on one data set, and the CNN's without the guard, which forbids the paper's
    own counts. The paper does not give its range of mu: CIFAR's paths were walked over longer ones
    first, some then over short ones; SVHN's, but for the CNN's, over short ones alone. Some also
    walk from an early start.
    """
    found = []
    for net, by in product(networks, penalties):
        start, recipe = reference(net, data=data), paper(net, by, data=data)
        brief = short(recipe, data, net, by)
        if net == "cnn":
            found.append(Job(start, by, recipe))
            found += _unguarded(data, by, recipe, brief)
        elif data == "svhn":
            found.append(Job(start, by, brief))
        else:
            found.append(Job(start, by, recipe))
            if net in SHORT_TOO[data]:
                found.append(Job(start, by, brief, variant="short"))
        if (data, net) in EARLY:
            found.append(_early(data, net, by))
    return [_settling(job) if _settles(data, job) else job for job in found]


def _settles(data: str, job: Job) -> bool:
    network = job.start.network
    later = job.variant in ("short", "early") and network != "cnn"
    return later or (data, network, job.method) in SETTLING


def _settling(job: Job) -> Job:
    """The same walk, whose iterations end where the paper's did."""
    schedule = replace(job.recipe.schedule, epsilon=EPSILON[job.start.network])
    return replace(job, recipe=replace(job.recipe, schedule=schedule))


def _early(data: str, network: str, penalty: str) -> Job:
    """From an early start: by the usual settings, since such a network has yet to learn.

    The CNN's walk is over its long range, as the one it stands beside.
    """
    start = Reference(network, EARLY[data, network], variant="early")
    usual = paper(network, penalty)
    if network != "cnn":
        usual = short(usual, "cifar10", network, penalty)
    return Job(start, penalty, usual, variant="early")


def _unguarded(data: str, penalty: str, recipe: PathRecipe, brief: PathRecipe) -> list[Job]:
    """The CNN's further paths; over its longest range l0 leaves hardly a kernel."""
    start = reference("cnn", data=data)
    found = []
    if (data, "cnn", penalty) in SHORT_ON:
        found.append(Job(start, penalty, replace(brief, guard=None), variant="unguarded-short"))
    if penalty == "l1" or data == "cifar10":
        found.append(Job(start, penalty, replace(recipe, guard=None), variant="unguarded"))
    return found


STILL = (1e-9, 2e-9)
"""Thresholds so low that nothing dies."""


def t_test(network: str = "nin", *, pairs: int = 15, networks: int = 5) -> list[Job]:
    """ADMM and standard fine-tuning in pairs that share dense network, images, masks and rate.

    Fifteen pairs start from one dense network, as the paper's do, and one from each of five more.
    A third of the dense kernels have norms below the last threshold, 0.8 medians; 48 epochs an arm.
    """
    schedule = Schedule(delta=2, nu=1, xi=5, epsilon=0.0)
    admm = PathRecipe(
        rho=0.1, reach=(0.02, 0.999), span=(0.4, 0.8), points=4, last=3, schedule=schedule
    )
    ways = {"l0": admm, "fine-tuning": replace(admm, span=STILL)}
    starts = [(seed, 0) for seed in range(pairs)] + [(0, dense) for dense in range(1, networks + 1)]
    return [
        Job(reference(network, dense), method, recipe, seed=seed, variant=f"{dense}-{seed}")
        for seed, dense in starts
        for method, recipe in ways.items()
    ]
