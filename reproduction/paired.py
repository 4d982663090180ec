"""How sure the changes of accuracy are, of paths whose last networks are kept.

    python reproduction/paired.py DATA.npz --out reproduction/paired.json

The dense network and the last point of each path name the same test images. What one of them has
right and the other wrong decides the standard error of the change; where both agree nothing varies.
"""

import argparse
import math
from pathlib import Path

import torch
from speed import Last, lasts, network
from torch import Tensor, nn

from sparsepath.errors import as_script
from sparsepath.lab.data import Data, load, normalise
from sparsepath.lab.folders import circumstances
from sparsepath.storage import write_json


@torch.no_grad()
def right(model: nn.Module, data: Data, *, batch: int = 250) -> Tensor:
    """Which test images a network names rightly."""
    named = [model(normalise(images, data)).argmax(1) for images in data.test.images.split(batch)]
    return torch.cat(named) == data.test.labels


def compared(dense: Tensor, sparse: Tensor) -> dict[str, float]:
    """The images that only one of two has right, and the change of accuracy with its error."""
    lost, gained = int((dense & ~sparse).sum()), int((~dense & sparse).sum())
    count = len(dense)
    change = (gained - lost) / count
    variance = (gained + lost) / count - change**2
    return {
        "lost": lost,
        "gained": gained,
        "change": change,
        "standard_error": math.sqrt(variance / count),
    }


def pair(last: Last, data: Data) -> dict[str, float]:
    """The last point of one path beside the network that it came from."""
    assert last.weights is not None
    files = (last.dense, last.weights)
    return compared(*(right(network(last.record, file), data) for file in files))


def main() -> None:
    """Compare every last network that is kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data, found = load(given.data), {}
    for last in lasts(["cifar10"]):
        if last.weights is not None:
            found[last.name] = pair(last, data)
            print(last.name, found[last.name], flush=True)
    if given.out:
        machine = circumstances(torch.device("cpu"))
        write_json(given.out, {"test_images": len(data.test), "paths": found, **machine})


if __name__ == "__main__":
    as_script(main)
