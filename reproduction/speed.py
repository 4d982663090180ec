"""Measures on this machine's CPU how fast the last networks of the paths are, for their records.

    python reproduction/speed.py [cifar10 ...] [--seconds 5]

The dense network and the last point that was walked take turns in one process, in our runtime and
in onnxruntime, one thread, one image and 64 at a time. `build.py` makes the table.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sparsepath.deploy import load
from sparsepath.deploy.files.opened import of_model
from sparsepath.deploy.measuring.sides import Effort, Side, Subject, sides
from sparsepath.deploy.measuring.timing import Speed
from sparsepath.lab.deploy_record import MANY, ONE, latency
from sparsepath.lab.records import network_of
from sparsepath.storage import read_json, write_json

HERE = Path(__file__).parent
RUNTIMES = ("sparsepath", "onnxruntime")


def network(record: dict[str, Any], weights: Path) -> nn.Module:
    """The record's network with these weights, plain or packed, to be run."""
    if weights.suffix == ".sparsepath":
        return load(weights).model.eval()
    return network_of(record, weights)


def gains(dense: Side, sparse: Side, batch: int) -> dict[str, float]:
    """How many times faster the sparse network is in our runtime than the dense one in each."""
    own = sparse.speeds[batch]["sparsepath"]
    assert isinstance(own, Speed)
    return {
        f"over dense in {runtime}": speed.p50 / own.p50
        for runtime, speed in dense.speeds[batch].items()
        if isinstance(speed, Speed)
    }


def main() -> None:
    """Measure every path whose last weights are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", help="the data sets; all if none is given")
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    effort = Effort(seconds=given.seconds, names=RUNTIMES, memory=False)
    images = torch.randn(MANY, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for path in sorted(HERE.glob("*/paper/*.json")):
        kept = [path.with_suffix(suffix) for suffix in (".sparsepath", ".safetensors")]
        weights = next((file for file in kept if file.exists()), None)
        if weights is None or (given.data and path.parts[-3] not in given.data):
            continue
        record = read_json(path)
        start = record.get("start", {"name": record["network"]})["name"]  # old ones do not say
        place = HERE / record["data"] / "dense" / f"{start}.safetensors"
        subjects = {
            name: Subject(of_model(network(record, file)), file.stat().st_size)
            for name, file in (("dense", place), ("sparse", weights))
        }
        found = sides(subjects, images, (ONE, MANY), effort)
        dense, sparse = found["dense"], found["sparse"]
        record["points"][-1]["latency"] = {
            **latency(dense, sparse, effort, weights.name),
            "gains": {f"batch {batch}": gains(dense, sparse, batch) for batch in (ONE, MANY)},
        }
        write_json(path, record)
        print(path.stem, record["points"][-1]["latency"]["gains"], flush=True)


if __name__ == "__main__":
    main()
