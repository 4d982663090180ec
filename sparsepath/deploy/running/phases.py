"""How a batch goes through a program: in groups of images, small ones where maps are large.

Depth comes first: a group goes through as many calls as it can before the next one begins, so that
its maps stay in the cache. Where the maps have become smaller, several groups meet and go on
together, so that a layer's weights are read once for all of them. A phase is a run of calls with
one size of group; a visit is a phase on some images.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparsepath.deploy.running.library import CCall
from sparsepath.deploy.running.memory import Slot

# The largest map of a group should take no more than about half of a core's own cache.
FLOATS = 1 << 18


@dataclass(frozen=True)
class Phase:
    """Calls `first` to `last - 1`, for `group` images at a time."""

    first: int
    last: int
    group: int


@dataclass(frozen=True)
class Visit:
    """A phase on `count` images."""

    phase: int
    count: int
    begins: tuple[int, ...]
    """the first image of its group, and of the groups that later phases gather around it"""

    @property
    def begin(self) -> int:
        """Its first image."""
        return self.begins[0]

    def offset(self, phase: int) -> int:
        """How many images of that phase's group come before its own."""
        return self.begin - self.begins[max(0, phase - self.phase)]


def phases(
    calls: Sequence[CCall], slots: Sequence[Slot], bound: Collection[int], *, group: int, step: int
) -> tuple[Phase, ...]:
    """The phases of a program; groups are whole multiples of `step`, but for the last."""
    free = [index for index in range(len(slots)) if index not in bound]
    cuts = [0, *(k for k in _ends(calls)[:-1] if _live(slots, free, k) == 1), len(calls)]
    wanted = []
    for first, last in pairwise(cuts):
        touched = [s for s in free if slots[s].first < last and slots[s].last >= first]
        largest = max((slots[s].floats(step) // step for s in touched), default=1)
        wanted.append(_group(FLOATS // largest, group, step))
    # A group may only grow: what comes together does not part again.
    groups = [min(wanted[index:]) for index in range(len(wanted))]
    found: list[Phase] = []
    for (first, last), size in zip(pairwise(cuts), groups, strict=True):
        if found and found[-1].group == size:
            first = found.pop().first
        found.append(Phase(first, last, size))
    return tuple(found)


def visits(found: Sequence[Phase], batch: int) -> tuple[Visit, ...]:
    """All visits that take `batch` images through all phases, in order."""
    order: list[Visit] = []

    def gather(phase: int, begin: int, count: int, begins: tuple[int, ...]) -> None:
        size = found[phase].group
        for first in range(begin, begin + count, size):
            own, here = (first, *begins), min(size, begin + count - first)
            if phase:
                gather(phase - 1, first, here, own)
            order.append(Visit(phase, here, own))

    gather(len(found) - 1, 0, batch, ())
    return tuple(order)


def reader(found: Sequence[Phase], slot: Slot) -> int:
    """The phase that reads a buffer last, whose groups it is made for."""
    return max(index for index, phase in enumerate(found) if phase.first <= max(0, slot.last))


def _ends(calls: Sequence[CCall]) -> list[int]:
    """Where one call ends and the next begins, with those that follow it in a chain."""
    ends = [0]
    while ends[-1] < len(calls):
        ends.append(ends[-1] + 1 + calls[ends[-1]].tails)
    return ends[1:]


def _live(slots: Sequence[Slot], free: Sequence[int], call: int) -> int:
    """How many buffers hold something that is still read at this call or later."""
    return sum(slots[s].first < call <= slots[s].last for s in free)


def _group(fitting: int, most: int, step: int) -> int:
    """The largest group that fits: `most`, or `step` doubled and doubled."""
    if most <= max(step, fitting):
        return most
    size = step
    while 2 * size <= fitting:
        size *= 2
    return size
