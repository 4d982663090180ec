"""Where the values of a network lie: maps in the 16 lanes (native/layout.h), and plain tensors."""

from dataclasses import dataclass, replace

from sparsepath.deploy.running.kernels import Pair
from sparsepath.deploy.running.library import CLayout, CMap
from sparsepath.errors import BadInput

LANES = 16
# Kernels count the floats of a channel in 32 bits, and may look a little beyond it.
LARGEST_TILE = 1 << 26


@dataclass(frozen=True)
class Layout:
    """How a map lies in the 16 lanes: in grid x grid tiles of tile_height x tile_width pixels."""

    height: int
    width: int
    grid: int
    tile_height: int
    tile_width: int

    def __post_init__(self) -> None:
        """Refuse what the kernels could not count."""
        if self.tile_height * self.tile_width > LARGEST_TILE:
            raise BadInput(
                f"Maps of {self.height} x {self.width} pixels are too large for the kernels in "
                f"{self.grid} x {self.grid} tiles: they take {LARGEST_TILE} pixels a tile."
            )

    @classmethod
    def of(cls, height: int, width: int, grid: int) -> "Layout":
        """The layout with the smallest tiles."""
        if grid not in (1, 2, 4):
            raise BadInput(f"grid must be 1, 2 or 4, not {grid!r}.")
        return cls(height, width, grid, -(-height // grid), -(-width // grid))

    def after(self, size: Pair, stride: Pair) -> "Layout | None":
        """The layout of a result of this size, where it can be computed lane by lane."""
        height, width = size
        if self.grid == 1:
            return Layout.of(height, width, 1)
        tile = (self.tile_height // stride[0], self.tile_width // stride[1])
        exact = tile[0] * stride[0] == self.tile_height and tile[1] * stride[1] == self.tile_width
        holds = tile[0] * self.grid >= height and tile[1] * self.grid >= width
        return Layout(height, width, self.grid, *tile) if exact and holds and min(tile) else None

    def before(self, size: Pair, stride: Pair) -> "Layout":
        """This map in tiles so large that the result of this size and stride fits lane by lane."""
        tile = [
            max(-(-now // self.grid), -(-then // self.grid) * step)
            for now, then, step in zip((self.height, self.width), size, stride, strict=True)
        ]
        tile = [-(-edge // step) * step for edge, step in zip(tile, stride, strict=True)]
        return Layout(self.height, self.width, self.grid, *tile)

    def vectors(self, batch: int) -> int:
        """The vectors of 16 lanes that one channel of a batch takes."""
        return -(-batch * self.grid * self.grid // LANES) * self.tile_height * self.tile_width

    def floats(self, channels: int, batch: int) -> int:
        """The floats of a buffer of such maps."""
        return self.vectors(batch) * channels * LANES


@dataclass(frozen=True)
class Map:
    """Channels of a buffer in the lane layout: `channels` of its `total`, from `first` on."""

    slot: int
    first: int
    channels: int
    total: int
    layout: Layout

    def part(self, first: int, channels: int) -> "Map":
        """Some of these channels: what is written there is written here."""
        if first < 0 or channels < 1 or first + channels > self.channels:
            raise BadInput(
                f"A map of {self.channels} channels has no channels {first} to "
                f"{first + channels - 1}."
            )
        return replace(self, first=self.first + first, channels=channels)

    def packed(self) -> CMap:
        """This map for the native side."""
        own = self.layout  # field by field: a new size packs each of its maps
        layout = CLayout(own.height, own.width, own.grid, own.tile_height, own.tile_width)
        return CMap(self.slot, self.first, self.channels, self.total, layout)


@dataclass(frozen=True)
class Plain:
    """An ordinary contiguous tensor of shape (batch, *shape)."""

    slot: int
    shape: tuple[int, ...]

    def packed(self) -> CMap:
        """This tensor for the native side."""
        channels, height, width = (*self.shape, 1, 1)[:3]
        return CMap(self.slot, 0, channels, channels, CLayout(height, width, 0, height, width))
