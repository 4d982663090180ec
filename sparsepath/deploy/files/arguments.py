"""What the arguments of an operation may be: a file chooses its own, and torch trusts some."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.operations import REDUCTIONS
from sparsepath.errors import BadInput

LEAST = {"stride": 1, "dilation": 1, "kernel_size": 1, "padding": 0, "output_padding": 0}
# No network strides, pads or looks further, and a file could ask for all memory by it.
MOST = 2**20
CONVOLUTIONS = ("conv", "conv_transpose")
POOLS = ("max_pool", "avg_pool")
NORMS = ("batch_norm", "affine", "group_norm", "layer_norm")
LAYERS = (*CONVOLUTIONS, *NORMS, "linear", "prelu")


def _whole(x: Any) -> bool:
    return type(x) is int


def _number(x: Any) -> bool:
    return isinstance(x, int | float)


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, tuple) and all(map(fits, x))


Kinds = Mapping[str, tuple[Callable[[Any], bool], str]]
WHOLE = (_whole, "a whole number")
TRUTH = (lambda x: isinstance(x, int), "true or false")
NUMBER = (_number, "a number")
KINDS: Kinds = {
    **dict.fromkeys(("dim0", "dim1", "start_dim", "end_dim", "upscale_factor"), WHOLE),
    **dict.fromkeys(("ceil_mode", "count_include_pad", "keepdim", "learned"), TRUTH),
    **dict.fromkeys(
        ("alpha", "exponent", "negative_slope", "min_val", "max_val", "beta", "threshold"), NUMBER
    ),
    "axes": (lambda x: x is None or (_whole(x) and x in (1, 2, 3)), "1, 2 or 3"),
    "batches": (lambda x: _whole(x) and x >= 0, "a whole number of at least 0"),
    "dims": (_all(_whole), "a list of whole numbers"),
    "divisor_override": (lambda x: x is None or (_whole(x) and x != 0), "a whole number but 0"),
    "eps": (lambda x: _number(x) and 0 <= x < math.inf, "a number of at least 0"),
    "normalized_shape": (
        lambda x: _all(lambda n: _whole(n) and n >= 1)(x) and x != (),
        "a list of whole numbers of at least 1",
    ),
    "num_groups": (lambda x: _whole(x) and x >= 1, "a whole number of at least 1"),
    "momentum": (lambda x: x is None or _number(x), "a number or nothing"),
    "output_size": (
        _all(lambda x: x is None or (_whole(x) and 0 <= x <= MOST)),
        f"a list of whole numbers of 0 to {MOST}, or nothing",
    ),
    "p": (lambda x: _number(x) and 0 <= x <= 1, "a number of 0 to 1"),
    "pad": (_all(_whole), "a list of whole numbers"),
    "shape": (_all(lambda x: _whole(x) and x >= -1), "a list of whole numbers of at least -1"),
    "sizes": (
        lambda x: (
            _all(lambda n: _whole(n) and n >= -1 and n != 0)(x) and x.count(-1) < 2 and x != ()
        ),
        "a list of whole numbers of at least 1, one of which may be -1",
    ),
    "slices": (
        _all(lambda x: _all(lambda n: n is None or _whole(n))(x) and len(x) == 3),
        "a list of starts, stops and steps",
    ),
}
"""What an attribute of such a name must be, in any operation."""


def refuse_impossible(node: Node) -> None:
    """Refuse arguments with which an operation could not run whatever it is given."""
    for key, (fits, wanted) in {**KINDS, **_kinds_of(node)}.items():
        if key in node.attributes and not fits(node.attributes[key]):
            raise BadInput(
                f"{node.name!r} has the {key} {node.attributes[key]!r}, which must be {wanted}"
            )
    for key, least in LEAST.items():
        if key in node.attributes:
            _refuse_below(node, key, least)
    if node.op in LAYERS:
        _refuse_mixed(node)
    if node.op in (*NORMS, "prelu"):
        _refuse_misshapen(node)
    if node.op in CONVOLUTIONS:
        _refuse_unfit(node, node.attributes)
    if node.op in POOLS:
        _refuse_wide(node, node.attributes)


def _kinds_of(node: Node) -> Kinds:
    """What only some operations want of an attribute of such a name."""
    if node.op in REDUCTIONS:
        return {"dim": (lambda x: _all(_whole)(x) and x != (), "a list of whole numbers")}
    return {"dim": WHOLE}


def _refuse_below(node: Node, key: str, least: int) -> None:
    given: Any = node.attributes[key]
    if not isinstance(given, tuple) or not all(_whole(x) and x >= least for x in given):
        raise BadInput(
            f"{node.name!r} has the {key} {given!r}: each number must be whole and at least {least}"
        )
    if max(given, default=0) > MOST:
        raise BadInput(f"{node.name!r} has the {key} {given!r}: more than {MOST} makes no sense")


def _refuse_mixed(node: Node) -> None:
    types = {name: str(x.dtype).removeprefix("torch.") for name, x in node.arrays.items()}
    if len(set(types.values())) > 1:
        spoken = ", ".join(f"{name} {kind}" for name, kind in types.items())
        raise BadInput(f"{node.name!r} has arrays of several types ({spoken})")


def _refuse_misshapen(node: Node) -> None:
    """Arrays of a norm, and slopes, have one number for each channel; a layer norm's its shape."""
    shapes = {tuple(x.shape) for x in node.arrays.values()}
    if not shapes:
        return
    shape = next(iter(shapes))
    fits = len(shape) == 1
    if node.op == "layer_norm":
        fits = shape == node.attributes["normalized_shape"]
    if len(shapes) > 1 or not fits:
        raise BadInput(f"{node.name!r} has arrays of the shapes {sorted(shapes)}")
    groups: Any = node.attributes.get("num_groups", 1)
    if shape[0] % groups:
        raise BadInput(f"{node.name!r} has {groups} groups, which do not divide its weights")


def _refuse_unfit(node: Node, attributes: Mapping[str, Any]) -> None:
    weight, groups = node.arrays["weight"], attributes["groups"]
    axes = weight.dim() - 2
    if axes not in (1, 2, 3):
        raise BadInput(f"{node.name!r} has a weight of {weight.dim()} axes, not 3 to 5")
    for key in LEAST:
        given = attributes.get(key)
        if isinstance(given, tuple) and len(given) != axes:
            raise BadInput(f"{node.name!r} has the {key} {given!r} for {axes} axes")
    # The first axis holds the output channels of a convolution, the inputs of a transposed one.
    if not _whole(groups) or groups < 1 or len(weight) % groups:
        raise BadInput(f"{node.name!r} has {groups!r} groups, which do not divide {len(weight)}")
    given = len(weight) if node.op == "conv" else weight.shape[1] * groups
    bias = node.arrays.get("bias")
    if bias is not None and tuple(bias.shape) != (given,):
        raise BadInput(
            f"{node.name!r} has a bias of shape {tuple(bias.shape)} for {given} channels"
        )
    steps = zip(attributes["stride"], attributes["dilation"], strict=True)
    room = attributes.get("output_padding", (0,) * axes)
    if any(n >= max(pair) for n, pair in zip(room, steps, strict=True)):
        raise BadInput(
            f"{node.name!r} has the output_padding {room!r}, as much as its stride and dilation"
        )


def _refuse_wide(node: Node, attributes: Mapping[str, Any]) -> None:
    """A pool's window has one number for each axis and is at least twice as long as its padding."""
    sides, padding = attributes["kernel_size"], attributes["padding"]
    lengths = {len(attributes[key]) for key in LEAST if key in attributes}
    if len(lengths) > 1 or len(sides) not in (1, 2, 3):
        raise BadInput(f"{node.name!r} has the kernel_size {sides!r} and not as many other numbers")
    reach = attributes.get("dilation", (1,) * len(sides))
    windows = [far * (side - 1) + 1 for side, far in zip(sides, reach, strict=True)]
    if any(2 * n > window for n, window in zip(padding, windows, strict=True)):
        raise BadInput(f"{node.name!r} has the padding {padding!r}, more than half its window")
