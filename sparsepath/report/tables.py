"""The table of a run, as text, markdown or JSON."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table

Show = Callable[[Record], str]


@dataclass(frozen=True)
class Column:
    """A title, and what to show of the dense reference and of a point."""

    title: str
    dense: Show
    point: Show


def percent(share: float) -> str:
    """A share as a percentage with two digits."""
    return f"{100 * share:.2f}"


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
LEGEND = (
    "In percent: zero blocks of all blocks, zero weights of the sparsified layers and of the "
    "model; accuracy in validation of W, of F and after the fine-tune (val), and in the test. "
    "Flips: blocks that the last ADMM iteration killed or brought back; where they are many, the "
    "support is not settled, and another xi would give another."
)


def as_text(record: Record) -> str:
    """The table in columns, with what its titles mean."""
    rows = [[column.title for column in COLUMNS], *_rows(record, COLUMNS)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([heading(record), "", *lines, "", LEGEND, verdict(record)])


def as_markdown(record: Record) -> str:
    """The table for a page, with the zero blocks of every layer."""
    columns = (*COLUMNS, LAYERS)
    titles = [column.title for column in columns]
    rows = list(_rows(record, columns))
    note = f"{LEGEND}\n\n{verdict(record)}"
    return Table(heading(record), titles, rows, note).markdown()


def as_json(record: Record) -> str:
    """Every figure there is."""
    return json.dumps(record, indent=2)


FORMATS: Mapping[str, Callable[[Record], str]] = MappingProxyType(
    {"text": as_text, "markdown": as_markdown, "json": as_json}
)


def _rows(record: Record, columns: tuple[Column, ...]) -> Iterator[list[str]]:
    if record["dense"] is not None:
        yield [column.dense(record["dense"]) for column in columns]
    for point in record["points"]:
        yield [column.point(point) for column in columns]


def heading(record: Record) -> str:
    """What the run is and how far it has come."""
    settings = record["settings"]
    about = (
        f"{settings['network']} on {settings['data']}, {settings['penalty']} over "
        f"{settings['blocks']}, seed {settings['seed']}"
    )
    return f"{record['name']}: {about} ({state(record)})"


def state(record: Record) -> str:
    """How far a run has come."""
    if record["finished"]:
        return "finished"
    if record["dense"] is None:
        return "unfinished: the dense reference is still to be trained"
    return f"unfinished: {len(record['points'])} of {record['settings']['points']} points"


def verdict(record: Record) -> str:
    """Which point to take, chosen in validation, and what it does in the test."""
    dense, tolerance = record["dense"], record["settings"]["tolerance"]
    if dense is None:
        return "There is no dense reference yet to compare with."
    floor = f"{percent(dense['validation'] - tolerance)} % in validation"
    floor += f" (dense less {100 * tolerance:g})"
    if record["chosen"] is None:
        return f"No point has at least {floor}."
    point = next(p for p in record["points"] if p["index"] == record["chosen"])
    return (
        f"Sparsest with at least {floor}: point {point_number(point)}, "
        f"{percent(point['sparsity']['of_blocks'])} % zero blocks, test {percent(point['test'])} % "
        f"(dense {percent(dense['test'])} %), "
        f"{point['macs']['speedup']:.1f} times fewer MACs in theory."
    )
