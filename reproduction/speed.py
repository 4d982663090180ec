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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
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
from sparsepath.errors import BadInput, as_script, checked_number
from sparsepath.lab.deploy_record import MANY, ONE, latency
from sparsepath.lab.records import network_of
from sparsepath.report.reported import SHOWN
from sparsepath.storage import read_json, write_json

HERE = Path(__file__).parent
RUNTIMES = ("sparsepath", "onnxruntime")
BATCHES = (ONE, MANY)
IMAGES = torch.randn(MANY, 3, 32, 32, generator=torch.Generator().manual_seed(0))


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

    def sides(self, effort: Effort, *, stand_ins: bool) -> dict[str, Side]:
        """The dense network, the sparse one if it is kept, and the stand-in, taking turns."""
        models = {"dense": (network(self.record, self.dense), self.dense)}
        if self.weights is not None:
            models["sparse"] = network(self.record, self.weights), self.weights
        if stand_ins:
            models["stand-in"] = stand_in(self.record, self.dense), self.dense
        subjects = {
            kind: Subject(of_model(model), file.stat().st_size)
            for kind, (model, file) in models.items()
        }
        return sides(subjects, IMAGES, BATCHES, effort)


def lasts(wanted: Sequence[str]) -> list[Last]:
    """The last points of all paths that the outcome shows, or of those in these places."""
    found = []
    for path in sorted(HERE.glob("*/paper/*.json")):
        record = read_json(path)
        start = record.get("start", {"name": record["network"]})["name"]  # old ones do not say
        kept = [path.with_suffix(suffix) for suffix in (".sparsepath", ".safetensors")]
        weights = next((file for file in kept if file.exists()), None)
        if record["variant"] in SHOWN:
            dense = HERE / record["data"] / "dense" / f"{start}.safetensors"
            found.append(Last(path, record, dense, weights))
    for place in wanted:
        if not any(_lies_in(last, place) for last in found):
            raise BadInput(
                f"No path here is {place!r}: give a folder, as cifar10, or a record, as "
                "cifar10/paper/cnn-l0."
            )
    return [x for x in found if not wanted or any(_lies_in(x, place) for place in wanted)]


def _lies_in(last: Last, place: str) -> bool:
    return f"{last.name}/".startswith(f"{place}/")


def measure(last: Last, effort: Effort) -> None:
    """Write into its record how much faster the last point, or its stand-in, is."""
    point, instead = last.record["points"][-1], last.weights is None
    kind = "stand-in" if instead else "sparse"
    found = last.sides(effort, stand_ins=instead)
    file = kind if last.weights is None else last.weights.name
    point["latency"] = {
        **latency(found["dense"], found[kind], effort, file),
        "gains": by_batch(found, kind),
        "stand_in": instead,
    }
    write_json(last.path, last.record)
    print(last.name, point["latency"]["gains"], flush=True)


def compare(several: Sequence[Last], effort: Effort, written: Path) -> None:
    """Write down what stand-ins gain beside the networks that they stand for."""
    gained = {}
    for last in several:
        if last.weights is not None:
            found = last.sides(effort, stand_ins=True)
            gained[last.name] = {kind: by_batch(found, kind) for kind in ("sparse", "stand-in")}
            print(last.name, gained[last.name], flush=True)
    about = {"machine": machine(), "threads": effort.threads, "seconds": effort.seconds}
    write_json(written, {**about, "gains": gained})


def by_batch(found: Mapping[str, Side], kind: str) -> dict[str, dict[str, float]]:
    """The gains of one kind of network at each size of batch."""
    return {f"batch {batch}": gains(found["dense"], found[kind], batch) for batch in BATCHES}


def main() -> None:
    """Measure the last points, or what their stand-ins are worth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="as cifar10, or cifar10/paper/cnn-l0; all if none")
    parser.add_argument("--seconds", type=float, default=5.0, help="of calls, at each batch")
    parser.add_argument("--stand-ins", type=Path, metavar="FILE", help="what they are worth")
    given = parser.parse_args()
    seconds = checked_number("--seconds", given.seconds)
    if find_spec("onnxruntime") is None:
        raise BadInput("The dense networks run in onnxruntime too: pip install '.[onnx]' first.")
    effort = Effort(seconds=seconds, names=RUNTIMES, memory=False)
    several = lasts(given.paths)
    if given.stand_ins is not None:
        compare(several, effort, given.stand_ins)
        return
    for last in several:
        # What was measured while its weights were there stays.
        if last.weights is not None or "latency" not in last.record["points"][-1]:
            measure(last, effort)


if __name__ == "__main__":
    as_script(main)
