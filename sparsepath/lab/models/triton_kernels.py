"""A chain's links, their gradients and its pool's, each in one pass over memory, in Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor

SIDES = {
    32: (16, 16),
    64: (32, 32),
    96: (64, 32),
    128: (64, 64),
    160: (128, 32),
    192: (128, 64),
}
"""How many maps a link may have, each as the two powers of two that Triton wants."""
STAGES = {True: 4, False: 3}
"""How many tiles are on their way at once, forward or backward: as many as the chip has room for,
timed on an H200."""
ROWS = 64
"""Rows of a tile, whose columns one program makes all: what it reads, no other reads again."""
PIXELS, MAPS = 32, 32
"""What one program of the pool makes."""
_ROOM = "shared_memory_per_block_optin"  # which torch's own stubs do not know
ROOMY = (
    torch.cuda.is_available()
    and getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), _ROOM) >= 220 * 1024
)
"""Whether a program can keep a weight of 192 x 192 and three tiles: on Hopper and later."""


@triton.jit
def _rows_product(
    left,
    right,
    beside,
    found,
    sums,
    rows,
    depth: tl.constexpr,
    width: tl.constexpr,
    FORWARD: tl.constexpr,
    ROWS: tl.constexpr,
    DEEP: tl.constexpr,
    DEEPER: tl.constexpr,
    WIDE: tl.constexpr,
    WIDER: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Forward: ReLU(left right^T + beside); else left right where beside > 0, and column sums.

    Each program keeps all of `right` and goes from tile to tile of rows. Sides that are no power of
    two come in two parts: 192 are 128 and 64.
    """
    one, two = tl.arange(0, WIDE), WIDE + tl.arange(0, WIDER)
    up, down = tl.arange(0, DEEP), DEEP + tl.arange(0, DEEPER)
    by_depth: tl.constexpr = 1 if FORWARD else width
    by_width: tl.constexpr = depth if FORWARD else 1
    if FORWARD:
        beside_one, beside_two = tl.load(beside + one)[None, :], tl.load(beside + two)[None, :]
    up_one = tl.load(right + up[:, None] * by_depth + one[None, :] * by_width)
    up_two = tl.load(right + up[:, None] * by_depth + two[None, :] * by_width)
    down_one = tl.load(right + down[:, None] * by_depth + one[None, :] * by_width)
    down_two = tl.load(right + down[:, None] * by_depth + two[None, :] * by_width)
    for tile in tl.range(tl.program_id(0), rows // ROWS, tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        ups = tl.load(left + row * depth + up[None, :])
        downs = tl.load(left + row * depth + down[None, :])
        total_one = tl.dot(downs, down_one, tl.dot(ups, up_one))
        total_two = tl.dot(downs, down_two, tl.dot(ups, up_two))
        at_one, at_two = row * width + one[None, :], row * width + two[None, :]
        if FORWARD:
            # What is no number stays none, that a loss may show it.
            total_one = tl.maximum(total_one + beside_one, 0.0, tl.PropagateNan.ALL)
            total_two = tl.maximum(total_two + beside_two, 0.0, tl.PropagateNan.ALL)
        else:
            total_one = tl.where(tl.load(beside + at_one) > 0, total_one, 0.0)
            total_two = tl.where(tl.load(beside + at_two) > 0, total_two, 0.0)
            tl.store(sums + tile * width + one, tl.sum(total_one, 0))
            tl.store(sums + tile * width + two, tl.sum(total_two, 0))
        tl.store(found + at_one, total_one.to(found.dtype.element_ty))
        tl.store(found + at_two, total_two.to(found.dtype.element_ty))


@triton.jit
def _winners(
    gradient,
    images,
    found,
    sums,
    pixels,
    width: tl.constexpr,
    maps: tl.constexpr,
    PIXELS: tl.constexpr,
    MAPS: tl.constexpr,
):
    across: tl.constexpr = (maps + MAPS - 1) // MAPS
    pixel = (tl.program_id(0) // across) * PIXELS + tl.arange(0, PIXELS)[:, None]
    chosen = (tl.program_id(0) % across) * MAPS + tl.arange(0, MAPS)[None, :]
    inside = (pixel < pixels) & (chosen < maps)
    # Pooled rows are half as wide; each stands over two rows of the images.
    first = ((pixel // width) * (4 * width) + (pixel % width) * 2) * maps + chosen
    second, third = first + maps, first + 2 * width * maps
    fourth = third + maps
    g = tl.load(gradient + pixel * maps + chosen, mask=inside, other=0.0)
    a = tl.load(images + first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(images + second, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(images + third, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(images + fourth, mask=inside, other=0.0).to(tl.float32)
    best = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    # The first of equals takes it all, as in torch; of zeros, which ReLU made, none.
    g = tl.where(best > 0, g, 0.0).to(found.dtype.element_ty)
    column = (tl.program_id(0) % across) * MAPS + tl.arange(0, MAPS)
    total = tl.sum(g.to(tl.float32), 0)
    tl.store(sums + (tl.program_id(0) // across) * maps + column, total, mask=column < maps)
    none = tl.zeros_like(g)
    by_a = a == best
    by_b = (b == best) & ~by_a
    by_c = (c == best) & ~by_a & ~by_b
    by_d = ~by_a & ~by_b & ~by_c
    tl.store(found + first, tl.where(by_a, g, none), mask=inside)
    tl.store(found + second, tl.where(by_b, g, none), mask=inside)
    tl.store(found + third, tl.where(by_c, g, none), mask=inside)
    tl.store(found + fourth, tl.where(by_d, g, none), mask=inside)


def _launch(
    left: Tensor, right: Tensor, beside: Tensor, found: Tensor, sums: Tensor, *, forward: bool
) -> None:
    (rows, depth), width = left.shape, found.shape[1]
    programs = torch.cuda.get_device_properties(left.device).multi_processor_count
    _rows_product[(programs,)](
        left,
        right,
        beside,
        found,
        sums,
        rows,
        depth,
        width,
        forward,
        ROWS,
        *SIDES[depth],
        *SIDES[width],
        STAGES[forward],
        num_warps=4,
    )


@torch.library.custom_op("sparsepath::product_relu", mutates_args=())
def product_relu(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU of a linear layer."""
    found: Tensor = _for_product(rows, weight, bias)
    _launch(rows, weight, bias, found, found, forward=True)
    return found


@product_relu.register_fake
def _for_product(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[0], weight.shape[0])


@torch.library.custom_op("sparsepath::masked_product", mutates_args=())
def masked_product(gradient: Tensor, weight: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """`gradient @ weight` where `below`, a ReLU's output, is positive; its column sums in parts."""
    found, sums = _for_masked(gradient, weight, below)
    _launch(gradient, weight, below, found, sums, forward=False)
    return found, sums


@masked_product.register_fake
def _for_masked(gradient: Tensor, weight: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    tiles = -(-gradient.shape[0] // ROWS)
    return torch.empty_like(below), below.new_empty(tiles, below.shape[1], dtype=torch.float32)


@torch.library.custom_op("sparsepath::winners", mutates_args=())
def winners(gradient: Tensor, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The gradient of a 2 x 2 max pool of a ReLU's output, rows of maps so wide; its sums."""
    pixels, maps = gradient.shape
    found, sums = _for_winners(gradient, rows, width)
    _winners[(len(sums) * triton.cdiv(maps, MAPS),)](
        gradient, rows, found, sums, pixels, width // 2, maps, PIXELS, MAPS, num_warps=4
    )
    return found, sums


@winners.register_fake
def _for_winners(gradient: Tensor, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    tiles = -(-gradient.shape[0] // PIXELS)
    return torch.empty_like(rows), rows.new_empty(tiles, rows.shape[1], dtype=torch.float32)
