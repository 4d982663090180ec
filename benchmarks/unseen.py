"""The networks of a run on test images that it never read, such as MNIST's own 10,000.

    python benchmarks/unseen.py RUN DATA [--out docs/digits/mnist.json]

DATA is what `--data` takes; its images must have the run's shape. Nothing is trained or chosen.
"""

import argparse
from pathlib import Path

import torch

from sparsepath.lab.data import load
from sparsepath.lab.folders import circumstances, gather
from sparsepath.lab.models import build
from sparsepath.lab.readers import read
from sparsepath.lab.training import accuracy
from sparsepath.lab.weights import load_checkpoint
from sparsepath.storage import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    record = gather(given.run)
    settings = record["settings"]
    data = load(settings["data"], validation=settings["validation"], seed=settings["seed"])
    images = read(given.data).test
    model = build(settings["network"], classes=data.classes, image_shape=data.image_shape)

    def judged(weights: str) -> float:
        load_checkpoint(model, given.run / weights)
        return accuracy(model, images, data)

    points = [
        {
            "zero blocks": point["sparsity"]["of_blocks"],
            "accuracy": judged(f"points/{point['index'] + 1:02d}.safetensors"),
        }
        for point in record["points"]
    ]
    found = {"images": len(images), "dense": judged("dense.safetensors"), "points": points}
    print(found)
    if given.out:
        about = {"settings": settings, **circumstances(torch.device("cpu"))}
        write_json(given.out, {**found, **about})


if __name__ == "__main__":
    main()
