"""What shipping gains: accuracy, bytes and time of the paper's CNN on CIFAR-10, made smaller.

    python benchmarks/shipping.py choose --data cifar10.npz --dense DENSE --weights SPARSE
    python benchmarks/shipping.py table --data cifar10.npz --weights SPARSE [--plans 4 3]

`choose` takes networks that were trained without the 5,000 validation images and writes what each
way gives on those; `table` takes ones trained on all training images and measures every row once on
the test images, from the file as written. Both go on where they were stopped. Times are CPU time of
one thread, all rows taking turns in one process; a ratio is the median of the rounds' ratios to the
dense network in the fastest runtime.
"""

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cpu_inference import measured, ratio
from shipping_networks import Pool, pool_of, teaching, with_sparse_fc1
from torch import Tensor, nn

from sparsepath.deploy import compact, compile, export, int8_onnx, int8_weights, load, save, share
from sparsepath.deploy.runtimes import Run
from sparsepath.deploy.tuning import machine
from sparsepath.lab.data import Data, Split, normalise
from sparsepath.lab.data import load as load_data
from sparsepath.lab.folders import circumstances
from sparsepath.lab.models import build
from sparsepath.lab.weights import load_checkpoint, load_weights
from sparsepath.storage import read_json, write_json

HERE = Path(__file__).parents[1]
RESULTS = HERE / "benchmarks" / "results"
DENSE = HERE / "reproduction" / "cifar10" / "dense" / "cnn.safetensors"
CALIBRATION = 512
# The first layer and the last are small and count for much.
PLANS: Mapping[str, dict[str, int]] = {
    "5": {"*": 5},
    "4": {"conv1": 5, "conv[234]": 4, "fc1": 4, "fc2": 5},
    "4, fc1 3": {"conv1": 5, "conv[234]": 4, "fc1": 3, "fc2": 5},
    "3": {"conv1": 5, "conv[234]": 3, "fc1": 3, "fc2": 5},
}
Make = Callable[[Path], object]


def network(path: Path, data: Data) -> tuple[nn.Module, str]:
    """The paper's CNN with the weights of an artifact or a checkpoint, and the file's digest."""
    model = build("cnn", classes=data.classes, image_shape=data.image_shape)
    if path.suffix == ".sparsepath":
        load_weights(model, load(path).model.state_dict(), path)
        return model.eval(), hashlib.sha256(path.read_bytes()).hexdigest()
    return model.eval(), load_checkpoint(model, path)


def example(data: Data, count: int) -> Tensor:
    """Some training images."""
    return normalise(data.train.images[:count], data)


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


def saved(model: nn.Module) -> Make:
    """Save a network as it is."""
    return lambda path: save(model, path, force=True)


def shared(small: nn.Module, plan: str, pool: Pool | None, steps: int, rate: float) -> Make:
    """Share a network's weights by a plan, trained or not, and save it."""
    train = teaching(pool, steps=steps, rate=rate) if pool is not None else None
    return lambda path: save(share(small, PLANS[plan], train=train), path, force=True)


def choose(given: argparse.Namespace) -> None:
    """Shares of zeros in fc1, plans of bits and rates, on the validation images."""
    data = load_data(given.data, validation=5000)
    dense, first = network(given.dense, data)
    model, digest = network(given.weights, data)
    about = {"dense": first, "weights": digest, "images": "validation", "steps": given.steps}
    about["pool"] = given.pool
    results = Results(given.out or RESULTS / "shipping-choice.json", about)
    results.content.update(circumstances(torch.device("cpu")))
    judge = partial(results.judge, data=data, split=data.validation)
    pool = pool_of(data, dense, given.pool)
    path = given.folder / "explored"
    judge("dense", path, saved(dense))
    judge("sparse", path, saved(model))
    if len(given.zeros) != len(given.plans):
        raise SystemExit("each candidate is a share of fc1 and a plan: give as many of both.")
    for zero, plan in zip(given.zeros, given.plans, strict=True):
        fewer = with_sparse_fc1(model, pool, zero=zero)
        small = compact(fewer, example(data, 2)).model
        name = f"fc1 {zero:g} zero"
        judge(name, path, saved(small))
        judge(f"{name}, {plan} bits, untrained", path, shared(small, plan, None, 0, 0))
        for rate in given.rates:
            make = shared(small, plan, pool, given.steps, rate)
            judge(f"{name}, {plan} bits, rate {rate:g}", path, make)


def table(given: argparse.Namespace) -> None:
    """Every row of the table, once, on the test images."""
    data = load_data(given.data)
    # All training images, as the networks were trained; the statistics stay those they know.
    data = replace(data, train=data.train.joined(data.validation))
    dense, first = network(given.dense, data)
    model, digest = network(given.weights, data)
    about = {
        **{"dense": first, "weights": digest, "images": "test", "cpu": machine()},
        "dense bytes": sum(x.nbytes for x in dense.parameters()),
        **{"fc1 zero": given.zeros[0], "steps": given.steps, "rate": given.rates[0]},
        "pool": given.pool,
    }
    results = Results(given.out or RESULTS / "shipping.json", about)
    results.content.update(circumstances(torch.device("cpu")))
    files = _files(given, data, dense, model)
    for name, (file, make) in files.items():
        results.judge(name, given.folder / file, make, data=data, split=data.test)
    plain = given.folder / "dense.safetensors"  # as torch would keep it
    export(dense, example(data, 2), plain, format="state-dict", force=True)
    results.rows["dense"]["bytes"] = plain.stat().st_size
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


def _files(
    given: argparse.Namespace, data: Data, dense: nn.Module, model: nn.Module
) -> dict[str, tuple[str, Make]]:
    """By row, the file and how it is made."""
    batches = list(example(data, CALIBRATION).split(64))
    pool = pool_of(data, dense, given.pool)
    fewer = with_sparse_fc1(model, pool, zero=given.zeros[0])
    small = compact(fewer, example(data, 2)).model
    plain: dict[str, nn.Module] = {
        "dense": dense,
        "sparse": model,
        "compact": compact(model, example(data, 2)).model,
        "sparse, fc1 too": small,
        "sparse + int8": int8_weights(small),
    }
    int8 = {"int8, onnx": dense, "sparse + int8, onnx": small}
    return {
        **{name: (name, saved(x)) for name, x in plain.items()},
        **{
            name: (f"{name}.onnx", partial(int8_onnx, x, batches, force=True))
            for name, x in int8.items()
        },
        **{
            f"sparse + shared, {plan} bits": (
                f"shared {plan}",
                shared(small, plan, pool, given.steps, given.rates[0]),
            )
            for plan in given.plans
        },
    }


def shown(results: Results) -> str:
    """The table in Markdown."""
    lines = ["| | accuracy | bytes | of dense | batch 1 | batch 64 |", "|---|---|---|---|---|---|"]
    for name, row in results.rows.items():
        cells = [
            name,
            f"{100 * row['accuracy']:.2f} %",
            f"{row['bytes']:,}",
            f"{row['bytes'] / results.content['dense bytes']:.4f}",
            *(f"{row[f'batch {n}']['dense over it']['median']:.2f} x" for n in (1, 64)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "table"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dense", type=Path, default=DENSE)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--zeros", nargs="+", type=float, default=[0.95], help="shares of fc1")
    parser.add_argument("--plans", nargs="+", default=["5", "4", "3"], choices=list(PLANS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pool", type=int, default=16_000, help="training images to learn from")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-3])
    parser.add_argument("--seconds", type=float, default=30.0, help="of timing, at each batch")
    parser.add_argument("--folder", type=Path, default=Path("runs/shipping"), help="for the files")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    {"choose": choose, "table": table}[given.what](given)


if __name__ == "__main__":
    main()
