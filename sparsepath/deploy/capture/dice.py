"""Sees whether code draws random numbers: what it then gives is another at every run."""

import random
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Dice(TorchDispatchMode):
    """Counts the draws of torch, Python and NumPy while it is on."""

    def __init__(self) -> None:
        """Start with none."""
        super().__init__()
        self._drawn = 0
        self._others = _others()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and note if torch has marked it as one that draws."""
        self._drawn += torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))

    @property
    def drawn(self) -> int:
        """How often it was drawn up to now; that of Python and NumPy counts once a look."""
        others = _others()
        self._drawn += others != self._others
        self._others = others
        return self._drawn

    @drawn.setter
    def drawn(self, count: int) -> None:
        self._drawn = count


def _others() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return (random.getstate(),)
    state = numpy.random.get_state()
    return random.getstate(), state[1].tobytes(), state[2:]
