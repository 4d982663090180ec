"""How fast a sparse layer runs on the CPU: against onnxruntime, and against our own dense kernel.

    python benchmarks/layers.py [--batches 64 1] --out benchmarks/results/epyc/layers.json

Each layer is a chain of four convolutions with ReLU, of random weights and randomly placed zero
kernels. All runtimes take turns within a round, and a ratio is the median of the ratios of the
rounds. onnxruntime runs the dense chain (zero kernels do not change its time), with its two changes
of layout per chain; our changes of layout at both ends are left out of `ratio`, because a network
stays in the layout from layer to layer, and counted in `ratio_with_conversion`.
One thread, CPU time.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from machine import described
from onnx import TensorProto, helper, numpy_helper

from sparsepath.deploy.running import stamp
from sparsepath.deploy.running.kernels import RELU, Conv, Method, isas
from sparsepath.deploy.running.plan import TILES
from sparsepath.deploy.running.program import Program
from sparsepath.storage import write_json

ZEROS = (0.0, 0.34, 0.5, 0.8, 0.9)
TURNS = 12
RATIOS = ("ratio", "ratio_with_conversion", "over_own_dense")
Weights = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Layer:
    """A chain into -> out -> into -> out -> into of one kernel on square maps."""

    into: int
    out: int
    size: int
    kernel: tuple[int, int] = (3, 3)

    def name(self) -> str:
        arrow, (height, width) = "->" if self.into == self.out else "<->", self.kernel
        return f"{self.into}{arrow}{self.out} {self.size}x{self.size} {height}x{width}"

    def channels(self) -> list[tuple[int, int]]:
        return [(self.into, self.out), (self.out, self.into)] * 2

    def flops(self, batch: int) -> int:
        height, width = self.kernel
        return 2 * 4 * self.into * self.out * height * width * self.size**2 * batch

    def weights(self, zeros: float) -> Weights:
        """He-initialised kernels, of which a share is zero."""
        generator = torch.Generator().manual_seed(0)
        chain = []
        for into, out in self.channels():
            kept = torch.rand(out, into, 1, 1, generator=generator) >= zeros
            weight = torch.randn(out, into, *self.kernel, generator=generator) * kept
            fan_in = weight[0].numel() * (1 - zeros)
            chain.append(
                (weight * (2 / fan_in) ** 0.5, torch.randn(out, generator=generator) / 100)
            )
        return chain

    @property
    def padding(self) -> tuple[int, int]:
        return self.kernel[0] // 2, self.kernel[1] // 2


LAYERS = [
    Layer(192, 192, 16),
    Layer(96, 192, 16),
    Layer(192, 192, 8),
    Layer(96, 128, 16),
    Layer(128, 256, 8),
    Layer(192, 192, 16, (1, 1)),
    Layer(192, 192, 16, (1, 3)),
    Layer(192, 192, 16, (3, 1)),
]


def onnxruntime_chain(layer: Layer, x: torch.Tensor) -> Callable[[], np.ndarray]:
    """The dense chain in onnxruntime."""
    nodes, constants, last = [], [], "x"
    pads = [*layer.padding, *layer.padding]
    for k, (weight, bias) in enumerate(layer.weights(0)):
        for name, values in ((f"w{k}", weight), (f"b{k}", bias)):
            constants.append(numpy_helper.from_array(values.numpy(), name))
        nodes.append(helper.make_node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], pads=pads))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"y{k}"]))
        last = f"y{k}"
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, list(x.shape))
    graph = helper.make_graph(nodes, "chain", [value("x")], [value(last)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    fed = {"x": x.numpy()}
    return lambda: session.run(None, fed)[0]


@dataclass(frozen=True)
class Choice:
    """How our kernels run a chain."""

    method: Method
    grid: int
    panel: int
    group: int


def choices(layer: Layer, batch: int) -> list[Choice]:
    """What is tried before the fastest is kept."""
    fits = Conv.methods(layer.kernel, (1, 1), (1, 1), (layer.into, layer.out, 1))
    if batch == 1:
        return [Choice(method, 4, 0, 1) for method in fits if method != "rows"]  # of few pixels
    grids = (1, 2, 4) if layer.size % 16 == 0 else (1, 2)
    return [Choice(fits[0], grid, panel, 32) for grid, panel in product(grids, (2, 4))]


class Ours:
    """A chain in our kernels: seconds of the convolutions, and of everything."""

    def __init__(self, layer: Layer, weights: Weights, choice: Choice, x: torch.Tensor) -> None:
        self.x, self.choice = x, choice
        self.program = Program(group=choice.group)
        maps = self.program.enter(self.program.input(x.shape[1:]), grid=choice.grid)
        for weight, bias in weights:
            # One vector of tiles and panels of two are woven (native/winograd.cpp).
            one = len(x) == 1 and layer.size <= 4 * TILES.get(choice.method, 0)
            woven = 4 if one else 2 if choice.panel == 2 else 0
            conv = Conv(weight, bias, padding=layer.padding, method=choice.method, woven=woven)
            maps = self.program.conv(maps, conv, clamp=RELU, panel=choice.panel)
        self.program.output(self.program.leave(maps))
        self.bytes_per_kept = (conv.bytes - 4 * conv.out_channels) / (4 * conv.kept)

    def __call__(self) -> tuple[float, float]:
        profile = self.program.profile([self.x], clock=time.process_time)
        convolutions = sum(seconds for kind, seconds in profile if kind == "conv")
        return convolutions, sum(seconds for _, seconds in profile)


def tuned(layer: Layer, weights: Weights, x: torch.Tensor) -> Ours:
    """The fastest choice, each timed so often by turns that a busy host decides nothing."""
    candidates = [Ours(layer, weights, choice, x) for choice in choices(layer, len(x))]
    best = [float("inf")] * len(candidates)
    for _ in range(TURNS):
        best = [min(b, c()[0]) for b, c in zip(best, candidates, strict=True)]
    return candidates[best.index(min(best))]


def spread(found: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(found, n=4)
    return {"median": middle, "quartile_1": low, "quartile_3": high}


def shown_spread(found: dict[str, float]) -> str:
    return f"{found['median']:.2f}x ({found['quartile_1']:.2f} to {found['quartile_3']:.2f})"


def measured(layer: Layer, batch: int, rounds: int) -> dict[str, Any]:
    """All ratios of one layer."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, layer.into, layer.size, layer.size, generator=generator).relu()
    dense = onnxruntime_chain(layer, x)
    ours = {zeros: tuned(layer, layer.weights(zeros), x) for zeros in ZEROS}
    (y,), expected = ours[0.0].program.run([x]), dense()
    error = float(np.abs(y.numpy() - expected).max() / np.abs(expected).max())
    theirs: list[float] = []
    taken: dict[float, list[tuple[float, float]]] = {zeros: [] for zeros in ZEROS}
    for _ in range(rounds):
        began = time.process_time()
        dense()
        theirs.append(time.process_time() - began)
        for zeros, chain in ours.items():
            taken[zeros].append(chain())
    rows = {
        str(zeros): {
            "ratio": spread([a / b for a, (b, _) in zip(theirs, times, strict=True)]),
            "ratio_with_conversion": spread(
                [a / c for a, (_, c) in zip(theirs, times, strict=True)]
            ),
            "over_own_dense": spread(
                [a / b for (a, _), (b, _) in zip(taken[0.0], times, strict=True)]
            ),
            "dense_equivalent_gflops": layer.flops(batch) / min(b for b, _ in times) / 1e9,
            "bytes_per_kept_value": ours[zeros].bytes_per_kept,
            "choice": asdict(ours[zeros].choice),
        }
        for zeros, times in taken.items()
    }
    gflops = layer.flops(batch) / min(theirs) / 1e9
    return {
        "batch": batch,
        "rounds": rounds,
        "onnxruntime_gflops": gflops,
        "error": error,
        "zeros": rows,
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "name": stamp.machine(),
        **described(),
        "load": os.getloadavg(),
        "instruction_set": isas()[0],
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 1])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"machine": machine(), "layers": {}}
    for batch, layer in product(options.batches, LAYERS):
        rounds = options.rounds * (1 if batch > 1 else 8)
        found = measured(layer, batch, rounds)
        results["layers"][f"{layer.name()}, batch {batch}"] = found
        print(
            f"{layer.name()}, batch {batch}: onnxruntime {found['onnxruntime_gflops']:.0f} GFLOP/s"
        )
        for zeros, row in found["zeros"].items():
            shown = {name: shown_spread(row[name]) for name in RATIOS}
            print(
                f"   {float(zeros):4.0%} zero kernels: {shown['ratio']} onnxruntime, "
                f"{shown['ratio_with_conversion']} with conversion, "
                f"{shown['over_own_dense']} own dense",
                flush=True,
            )
        write_json(options.out, results)


if __name__ == "__main__":
    main()
