"""The cost of the method itself, as ratios in one run: proximity, step and prox.

    python benchmarks/core.py [--weights 100000000] [--out benchmarks/results/core.json]

Every pair of timings is interleaved, so that a busy neighbour slows both; a ratio is the median of
the ratios of the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from machine import described
from torch import nn

from sparsepath import ADMM, L0, L1, kernels, outputs
from sparsepath.lab.models import NIN
from sparsepath.storage import write_json


def ratios(
    work: Callable[[], object], against: Callable[[], object], rounds: int
) -> dict[str, float]:
    """Time both by turns; the median ratio with its quartiles."""
    work(), against()
    found = []
    for turn in range(rounds):
        times = {}
        # The second of a pair may find warmer caches: they take turns at being it.
        for function in (against, work) if turn % 2 else (work, against):
            began = time.perf_counter()
            function()
            times[function] = time.perf_counter() - began
        found.append(times[work] / times[against])
    low, middle, high = statistics.quantiles(found, n=4)
    return {"median": middle, "quartile_1": low, "quartile_3": high, "n": rounds}


def training_step(
    model: nn.Module, extra: Callable[[], torch.Tensor | float]
) -> Callable[[], None]:
    """One full SGD step on random images, in the paper's batch of 128."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x, y = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y) + extra()
        loss.backward()
        optimizer.step()

    return step


def prox(weights: int, rounds: int) -> dict[str, dict[str, float]]:
    """The prox over 100 million weights against reading them twice and writing them once."""
    layer = nn.Conv2d(weights // (9 * 512), 512, 3, bias=False)
    V = layer.weight.detach()
    F = torch.empty_like(V)

    def traffic() -> None:
        V.sum()
        V.sum()
        F.fill_(1.0)

    found = {}
    for penalty in (L0(), L1()):
        for partition in (kernels, outputs):
            blocks = partition(layer)
            assert blocks is not None
            step = penalty.step_at(float(blocks.norms(V).median()))
            name = f"{penalty!r} over {partition!r}"
            found[name] = ratios(lambda: penalty.prox(V, blocks, step, out=F), traffic, rounds)  # noqa: B023
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model = NIN()
    admm = ADMM(model, L0(), rho=0.1, mu=1e-4, layers=NIN.sparsified)
    plain = training_step(model, lambda: 0.0)
    results = {
        "machine": described(),
        "threads": torch.get_num_threads(),
        "weights": given.weights,
        "torch": torch.__version__,
        "proximity and backward in a NIN step": ratios(
            training_step(model, admm.proximity), plain, given.rounds
        ),
        "ADMM.step over NIN against a NIN step": ratios(admm.step, plain, given.rounds),
        "prox against two reads and a write": prox(given.weights, given.rounds),
    }
    for name, value in results.items():
        print(f"{name}: {value}")
    if given.out:
        write_json(given.out, results)


if __name__ == "__main__":
    main()
