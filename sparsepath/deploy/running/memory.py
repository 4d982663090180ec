"""Where the buffers of a program lie: two share their place when they are never needed together."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

CPU = torch.device("cpu")  # made once: a single image takes little longer than its name
ALIGNMENT = 16  # floats: one vector of the lane layout, one cache line


def empty(*shape: int) -> Tensor:
    """Memory for floats as the kernels take them, whatever torch makes by default."""
    return torch.empty(shape, dtype=torch.float32, device=CPU)


@dataclass
class Slot:
    """A buffer, by its size for a batch and by the first and last call that touches it."""

    floats: Callable[[int], int]
    first: int = field(default=-1)
    last: int = field(default=-1)

    def touch(self, call: int) -> None:
        """Note that this call reads or writes the buffer."""
        self.first = call if self.first < 0 else self.first
        self.last = call


@dataclass(frozen=True)
class Arena:
    """One offset per slot, in floats, and the size of the memory that holds them all."""

    offsets: tuple[int, ...]
    floats: int

    @classmethod
    def of(cls, slots: Sequence[tuple[int, Slot]], bound: Collection[int]) -> "Arena":
        """Place slots of so many floats, but for the `bound` ones, which need no place."""
        offsets = [0] * len(slots)
        placed: list[tuple[int, int, Slot]] = []
        for index, (floats, slot) in sorted(enumerate(slots), key=lambda item: item[1][1].first):
            if index in bound or slot.first < 0:
                continue
            size = -(-floats // ALIGNMENT) * ALIGNMENT
            offset = 0
            for begin, end, other in sorted(placed, key=lambda entry: entry[0]):
                if other.last < slot.first:
                    continue
                if offset + size <= begin:
                    break
                offset = max(offset, end)
            offsets[index] = offset
            placed.append((offset, offset + size, slot))
        return cls(tuple(offsets), max((end for _, end, _ in placed), default=0))
