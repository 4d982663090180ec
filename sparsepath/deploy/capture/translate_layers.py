"""Translations of layers: convolutions, linear layers, batch norm and pools."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sparsepath.deploy.capture.translate import (
    TRANSLATIONS,
    Draft,
    Translation,
    Unknown,
    as_array,
    as_plain,
    as_value,
    repeated,
    translates,
)
from sparsepath.deploy.graph.graph import Attribute

functional = nn.functional


@translates(functional.conv1d, functional.conv2d, functional.conv3d)
def _conv(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Draft:
    arrays = {"weight": as_array(weight)} | ({} if bias is None else {"bias": as_array(bias)})
    kernel = arrays["weight"].shape[2:]
    stride, dilation = repeated(stride, len(kernel)), repeated(dilation, len(kernel))
    before: tuple[int, ...] = ()
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        padding = tuple(total // 2 for total in totals)
        # torch puts the odd pixel behind; a convolution's own padding is alike on both sides.
        before = tuple(n for total in reversed(totals) for n in (0, total % 2))
    padding = (0,) * len(kernel) if padding == "valid" else repeated(padding, len(kernel))
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if not any(before):
        return Draft("conv", (as_value(input),), attributes, arrays)
    both = tuple(
        n
        for axis in reversed(range(len(kernel)))
        for n in (padding[axis], padding[axis] + before[2 * (len(kernel) - 1 - axis) + 1])
    )
    after = Draft("conv", (), {**attributes, "padding": (0,) * len(kernel)}, arrays)
    return Draft(
        "pad", (as_value(input),), {"pad": both, "mode": "constant", "value": None}, then=after
    )


@translates(functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)
def _conv_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Draft:
    arrays = {"weight": as_array(weight)} | ({} if bias is None else {"bias": as_array(bias)})
    count = arrays["weight"].dim() - 2
    attributes: dict[str, Attribute] = {
        "stride": repeated(stride, count),
        "padding": repeated(padding, count),
        "output_padding": repeated(output_padding, count),
        "groups": groups,
        "dilation": repeated(dilation, count),
    }
    return Draft("conv_transpose", (as_value(input),), attributes, arrays)


@translates(functional.linear)
def _linear(input: Any, weight: Any, bias: Any = None) -> Draft:
    arrays = {"weight": as_array(weight)} | ({} if bias is None else {"bias": as_array(bias)})
    return Draft("linear", (as_value(input),), arrays=arrays)


@translates(functional.batch_norm)
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    **more: Attribute,
) -> Draft:
    """Batch norm with stored statistics."""
    if training or running_mean is None or running_var is None:
        raise Unknown("it normalises by the statistics of the batch")
    arrays = {"mean": running_mean, "variance": running_var, "weight": weight, "bias": bias}
    arrays = {name: as_array(array) for name, array in arrays.items() if array is not None}
    attributes: dict[str, Attribute] = {"eps": eps, "momentum": momentum, **more}
    return Draft("batch_norm", (as_value(input),), attributes, arrays)


def _weights(weight: Any, bias: Any = None) -> dict[str, Any]:
    arrays = {"weight": weight, "bias": bias}
    return {name: as_array(array) for name, array in arrays.items() if array is not None}


@translates(functional.group_norm)
def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Draft:
    attributes: dict[str, Attribute] = {"num_groups": as_plain(num_groups), "eps": as_plain(eps)}
    return Draft("group_norm", (as_value(input),), attributes, _weights(weight, bias))


@translates(functional.layer_norm)
def _layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Draft:
    shape = as_plain(tuple(normalized_shape))
    attributes: dict[str, Attribute] = {"normalized_shape": shape, "eps": as_plain(eps)}
    return Draft("layer_norm", (as_value(input),), attributes, _weights(weight, bias))


@translates(functional.prelu, torch.prelu)
def _prelu(input: Any, weight: Any) -> Draft:
    slopes = as_array(weight)
    # Kept as it is wherever it can be: a copy would lose the name that the model gives it.
    return Draft(
        "prelu", (as_value(input),), arrays={"weight": slopes if slopes.dim() else slopes.view(1)}
    )


# ---- pools


def dimensions(name: str) -> dict[object, int]:
    """What torch calls a layer of this name, and of how many dimensions that is."""
    return {
        getattr(home, f"{name}{n}d"): n
        for home in (torch, functional)
        for n in (1, 2, 3)
        if hasattr(home, f"{name}{n}d")
    }


def _max_pool(dims: int) -> Translation:
    def translate(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Draft:
        if return_indices:
            raise Unknown("it gives indices too")
        attributes: dict[str, Attribute] = {
            "kernel_size": repeated(kernel_size, dims),
            "stride": repeated(kernel_size if stride is None or stride == [] else stride, dims),
            "padding": repeated(padding, dims),
            "dilation": repeated(dilation, dims),
            "ceil_mode": ceil_mode,
        }
        return Draft("max_pool", (as_value(input),), attributes)

    return translate


def _avg_pool(dims: int) -> Translation:
    def translate(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Draft:
        attributes: dict[str, Attribute] = {
            "kernel_size": repeated(kernel_size, dims),
            "stride": repeated(kernel_size if stride is None or stride == [] else stride, dims),
            "padding": repeated(padding, dims),
            "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad,
            "divisor_override": divisor_override,
        }
        return Draft("avg_pool", (as_value(input),), attributes)

    return translate


def _adaptive(op: str) -> Callable[[int], Translation]:
    def of(dims: int) -> Translation:
        def translate(input: Any, output_size: Any, return_indices: bool = False) -> Draft:
            if return_indices:
                raise Unknown("it gives indices too")
            return Draft(op, (as_value(input),), {"output_size": repeated(output_size, dims)})

        return translate

    return of


for _name, _of in {
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive("adaptive_avg_pool"),
    "adaptive_max_pool": _adaptive("adaptive_max_pool"),
}.items():
    for _spelling, _dims in dimensions(_name).items():
        TRANSLATIONS[_spelling] = _of(_dims)
