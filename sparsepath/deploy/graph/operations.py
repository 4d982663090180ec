"""What each operation of a graph means, in torch: the definition that every kernel is held to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.norms import affine, batch_norm, group_norm, layer_norm, prelu

Result = Any
functional = nn.functional
_CONVOLUTIONS = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}
_TRANSPOSED = {
    3: functional.conv_transpose1d,
    4: functional.conv_transpose2d,
    5: functional.conv_transpose3d,
}
_POOLS: Mapping[str, tuple[Callable[..., Tensor], ...]] = {
    "max": (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d),
    "avg": (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d),
    "adaptive_avg": (
        functional.adaptive_avg_pool1d,
        functional.adaptive_avg_pool2d,
        functional.adaptive_avg_pool3d,
    ),
    "adaptive_max": (
        functional.adaptive_max_pool1d,
        functional.adaptive_max_pool2d,
        functional.adaptive_max_pool3d,
    ),
}


def conv(
    x: Tensor,
    *,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    learned: bool = True,
) -> Tensor:
    """A convolution with zero padding, in as many dimensions as its weight has."""
    run = _CONVOLUTIONS[weight.dim()]
    return run(x, weight, bias, stride, padding, dilation, groups)


def conv_transpose(
    x: Tensor,
    *,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    groups: int,
    dilation: tuple[int, ...],
    learned: bool = True,
) -> Tensor:
    """A transposed convolution."""
    run = _TRANSPOSED[weight.dim()]
    return run(x, weight, bias, stride, padding, output_padding, groups, dilation)


def linear(
    x: Tensor, *, weight: Tensor, bias: Tensor | None = None, learned: bool = True
) -> Tensor:
    """A linear layer over the last axis."""
    return functional.linear(x, weight, bias)


def constant(*, value: Tensor, learned: bool = False) -> Tensor:
    """An array that the network holds; a copy, since who gets it may change it."""
    return value.clone()


def max_pool(
    x: Tensor,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> Tensor:
    """The largest of each window."""
    run = _POOLS["max"][len(kernel_size) - 1]
    return run(x, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool(
    x: Tensor,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """The mean of each window."""
    run = _POOLS["avg"][len(kernel_size) - 1]
    more = () if len(kernel_size) == 1 else (divisor_override,)
    return run(x, kernel_size, stride, padding, ceil_mode, count_include_pad, *more)


def adaptive_avg_pool(x: Tensor, output_size: tuple[int | None, ...]) -> Tensor:
    """The mean of as many windows as the output has places."""
    return _POOLS["adaptive_avg"][len(output_size) - 1](x, output_size)


def adaptive_max_pool(x: Tensor, output_size: tuple[int | None, ...]) -> Tensor:
    """The largest of as many windows as the output has places."""
    return _POOLS["adaptive_max"][len(output_size) - 1](x, output_size)


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Another shape, in which 0 stands for the length that the axis has now."""
    return x.reshape([x.shape[axis] if n == 0 else n for axis, n in enumerate(shape)])


def index(x: Tensor, slices: tuple[tuple[int | None, int | None, int | None], ...]) -> Tensor:
    """A slice (start, stop, step) of every axis named."""
    parts = tuple(slice(*part) for part in slices)
    # What torch ran before may have been a `chunk`, whose result is no tensor but a tuple of them.
    return x[parts[0]] if isinstance(x, (tuple, list)) else x[parts]


def cat(*xs: Tensor, dim: int) -> Tensor:
    """All inputs behind one another."""
    return torch.cat(xs, dim)


def interpolate(
    x: Tensor,
    size: tuple[int, ...] | int | None = None,
    scale_factor: tuple[float, ...] | float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """An image of another size."""
    return functional.interpolate(
        x,
        size,
        list(scale_factor) if isinstance(scale_factor, tuple) else scale_factor,
        mode,
        align_corners,
        recompute_scale_factor,
        antialias,
    )


def interpolate_like(
    x: Tensor,
    like: Tensor,
    mode: str = "nearest",
    align_corners: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """An image of the size of another one."""
    return functional.interpolate(
        x, like.shape[2:], mode=mode, align_corners=align_corners, antialias=antialias
    )


REDUCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "mean": lambda x, dim, keepdim=False: x.mean(dim, keepdim),
    "sum": lambda x, dim, keepdim=False: x.sum(dim, keepdim),
    "amax": lambda x, dim, keepdim=False: x.amax(dim, keepdim),
    "amin": lambda x, dim, keepdim=False: x.amin(dim, keepdim),
    "norm": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 2, dim, keepdim),
}
"""One number of all along some axes."""


def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Room around the last axes, last axis first."""
    return functional.pad(x, tuple(pad), mode, value)


ELEMENTWISE: Mapping[str, Callable[..., Tensor]] = {
    "relu": lambda x: torch.relu(x),
    "relu6": lambda x: functional.relu6(x),
    "leaky_relu": lambda x, negative_slope=0.01: functional.leaky_relu(x, negative_slope),
    "elu": lambda x, alpha=1.0: functional.elu(x, alpha),
    "selu": lambda x: functional.selu(x),
    "silu": lambda x: functional.silu(x),
    "mish": lambda x: functional.mish(x),
    "gelu": lambda x, approximate="none": functional.gelu(x, approximate=approximate),
    "sigmoid": lambda x: torch.sigmoid(x),
    "tanh": lambda x: torch.tanh(x),
    "hardswish": lambda x: functional.hardswish(x),
    "hardsigmoid": lambda x: functional.hardsigmoid(x),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: functional.hardtanh(x, min_val, max_val),
    "softplus": lambda x, beta=1, threshold=20: functional.softplus(x, beta, threshold),
    "clamp": lambda x, min=None, max=None: torch.clamp(x, min, max),
    "abs": lambda x: torch.abs(x),
    "neg": lambda x: torch.neg(x),
    "exp": lambda x: torch.exp(x),
    "sqrt": lambda x: torch.sqrt(x),
    "pow": lambda x, exponent: torch.pow(x, exponent),
}
"""Operations of one value, element by element."""

ARITHMETIC: Mapping[str, Callable[..., Tensor]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}
"""Operations of two values, or of one and the attribute `left` or `right`."""

DROPOUTS = (
    *("dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("alpha_dropout", "feature_alpha_dropout"),
)
"""Operations that are nothing at all when a network is used, and something when it is trained."""


def _arithmetic(
    function: Callable[..., Tensor],
) -> Callable[..., Tensor]:
    def run(*xs: Tensor, left: float | None = None, right: float | None = None) -> Tensor:
        before, after = [[] if x is None else [x] for x in (left, right)]
        return function(*before, *xs, *after)

    return run


OPERATIONS: Mapping[str, Callable[..., Result]] = {
    **ELEMENTWISE,
    **{name: _arithmetic(function) for name, function in ARITHMETIC.items()},
    **REDUCTIONS,
    **dict.fromkeys(DROPOUTS, lambda x, p=0.5: x),
    "adaptive_avg_pool": adaptive_avg_pool,
    "adaptive_max_pool": adaptive_max_pool,
    "affine": affine,
    "avg_pool": avg_pool,
    "batch_norm": batch_norm,
    "cat": cat,
    "constant": constant,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "flatten": lambda x, start_dim=0, end_dim=-1: torch.flatten(x, start_dim, end_dim),
    "group_norm": group_norm,
    "index": index,
    "interpolate": interpolate,
    "interpolate_like": interpolate_like,
    "layer_norm": layer_norm,
    "linear": linear,
    "log_softmax": lambda x, dim: torch.log_softmax(x, dim),
    "max_pool": max_pool,
    "pad": pad,
    "permute": lambda x, dims: x.permute(dims),
    "prelu": prelu,
    "pixel_shuffle": lambda x, upscale_factor: functional.pixel_shuffle(x, upscale_factor),
    "reshape": reshape,
    "softmax": lambda x, dim: torch.softmax(x, dim),
    "transpose": lambda x, dim0, dim1: x.transpose(dim0, dim1),
    "unflatten": lambda x, dim, sizes: x.unflatten(dim, sizes),
}
"""Every operation by name, from its inputs, arrays and attributes to its result."""

FUSED = ("activation", "pool")


def run_node(node: Node, *inputs: Any) -> Result:
    """What a node gives for these inputs."""
    if node.call is not None:
        return node.call(*inputs, arrays=node.arrays)
    attributes = {key: value for key, value in node.attributes.items() if key not in FUSED}
    result = OPERATIONS[node.op](*inputs, **node.arrays, **attributes)
    return run_fused(node, result)


def run_fused(node: Node, result: Tensor) -> Tensor:
    """The activation and the pool that a node carries, applied to its own result."""
    activation, pool = node.attributes.get("activation"), node.attributes.get("pool")
    if activation is not None:
        result = ELEMENTWISE[str(activation)](result)
    if isinstance(pool, tuple):
        size, ceil_mode = pool
        result = _POOLS["max"][1](result, size, ceil_mode=ceil_mode)
    return result
