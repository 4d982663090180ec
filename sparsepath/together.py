"""Several weights taken at once: on a GPU in few launches, on a CPU while each is in its cache."""

from collections.abc import Mapping

import torch
from torch import Tensor


def together(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Which names to take at once: all on one GPU, where every launch costs; one on a CPU."""
    groups: dict[object, list[str]] = {}
    for name, tensor in tensors.items():
        key = name if tensor.device.type == "cpu" else tensor.device
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def lengths(tensors: list[Tensor]) -> list[Tensor]:
    """||tensor|| of each, in float64: in the half precision of a weight squares soon overflow."""
    return list(torch._foreach_norm(tensors, 2, torch.float64))


def numbers(scalars: list[Tensor]) -> list[float]:
    """The values of tensors of one number each, from wherever they are, in one reading."""
    place = scalars[0].device
    read: list[float] = torch.stack([x.to(place, torch.float64) for x in scalars]).tolist()
    return read
