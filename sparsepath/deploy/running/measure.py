"""What one layer costs in each of the ways that can run it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.operations import run_node
from sparsepath.deploy.running.choices import Lanes, Method, Weights
from sparsepath.deploy.running.lower import LOWERINGS, Builder
from sparsepath.deploy.running.maps import Map
from sparsepath.deploy.running.memory import empty
from sparsepath.deploy.running.program import Program
from sparsepath.deploy.running.tuning import Times, Work

WAY_IN = "way in"
# A layer is run so often in one measurement that the way into the lanes can be taken off.
REPEATS = 3


def layer_seconds(
    node: Node,
    shape: tuple[int, ...],
    *,
    methods: tuple[Method, ...],
    lanes: Lanes,
    weights: Weights,
    threads: int,
    times: Times,
) -> tuple[Mapping[str, float], float]:
    """The seconds of a group of images by each method and by torch, and those of the way in."""
    images = empty(lanes.group, *shape).normal_(generator=torch.Generator("cpu").manual_seed(0))
    ways: dict[str, Method | None] = {**{m: m for m in methods}, WAY_IN: None}
    works: dict[str, Work] = {
        name: when_asked(partial(_repeated, node, method, images, lanes, weights, threads))
        for name, method in ways.items()
    }
    works["torch"] = lambda: run_node(node, images)
    question = f"{described(node, shape)}, {lanes}, {stage(threads)}"
    with torch.inference_mode():
        seconds = times.of(question, works)
    way = seconds[WAY_IN]
    native: dict[str, float] = {m: max(seconds[m] - way, 1e-9) / REPEATS for m in methods}
    return {**native, "torch": seconds["torch"]}, way


def when_asked(build: Callable[[], Work]) -> Work:
    """Work that is built at its first run: never, if the answer is known already."""
    built: list[Work] = []

    def run() -> object:
        if not built:
            built.append(build())
        return built[0]()

    return run


def _repeated(
    node: Node,
    method: Method | None,
    images: Tensor,
    lanes: Lanes,
    weights: Weights,
    threads: int,
) -> Work:
    """A program that runs a layer several times on the same images, or only brings them in."""
    program = Program(threads=threads, group=lanes.group)
    builder = Builder(
        program,
        lambda node, vectors: weights.of(node, method or "direct", vectors),
        grid=lanes.grid,
    )
    builder.input("x", tuple(images.shape[1:]))
    place = builder.map("x") if images.dim() == 4 else builder.plain("x")
    layer = replace(node, inputs=("x",))
    for _ in range(REPEATS if method else 0):
        place = LOWERINGS[node.op](builder, layer)
    if isinstance(place, Map):
        program.output(program.mean(place))
    elif method:
        program.output(place)
    else:
        return lambda: None
    return lambda: program.run([images])


def stage(threads: int) -> str:
    """What else a time depends on."""
    return f"{threads} threads, torch's {torch.get_num_threads()}"


def described(node: Node, shape: tuple[int, ...]) -> str:
    """A layer as far as its time depends on it: shapes and how many kernels are zero."""
    weight = node.arrays["weight"]
    return json.dumps(
        [node.op, list(weight.shape), dict(node.attributes), list(shape), _zero_twentieths(weight)]
    )


def _zero_twentieths(weight: Tensor) -> int:
    dead = (weight == 0).flatten(2).all(-1) if weight.dim() > 2 else weight == 0
    return round(20 * dead.double().mean().item())


def fingerprint(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """A short name for a graph as far as its time depends on it."""
    lines = [
        [
            node.op,
            node.inputs,
            dict(node.attributes),
            {k: list(a.shape) for k, a in node.arrays.items()},
            _zero_twentieths(node.arrays["weight"]) if "weight" in node.arrays else 0,
        ]
        for node in graph
    ]
    sizes = [shapes[name][1:] for name in graph.inputs]
    return hashlib.sha256(json.dumps([lines, sizes]).encode()).hexdigest()[:16]
