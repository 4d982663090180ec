"""A program for one size of batch: where its buffers lie, and which images visit which calls."""

from collections.abc import Sequence
from ctypes import Array, addressof, c_void_p, sizeof
from dataclasses import dataclass, replace

from sparsepath.deploy.running.kernels import Engine
from sparsepath.deploy.running.library import CCall
from sparsepath.deploy.running.maps import LANES
from sparsepath.deploy.running.memory import Arena, Slot, empty
from sparsepath.deploy.running.phases import Phase, Visit, reader
from sparsepath.errors import BadInput

# So many sizes of batches are remembered; a program that meets ever new ones must not grow.
PLANS = 16
CALL_BYTES = sizeof(CCall)


@dataclass(frozen=True, eq=False)
class Stage:
    """A visit of some images to some calls, ready to run but for the tensors of the caller."""

    calls: int  # the address of the first
    first: int
    last: int
    pointers: Array[c_void_p]
    begin: int
    count: int
    workspace: int

    def bind(self, ends: Sequence[tuple[int, int]], addresses: Sequence[int]) -> None:
        """Take the caller's tensors at these addresses, by their slots and bytes of an image."""
        for (slot, size), address in zip(ends, addresses, strict=True):
            self.pointers[slot] = address + self.begin * size

    def run(self, engine: Engine, first: int, last: int) -> None:
        """Run some of the calls."""
        ran = engine.library.sp_run(
            engine.handle, self.calls + first * CALL_BYTES, last - first, self.pointers,
            self.count, self.workspace,
        )  # fmt: skip
        if not ran:
            raise BadInput(f"There is not enough memory for {self.count} such images at a time.")


class Place:
    """Where one run at a time happens: an engine with the memory it works in."""

    def __init__(self, engine: Engine) -> None:
        """Start with no memory."""
        self.engine = engine
        self._memory = empty(0)
        self._stages: dict[int, tuple[Plan, tuple[Stage, ...]]] = {}

    @property
    def bytes(self) -> int:
        """The memory that it works in."""
        return self._memory.nbytes

    def stages(self, plan: "Plan") -> tuple[Stage, ...]:
        """What a batch goes through, at addresses in memory of its own."""
        known, stages = self._stages.get(plan.batch, (None, ()))
        if known is plan:
            return stages
        floats = plan.arena.floats + plan.workspace + LANES
        if len(self._memory) < floats or len(self._stages) >= PLANS:
            self._memory = empty(max(floats, len(self._memory)))
            self._stages.clear()
        aligned = self._memory.data_ptr() + -self._memory.data_ptr() % (4 * LANES)
        stages = plan.placed(aligned)
        self._stages[plan.batch] = (plan, stages)
        return stages


@dataclass(frozen=True, eq=False)
class Plan:
    """A program for one size of batch: its calls, its buffers and its workspace."""

    batch: int
    ends: tuple[tuple[int, int], ...]  # the slots of inputs and outputs, and bytes of an image
    calls: Array[CCall]
    slots: tuple[Slot, ...]
    phases: tuple[Phase, ...]
    visits: tuple[Visit, ...]
    arena: Arena
    workspace: int

    def placed(self, memory: int) -> tuple[Stage, ...]:
        """All visits with the addresses of their buffers."""
        stages = []
        for visit in self.visits:
            phase = self.phases[visit.phase]
            pointers = (c_void_p * len(self.slots))()
            for index, (slot, offset) in enumerate(
                zip(self.slots, self.arena.offsets, strict=True)
            ):
                # What a later phase reads is gathered behind what earlier visits left there.
                behind = slot.floats(visit.offset(reader(self.phases, slot)))
                pointers[index] = memory + 4 * (offset + behind)
            stages.append(
                Stage(
                    addressof(self.calls), phase.first, phase.last, pointers, visit.begin,
                    visit.count, memory + 4 * self.arena.floats,
                )
            )  # fmt: skip
        return tuple(stages)


def read_to_the_end(slots: Sequence[Slot], calls: Sequence[CCall]) -> tuple[Slot, ...]:
    """The slots, those that the head of a chain reads needed until its last call has run."""
    lasting = list(slots)
    for index, call in enumerate(calls):
        if call.tails:
            slot = lasting[call.source.slot]
            lasting[call.source.slot] = replace(slot, last=max(slot.last, index + call.tails))
    return tuple(lasting)


def held(slots: Sequence[Slot], found: Sequence[Phase], batch: int) -> list[tuple[int, Slot]]:
    """The size of each slot, and the slot, held from the beginning on if it gathers results."""
    held = []
    for slot in slots:
        phase = found[reader(found, slot)]
        gathers = 0 <= slot.first < phase.first
        size = slot.floats(min(batch, phase.group))
        held.append((size, replace(slot, first=0) if gathers else slot))
    return held
