"""What a question of settings is: candidates that are judged beside each other."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsepath.lab.jobs import Job
from sparsepath.lab.recipes import PathRecipe
from sparsepath.lab.starts import Reference


@dataclass(frozen=True)
class Question:
    """Candidates that are judged beside each other."""

    data: str
    dense: tuple[Reference, ...] = ()
    walks: tuple[Job, ...] = ()


def walks(
    start: Reference, candidates: Mapping[str, tuple[str, PathRecipe]], *, data: str = "cifar10"
) -> Question:
    """Which of these ways from one dense network is the best?"""
    jobs = (
        Job(start, by, recipe, variant=name, keep_all=True)
        for name, (by, recipe) in candidates.items()
    )
    return Question(data, walks=tuple(jobs))


def together(*questions: Question) -> Question:
    """Questions of one data set, asked side by side; what two of them ask, once."""
    (data,) = {question.data for question in questions}
    dense = dict.fromkeys(each for question in questions for each in question.dense)
    walks = dict.fromkeys(job for question in questions for job in question.walks)
    return Question(data, tuple(dense), tuple(walks))
