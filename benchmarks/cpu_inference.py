"""How fast whole networks run on this CPU: ratios to public runtimes and to our dense kernels.

    python benchmarks/cpu_inference.py [--networks nin cnn] [--zeros 0 .5 paper trained]
        [--pointwise] [--batches 64 1] [--threads 1 2] [--peers onnxruntime openvino torch
        torch.compile deepsparse] [--out benchmarks/results/epyc/cpu_inference.json] [--again]

All runtimes of a case take turns in one process, so that a busy neighbour slows them alike; a ratio
is the median of the ratios of the rounds, with its quartiles. With one thread the process's own
CPU time counts, with more the clock on the wall. Kernels are pruned at random, weights are random,
but for `trained`, which is the reproduction's own network. A case that the file holds already is
not measured again, so that a long table can be made in parts.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from machine import described
from peers import PEERS, versions
from safetensors.torch import load_file
from torch import Tensor, nn

from sparsepath.deploy import Runtime, compile
from sparsepath.deploy.measuring.runtimes import Run
from sparsepath.deploy.measuring.timing import by_turns
from sparsepath.deploy.running.kernels import Engine
from sparsepath.deploy.running.stamp import machine
from sparsepath.lab.models import NETWORKS, PUBLISHED, Network
from sparsepath.storage import read_json, write_json

REPRODUCTION = Path(__file__).parents[1] / "reproduction"
# What names a row.
KEY = ("network", "zero", "pointwise too", "batch", "threads")


@dataclass(frozen=True)
class Case:
    """One network, pruned in one way."""

    network: str
    zero: str
    """a share, 'paper' for the paper's own counts, or 'trained' for the reproduction's network"""
    pointwise: bool
    """whether 1 x 1 convolutions are pruned too"""

    def __str__(self) -> str:
        return f"{self.network}, zero {self.zero}{', 1 x 1 too' if self.pointwise else ''}"


def built(case: Case) -> nn.Module:
    """The network with random weights and as many zero kernels as the case wants."""
    torch.manual_seed(0)
    builders: dict[str, Callable[[int, int], nn.Module]] = {**NETWORKS, **PUBLISHED}
    model = builders[case.network](10, 3).eval()
    if case.zero == "trained":
        folder = REPRODUCTION / "cifar10" / "paper"
        model.load_state_dict(load_file(folder / f"{case.network}-l0.safetensors"))
        return model
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
    tables = json.loads((REPRODUCTION / "paper.json").read_text(encoding="utf-8"))["tables"][
        "cifar10"
    ]
    counts: list[int] = tables[network.replace("-", "_")]["l0"][-1]["zero_filters"]
    return counts


def runtimes(
    model: nn.Module, dense: nn.Module, images: Tensor, *, threads: int, peers: list[str]
) -> tuple[dict[str, Run], dict[str, str]]:
    """Everything that takes part, ours first, and why a peer does not."""
    found: dict[str, Run] = {
        "sparsepath": compile(model, images, threads=threads),
        "sparsepath, native only": compile(model, images, threads=threads, native_only=True),
        "sparsepath, dense": compile(dense, images, threads=threads, native_only=True),
    }
    absent = {}
    for name in peers:
        try:
            found[name] = PEERS[name](model, images, threads)
            found[name](images)
        except Exception as error:  # whatever a peer dies of is what the row must say
            found.pop(name, None)
            absent[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return found, absent


def measured(
    runs: Mapping[str, Run], images: Tensor, *, seconds: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """The seconds of every round, all taking turns, in an order that moves on."""
    works = {name: partial(run, images) for name, run in runs.items()}
    turns = by_turns(works, seconds=seconds, clock=clock)
    return {name: [statistics.fmean(turn) for turn in own] for name, own in turns.items()}


def layer_table(ours: Runtime, images: Tensor, peak: float) -> list[dict[str, Any]]:
    """Where the time goes in the network: each node, or several that run as one.

    `of peak` counts the multiplications that are made: zeros and what Winograd saves are not.
    """
    profiles = [ours.profile(images) for _ in range(5)]
    taken = {name: statistics.median(p[name] for p in profiles) for name in profiles[0]}
    table: list[dict[str, Any]] = []
    for row in ours.report().rows:
        seconds = taken.get(row.name, 0.0) / len(images)
        if seconds == 0 and table and row.macs:  # it ran within the layer before
            table[-1]["layer"] += f" + {row.name}"
            table[-1]["macs"] += row.macs
            table[-1]["work"] += row.work
        elif seconds:
            table.append(
                {
                    "layer": row.name,
                    "method": row.method,
                    "zero": round(row.zero, 3),
                    "macs": row.macs,
                    "work": row.work,
                    "us an image": round(1e6 * seconds, 2),
                }
            )
    for entry in table:
        speed = 2e-3 / entry["us an image"]
        entry["GFLOP/s, zeros included"] = round(speed * entry.pop("macs"), 1)
        entry["of peak"] = round(speed * entry.pop("work") / peak, 3)
    return table


def sgemm() -> float:
    """The machine's peak as people meet it: GFLOP/s of the best of some large products."""
    x = torch.randn(1024, 1024)
    best = 0.0
    for _ in range(50):
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


def row(
    case: Case, batch: int, threads: int, *, peers: list[str], seconds: float
) -> dict[str, Any]:
    """Everything about one case."""
    torch.compiler.reset()  # after eight networks of a process it would run them uncompiled
    torch.set_num_threads(threads)
    images = torch.randn(batch, 3, 32, 32)
    model, dense = built(case), built(Case(case.network, "0", case.pointwise))
    runs, absent = runtimes(model, dense, images, threads=threads, peers=peers)
    clock = time.process_time if threads == 1 else time.perf_counter
    times = measured(runs, images, seconds=seconds, clock=clock)
    peers = [name for name in runs if not name.startswith("sparsepath")]
    best = min(peers, key=lambda name: statistics.median(times[name]))
    ours, native = runs["sparsepath"], runs["sparsepath, native only"]
    assert isinstance(ours, Runtime)
    assert isinstance(native, Runtime)
    report, peak = ours.report(), sgemm()
    return {
        **key(case, batch, threads),
        "rounds": len(times["sparsepath"]),
        "load average": round(os.getloadavg()[0], 2),
        "ms an image": {
            name: round(1e3 * statistics.median(x) / batch, 4) for name, x in times.items()
        },
        "runner": report.runner,
        "share of MACs in our kernels": round(report.native_share, 4),
        "best peer": best,
        "over the best peer": ratio(times[best], times["sparsepath"]),
        "over our own dense kernels": ratio(
            times["sparsepath, dense"], times["sparsepath, native only"]
        ),
        "over": {name: ratio(times[name], times["sparsepath"]) for name in peers},
        "native only over": {
            name: ratio(times[name], times["sparsepath, native only"]) for name in peers
        },
        "absent": absent,
        "sgemm GFLOP/s": round(peak, 1),
        "layers": layer_table(native, images, peak) if threads == 1 else [],
    }


def key(case: Case, batch: int, threads: int) -> dict[str, Any]:
    """What names the row of a case."""
    return dict(zip(KEY, (case.network, case.zero, case.pointwise, batch, threads), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=["cnn", "nin"])
    parser.add_argument("--zeros", nargs="+", default=["0", ".34", ".5", ".8", ".9", "paper"])
    parser.add_argument("--pointwise", action="store_true", help="prune 1 x 1 layers too")
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--peers", nargs="+", default=["onnxruntime", "torch"], choices=PEERS)
    parser.add_argument("--seconds", type=float, default=8.0, help="at most, for one case")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", action="store_true", help="measure known cases again")
    given = parser.parse_args()
    rows = known(given.out) if given.out else []
    for threads in given.threads:
        for batch in given.batches:
            for network in given.networks:
                for zero in given.zeros:
                    case = Case(network, zero, given.pointwise)
                    wanted = key(case, batch, threads)
                    same = [r for r in rows if {name: r[name] for name in KEY} == wanted]
                    peers = all_peers(same, given.peers)
                    if same and peers == all_peers(same, []) and not given.again:
                        continue
                    new = row(case, batch, threads, peers=peers, seconds=given.seconds)
                    rows = [r for r in rows if r not in same] + [new]
                    print(spoken(case, rows[-1]), flush=True)
                    if given.out:
                        write_json(given.out, {**surroundings(), **described(), "rows": rows})


def all_peers(rows: list[dict[str, Any]], asked: list[str]) -> list[str]:
    """The peers that these rows have met, or tried to, and those that are asked for."""
    return sorted({*asked, *(name for row in rows for name in (*row["over"], *row["absent"]))})


def known(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, if it was made in these surroundings."""
    if not path.exists():
        return []
    content = read_json(path)
    if {name: content.get(name) for name in surroundings()} != surroundings():
        raise SystemExit(f"{path} is of another machine or of other versions; move it away.")
    rows: list[dict[str, Any]] = content["rows"]
    return rows


def surroundings() -> dict[str, Any]:
    """What rows of one file have in common."""
    return {
        "machine": machine(),
        "instruction set": Engine().isa,
        "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "versions": versions(),
    }


def spoken(case: Case, found: Mapping[str, Any]) -> str:
    """One line for one case."""

    def spread(x: Mapping[str, float]) -> str:
        return (
            f"{x['median']:.2f} ({x['quartile_1']:.2f}-{x['quartile_3']:.2f}, best {x['best']:.2f})"
        )

    best = found["best peer"]
    others = "".join(
        f", over {name} {spread(x)}" for name, x in found["over"].items() if name != best
    )
    return (
        f"{case}, batch {found['batch']}, {found['threads']} threads: "
        f"{found['ms an image']['sparsepath']:.3f} ms, "
        f"over the best peer ({best}) {spread(found['over the best peer'])}, "
        f"over our own dense kernels {spread(found['over our own dense kernels'])}{others} "
        f"[{found['runner']}]"
    )


if __name__ == "__main__":
    main()
