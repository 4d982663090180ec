"""The points that the paper reports, each beside ours: what its tables and figures are made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record

DATA = MappingProxyType({"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN"})
NETWORKS = MappingProxyType(
    {"nin": "NIN", "low-rank-nin": "low-rank NIN", "cnn": "CNN", "low-rank-cnn": "low-rank CNN"}
)
PENALTIES = ("l1", "l0")
"""All in the paper's order."""

STANDING = MappingProxyType(
    {
        "": "",
        "short": "shorter range",
        "unguarded": "no guard",
        "unguarded-short": "no guard, shorter range",
    }
)
"""The variants that stand for a path where the guard or the range of mu keeps it from the aim."""
EARLY = "early"
"""The variant from a dense network near the paper's own, so that gains can be compared. What it
gains is its training's too, not the sparsity's alone."""
SHOWN = MappingProxyType({**STANDING, EARLY: "early start"})
"""All variants whose last network is measured, by what they are called."""

POSITIONS = 20
"""The printed mu is k / 19: a place on a path of 20 points."""


def title(penalty: str, variant: str) -> str:
    """What a path is called: its penalty, and what is not the paper's about it."""
    return ", ".join(filter(None, (penalty, SHOWN.get(variant, variant))))


@dataclass(frozen=True)
class Side:
    """One reported point of a path, of the paper or ours; accuracies in percent."""

    k: int | None
    """None for the dense network"""
    accuracy: float
    change: float
    zero_blocks: tuple[int, ...]
    of_blocks: float
    epochs: int
    speedup: float
    printed: float | None = None
    """the paper's own "sparsity", which does not follow from its counts"""
    of_sparsified: float | None = None
    of_model: float | None = None


@dataclass(frozen=True)
class ReportedPath:
    """What the paper reports of a path, and what our record has of it, if there is one."""

    data: str
    network: str
    penalty: str
    variant: str
    blocks: tuple[int, ...]
    paper: tuple[Side, ...]
    walked: Mapping[int | None, Side]
    """every point of ours by its k, not only those that the paper reports"""

    @property
    def title(self) -> str:
        """The penalty, and what is not the paper's about this path."""
        return title(self.penalty, self.variant)

    @property
    def pairs(self) -> Iterator[tuple[Side, Side | None]]:
        """Each reported point of the paper with ours."""
        return ((theirs, self.walked.get(theirs.k)) for theirs in self.paper)


def paths(
    paper: Record, records: Sequence[Record], *, data: str, network: str
) -> tuple[ReportedPath, ...]:
    """The l1 and l0 paths of one network, each followed by the variants of it that we walked."""
    mine = [r for r in records if (r["data"], r["network"]) == (data, network)]
    found = []
    for penalty in PENALTIES:
        ours = {r["variant"]: r for r in mine if r["penalty"] == penalty}
        if len(ours) != sum(r["penalty"] == penalty for r in mine):
            raise BadInput(f"There are two records of one {penalty} path of {network} on {data}.")
        found += [
            _path(paper, ours.get(variant), data, network, penalty, variant)
            for variant in sorted({"", *ours})
        ]
    return tuple(found)


def _path(
    paper: Record, record: Record | None, data: str, network: str, penalty: str, variant: str
) -> ReportedPath:
    blocks, theirs = printed(paper, data=data, network=network, penalty=penalty)
    ours = {} if record is None else {side.k: side for side in _ours(record, blocks)}
    return ReportedPath(data, network, penalty, variant, blocks, theirs, ours)


def printed(
    paper: Record, *, data: str, network: str, penalty: str
) -> tuple[tuple[int, ...], tuple[Side, ...]]:
    """The paper's blocks in every layer, and its points, the dense network first."""
    table = paper["tables"][data][network.replace("-", "_")]
    blocks = tuple(table["filters_total"])
    return blocks, tuple(_theirs(row, table[penalty][0], blocks) for row in table[penalty])


def _theirs(row: Record, dense: Record, blocks: tuple[int, ...]) -> Side:
    k = row["mu0"] * (POSITIONS - 1)
    assert abs(k - round(k)) < 0.02, "mu is printed with three digits"
    return Side(
        k=None if row["baseline"] else round(k),
        accuracy=row["accuracy"],
        change=row["accuracy"] - dense["accuracy"],
        zero_blocks=tuple(row["zero_filters"]),
        of_blocks=sum(row["zero_filters"]) / sum(blocks),
        epochs=row["epochs"],
        speedup=row["speedup"],
        printed=row["sparsity"],
    )


def _ours(record: Record, blocks: tuple[int, ...]) -> Iterator[Side]:
    dense = record["dense"]["test"]
    yield Side(None, 100 * dense, 0.0, (0,) * len(blocks), 0.0, 0, 1.0, None, 0.0, 0.0)
    for point in record["points"]:
        k = point["position"] * (POSITIONS - 1)
        if abs(k - round(k)) > 1e-6:
            raise BadInput(
                f"A record of {record['network']} on {record['data']} has a point at "
                f"{point['position']:g}, which is none of the paper's {POSITIONS} positions."
            )
        sparsity = point["sparsity"]
        counts = tuple(sparsity["blocks"].values())
        if counts != blocks:
            raise BadInput(
                f"A record of {record['network']} on {record['data']} has layers of {counts} "
                f"blocks, the paper's has {blocks}; it is of another network."
            )
        yield Side(
            k=round(k),
            accuracy=100 * point["test"],
            change=100 * (point["test"] - dense),
            zero_blocks=tuple(sparsity["zero_blocks"].values()),
            of_blocks=sparsity["of_blocks"],
            epochs=point["epochs"],
            speedup=point["macs"]["speedup"],
            of_sparsified=sparsity["of_sparsified"],
            of_model=sparsity["of_model"],
        )
