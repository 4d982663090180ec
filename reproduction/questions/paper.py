"""Questions of the paper's own paths: what keeps them from learning images by heart."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from questions.question import Question, together, walks
from sparsepath.lab.experiments import paper, reference
from sparsepath.path import Schedule

USUAL_DECAY = 5e-4


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


QUESTIONS: Mapping[str, Callable[[], Question]] = {
    "paper-low-rank-nin": lambda: paper_training(
        "low-rank-nin", *((rate, USUAL_DECAY) for rate in (0.1, 0.2, 0.3)), (0.1, 0.0)
    ),
    "paper-low-rank-nin-holes": lambda: together(
        *(paper_training("low-rank-nin", (0.1, 0.0), hole=hole) for hole in (None, 8, 14))
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
}
