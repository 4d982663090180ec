"""What a compiled network does where: every node, its share of the work, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.running.choices import Choice
from sparsepath.deploy.running.plan import Plan, made

Shapes = Mapping[str, tuple[int, ...]]
LAYERS = ("conv", "conv_transpose", "linear")


@dataclass(frozen=True)
class Row:
    """One node."""

    name: str
    op: str
    method: str
    why: str
    macs: int
    """multiplications for one image, zeros included"""
    zero: float
    """the share of its weights that is zero"""
    work: int
    """multiplications that its method makes for one image"""
    seconds: Mapping[str, float]
    """for one image, by each method that was measured on the layer by itself"""
    took: tuple[str, ...] = ()
    """the nodes that became part of it, or did nothing to what it gives"""

    @property
    def title(self) -> str:
        """The node and all that runs within it."""
        return " + ".join((self.name, *self.took))


@dataclass(frozen=True)
class Report:
    """Every node, and which runtime takes the whole."""

    runner: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]
    """of a whole batch, by what was measured"""

    @classmethod
    def of(
        cls,
        graph: Graph,
        choices: Mapping[str, Choice],
        shapes: Shapes,
        plan: Plan,
        notes: tuple[str, ...],
        in_torch: Mapping[str, int],
    ) -> "Report":
        """The report on a plan; `in_torch` are the multiplications that only torch knows of."""
        rows = []
        images = (shapes[graph.inputs[0]] or (1,))[0]
        for node in graph:
            choice, weight = choices[node.name], node.arrays.get("weight")
            zero = 0.0 if weight is None else (weight == 0).double().mean().item()
            macs = in_torch.get(node.name, 0) + macs_of(node, shapes)
            macs = round(macs * _images(node, shapes, images) / images)
            rows.append(
                Row(
                    node.name, node.op, choice.method, choice.why, macs, zero,
                    _work(node, choice.method, macs), choice.seconds, node.took,
                )
            )  # fmt: skip
        return cls(plan.runner, tuple(rows), notes, plan.seconds)

    @property
    def macs(self) -> int:
        """All multiplications for one image, zeros included."""
        return sum(row.macs for row in self.rows)

    @property
    def native_share(self) -> float:
        """The share of the multiplications that are in layers of our own kernels."""
        return sum(row.macs for row in self.rows if row.method != "torch") / max(1, self.macs)

    @property
    def chosen_share(self) -> float:
        """The share in our kernels or in a dense choice that was measured to be faster."""
        chosen = [row for row in self.rows if row.method != "torch" or row.seconds]
        return sum(row.macs for row in chosen) / max(1, self.macs)

    def __str__(self) -> str:
        wide = max((len(row.title) for row in self.rows), default=4)
        lines = [
            f"{self.macs / 1e6:.1f} M MACs an image, {self.native_share:.1%} of them in "
            f"sparsepath's kernels; the whole runs in {self.runner}.",
            *self.notes,
            f"{'node':<{wide}}  {'op':<18} {'runs as':<10} {'M MACs':>8} {'zero':>6}  why",
        ]
        lines += [
            f"{r.title:<{wide}}  {r.op:<18} {r.method:<10} "
            f"{r.macs / 1e6:8.2f} {r.zero:6.1%}  {r.why}"
            for r in self.rows
        ]
        lines += [f"{name}: {1e3 * x:.2f} ms a batch" for name, x in self.seconds.items()]
        return "\n".join(lines)


def _work(node: Node, method: str, macs: int) -> int:
    """The multiplications that a method makes of a node's, roughly: edges count as whole tiles."""
    weight = node.arrays.get("weight")
    if weight is None or macs == 0 or method == "torch":
        return macs
    side = {"winograd4": 4, "woven4": 4, "winograd2": 2}.get(method)
    if side is None:
        return round(macs * (weight != 0).double().mean().item())
    kept = (weight != 0).flatten(2).any(-1).double().mean().item()
    saved = prod((side + 2) / (3 * side) for length in weight.shape[2:] if length == 3)
    return round(macs * kept * saved)


def _images(node: Node, shapes: Shapes, images: int) -> int:
    """How many images a layer gets: the code may have folded another axis into the batch."""
    weight = node.arrays.get("weight")
    source = shapes[node.inputs[0]] if node.inputs else ()
    batched = weight is not None and len(source) >= weight.dim()
    return source[0] if node.op in LAYERS and batched else images


def macs_of(node: Node, shapes: Shapes) -> int:
    """The multiplications of a node for one image, zeros included."""
    weight = node.arrays.get("weight")
    if node.op not in LAYERS or weight is None:
        return 0
    source = shapes[node.inputs[0]]
    if node.op == "linear":
        return weight.numel() * prod(source[1:-1])
    lengths = made(node, shapes) if node.op == "conv" else source[-(weight.dim() - 2) :]
    return weight.numel() * prod(lengths)
