"""How many training images networks name rightly: what they learned by heart.

    python reproduction/by_heart.py DATA.npz NETWORK ... --record RECORD.json [--out FILE.json]

NETWORK is a dense reference's weights, of the record's network, or an artifact. The images are
neither moved nor mirrored; accuracy and loss are in float32, of all training images and no other.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from sparsepath.deploy import load as load_artifact
from sparsepath.errors import as_script
from sparsepath.lab.data import Data, load, normalise
from sparsepath.lab.folders import circumstances
from sparsepath.lab.records import network_of
from sparsepath.storage import read_json, write_json


@torch.no_grad()
def known(model: nn.Module, data: Data, *, batch: int = 1000) -> dict[str, float]:
    """The share of the training images that a network names rightly, and its mean loss."""
    right = loss = 0.0
    split = data.train.joined(data.validation)  # of final networks, which trained on both
    for images, labels in zip(split.images.split(batch), split.labels.split(batch), strict=True):
        logits = model(normalise(images, data))
        right += int((logits.argmax(1) == labels).sum())
        loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
    return {"accuracy": right / len(split.labels), "loss": loss / len(split.labels)}


def main() -> None:
    """Look at every network that was named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    record, data = read_json(given.record), load(given.data)
    found = {}
    for path in given.networks:
        packed = path.suffix == ".sparsepath"
        model = load_artifact(path).model.eval() if packed else network_of(record, path)
        found[path.stem] = known(model, data)
        print(path.stem, found[path.stem], flush=True)
    if given.out:
        about = {"data": record["data"], "training_images": record["training_images"]}
        machine = circumstances(torch.device("cpu"))
        write_json(given.out, {**about, "networks": found, **machine})


if __name__ == "__main__":
    as_script(main)
