"""The table of a deployed network beside the dense one, and of any network that is measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparsepath.deploy.measuring.sides import Side
from sparsepath.deploy.measuring.timing import Speed
from sparsepath.lab.deploying import Deployed
from sparsepath.report.layout import MISSING, Table
from sparsepath.report.tables import percent

Cell = float | str | None
MADE_OF = "Weights and MACs (of one image) are those that are not zero."
PEAK = (
    "Peak memory is that of a fresh process while it runs such a batch, above what Python and "
    "torch take by themselves."
)
TURNS = (
    "Speeds were measured by turns in one process: p50 and p95 are the milliseconds within which "
    "50 and 95 of 100 calls returned, of the processor's time with one thread, else by the clock."
)


@dataclass(frozen=True)
class Line:
    """One figure of every network: a number, a word instead of it, or nothing."""

    title: str
    cells: Sequence[Cell]
    show: Callable[[float], str]
    more_is_better: bool = False

    def shown(self, *, gain: bool) -> list[str]:
        """The row of the table, with what the last network gains over the first."""
        row = [self.title, *map(self._shown, self.cells)]
        return [*row, self._gain()] if gain else row

    def _shown(self, cell: Cell) -> str:
        if cell is None:
            return MISSING
        return cell if isinstance(cell, str) else self.show(cell)

    def _gain(self) -> str:
        before, after = self.cells[0], self.cells[-1]
        if isinstance(before, str) or isinstance(after, str) or not before or not after:
            return ""
        return f"{after / before if self.more_is_better else before / after:.2f}x"


def deployed_text(found: Deployed) -> str:
    """The table of a deployment, and what else should be known."""
    both = {"dense": found.dense, "deployed": found.deployed}
    judged = [
        ["test accuracy of the loaded file, %", percent(found.dense_test), percent(found.test), ""],
        ["max difference, file to sparse network", "", f"{found.difference:.1e}", ""],
    ]
    rows = [line.shown(gain=True) for line in _lines(both)]
    table = Table("", ["", *both, "gain"], [*rows, *judged])
    return "\n".join([table.text(), "", *_said(both), *found.notes])


def measured_text(name: str, side: Side) -> str:
    """The same table of one network alone."""
    table = Table("", ["", name], [line.shown(gain=False) for line in _lines({name: side})])
    return "\n".join([table.text(), "", *_said({name: side})])


def _said(sides: Mapping[str, Side]) -> list[str]:
    known = any(side.peak is not None for side in sides.values())
    return [" ".join([MADE_OF, *([PEAK] if known else []), TURNS])]


def _lines(sides: Mapping[str, Side]) -> Iterator[Line]:
    every = list(sides.values())
    yield Line("weights", [side.weights for side in every], _count)
    yield Line("MACs", [side.macs for side in every], _count)
    yield Line("bytes of the file", [side.bytes for side in every], _count)
    batches = list(every[0].speeds)
    for batch in batches:
        peaks = [None if side.peak is None else side.peak.get(batch) for side in every]
        if any(peak is not None for peak in peaks):
            yield Line(f"peak memory at batch {batch}, MB", peaks, _megabytes)
    for batch in batches:
        yield from _speed_lines(batch, every)


def _speed_lines(batch: int, sides: Sequence[Side]) -> Iterator[Line]:
    """Latency at one image, throughput at more, in every runtime that any network was tried in."""
    runtimes = dict.fromkeys(runtime for side in sides for runtime in side.speeds[batch])
    for runtime in runtimes:
        speeds = [side.speeds[batch].get(runtime) for side in sides]
        if batch > 1:
            cells = [s.throughput if isinstance(s, Speed) else s for s in speeds]
            yield Line(f"images a second at batch {batch}, {runtime}", cells, _count, True)
            continue
        for quantile in ("p50", "p95"):
            cells = [getattr(s, quantile) if isinstance(s, Speed) else s for s in speeds]
            yield Line(f"{quantile} at batch {batch}, {runtime}, ms", cells, _milliseconds)


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:.1f}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
