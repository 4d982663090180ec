"""Which blocks of a layer live at each point, packed so small that a page can carry them."""

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput
from sparsepath.lab.choices import partition_of
from sparsepath.lab.folders import Record
from sparsepath.lab.models import build
from sparsepath.storage import read_tensors

Alive = npt.NDArray[np.bool_]
WRAPPED = 64
"""A single row or column of more blocks than this is shown as a rectangle."""
SIDES = (256, 128, 64, 32, 16)
"""Of the rectangles to which maps are pooled where the blocks themselves are too many."""


@dataclass(frozen=True)
class BlockMap:
    """The blocks of one layer in rows and columns, and which of them live at each point."""

    rows: int
    columns: int
    count: int
    """of blocks; the last row may hold less than the others"""
    points: Mapping[str, Alive] = field(repr=False)
    """by the number of the point"""

    def packed(self, side: int | None = None) -> dict[str, Any]:
        """As JSON holds it: one bit a block, or one byte for each tile of so many on a side."""
        shape = (self.rows, self.columns)
        tile = (1, 1) if side is None else tuple(math.ceil(length / side) for length in shape)
        about = {key: value for key, value in asdict(self).items() if key != "points"}
        pack = _bits if tile == (1, 1) else lambda alive: _shares(alive, shape, tile)
        return {
            **about,
            "tile": list(tile),
            "points": {
                number: base64.b64encode(pack(alive)).decode()
                for number, alive in self.points.items()
            },
        }


def _bits(alive: Alive) -> bytes:
    return np.packbits(alive).tobytes()


def _shares(alive: Alive, shape: tuple[int, int], tile: tuple[int, ...]) -> bytes:
    """The share of live blocks in each tile, from 0 to 255."""
    padded = np.full([math.ceil(n / t) * t for n, t in zip(shape, tile, strict=True)], np.nan)
    whole = np.full(math.prod(shape), np.nan)
    whole[: alive.size] = alive
    padded[: shape[0], : shape[1]] = whole.reshape(shape)
    high, wide = (n // t for n, t in zip(padded.shape, tile, strict=True))
    cells = padded.reshape(high, tile[0], wide, tile[1])
    live, there = np.nansum(cells, axis=(1, 3)), (~np.isnan(cells)).sum(axis=(1, 3))
    packed: bytes = np.round(255 * live / np.maximum(there, 1)).astype(np.uint8).tobytes()
    return packed


def arranged(blocks: Blocks) -> tuple[int, int]:
    """Rows and columns: what lies along the weight's first axis, and all the rest."""
    axis = len(blocks.parts[0])
    rows, columns = math.prod(blocks.grid[:axis]), math.prod(blocks.grid[axis:])
    if min(rows, columns) > 1 or max(rows, columns) <= WRAPPED:
        return rows, columns
    columns = math.ceil(math.sqrt(blocks.count))
    return math.ceil(blocks.count / columns), columns


def block_maps(folder: Path, record: Record) -> dict[str, BlockMap]:
    """The maps of every layer that a run sparsifies, from its points' weights, where they are."""
    found = list(_weights(folder, record["points"]))
    if not found or not record["dense"]:
        return {}
    maps = {}
    for layer, blocks in _blocks(record, found[0][2]).items():
        alive = {
            number: blocks.alive(weights[layer]).numpy().ravel()
            for number, weights, _ in found
            if layer in weights and tuple(weights[layer].shape) == blocks.shape
        }
        rows, columns = arranged(blocks)
        maps[layer] = BlockMap(rows, columns, blocks.count, alive)
    return maps


def weights_file(point: Record) -> Path:
    """Where a run's folder holds the weights of a point."""
    return Path("points", f"{point['index'] + 1:02d}.safetensors")


def _weights(
    folder: Path, points: Sequence[Record]
) -> Iterator[tuple[str, Mapping[str, torch.Tensor], Mapping[str, str]]]:
    for point in points:
        try:
            yield str(point["index"] + 1), *read_tensors(folder / weights_file(point))
        except BadInput:  # the figures may have been copied without their weights
            continue


def _blocks(record: Record, header: Mapping[str, str]) -> dict[str, Blocks]:
    """The blocks of every sparsified layer, for which the network is built without its numbers."""
    try:
        about = json.loads(header["sparsepath"])
        with torch.device("meta"):
            network = build(
                about["network"], classes=about["classes"], image_shape=about["image_shape"]
            )
        partition = partition_of(record["settings"]["blocks"])
        cut = {
            name: partition(network.get_submodule(name.rpartition(".")[0]))
            for name in record["dense"]["blocks"]
        }
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError):
        return {}  # of another version, or not of one of our networks
    return {name: blocks for name, blocks in cut.items() if blocks is not None}


def pack_all(
    runs: Sequence[Mapping[str, BlockMap]], *, room: int
) -> tuple[list[dict[str, Any]], bool]:
    """The maps of all runs in at most so many characters, pooled alike, and whether all fit."""
    for side in (None, *SIDES):
        if _characters(runs, side) <= room:
            return [{name: each.packed(side) for name, each in maps.items()} for maps in runs], True
    return [{} for _ in runs], False


def _characters(runs: Sequence[Mapping[str, BlockMap]], side: int | None) -> int:
    """How long the packed maps would be, without packing them."""
    total = 0
    for each in (each for maps in runs for each in maps.values()):
        size = math.ceil(each.count / 8)
        if side is not None:
            tiles = [math.ceil(n / math.ceil(n / side)) for n in (each.rows, each.columns)]
            size = size if tiles == [each.rows, each.columns] else math.prod(tiles)
        total += len(each.points) * (4 * math.ceil(size / 3) + 16) + 200
    return total
