"""A data set and a run so small that a test can make several."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from sparsepath.lab.settings import Settings


def tiny_data(folder: Path) -> Path:
    """200 training and 80 test images of 12 x 12 in four classes that are easy to tell."""
    random = np.random.default_rng(0)
    centres = random.integers(0, 256, (4, 12, 12))

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 4
        noisy = 0.6 * centres[labels] + random.integers(0, 100, (count, 12, 12))
        return noisy.clip(0, 255).astype(np.uint8), labels

    x_train, y_train = images(200)
    x_test, y_test = images(80)
    path = folder / "tiny.npz"
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return path


def tiny_settings(source: Path, **changes: object) -> Settings:
    """A run of two dense epochs and two points of two iterations each."""
    quick = Settings(
        data=str(source), dense_epochs=2, points=2, delta=1, xi=2, shift=1, epsilon=0.0
    )
    return replace(quick, **changes)


def tiny_options(data: Path) -> list[str]:
    """The same settings for the command line."""
    quick = "--dense-epochs 2 --points 2 --delta 1 --xi 2 --shift 1 --epsilon 0"
    return ["--data", str(data), *quick.split()]
