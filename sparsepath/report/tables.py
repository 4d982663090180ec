"""The table of a run: its columns, its heading, and which point to take."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sparsepath.lab.folders import Record
from sparsepath.report.layout import MISSING, Table
from sparsepath.report.safe import visible

Show = Callable[[Record], str]


@dataclass(frozen=True)
class Column:
    """A title, and what to show of the dense reference and of a point."""

    title: str
    dense: Show
    point: Show


def cell(show: Show, record: Record) -> str:
    """What to show of a record, which a damaged or older one may lack."""
    try:
        return show(record)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        return MISSING


def finite(value: object) -> float | None:
    """A figure as a number, None for anything that is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def percent(share: float | None) -> str:
    """A share as a percentage with two digits."""
    return MISSING if finite(share) is None else f"{100 * share:.2f}"  # type: ignore[operator]


def millions(count: int) -> str:
    """A count in millions."""
    return f"{count / 1e6:.2f} M"


def point_number(point: Record) -> str:
    """Points count from 1 for people, in tables and file names; from 0 in JSON."""
    return str(point["index"] + 1)


def layer_counts(counts: Mapping[str, int]) -> str:
    """One count per layer, as the paper writes them."""
    return "-".join(map(str, counts.values()))


def _nothing(record: Record) -> str:
    return ""


def _both(show: Show) -> tuple[Show, Show]:
    """The same for the dense reference as for a point."""
    return show, show


def latency_gain(point: Record) -> float:
    """How many times faster a deployed point answered than the dense network, each at its best."""
    both = point["latency"]
    return float(both["dense"]["p50"] / both["sparse"]["p50"])


COLUMNS = (
    Column("point", lambda r: "dense", point_number),
    Column("mu", _nothing, lambda r: f"{r['mu']:.3g}"),
    Column("zero blocks", *_both(lambda r: percent(r["sparsity"]["of_blocks"]))),
    Column("zero weights", *_both(lambda r: percent(r["sparsity"]["of_sparsified"]))),
    Column("of model", *_both(lambda r: percent(r["sparsity"]["of_model"]))),
    Column("MACs", *_both(lambda r: millions(r["macs"]["sparse"]))),
    Column("val W", _nothing, lambda r: percent(r["validation_W"])),
    Column("val F", _nothing, lambda r: percent(r["validation_F"])),
    Column("val", *_both(lambda r: percent(r["validation"]))),
    Column("test", *_both(lambda r: percent(r["test"]))),
    Column("flips", _nothing, lambda r: str(r["residuals"][-1]["flipped"])),
    Column("epochs", *_both(lambda r: str(r["epochs"]))),
)
LAYERS = Column(
    "zero blocks by layer",
    lambda r: f"of {layer_counts(r['blocks'])}",
    lambda r: layer_counts(r["sparsity"]["zero_blocks"]),
)
FEWER_MACS = Column("MACs fewer", *_both(lambda r: f"{r['macs']['speedup']:.2f}x"))
MEASURED = Column("measured", _nothing, lambda r: f"{latency_gain(r):.2f}x")
ZEROS = (
    "In percent: zero blocks of all blocks, zero weights of the sparsified layers and of the "
    "model; accuracy "
)
VALIDATION = "in validation of W, of F and after the fine-tune (val), and "
SAID = MappingProxyType(
    {
        "flips": " Flips: blocks that the last ADMM iteration killed or brought back; where they "
        "are many, the support is not settled, and another xi would give another.",
        FEWER_MACS.title: " MACs fewer: how many times fewer multiplications are left, in theory.",
        MEASURED.title: " Measured: how many times faster than the dense network one image is "
        "answered (p50 at batch 1, each in its fastest runtime).",
    }
)


def legend(titles: Sequence[str]) -> str:
    """What the titles of a table mean that are not plain."""
    validation = VALIDATION if "val" in titles else ""
    more = [says for title, says in SAID.items() if title in titles]
    return "".join([f"{ZEROS}{validation}in the test.", *more])


def as_text(record: Record, *, width: int | None = None) -> str:
    """The table in columns with what its titles mean, no wider than the width if one is given."""
    return full_table(record).whole(width)


def as_markdown(record: Record) -> str:
    """The table for a page, with the zero blocks of every layer."""
    return _table(record, (*COLUMNS, LAYERS)).markdown()


def full_table(record: Record, *, explained: bool = True) -> Table:
    """The paper's table of a run, with the speed-up in theory and, where measured, in practice."""
    table = _table(record, (*COLUMNS, FEWER_MACS, MEASURED, LAYERS))
    if not explained:
        table = replace(table, note=verdict(record))
    layers = ", ".join(map(visible, (record["dense"] or {}).get("blocks") or {}))
    if not layers or LAYERS.title not in table.titles:
        return table
    return replace(table, note=f"{table.note}\n\nBy layer: {layers}.")


def _table(record: Record, columns: tuple[Column, ...]) -> Table:
    """Of these columns the ones that the record has figures for."""
    titles = [column.title for column in columns]
    table = Table(heading(record), titles, list(_rows(record, columns))).filled()
    return replace(table, note=f"{legend(table.titles)}\n\n{verdict(record)}")


def _rows(record: Record, columns: tuple[Column, ...]) -> Iterator[list[str]]:
    if record["dense"] is not None:
        yield [cell(column.dense, record["dense"]) for column in columns]
    for point in record["points"]:
        yield [cell(column.point, point) for column in columns]


def chosen_point(record: Record) -> Record | None:
    """The point that the run chose in validation, None where none is good enough."""
    found = (point for point in record["points"] if point.get("index") == record["chosen"])
    return None if record["chosen"] is None else next(found, None)


def heading(record: Record) -> str:
    """What the run is and how far it has come."""
    return f"{titled(record)} ({state(record)})"


def titled(record: Record) -> str:
    """A run's name, and what it is."""
    return f"{record['name']}: {about(record)}"


def about(record: Record) -> str:
    """What a run is: the network, the data and the path."""
    settings = record["settings"]
    return (
        f"{settings['network']} on {settings['data']}, {settings['penalty']} over "
        f"{settings['blocks']}, seed {settings['seed']}"
    )


def state(record: Record) -> str:
    """How far a run has come."""
    if record["finished"]:
        return "finished"
    if record["dense"] is None:
        return "unfinished: the dense reference is still to be trained"
    return f"unfinished: {len(record['points'])} of {record['settings']['points']} points"


def verdict(record: Record) -> str:
    """Which point to take, chosen in validation, and what it does in the test."""
    said = cell(_verdict, record)
    return "Figures that a choice needs are missing." if said == MISSING else said


def _verdict(record: Record) -> str:
    dense, tolerance = record["dense"], record["settings"]["tolerance"]
    if dense is None:
        return "There is no dense reference yet to compare with."
    floor = f"{percent(dense['validation'] - tolerance)} % in validation"
    floor += f" (dense less {100 * tolerance:g})"
    point = chosen_point(record)
    if point is None:
        return f"No point has at least {floor}."
    so_far = "" if record["finished"] else " so far"
    zeros = cell(lambda p: percent(p["sparsity"]["of_blocks"]), point)
    said = (
        f"Sparsest{so_far} with at least {floor}: point {point_number(point)}, {zeros} % zero "
        f"blocks, test {percent(point.get('test'))} % (dense {percent(dense.get('test'))} %)"
    )
    fewer = cell(lambda p: f", {p['macs']['speedup']:.1f} times fewer MACs in theory", point)
    return f"{said}{'' if fewer == MISSING else fewer}."
