"""Questions of best mode: what training serves a sparse network."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from questions.dense import DROPOUTS, named
from questions.question import Question, walks
from sparsepath.lab.comparisons import LONG, arms, best, best_reference, growing
from sparsepath.lab.recipes import DENSE, PathRecipe
from sparsepath.lab.starts import Reference
from sparsepath.path import Schedule


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


QUESTIONS: Mapping[str, Callable[[], Question]] = {
    **{
        f"best-cnn-{dropout:g}": partial(
            free_paths, "cnn", dropout, *product((0.0, dropout), (0.0, 0.5)), (0.0, 0.9)
        )
        for dropout in DROPOUTS
    },
    "taught-cnn": lambda: free_paths("cnn", 0.1, *product((0.0,), (0.0, 0.25, 0.6, 0.95))),
    "best-nin-0.1": lambda: free_paths("nin", 0.1, (0.0, 0.0), (0.1, 0.0)),
    "best-nin-0.2": lambda: free_paths("nin", 0.2, (0.0, 0.0), (0.1, 0.0), (0.2, 0.0)),
    "tuned-cnn": lambda: tuned("cnn", threshold=1.54),
    "tuned-cnn-further": lambda: tuned_further("cnn", threshold=1.54),
    "held-back-nin": lambda: held_back("nin", threshold=2.0),
}
