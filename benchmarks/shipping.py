"""What shipping gains: accuracy, bytes and time of the paper's CNN on CIFAR-10, made smaller.

    python benchmarks/shipping.py choose --data cifar10.npz --dense DENSE --weights SPARSE
    python benchmarks/shipping.py learn --data cifar10.npz --weights SPARSE [--device cuda]
    python benchmarks/shipping.py table --data cifar10.npz --weights SPARSE

`choose` takes networks that were trained without the 5,000 validation images and writes what one
recipe gives on those; `table` takes ones trained on all training images and measures every row once
on the test images, from the file as written; `learn` only makes the networks that the table needs,
perhaps on another machine, without a look at those images. All go on where they were stopped. Times
are CPU time of one thread, all rows taking turns in one process; a ratio is the median of the
rounds' ratios to the dense network in the fastest runtime.
"""

import argparse
import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from shipping_files import PLANS, Given, Learned, Make, example, files_of, saved
from torch import Tensor, nn

from sparsepath.deploy import compile, export, load
from sparsepath.deploy.measuring.runtimes import Run
from sparsepath.deploy.running.stamp import machine
from sparsepath.lab.data import Data, Split, normalise
from sparsepath.lab.data import load as load_data
from sparsepath.lab.folders import circumstances
from sparsepath.lab.memory import keep_freed
from sparsepath.lab.models import build
from sparsepath.lab.weights import load_checkpoint, load_weights
from sparsepath.storage import read_json, write_json

HERE = Path(__file__).parents[1]
RESULTS = HERE / "benchmarks" / "results"
DENSE = HERE / "reproduction" / "cifar10" / "dense" / "cnn-best.safetensors"


def network(path: Path, data: Data) -> tuple[nn.Module, str]:
    """The paper's CNN with the weights of an artifact or a checkpoint, and the file's digest."""
    model = build("cnn", classes=data.classes, image_shape=data.image_shape)
    if path.suffix == ".sparsepath":
        load_weights(model, load(path).model.state_dict(), path)
        return model.eval(), hashlib.sha256(path.read_bytes()).hexdigest()
    return model.eval(), load_checkpoint(model, path)


def opened(path: Path, images: Tensor) -> Run:
    """What runs a file: our runtime an artifact, onnxruntime an ONNX file."""
    if path.suffix != ".onnx":
        return compile(load(path).model, images, threads=1)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda given: torch.from_numpy(session.run(None, {name: given.numpy()})[0])


def accuracy(run: Run, split: Split, data: Data) -> float:
    """The share of images that a runtime names rightly."""
    right = 0
    for images, labels in zip(split.images.split(64), split.labels.split(64), strict=True):
        given = run(normalise(images, data))
        assert isinstance(given, Tensor)
        right += int((given.argmax(1) == labels).sum())
    return right / len(split)


class Results:
    """Rows in a file that is written after each, and read again when the work goes on."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {**about, "rows": {}}
        kept = read_json(path) if path.exists() else {}
        if all(kept.get(key) == value for key, value in about.items()):
            self.content = kept
        self.rows: dict[str, dict[str, Any]] = self.content["rows"]

    def judge(self, name: str, path: Path, make: Make, *, data: Data, split: Split) -> None:
        """Make a file and say what it gives, unless that is known."""
        if name in self.rows and path.exists():
            return
        began = time.perf_counter()
        make(path)
        seconds = time.perf_counter() - began
        self.rows[name] = {
            "accuracy": accuracy(opened(path, example(data, 64)), split, data),
            "bytes": path.stat().st_size,
            "seconds to make": round(seconds, 1),
        }
        self.write()
        print(name, self.rows[name], flush=True)

    def write(self) -> None:
        """Put the rows into the file."""
        write_json(self.path, self.content)


def choose(given: Given) -> None:
    """What a recipe gives on the validation images."""
    data = load_data(given.data, validation=5000)
    dense, first = network(given.dense, data)
    model, digest = network(given.weights, data)
    about = {"dense": first, "weights": digest, "images": "validation", **recipe(given)}
    learned = Learned(given, data, dense, model)
    candidate = learned.named(given.plan)
    results = Results(given.out or RESULTS / "shipping-choice" / f"{candidate}.json", about)
    results.content.update(circumstances(torch.device(given.device)))
    ways = {
        "dense": lambda: dense,
        "sparse": lambda: model,
        "sparse, fc1 too": lambda: learned.small(learned.thinned()),
        "shared": lambda: learned.shared(given.plan),
    }
    for name, made in ways.items():
        file = given.folder / f"{name} {candidate}"
        results.judge(name, file, saved(made), data=data, split=data.validation)


def recipe(given: Given) -> dict[str, Any]:
    """What is chosen on validation images."""
    names = ("zero", "plan", "steps", "thinning_rate", "rate")
    return {name.replace("_", " "): getattr(given, name) for name in names}


def all_training(given: Given) -> Data:
    """All training images, as the networks learned; the statistics stay those they know."""
    data = load_data(given.data)
    return replace(data, train=data.train.joined(data.validation))


def learn(given: Given) -> None:
    """The networks of the table that take long."""
    keep_freed()  # the next step wants what this one frees; no speed is measured here
    data = all_training(given)
    dense, model = network(given.dense, data)[0], network(given.weights, data)[0]
    Learned(given, data, dense, model).rounded(given.plan)


def table(given: Given) -> None:
    """Every row of the table, once, on the test images."""
    from cpu_inference import measured, ratio  # what learns has no need of the runtimes it names

    data = all_training(given)
    dense, first = network(given.dense, data)
    model, digest = network(given.weights, data)
    about = {
        **{"dense": first, "weights": digest, "images": "test", "cpu": machine()},
        **{"dense bytes": sum(x.nbytes for x in dense.parameters()), **recipe(given)},
    }
    results = Results(given.out or RESULTS / "shipping.json", about)
    results.content.update(circumstances(torch.device("cpu")))
    files = files_of(given, data, dense, model)
    for name, (file, make) in files.items():
        results.judge(name, given.folder / file, make, data=data, split=data.test)
    plain = given.folder / "dense.safetensors"  # as torch would keep it
    export(dense, example(data, 2), plain, format="state-dict", force=True)
    results.rows["dense"]["bytes"] = plain.stat().st_size
    results.write()
    for batch in given.batches:
        if all(f"batch {batch}" in row for row in results.rows.values()):
            continue
        images = example(data, batch)
        runs = {name: opened(given.folder / file, images) for name, (file, _) in files.items()}
        times = measured(runs, images, seconds=given.seconds, clock=time.process_time)
        for name, row in results.rows.items():
            row[f"batch {batch}"] = {
                "ms an image": round(1e3 * statistics.median(times[name]) / batch, 4),
                "dense over it": ratio(times["dense"], times[name]),
            }
        results.write()
    print(shown(results, given.batches))


def shown(results: Results, batches: Sequence[int]) -> str:
    """The table in Markdown."""
    names = ["", "accuracy", "bytes", "of dense", *(f"batch {n}" for n in batches)]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for name, row in results.rows.items():
        cells = [
            name,
            f"{100 * row['accuracy']:.2f} %",
            f"{row['bytes']:,}",
            f"{row['bytes'] / results.content['dense bytes']:.4f}",
            *(f"{row[f'batch {n}']['dense over it']['median']:.2f} x" for n in batches),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "learn", "table"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dense", type=Path, default=DENSE)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--zero", type=float, default=0.86, help="share of fc1")
    parser.add_argument("--plan", default="3", choices=list(PLANS))
    parser.add_argument("--steps", type=int, default=6000, help="of numbers; fc1 has half of them")
    parser.add_argument("--thinning-rate", type=float, default=3e-4)
    parser.add_argument("--rate", type=float, default=1e-4, help="while numbers are few")
    parser.add_argument("--device", default="cpu", help="where networks learn")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 64], help="to be timed")
    parser.add_argument("--seconds", type=float, default=30.0, help="of timing, at each batch")
    parser.add_argument("--folder", type=Path, default=Path("runs/shipping"), help="for the files")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    {"choose": choose, "learn": learn, "table": table}[given.what](given)


if __name__ == "__main__":
    main()
