"""Questions of the comparisons: how each method should spend a point of few epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from questions.question import Question, walks
from sparsepath.lab.comparisons import LASSO, arms, best_reference
from sparsepath.lab.comparisons import divided as divided_into

L1_FIRST = (1.05, 2.8)
"""The range of l1's first walks, in median norms."""


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


QUESTIONS: Mapping[str, Callable[[], Question]] = {
    "ramped-cnn": lambda: ramped("cnn"),
    "divided-cnn": lambda: divided("cnn"),
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
}
