"""Several runs in one table, each by the point it chose."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.tables import (
    FEWER_MACS,
    Show,
    cell,
    chosen_point,
    percent,
    point_number,
    state,
)

NOTE = (
    "Test accuracy in percent, of the dense reference and of the best point: the sparsest whose "
    "validation accuracy is within the run's tolerance."
)


def _of_best(show: Show) -> Show:
    def shown(record: Record) -> str:
        best = chosen_point(record)
        return "" if best is None else cell(show, best)

    return shown


COLUMNS: Mapping[str, Callable[[Record], str]] = MappingProxyType(
    {
        "run": lambda r: r["name"],
        "network": lambda r: r["settings"]["network"],
        "data": lambda r: r["settings"]["data"],
        "path": lambda r: f"{r['settings']['penalty']} over {r['settings']['blocks']}",
        "seed": lambda r: str(r["settings"]["seed"]),
        "dense test": lambda r: percent(r["dense"]["test"]),
        "best": _of_best(point_number),
        "zero blocks": _of_best(lambda r: percent(r["sparsity"]["of_blocks"])),
        "test": _of_best(lambda r: percent(r["test"])),
        "MACs fewer": _of_best(FEWER_MACS.point),
        "state": state,
    }
)


def overview(records: Sequence[Record]) -> Table:
    """One row for each run, with the best figures that there are."""
    rows = [[cell(show, record) for show in COLUMNS.values()] for record in records]
    return Table("", list(COLUMNS), rows, NOTE).filled()
