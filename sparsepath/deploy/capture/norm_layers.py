"""Norms of torch's own, which ask for the shape of their input, as operations."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from sparsepath.deploy.capture.lengths import Lengths
from sparsepath.deploy.capture.translate import (
    COMPUTED_SHAPE,
    Draft,
    Length,
    Same,
    Unknown,
    as_value,
)
from sparsepath.deploy.capture.translate_layers import batch_norm
from sparsepath.deploy.graph.graph import Attribute

SIDES: Mapping[type[nn.Module], int] = {
    **{nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3},
    **{nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2, nn.InstanceNorm3d: 3},
}
"""How many axes they take beside the batch and the channels."""


def is_plain(module: nn.Module) -> bool:
    """Whether it is a norm that no forward of its own makes another."""
    kinds = (_BatchNorm, _InstanceNorm)
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def normed(
    module: nn.Module, own: Callable[[Any], Any], lengths: Lengths, input: Any
) -> Draft | Same:
    """The operation that a norm is; `own` gives our copy of an array."""
    if isinstance(module, _InstanceNorm):
        return _instance_norm(module, own, lengths, input)
    assert isinstance(module, _BatchNorm)
    mean, variance, weight, bias = map(
        own, (module.running_mean, module.running_var, module.weight, module.bias)
    )
    batches = module.num_batches_tracked
    more: dict[str, Attribute] = {"batches": 0 if batches is None else int(batches)}
    if type(module) in SIDES:
        more["axes"] = SIDES[type(module)]
    return batch_norm(
        *(input, mean, variance, weight, bias, module.training),
        *(module.momentum, module.eps),
        **more,
    )


def _instance_norm(
    module: _InstanceNorm, own: Callable[[Any], Any], lengths: Lengths, input: Any
) -> Draft:
    """A group for each channel; a single image without a batch would have others."""
    if type(module) not in SIDES or module.running_mean is not None:
        raise Unknown("it keeps statistics, or is no norm of torch's own")
    if lengths.axes_of(as_value(input)) != SIDES[type(module)] + 2:
        raise Unknown(COMPUTED_SHAPE)
    arrays = {"weight": own(module.weight), "bias": own(module.bias)}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    channels = module.num_features if arrays else lengths.settled(Length(as_value(input), 1))
    if not isinstance(channels, int):  # without weights torch takes any number of them
        raise Unknown(COMPUTED_SHAPE)
    attributes: dict[str, Attribute] = {"num_groups": channels, "eps": module.eps}
    return Draft("group_norm", (as_value(input),), attributes, arrays)
