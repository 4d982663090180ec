"""Projections on to a count of blocks, which the path walks instead of mu: TopK and N:M."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput, checked_count, checked_number
from sparsepath.penalties import Penalty


class Projection(Penalty):
    """The indicator of an allowed count of blocks: its prox keeps the largest, at any step."""

    @abstractmethod
    def kept(self, norm: Tensor, blocks: Blocks) -> Tensor:
        """Which blocks stay, one boolean for each norm; among equal norms the first."""

    @property
    @abstractmethod
    def count(self) -> float:
        """The count that the path walks."""

    @abstractmethod
    def at(self, count: float) -> Self:
        """This projection with another count: one point of the path."""

    def check(self, blocks: Mapping[str, Blocks]) -> None:
        """Refuse costs."""
        for name, cut in blocks.items():
            if isinstance(cut.cost, Tensor) or cut.cost != 1:
                raise BadInput(
                    f"{self} counts its blocks, whatever their cost: leave that of {name!r} out."
                )

    def value(self, F: Tensor, blocks: Blocks) -> Tensor:
        """Zero for an allowed F, infinity for any other."""
        norm = blocks.norms(F)
        allowed = bool((self.kept(norm, blocks) | ~blocks.alive(F)).all())
        return norm.new_tensor(0.0 if allowed else math.inf)

    @torch.no_grad()
    def prox(
        self, V: Tensor, blocks: Blocks, step: float = 0.0, *, out: Tensor | None = None
    ) -> Tensor:
        """The nearest allowed F: the kept blocks as they are, all others zero."""
        checked_number("step", step, zero=True)
        F = torch.empty_like(V) if out is None else out
        keep = self.kept(blocks.norms(V), blocks)
        blocks.of(F).copy_(torch.where(keep, blocks.of(V), 0.0))
        return F


def _largest(norm: Tensor, k: int) -> Tensor:
    """Which k of a flat row of norms are the largest; among equals the first by index."""
    if k == 0:
        return torch.zeros_like(norm, dtype=torch.bool)
    norm = norm.masked_fill(norm.isnan(), -1.0)  # which would pass for the largest
    least = torch.topk(norm, k).values[-1]
    above, equal = norm > least, norm == least
    return above | (equal & (equal.cumsum(0) <= k - above.sum()))


@dataclass(frozen=True)
class TopK(Projection):
    """At most k blocks live in each layer, or in all layers together; a share when k is a float."""

    k: int | float
    together: bool = False

    def __post_init__(self) -> None:
        """Refuse a k that is neither a count nor a share."""
        if isinstance(self.k, float):
            if checked_number("TopK's k", self.k, zero=True) > 1:
                raise BadInput(f"TopK's k is a count, or a share from 0.0 to 1.0, not {self.k!r}.")
        else:
            checked_count("TopK's k", self.k, least=0)

    @property
    def count(self) -> float:
        """How many blocks live, or which share."""
        return self.k

    @property
    def identity(self) -> str:
        """The projection but for its k, which the path walks."""
        return f"TopK(together={self.together})"

    def at(self, count: float) -> Self:
        """The same projection with k blocks."""
        return replace(self, k=count)

    def check(self, blocks: Mapping[str, Blocks]) -> None:
        """Refuse costs, and a count above the layer's own or all layers' together."""
        super().check(blocks)
        counts = {name: cut.count for name, cut in blocks.items()}
        if self.together:
            total = sum(counts.values())
            self._count(total, f"the {total} blocks of all layers")
        else:
            for name, count in counts.items():
                self._count(count, f"the {count} blocks of {name!r}")

    def _count(self, total: int, what: str) -> int:
        if isinstance(self.k, float):
            # A share of a small layer still leaves it one block: none would cut the network.
            return max(1, round(self.k * total)) if self.k > 0 else 0
        if self.k > total:
            raise BadInput(f"TopK's k = {self.k} is larger than {what}; give {total} or less.")
        return self.k

    def kept(self, norm: Tensor, blocks: Blocks) -> Tensor:
        """The k largest of this layer, and what is not a number, so that it shows."""
        k = self._count(blocks.count, f"the {blocks.count} blocks of this weight")
        return _largest(norm.flatten(), k).view(norm.shape) | norm.isnan()

    def per_layer(self, norms: Mapping[str, Tensor]) -> Mapping[str, Penalty]:
        """Each layer's share of k when all layers compete, in their order among equal norms."""
        if not self.together:
            return dict.fromkeys(norms, self)
        rows = [norm.flatten() for norm in norms.values()]
        # Layers may lie on several devices, and norms are few beside weights.
        pooled = torch.cat([row.to("cpu", torch.float64) for row in rows])
        k = self._count(len(pooled), f"the {len(pooled)} blocks of all layers")
        shares = _largest(pooled, k).split([len(row) for row in rows])
        counts = zip(norms, shares, strict=True)
        return {name: TopK(int(share.sum())) for name, share in counts}


@dataclass(frozen=True)
class NofM(Projection):
    """At most n of every m neighbouring blocks along the inputs live (2:4 over `elements`)."""

    n: int
    m: int

    def __post_init__(self) -> None:
        """Refuse counts that are none, or more than there are."""
        checked_count("NofM's m", self.m)
        if checked_count("NofM's n", self.n, least=0) > self.m:
            raise BadInput(
                f"NofM's n = {self.n} is larger than its m = {self.m}; give {self.m} or less."
            )

    @property
    def count(self) -> float:
        """How many of m live."""
        return self.n

    @property
    def identity(self) -> str:
        """The projection but for its n, which the path walks."""
        return f"NofM(m={self.m})"

    def at(self, count: float) -> Self:
        """The same groups of m with n left."""
        if checked_number("NofM's count", count, zero=True) != int(count):
            raise BadInput(f"NofM walks whole counts n, not {count!r}.")
        return replace(self, n=int(count))

    def check(self, blocks: Mapping[str, Blocks]) -> None:
        """Refuse costs, and blocks that do not walk along the inputs, or in no multiple of m."""
        super().check(blocks)
        for name, cut in blocks.items():
            if cut.inputs is None:
                raise BadInput(
                    f"{self} needs blocks beside each other along the inputs, and each block of "
                    f"{name!r} holds all its inputs; use elements, or kernels of convolutions."
                )
            length = cut.view[cut.inputs]
            if length % self.m:
                raise BadInput(
                    f"{self} does not divide {name!r}: its {length} blocks along the inputs are "
                    f"no multiple of {self.m}; choose other layers or another m."
                )

    def kept(self, norm: Tensor, blocks: Blocks) -> Tensor:
        """The n largest of each group, the first among equals."""
        self.check({"this weight": blocks})
        assert blocks.inputs is not None
        groups = norm.movedim(blocks.inputs, -1).unflatten(-1, (-1, self.m))
        # A stable sort leaves equals in the order of their index.
        order = groups.sort(dim=-1, descending=True, stable=True).indices
        keep = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, order[..., : self.n], True)
        return keep.flatten(-2).movedim(-1, blocks.inputs)
