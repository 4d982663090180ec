"""One run or several in every format that is printed: text, markdown, LaTeX, CSV, JSON."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.overview import overview
from sparsepath.report.tables import cell, finite, full_table, latency_gain, legend

Formatter = Callable[[Sequence[Record]], str]

FIGURES: Mapping[str, Callable[[Record], object]] = MappingProxyType(
    {
        "mu": lambda r: r["mu"],
        "rho": lambda r: r["rho"],
        "validation": lambda r: r["validation"],
        "validation_W": lambda r: r["validation_W"],
        "validation_F": lambda r: r["validation_F"],
        "test": lambda r: r["test"],
        "zero_blocks": lambda r: r["sparsity"]["of_blocks"],
        "zero_weights": lambda r: r["sparsity"]["of_sparsified"],
        "zero_of_model": lambda r: r["sparsity"]["of_model"],
        "macs": lambda r: r["macs"]["sparse"],
        "macs_speedup": lambda r: r["macs"]["speedup"],
        "latency_seconds": lambda r: r["latency"]["sparse"]["p50"],
        "latency_p95_seconds": lambda r: r["latency"]["sparse"]["p95"],
        "latency_dense_seconds": lambda r: r["latency"]["dense"]["p50"],
        "latency_speedup": latency_gain,
        "throughput": lambda r: r["latency"]["sparse"]["throughput"],
        "throughput_dense": lambda r: r["latency"]["dense"]["throughput"],
        "epochs": lambda r: r["epochs"],
        "iterations": lambda r: r["iterations"],
        "primal": lambda r: r["residuals"][-1]["primal"],
        "dual": lambda r: r["residuals"][-1]["dual"],
        "flipped": lambda r: r["residuals"][-1]["flipped"],
    }
)
"""The columns of the CSV, in full precision: accuracies and sparsities as shares."""


def figure(show: Callable[[Record], object], record: Record) -> float | None:
    """A figure of a record, None where the record lacks it or it is no number."""
    try:
        return finite(show(record))
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        return None


def as_csv(records: Sequence[Record]) -> str:
    """One row for the dense reference and every point, one column for the zeros of each layer."""
    rows = [(record["name"], *row) for record in records for row in _rows(record)]
    layers = list(dict.fromkeys(layer for *_, row in rows for layer in _zeros(row)))
    titles = ["run", "point", *FIGURES, *(f"zero_blocks_{layer}" for layer in layers)]
    return Table(
        "",
        titles,
        [
            [
                name,
                point,
                *(in_full(figure(show, row)) for show in FIGURES.values()),
                *(in_full(finite(_zeros(row).get(layer))) for layer in layers),
            ]
            for name, point, row in rows
        ],
    ).csv()


def _rows(record: Record) -> Iterator[tuple[str, Record]]:
    """The dense reference and the points, each with what it is called."""
    if record["dense"] is not None:
        yield "dense", record["dense"]
    for point in record["points"]:
        yield cell(lambda r: str(r["index"] + 1), point), point


def _zeros(row: Record) -> Mapping[str, int]:
    found: Mapping[str, int] = (row.get("sparsity") or {}).get("zero_blocks") or {}
    return found


def in_full(value: float | None) -> str:
    """A figure in full precision, nothing where it is missing."""
    return "" if value is None else repr(value)


def as_json(records: Sequence[Record]) -> str:
    """Every figure there is: the record of one run, or a list of several."""
    return json.dumps(records[0] if len(records) == 1 else list(records), indent=2)


def several_as_text(records: Sequence[Record], *, width: int | None = None) -> str:
    """The tables of runs in columns, before those of several one with a row for each."""
    return "\n\n".join(table.whole(width) for table in _tables(records))


def _tables(records: Sequence[Record]) -> list[Table]:
    """What is the same of all titles is said once, below the last table."""
    if len(records) == 1:
        return [full_table(records[0])]
    tables = [full_table(record, explained=False) for record in records]
    titles = dict.fromkeys(title for table in tables for title in table.titles)
    first = replace(overview(records), caption=f"{len(records)} runs compared")
    last = replace(tables[-1], note=f"{tables[-1].note}\n\n{legend(list(titles))}")
    return [first, *tables[:-1], last]


def _together(show: Callable[[Table], str]) -> Formatter:
    return lambda records: "\n\n".join(map(show, _tables(records)))


FORMATS: Mapping[str, Formatter] = MappingProxyType(
    {
        "text": several_as_text,
        "markdown": _together(Table.markdown),
        "latex": _together(Table.latex),
        "csv": as_csv,
        "json": as_json,
    }
)
