"""The table of what sparse networks gain in time on a CPU, made from records."""

from collections.abc import Sequence

from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.reported import DATA, NETWORKS, title
from sparsepath.report.tables import percent

BATCHES = ("batch 1", "batch 64")
DENSE = ("over dense in sparsepath", "over dense in onnxruntime")


def measured(records: Sequence[Record]) -> Table:
    """The last point of each path whose time was measured, beside the dense network's."""
    rows, machines, stood = [], dict[str, str](), False
    for record in records:
        point = record["points"][-1]
        gains = point.get("latency", {}).get("gains")
        if gains is None:
            continue
        machine = str(point["latency"]["machine"])
        number = machines.setdefault(machine, str(len(machines) + 1))
        instead = bool(point["latency"].get("stand_in"))
        stood |= instead
        rows.append(
            [
                DATA[record["data"]],
                NETWORKS[record["network"]],
                title(record["penalty"], record["variant"]) + (", stand-in" if instead else ""),
                percent(point["sparsity"]["of_blocks"]),
                f"{point['macs']['speedup']:.2f}",
                *(_gain(gains[batch], dense) for batch in BATCHES for dense in DENSE),
                number,
            ]
        )
    over = [f"{batch}, {dense}" for batch in BATCHES for dense in DENSE]
    said = (
        " Stand-in: the weights were not kept, and the dense network without its smallest kernels, "
        "as many in each layer, was measured in their place."
    )
    named = "; ".join(f"{number}: {machine}" for machine, number in machines.items())
    where = f" One thread of machine {named}; gains on two cannot be compared." if named else ""
    return Table(
        "How many times faster the last networks of the paths are in our runtime, measured.",
        ["data", "network", "path", "zero kernels", "MACs fewer", *over, "machine"],
        rows,
        "Zero kernels in percent. MACs fewer is what zeros would give if time were multiplications."
        f"{where}{said if stood else ''} Medians of calls that took turns in one process "
        "(reproduction/speed.py).",
    )


def _gain(gains: Record, dense: str) -> str:
    return f"{gains[dense]:.2f}" if dense in gains else ""
