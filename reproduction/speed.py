"""Measures on this machine's CPU how fast the last networks of the paths are, for their records.

    python reproduction/speed.py [cifar10/paper/cnn-l0 cifar100 ...] [--seconds 5]
    python reproduction/speed.py --stand-ins reproduction/stand-ins.json

The dense network and the last point that was walked take turns in one process, in our runtime and
in onnxruntime, one thread, one image and 64 at a time. `build.py` makes the table. Where the last
weights were not kept, a stand-in is measured: the dense network without its smallest kernels, as
many in every layer as the point has zero. The second command measures what such stand-ins are
worth: beside the networks themselves, where those are kept.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sparsepath.blocks import kernels
from sparsepath.deploy import load
from sparsepath.deploy.files.opened import of_model
from sparsepath.deploy.measuring.sides import Effort, Side, Subject, sides
from sparsepath.deploy.measuring.timing import Speed
from sparsepath.deploy.running.stamp import machine
from sparsepath.lab.deploy_record import MANY, ONE, latency
from sparsepath.lab.records import network_of
from sparsepath.report.reported import EARLY, STANDING
from sparsepath.storage import read_json, write_json

HERE = Path(__file__).parent
RUNTIMES = ("sparsepath", "onnxruntime")
BATCHES = (ONE, MANY)
IMAGES = torch.randn(MANY, 3, 32, 32, generator=torch.Generator().manual_seed(0))
SHOWN = (*STANDING, EARLY)


def network(record: dict[str, Any], weights: Path) -> nn.Module:
    """The record's network with these weights, plain or packed, to be run."""
    if weights.suffix == ".sparsepath":
        return load(weights).model.eval()
    return network_of(record, weights)


def stand_in(record: dict[str, Any], weights: Path) -> nn.Module:
    """The dense network with as many zero kernels in each layer as the last point has."""
    model = network(record, weights)
    layers = dict(model.named_modules())
    for name, count in record["points"][-1]["sparsity"]["zero_blocks"].items():
        layer = layers[name.removesuffix(".weight")]
        blocks = kernels(layer)
        assert blocks is not None
        W = layer.get_parameter("weight").detach()
        norms = blocks.norms(W)
        alive = torch.ones(norms.numel(), dtype=torch.bool)
        alive[norms.flatten().argsort()[:count]] = False
        W.mul_(blocks.mask(alive.view(norms.shape)))
    return model


def gains(dense: Side, sparse: Side, batch: int) -> dict[str, float]:
    """How many times faster the sparse network is in our runtime than the dense one in each."""
    own = sparse.speeds[batch]["sparsepath"]
    assert isinstance(own, Speed)
    return {
        f"over dense in {runtime}": speed.p50 / own.p50
        for runtime, speed in dense.speeds[batch].items()
        if isinstance(speed, Speed)
    }


@dataclass(frozen=True)
class Last:
    """The last point of a path: its record, the dense network it came from, and its weights."""

    path: Path
    record: dict[str, Any]
    dense: Path
    weights: Path | None
    """None where they were not kept"""

    @property
    def name(self) -> str:
        """Where it is, from this folder on."""
        return str(self.path.relative_to(HERE).with_suffix(""))

    def subjects(self, *kinds: str) -> dict[str, Subject]:
        """The networks of these kinds, to be measured beside each other."""
        made = {
            "dense": lambda: network(self.record, self.dense),
            "sparse": lambda: network(self.record, self.weights or self.dense),
            "stand-in": lambda: stand_in(self.record, self.dense),
        }
        size = (self.weights or self.dense).stat().st_size
        return {kind: Subject(of_model(made[kind]()), size) for kind in kinds}


def lasts(wanted: Sequence[str]) -> Iterator[Last]:
    """The last point of every path that stands for one of the paper's, in these folders."""
    for path in sorted(HERE.glob("*/paper/*.json")):
        record, place = read_json(path), path.relative_to(HERE).with_suffix("")
        asked = not wanted or {str(each) for each in (place, *place.parents)} & {*wanted}
        if not asked or record["variant"] not in SHOWN:
            continue
        start = record.get("start", {"name": record["network"]})["name"]  # old ones do not say
        kept = [path.with_suffix(suffix) for suffix in (".sparsepath", ".safetensors")]
        weights = next((file for file in kept if file.exists()), None)
        dense = HERE / record["data"] / "dense" / f"{start}.safetensors"
        yield Last(path, record, dense, weights)


def measure(last: Last, effort: Effort) -> None:
    """Write into its record how much faster the last point, or its stand-in, is."""
    point = last.record["points"][-1]
    kind = "stand-in" if last.weights is None else "sparse"
    found = sides(last.subjects("dense", kind), IMAGES, BATCHES, effort)
    file = "a stand-in" if last.weights is None else last.weights.name
    point["latency"] = {
        **latency(found["dense"], found[kind], effort, file),
        "gains": by_batch(found, kind),
        "stand_in": last.weights is None,
    }
    write_json(last.path, last.record)
    print(last.name, point["latency"]["gains"], flush=True)


def by_batch(found: Mapping[str, Side], kind: str) -> dict[str, dict[str, float]]:
    """The gains of one kind of network at each size of batch."""
    return {f"batch {batch}": gains(found["dense"], found[kind], batch) for batch in BATCHES}


def main() -> None:
    """Measure the last points, or what their stand-ins are worth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", help="folders or records; all if none is given")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--stand-ins", type=Path, metavar="FILE")
    given = parser.parse_args()
    effort = Effort(seconds=given.seconds, names=RUNTIMES, memory=False)
    compared = {}
    for last in lasts(given.paths):
        if given.stand_ins is not None:
            if last.weights is not None:
                found = sides(last.subjects("dense", "sparse", "stand-in"), IMAGES, BATCHES, effort)
                compared[last.name] = {
                    kind: by_batch(found, kind) for kind in ("sparse", "stand-in")
                }
                print(last.name, compared[last.name], flush=True)
        elif last.weights is not None or "latency" not in last.record["points"][-1]:
            # What was measured while its weights were there stays.
            measure(last, effort)
    if given.stand_ins is not None:
        about = {"machine": machine(), "threads": effort.threads, "seconds": effort.seconds}
        write_json(given.stand_ins, {**about, "gains": compared})


if __name__ == "__main__":
    main()
