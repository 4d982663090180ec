"""Weight sharing: each layer's weights become a few numbers, which may then be trained together.

As in Deep Compression (Han et al., 2016): k-means over the weights of a layer that are not zero,
then a centroid's gradient is the sum of its members' gradients. Zeros stay zeros beside the
2^bits centroids: where they are is stored anyway.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor, nn

from sparsepath.deploy.bits.clusters import clusters
from sparsepath.deploy.bits.weights import matches, refuse_computed, weights_of
from sparsepath.errors import BadInput
from sparsepath.modules import uncompiled

Train = Callable[[nn.Module], object]
HIGHEST = 8


@dataclass(frozen=True, eq=False)
class Tie:
    """Which number each weight of a layer is: 0 for zero, then the shared ones."""

    members: Tensor
    count: int
    """of shared numbers; 0 where only the zeros are tied"""

    def summed(self, gradient: Tensor) -> Tensor:
        """For each weight the sum of the gradients of all that share its number; 0 for zeros."""
        members = self.members.to(gradient.device)
        if not self.count:
            return gradient * members
        return self._sums(gradient, members).to(gradient.dtype)[members]

    def settle(self, weight: Tensor) -> None:
        """Make all that share a number exactly one again: rounding may have moved them apart."""
        members = self.members.to(weight.device)
        with torch.no_grad():
            if self.count:
                sizes = members.flatten().bincount(minlength=self.count + 1).clamp(min=1)
                weight.copy_((self._sums(weight, members) / sizes)[members])
            weight.masked_fill_(members == 0, 0.0)

    def _sums(self, numbers: Tensor, members: Tensor) -> Tensor:
        sums = torch.zeros(self.count + 1, dtype=torch.float64, device=numbers.device)
        sums.index_add_(0, members.flatten(), numbers.detach().double().flatten())
        sums[0] = 0
        return sums


def zeros(weight: Tensor) -> Tie:
    """Only the zeros, which stay zeros."""
    return Tie((weight != 0).long(), 0)


def tied(weight: Tensor, count: int) -> Tie:
    """At most `count` numbers, none of them for the zeros, by k-means of the others."""
    plain = weight.detach().cpu().double().numpy()
    alive = plain != 0
    members = numpy.zeros(plain.shape, numpy.int64)
    if not alive.any():
        return Tie(torch.from_numpy(members), 1)
    found = clusters(plain[alive], count)
    members[alive] = found.assigned(plain[alive]) + 1
    return Tie(torch.from_numpy(members), len(found.centroids))


def share(
    model: nn.Module,
    bits: int | Mapping[str, int],
    *,
    layers: Sequence[str] | str | None = None,
    train: Train | None = None,
) -> nn.Module:
    """A copy of the model whose layers have at most 2^bits different weights each, and zero.

    `bits` may also say a number for each pattern of layer names. `train` gets the copy and may
    train it in any loop of its own, with a new optimizer: weights that share a number get the sum
    of their gradients and stay one, zeros of all weights stay zero, the rest trains as ever.
    """
    if isinstance(bits, Mapping) and layers is not None:
        raise BadInput("bits for each layer already name the layers: leave layers out.")
    if isinstance(bits, Mapping) and not bits:
        raise BadInput("bits names no layer, {}: give a number, or one for each pattern of names.")
    by_pattern = bits if isinstance(bits, Mapping) else {"*": bits}
    for value in by_pattern.values():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= HIGHEST:
            raise BadInput(f"bits must be a whole number of 1 to {HIGHEST}, not {value!r}.")
    patterns = [*bits] if isinstance(bits, Mapping) else layers
    weights_of(model, patterns)  # refused before anything is copied
    model = uncompiled(model)
    refuse_computed(model)
    made = copy.deepcopy(model)
    chosen = weights_of(made, patterns)
    ties = {weight: zeros(weight) for weight in weights_of(made).values()}
    for name, weight in chosen.items():
        wanted = next(n for pattern, n in by_pattern.items() if matches(name, pattern))
        ties[weight] = tied(weight, 1 << wanted)
    _settle(ties)
    if train is not None:
        _train(made, ties, train)
        weights_of(made)  # refuses what is no longer finite
        _settle(ties)
    return made


def _settle(ties: Mapping[nn.Parameter, Tie]) -> None:
    for weight, tie in ties.items():
        tie.settle(weight)


def _train(model: nn.Module, ties: Mapping[nn.Parameter, Tie], train: Train) -> None:
    """The caller's own loop, in which gradients of tied weights are summed on their way."""
    modes = {module: module.training for module in model.modules()}
    # A frozen weight gets no gradient, and takes no hook.
    handles = [x.register_hook(tie.summed) for x, tie in ties.items() if x.requires_grad]
    try:
        train(model)
    finally:
        for handle in handles:
            handle.remove()
    for module, mode in modes.items():
        module.training = mode
