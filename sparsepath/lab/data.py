"""Image data in three splits, its normalisation, and shifts and flips by the batch."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn import functional

from sparsepath.errors import BadInput, checked_count, checked_number
from sparsepath.lab.readers import Published, Split, read, read_digits

__all__ = ["Data", "Split", "augment", "load", "normalise"]


@dataclass(frozen=True, eq=False)
class Data:
    """Images in three splits, and the training pixels' mean and std per channel, in [0, 1]."""

    name: str
    classes: int
    train: Split
    validation: Split
    test: Split
    mean: torch.Tensor
    std: torch.Tensor

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        _, channels, height, width = self.train.images.shape
        return channels, height, width

    def digest(self) -> str:
        """What tells these pixels and labels, split as they are, from all others."""
        found = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            for part in (split.images, split.labels):
                found.update(part.cpu().flatten().numpy().data)
        return found.hexdigest()[:16]

    def to(self, device: torch.device | str) -> "Data":
        """The same data on a device."""
        return replace(
            self,
            train=self.train.to(device),
            validation=self.validation.to(device),
            test=self.test.to(device),
            mean=self.mean.to(device),
            std=self.std.to(device),
        )


def load(source: str | Path, *, validation: int | float = 0.125, seed: int = 0) -> Data:
    """The data of "digits", a file or a folder, with a count or share set aside for validation.

    Every class gives its share; the seed chooses the validation images and never the test images.
    """
    published = _digits() if source == "digits" else read(Path(source))
    classes = _checked_classes(published, source)
    wanted = _validation_count(validation, len(published.train))
    held_out = _stratified(published.train.labels, wanted, classes=classes, seed=seed)
    train = published.train.select(~held_out)
    if len(set(train.labels.tolist())) < classes:
        raise BadInput(
            f"validation = {validation!r} leaves a class of {str(source)!r} without training "
            "images; set fewer aside."
        )
    mean, std = _statistics(train.images, source)
    return Data(
        published.name, classes, train, published.train.select(held_out), published.test, mean, std
    )


def normalise(images: torch.Tensor, data: Data) -> torch.Tensor:
    """Pixels of 0 to 255 as float32 with the training images' mean 0 and standard deviation 1."""
    mean, std = data.mean[:, None, None], data.std[:, None, None]
    return (images.float() / 255 - mean) / std


def augment(
    images: torch.Tensor, generator: torch.Generator, *, pad: int, flip: bool
) -> torch.Tensor:
    """Each image shifted by up to `pad` pixels, zeros coming in, and flipped half of the time."""
    count, channels, height, width = images.shape
    drawn = generator.device
    shifts = torch.randint(2 * pad + 1, (2, count, 1), generator=generator, device=drawn)
    rows, columns = shifts.to(images.device)
    rows = rows + torch.arange(height, device=images.device)
    columns = columns + torch.arange(width, device=images.device)
    if flip:
        mirrored = torch.randint(2, (count, 1), generator=generator, device=drawn).bool()
        columns = torch.where(mirrored.to(images.device), columns.flip(1), columns)
    image = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[:, None, None]
    padded = functional.pad(images, (pad, pad, pad, pad))
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _digits() -> Published:
    """The embedded digits; the first of every five, 100 of each class, is for testing."""
    digits = read_digits()
    test = torch.arange(len(digits)) % 5 == 0
    return Published("digits", digits.select(~test), digits.select(test))


def _checked_classes(published: Published, source: str | Path) -> int:
    """How many classes there are, once each has training images and the test images fit."""
    train, test = published.train, published.test
    present = sorted(set(train.labels.tolist()))
    if len(present) < 2 or present != list(range(len(present))):
        raise BadInput(
            f"{str(source)!r} has training images of the classes {_shortened(present)}; "
            "there must be two or more, numbered from 0 without a gap."
        )
    if not set(test.labels.tolist()) <= set(present):
        raise BadInput(f"{str(source)!r} has test images of classes that have no training images.")
    if train.images.shape[1:] != test.images.shape[1:]:
        raise BadInput(
            f"{str(source)!r} has training images of {tuple(train.images.shape[1:])} and "
            f"test images of {tuple(test.images.shape[1:])}; they must be of one shape."
        )
    return len(present)


def _shortened(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:12])) + (", ..." if len(numbers) > 12 else "")


def _validation_count(validation: int | float, images: int) -> int:
    if isinstance(validation, float):
        share = checked_number("validation", validation)
        wanted = round(share * images)
    else:
        wanted = checked_count("validation", validation)
    if not 1 <= wanted < images:
        raise BadInput(
            f"validation = {validation!r} would set aside {wanted} of {images} training images; "
            "give a share below 1 or a count that leaves some for training."
        )
    return wanted


def _stratified(labels: torch.Tensor, wanted: int, *, classes: int, seed: int) -> torch.Tensor:
    """A mask over `wanted` images drawn by the seed, each class in proportion to its size."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(labels), generator=generator)
    position = torch.empty(len(labels), dtype=torch.float64)
    for label in range(classes):
        members = shuffled[labels[shuffled] == label]
        # Spread evenly over 0 to 1, so that any leading stretch holds each class in proportion.
        position[members] = (torch.arange(len(members)).double() + 0.5) / len(members)
    mask = torch.zeros(len(labels), dtype=torch.bool)
    mask[position.argsort(stable=True)[:wanted]] = True
    return mask


def _statistics(images: torch.Tensor, source: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation per channel, from exact counts of the 256 levels."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    counts = [channel.flatten().bincount(minlength=256) for channel in images.unbind(1)]
    shares = torch.stack(counts).double() / (images.numel() / images.shape[1])
    mean = shares @ levels
    std = (shares * (levels - mean[:, None]) ** 2).sum(1).sqrt()
    if not bool((std > 0).all()):
        raise BadInput(f"{str(source)!r} has a channel that is the same in every training pixel.")
    return mean.float(), std.float()
