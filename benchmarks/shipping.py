"""What shipping gains: accuracy, bytes and time of the paper's CNN on CIFAR-10, made smaller.

    python benchmarks/shipping.py choose --data cifar10.npz --weights EXPLORED
    python benchmarks/shipping.py table --data cifar10.npz --weights FINAL [--bits 5 4 3]

`choose` takes a sparse network that was trained without 5,000 validation images, shares its weights
in several ways and writes what each gives on those images. `table` takes one that was trained on
all training images and measures every row once on the test images, from the file as written. Both
go on where they were stopped. Times are CPU time of one thread, all rows taking turns in one
process; a ratio is the median of the rounds' ratios to the dense network in its fastest runtime.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cpu_inference import Run, measured, ratio
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.deploy import compact, compile, export, int8_onnx, int8_weights, load, save, share
from sparsepath.deploy.tuning import machine
from sparsepath.lab.data import Data, Split, augment, normalise
from sparsepath.lab.data import load as load_data
from sparsepath.lab.folders import circumstances
from sparsepath.lab.models import build
from sparsepath.lab.weights import load_checkpoint
from sparsepath.storage import read_json, write_json

HERE = Path(__file__).parents[1]
RESULTS = HERE / "benchmarks" / "results"
DENSE = HERE / "reproduction" / "cifar10" / "dense" / "cnn.safetensors"
BATCH = 128
CALIBRATION = 512
Bits = int | dict[str, int]
# The first layer and the last are small and count for much.
PLANS: Mapping[str, Bits] = {
    "6": 6,
    "5": 5,
    "4": 4,
    "3": 3,
    "4, fc1 3": {"conv*": 4, "fc1": 3, "fc2": 4},
    "3, ends 5": {"conv1": 5, "conv[234]": 3, "fc1": 3, "fc2": 5},
    "3, ends 5, fc1 2": {"conv1": 5, "conv[234]": 3, "fc1": 2, "fc2": 5},
}


def network(path: Path, data: Data) -> tuple[nn.Module, str]:
    """The paper's CNN with a file's weights, and the file's digest."""
    model = build("cnn", classes=data.classes, image_shape=data.image_shape)
    digest = load_checkpoint(model, path)
    return model.eval(), digest


def training(data: Data, *, steps: int, rate: float) -> Callable[[nn.Module], None]:
    """A short loop for the shared numbers: Adam, whose rate falls to nothing by a cosine."""

    def train(model: nn.Module) -> None:
        generator = torch.Generator().manual_seed(0)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
            picked = torch.randint(len(data.train), (BATCH,), generator=generator)
            images = normalise(data.train.images[picked], data)
            images = augment(images, generator, pad=4, flip=True)
            images = images.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            functional.cross_entropy(model(images), data.train.labels[picked]).backward()
            optimizer.step()

    return train


def accuracy(run: Run, split: Split, data: Data) -> float:
    """The share of images that a runtime names rightly."""
    right = 0
    for images, labels in zip(split.images.split(64), split.labels.split(64), strict=True):
        given = run(normalise(images, data))
        assert isinstance(given, Tensor)
        right += int((given.argmax(1) == labels).sum())
    return right / len(split)


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


def example(data: Data, count: int) -> Tensor:
    return normalise(data.train.images[:count], data)


class Results:
    """A results file that is written after every row, and read when the work goes on."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {**about, "rows": {}}
        if path.exists():
            kept = read_json(path)
            if all(kept.get(key) == value for key, value in about.items()):
                self.content = kept

    @property
    def rows(self) -> dict[str, Any]:
        rows: dict[str, Any] = self.content["rows"]
        return rows

    def write(self) -> None:
        write_json(self.path, self.content)


def choose(given: argparse.Namespace) -> None:
    """Every plan, untrained and trained in a few ways, on the validation images."""
    data = load_data(given.data, validation=5000)
    model, digest = network(given.weights, data)
    small = compact(model, example(data, 2)).model
    about = {"weights": digest, "images": "validation", **circumstances(torch.device("cpu"))}
    results = Results(given.out or RESULTS / "shipping-choice.json", about)
    path = given.folder / "explored"

    def judge(name: str, make: Callable[[], nn.Module]) -> None:
        if name in results.rows:
            return
        began = time.perf_counter()
        save(make(), path, force=True)
        seconds = time.perf_counter() - began
        row = {
            "bytes": path.stat().st_size,
            "validation": accuracy(opened(path, example(data, 64)), data.validation, data),
            "seconds": round(seconds, 1),
        }
        results.rows[name] = row
        results.write()
        print(name, row, flush=True)

    judge("as it is", lambda: small)
    judge("int8", lambda: int8_weights(small))
    for plan in given.plans:
        judge(plan, lambda plan=plan: share(small, PLANS[plan]))  # type: ignore[misc]
        for steps in given.steps:
            for rate in given.rates:
                train = training(data, steps=steps, rate=rate)
                judge(
                    f"{plan}; {steps} steps at {rate:g}",
                    lambda plan=plan, train=train: share(  # type: ignore[misc]
                        small, PLANS[plan], train=train
                    ),
                )


def table(given: argparse.Namespace) -> None:
    """Every row of the table, once, on the test images."""
    data = load_data(given.data)
    # All training images, as the network itself was trained; the statistics stay those it knows.
    whole = replace(data, train=data.train.joined(data.validation))
    dense, first = network(given.dense, data)
    model, digest = network(given.weights, data)
    small = compact(model, example(data, 2)).model
    zeros = {name: x for name, x in model.named_parameters() if x.dim() > 1}
    about = {
        "dense": first,
        "weights": digest,
        "images": "test",
        "zero weights": _zero_share(zeros),
        "dense bytes": sum(x.nbytes for x in dense.parameters()),
        "steps": given.steps[0],
        "rate": given.rates[0],
        "cpu": machine(),
        **circumstances(torch.device("cpu")),
    }
    results = Results(given.out or RESULTS / "shipping.json", about)
    batches = list(example(whole, CALIBRATION).split(64))
    train = training(whole, steps=given.steps[0], rate=given.rates[0])

    def shared(plan: str) -> Callable[[Path], object]:
        return lambda path: save(share(small, PLANS[plan], train=train), path, force=True)

    files: dict[str, tuple[str, Callable[[Path], object]]] = {
        "dense": ("dense", lambda path: save(dense, path, force=True)),
        "sparse": ("sparse", lambda path: save(model, path, force=True)),
        "compact": ("compact", lambda path: save(small, path, force=True)),
        "int8": ("int8.onnx", lambda path: int8_onnx(dense, batches, path, force=True)),
        "sparse + int8": (
            "sparse-int8",
            lambda path: save(int8_weights(small), path, force=True),
        ),
        "sparse + int8, onnx": (
            "sparse-int8.onnx",
            lambda path: int8_onnx(small, batches, path, force=True),
        ),
        **{
            f"sparse + shared, {plan} bits": (f"shared-{plan}", shared(plan))
            for plan in given.plans
        },
    }
    for name, (file, make) in files.items():
        path = given.folder / file
        if name in results.rows and path.exists():
            continue
        make(path)
        size = path.stat().st_size
        if name == "dense":  # as torch would keep it
            plain = given.folder / "dense.safetensors"
            export(dense, example(data, 2), plain, format="state-dict", force=True)
            size = plain.stat().st_size
        found = accuracy(opened(path, example(data, 64)), data.test, data)
        results.rows[name] = {
            "accuracy": found,
            "bytes": size,
            "of dense": round(size / about["dense bytes"], 4),
        }
        results.write()
        print(name, results.rows[name], flush=True)
    for batch in (1, 64):
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
    print(shown(results))


def _zero_share(weights: Mapping[str, Tensor]) -> float:
    zero = sum(int((x == 0).sum()) for x in weights.values())
    return round(zero / sum(x.numel() for x in weights.values()), 4)


def shown(results: Results) -> str:
    """The table in Markdown."""
    lines = ["| | accuracy | bytes | of dense | batch 1 | batch 64 |", "|---|---|---|---|---|---|"]
    for name, row in results.rows.items():
        speeds = [row[f"batch {batch}"]["dense over it"]["median"] for batch in (1, 64)]
        lines.append(
            f"| {name} | {100 * row['accuracy']:.2f} % | {row['bytes']:,} | {row['of dense']:.3f} "
            + "".join(f"| {speed:.2f} x " for speed in speeds)
            + "|"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "table"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dense", type=Path, default=DENSE)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--plans", nargs="+", default=["5", "4", "3"], choices=list(PLANS))
    parser.add_argument("--steps", nargs="+", type=int, default=[200])
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-4])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--folder", type=Path, default=Path("runs/shipping"), help="for the files")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    {"choose": choose, "table": table}[given.what](given)


if __name__ == "__main__":
    main()
