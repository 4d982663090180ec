"""How fast whole networks run on this CPU: ratios to public runtimes and to our dense kernels.

    python benchmarks/cpu_inference.py [--networks nin cnn] [--zeros 0 .5 paper] [--batches 1 64]
        [--threads 1 2] [--peers torch onnxruntime] [--out benchmarks/results/cpu_inference.json]

All runtimes of a case take turns in one process, so that a busy neighbour slows them alike; a ratio
is the median of the ratios of the rounds, with its quartiles. With one thread the process's own
CPU time counts, with more the clock on the wall. Kernels are pruned at random, weights are random.
"""

import argparse
import copy
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy import Runtime, compile
from sparsepath.deploy.capture import capture
from sparsepath.deploy.dense import in_onnxruntime
from sparsepath.deploy.fold import folded
from sparsepath.deploy.report import Report
from sparsepath.deploy.tuning import machine
from sparsepath.lab.models import NETWORKS, PUBLISHED, Network
from sparsepath.storage import write_json

PAPER = Path(__file__).parents[1] / "reproduction" / "paper.json"
Run = Callable[[Tensor], object]
# A turn is so many seconds of calls: caches are then as in a loop of one's own.
TURN = 0.02


@dataclass(frozen=True)
class Case:
    """One network, pruned in one way."""

    network: str
    zero: str
    """a share, or 'paper' for the paper's own counts"""
    pointwise: bool
    """whether 1 x 1 convolutions are pruned too"""

    def __str__(self) -> str:
        return f"{self.network}, zero {self.zero}{', 1 x 1 too' if self.pointwise else ''}"


def built(case: Case) -> nn.Module:
    """The network with random weights and as many zero kernels as the case wants."""
    torch.manual_seed(0)
    builders: dict[str, Callable[[int, int], nn.Module]] = {**NETWORKS, **PUBLISHED}
    model = builders[case.network](10, 3).eval()
    weights = pruned_weights(model, pointwise=case.pointwise)
    blocks = [len(weight) * (1 if weight.dim() == 2 else weight.shape[1]) for weight in weights]
    if case.zero == "paper":
        zeros = paper_counts(case.network)
    else:
        zeros = [round(float(case.zero) * count) for count in blocks]
    for weight, count, zero in zip(weights, blocks, zeros, strict=True):
        weight.detach().view(count, -1)[torch.randperm(count)[:zero]] = 0
    return model


def pruned_weights(model: nn.Module, *, pointwise: bool) -> list[Tensor]:
    """The weights to prune: of the paper's networks the paper's, else all but the classifier's."""
    if isinstance(model, Network) and not pointwise:
        return [model.get_parameter(f"{name}.weight") for name in model.sparsified]
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    return [layer.weight for layer in layers[:-1] if getattr(layer, "groups", 1) == 1]


def paper_counts(network: str) -> list[int]:
    """The zero blocks of the paper's sparsest l0 network on CIFAR-10, layer by layer."""
    tables = json.loads(PAPER.read_text(encoding="utf-8"))["tables"]["cifar10"]
    counts: list[int] = tables[network.replace("-", "_")]["l0"][-1]["zero_filters"]
    return counts


def runtimes(
    model: nn.Module, dense: nn.Module, images: Tensor, *, threads: int, peers: list[str]
) -> dict[str, Run]:
    """Everything that takes part, ours first."""
    found: dict[str, Run] = {
        "sparsepath": compile(model, images, threads=threads),
        "sparsepath, native only": compile(model, images, threads=threads, native_only=True),
        "sparsepath, dense": compile(dense, images, threads=threads, native_only=True),
    }
    if "torch" in peers:
        found["torch"] = eager(model)
    if "torch.compile" in peers:
        found["torch.compile"] = inductor(model)
    if "onnxruntime" in peers:
        run = in_onnxruntime(folded(capture(model)), [images], threads)
        if run is not None:
            found["onnxruntime"] = run
    if "openvino" in peers:
        found["openvino"] = openvino(model, images, threads)
    return found


def eager(model: nn.Module) -> Run:
    """torch as it is, with pixels before channels."""
    own = _turned(model)

    @torch.inference_mode()
    def run(images: Tensor) -> object:
        return own(images.contiguous(memory_format=torch.channels_last))

    return run


def _turned(model: nn.Module) -> nn.Module:
    own = copy.deepcopy(model)
    own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return own


def inductor(model: nn.Module) -> Run:
    """torch.compile with frozen weights."""
    import torch._inductor.config as settings

    settings.freezing = True
    own = torch.compile(_turned(model))

    @torch.no_grad()
    def run(images: Tensor) -> object:
        return own(images.contiguous(memory_format=torch.channels_last))

    return run


def openvino(model: nn.Module, images: Tensor, threads: int) -> Run:
    """OpenVINO on the same ONNX graph, float32."""
    import openvino as ov

    from sparsepath.deploy.onnx_graph import onnx_model

    core = ov.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    graph = folded(capture(model))
    network = core.read_model(io.BytesIO(onnx_model(graph, [4])))
    own = core.compile_model(network, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    return lambda given: own([given.numpy()])


def measured(
    runs: Mapping[str, Run], images: Tensor, *, seconds: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """The seconds of every round, all taking turns, in an order that moves on."""
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    calls = {}
    for name, run in runs.items():
        run(images), run(images)
        start = time.perf_counter()
        run(images)
        calls[name] = max(1, round(TURN / (time.perf_counter() - start)))
    began = time.perf_counter()
    turn = 0
    while turn < 7 or (turn < 60 and time.perf_counter() - began < seconds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            run = runs[name]
            run(images)  # what the others left in the caches is not its fault
            start = clock()
            for _ in range(calls[name]):
                run(images)
            times[name].append((clock() - start) / calls[name])
        turn += 1
    return times


def layer_table(report: Report, peak: float) -> list[dict[str, Any]]:
    """Where the time goes, each layer by itself: GFLOP/s of all and of the kept multiplications."""
    table = []
    for row in report.rows:
        seconds = row.seconds.get(row.method)
        if seconds:
            speed = 2e-9 * row.macs / seconds
            table.append(
                {
                    "layer": row.name,
                    "method": row.method,
                    "us an image": round(1e6 * seconds, 2),
                    "zero": round(row.zero, 3),
                    "GFLOP/s, zeros included": round(speed, 1),
                    "GFLOP/s, kept": round(speed * (1 - row.zero), 1),
                    "kept, of sgemm's": round(speed * (1 - row.zero) / peak, 3),
                }
            )
    return table


def sgemm() -> float:
    """The machine's peak as people meet it: GFLOP/s of the best of some large products."""
    x = torch.randn(1024, 1024)
    best = 0.0
    for _ in range(20):
        start = time.perf_counter()
        x @ x
        best = max(best, 2e-9 * 1024**3 / (time.perf_counter() - start))
    return best


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """The median of the ratios with its quartiles, and best over best: a quiet machine's."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(over, under, strict=True)], n=4)
    found = {
        "median": middle,
        "quartile_1": low,
        "quartile_3": high,
        "best": min(over) / min(under),
    }
    return {name: round(value, 3) for name, value in found.items()}


def row(case: Case, batch: int, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Everything about one case."""
    torch.set_num_threads(threads)
    images = torch.randn(batch, 3, 32, 32)
    model, dense = built(case), built(Case(case.network, "0", case.pointwise))
    runs = runtimes(model, dense, images, threads=threads, peers=given.peers)
    clock = time.process_time if threads == 1 else time.perf_counter
    times = measured(runs, images, seconds=given.seconds, clock=clock)
    peers = [name for name in runs if not name.startswith("sparsepath")]
    best = min(peers, key=lambda name: statistics.median(times[name]))
    ours = runs["sparsepath"]
    assert isinstance(ours, Runtime)
    report = ours.report()
    return {
        "network": case.network,
        "zero": case.zero,
        "pointwise too": case.pointwise,
        "batch": batch,
        "threads": threads,
        "rounds": len(times["sparsepath"]),
        "load average": round(os.getloadavg()[0], 2),
        "ms an image": {
            name: round(1e3 * statistics.median(x) / batch, 4) for name, x in times.items()
        },
        "runner": report.runner,
        "share of MACs in our kernels": round(report.native_share, 4),
        "over": {name: ratio(times[name], times["sparsepath"]) for name in peers},
        "native only over": {
            name: ratio(times[name], times["sparsepath, native only"]) for name in peers
        },
        "best peer": best,
        "over our own dense kernels": ratio(
            times["sparsepath, dense"], times["sparsepath, native only"]
        ),
        "layers": layer_table(report, sgemm()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=["cnn", "nin"])
    parser.add_argument("--zeros", nargs="+", default=["0", ".34", ".5", ".8", ".9", "paper"])
    parser.add_argument("--pointwise", action="store_true", help="prune 1 x 1 layers too")
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--peers", nargs="+", default=["torch", "onnxruntime"])
    parser.add_argument("--seconds", type=float, default=8.0, help="at most, for one case")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for threads in given.threads:
        for batch in given.batches:
            for network in given.networks:
                for zero in given.zeros:
                    case = Case(network, zero, given.pointwise)
                    rows.append(row(case, batch, threads, given))
                    print(spoken(case, rows[-1]), flush=True)
                    if given.out:
                        write_json(given.out, results(given, rows))


def results(given: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows with what they were measured on."""
    versions = {"torch": torch.__version__}
    for name in ("onnxruntime", "openvino"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            continue
    return {"machine": machine(), "versions": versions, "peers": given.peers, "rows": rows}


def spoken(case: Case, found: Mapping[str, Any]) -> str:
    """One line for one case."""
    over = ", ".join(
        f"{name} {x['median']:.2f} ({x['quartile_1']:.2f}-{x['quartile_3']:.2f}, "
        f"best {x['best']:.2f})"
        for name, x in found["over"].items()
    )
    own = found["over our own dense kernels"]["median"]
    return (
        f"{case}, batch {found['batch']}, {found['threads']} threads: "
        f"{found['ms an image']['sparsepath']:.3f} ms, over {over}, own dense {own:.2f} "
        f"[{found['runner']}]"
    )


if __name__ == "__main__":
    main()
