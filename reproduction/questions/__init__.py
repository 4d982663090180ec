"""Every question of settings that was asked before a final run, or is to be, by its name."""

from collections.abc import Callable, Mapping

from questions import best_mode, comparisons, dense, paper
from questions.question import Question, together

__all__ = ["QUESTIONS", "Question", "together"]

QUESTIONS: Mapping[str, Callable[[], Question]] = {
    **dense.QUESTIONS,
    **best_mode.QUESTIONS,
    **comparisons.QUESTIONS,
    **paper.QUESTIONS,
}
