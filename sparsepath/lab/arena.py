"""A data set on the device: whole epochs shuffled, cropped and mirrored at once, and accuracies."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from sparsepath.errors import BadInput
from sparsepath.lab.data import Data, Split
from sparsepath.lab.lane import Lane


class Arena:
    """The images of a data set on one device, ready to fill the lanes of an engine."""

    def __init__(
        self,
        data: Data,
        device: torch.device,
        *,
        pad: int = 4,
        flip: bool = True,
        final: bool = False,
        bfloat16: bool | None = None,
    ) -> None:
        """Keep the training images padded, with their pixels in rows (N, H, W, C).

        No epoch can shift its images by more than `pad` pixels.
        A `final` arena trains on the validation images too, every choice being frozen, and judges
        by the test images, by which nothing is chosen; any other judges by the validation images.
        Networks train on these images in bfloat16 on a GPU, elsewhere in float32, unless told.
        """
        self.digest = data.digest()
        data = data.to(device)
        self.data = replace(data, train=data.train.joined(data.validation)) if final else data
        self.device = device
        self.pad, self.flip = pad, flip
        images = self.data.train.images
        # Padding has the mean's colour, which normalises to zero, as in the usual recipe.
        mean = (self.data.mean.to(device) * 255).round().to(torch.uint8)
        count, channels, height, width = images.shape
        self.padded = mean.expand(count, height + 2 * pad, width + 2 * pad, channels).contiguous()
        self.padded[:, pad : pad + height, pad : pad + width] = images.permute(0, 2, 3, 1)
        self.size = (height, width)
        self._scale = (1 / (255 * self.data.std)).to(device)
        self._shift = (-self.data.mean / self.data.std).to(device)
        self.final = final
        # One kernel on a GPU; elsewhere a whole epoch in float32 would take gigabytes for a moment.
        compiled = device.type == "cuda"
        halved = compiled if bfloat16 is None else bfloat16
        self.dtype = torch.bfloat16 if halved else torch.float32
        self._crops = torch.compile(crops, dynamic=False) if compiled else crops
        self._at_once = None if compiled else 10_000
        self.judged = self._ready(self.data.test if final else self.data.validation)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels as float32 of mean 0 and deviation 1 in each channel."""
        return pixels * self._scale + self._shift

    def _ready(self, split: Split) -> tuple[Tensor, Tensor]:
        pixels = self.normalise(split.images.permute(0, 2, 3, 1))
        return pixels.permute(0, 3, 1, 2), split.labels

    @property
    def judges(self) -> str:
        """What the images that judge are: test images in a final arena, else validation images."""
        return "test" if self.final else "validation"

    def accuracies(self, model: nn.Module) -> dict[str, float]:
        """The accuracy by the images that judge, and nothing more."""
        return {self.judges: accuracy(model, self.judged)}

    def steps(self, batch: int) -> int:
        """Full batches in an epoch; what is left over waits for the next shuffle."""
        return len(self.padded) // batch

    def example(self, batch: int) -> Tensor:
        """A batch of the shape and dtype in which lanes store their images."""
        shape = (batch, *self.size, self.padded.shape[-1])
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @torch.no_grad()
    def fill(self, lane: Lane, generator: torch.Generator, *, shift: int, hole: int = 0) -> None:
        """A fresh epoch for one lane: a new order, and a new crop and side for every image.

        An image is shifted by up to so many pixels each way, and a square of this side, its centre
        anywhere in the image, is blanked: cutout (DeVries and Taylor 2017).
        """
        for what, given, most in (("shift", shift, self.pad), ("hole", hole, min(self.size))):
            if not 0 <= given <= most:
                raise BadInput(f"{what} is a number of pixels from 0 to {most}, not {given!r}.")
        count = len(lane.labels)

        def draw(high: int) -> Tensor:
            return torch.randint(high, (count,), generator=generator, device=self.device)

        order = torch.randperm(len(self.padded), generator=generator, device=self.device)[:count]
        top = draw(2 * shift + 1) + (self.pad - shift)
        mirrored = draw(2) == 1 if self.flip else torch.zeros_like(top, dtype=torch.bool)
        left = draw(2 * shift + 1) + (self.pad - shift)
        # Drawn last, and only if wanted: epochs without holes are what they always were.
        holes = [draw(length) - hole // 2 for length in self.size] if hole else []
        step = self._at_once or count
        for part in (slice(first, first + step) for first in range(0, count, step)):
            lane.images[part] = self._crops(
                self.padded,
                *(drawn[part] for drawn in (order, top, left, mirrored)),
                holes=tuple(drawn[part] for drawn in holes),
                hole=hole,
                size=self.size,
                scale=self._scale,
                shift=self._shift,
                dtype=lane.images.dtype,
            )
        lane.labels.copy_(self.data.train.labels[order])


def crops(
    padded: Tensor,
    order: Tensor,
    top: Tensor,
    left: Tensor,
    mirrored: Tensor,
    *,
    holes: tuple[Tensor, ...] = (),
    hole: int = 0,
    size: tuple[int, int],
    scale: Tensor,
    shift: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """The images of this order, each cropped from its corner, perhaps mirrored, and normalised.

    With the corners of `holes` each has its mean colour in a square of side `hole`.
    """
    rows = top[:, None] + torch.arange(size[0], device=top.device)
    across = torch.arange(size[1], device=top.device)
    columns = left[:, None] + torch.where(mirrored[:, None], across.flip(0), across)
    picked = padded[order[:, None, None], rows[:, :, None], columns[:, None]]
    pixels = picked * scale + shift
    if holes:
        places = (
            torch.arange(length, device=top.device) - corner[:, None]
            for length, corner in zip(size, holes, strict=True)
        )
        down, right = ((place >= 0) & (place < hole) for place in places)
        pixels = torch.where((down[:, :, None] & right[:, None])[..., None], 0.0, pixels)
    return pixels.to(dtype)


@torch.no_grad()
def accuracy(model: nn.Module, split: tuple[Tensor, Tensor]) -> float:
    """The share of (images, labels) that the model names rightly, in float32."""
    images, labels = split
    # A GPU wants many at once; elsewhere their maps would take gigabytes, and no less time.
    batch = 2500 if images.is_cuda else 250
    training = model.training
    model.eval()
    batches = zip(images.split(batch), labels.split(batch), strict=True)
    rounded = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False  # a GPU's 10-bit stand-in for float32
    try:
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
    finally:
        torch.backends.cudnn.allow_tf32 = rounded
    model.train(training)
    return right / len(labels)
