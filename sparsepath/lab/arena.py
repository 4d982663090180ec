"""A data set on the device: whole epochs shuffled, cropped and mirrored at once, and accuracies."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from sparsepath.lab.data import Data, Split
from sparsepath.lab.engine import Lane


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
    ) -> None:
        """Keep the training images padded, with their pixels in rows (N, H, W, C).

        A `final` arena trains on the validation images too, every choice being frozen, and judges
        by the test images, by which nothing is chosen; any other judges by the validation images.
        """
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
        self.judged = self._ready(self.data.test if final else self.data.validation)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels as float32 of mean 0 and deviation 1 in each channel."""
        return pixels * self._scale + self._shift

    def _ready(self, split: Split) -> tuple[Tensor, Tensor]:
        pixels = self.normalise(split.images.permute(0, 2, 3, 1))
        return pixels.permute(0, 3, 1, 2), split.labels

    def accuracies(self, model: nn.Module) -> dict[str, float]:
        """The test accuracy of a final arena; else the validation accuracy, and nothing more."""
        return {"test" if self.final else "validation": accuracy(model, self.judged)}

    def steps(self, batch: int) -> int:
        """Full batches in an epoch; what is left over waits for the next shuffle."""
        return len(self.padded) // batch

    def example(self, batch: int, dtype: torch.dtype) -> Tensor:
        """A batch of the shape and dtype in which lanes store their images."""
        return torch.zeros(
            batch, *self.size, self.padded.shape[-1], dtype=dtype, device=self.device
        )

    @torch.no_grad()
    def fill(self, lane: Lane, generator: torch.Generator) -> None:
        """A fresh epoch for one lane: a new order, and a new crop and side for every image."""
        count = len(lane.labels)

        def draw(high: int) -> Tensor:
            return torch.randint(high, (count,), generator=generator, device=self.device)

        order = torch.randperm(len(self.padded), generator=generator, device=self.device)[:count]
        rows = draw(2 * self.pad + 1)[:, None] + torch.arange(self.size[0], device=self.device)
        across = torch.arange(self.size[1], device=self.device).expand(count, -1)
        if self.flip:
            across = torch.where(draw(2)[:, None] == 1, self.size[1] - 1 - across, across)
        columns = draw(2 * self.pad + 1)[:, None] + across
        # In parts: a whole epoch in float32 would take gigabytes for a moment.
        for part in torch.arange(count, device=self.device).split(10_000):
            picked = self.padded[order[part, None, None], rows[part, :, None], columns[part, None]]
            lane.images[part] = self.normalise(picked).to(lane.images.dtype)
        lane.labels.copy_(self.data.train.labels[order])


@torch.no_grad()
def accuracy(model: nn.Module, split: tuple[Tensor, Tensor], *, batch: int = 2500) -> float:
    """The share of (images, labels) that the model names rightly, in float32."""
    images, labels = split
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
