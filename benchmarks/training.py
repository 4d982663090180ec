"""Seconds an epoch of the GPU engine beside a plain loop, and what ADMM adds to a step.

    python benchmarks/training.py [--more 8 16] --out benchmarks/results/training.json

Random images stand in for data: 45,000 of 32 x 32, batch 128. Needs a GPU.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sparsepath import ADMM, L0
from sparsepath.lab.arena import Arena, accuracy
from sparsepath.lab.data import Data, Split
from sparsepath.lab.engine import Engine
from sparsepath.lab.folders import circumstances
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import NETWORKS, Network
from sparsepath.storage import write_json

STEPS = 351


def timed(epoch: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median seconds of an epoch, and the range."""
    epoch()
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        epoch()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}


def lanes(name: str, count: int, arena: Arena, *, admm: bool) -> list[Lane]:
    built = []
    for seed in range(count):
        torch.manual_seed(seed)
        model = NETWORKS[name](classes=10, channels=3).to(arena.device).train()
        chosen = [f"{layer}.weight" for layer in model.sparsified] if admm else []
        example = arena.example(128)
        built.append(Lane(model, sparsified=chosen, example=example, steps=STEPS))
        arena.fill(built[-1], torch.Generator(arena.device).manual_seed(seed), shift=4)
        built[-1].rates.fill_(1e-3)
    return built


def shared(seconds: dict[str, float], count: int) -> dict[str, float]:
    """What each of so many side by side has of them."""
    return {key: value / count for key, value in seconds.items()}


def per_network(name: str, count: int, arena: Arena, repeats: int) -> dict[str, float]:
    """An epoch of so many networks side by side, for each of them."""
    return shared(timed(Engine(lanes(name, count, arena, admm=True)).epoch, repeats), count)


def between_epochs(name: str, arena: Arena, repeats: int) -> dict[str, dict[str, float]]:
    """Besides its steps: an epoch's images, ADMM's sparsity and dual step, a network's accuracy."""
    (lane,) = lanes(name, 1, arena, admm=True)
    assert isinstance(lane.model, Network)
    admm = ADMM(lane.model, L0(), rho=0.1, mu=1e-4, layers=lane.model.sparsified)
    generator = torch.Generator(arena.device).manual_seed(0)
    return {
        "images of an epoch": timed(lambda: arena.fill(lane, generator, shift=4), repeats),
        "sparsity and dual step": timed(admm.step, repeats),
        "accuracy of 10,000 images": timed(lambda: accuracy(lane.model, arena.judged), repeats),
    }


def plain_epoch(name: str, arena: Arena) -> Callable[[], None]:
    """The same steps as anyone would first write them: float32, eager, one network."""
    model = NETWORKS[name](classes=10, channels=3).to(arena.device).train()
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    images, labels = arena.judged[0][:128], arena.judged[1][:128]

    def epoch() -> None:
        for _ in range(STEPS):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            sgd.step()

    return epoch


def random_arena(device: torch.device) -> Arena:
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return Split(images, torch.randint(10, (count,), generator=generator))

    mean, std = torch.full((3,), 0.5), torch.full((3,), 0.29)
    return Arena(Data("random", 10, split(45_000), split(10_000), split(128), mean, std), device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--networks", nargs="*", default=["nin", "cnn", "low-rank-nin", "low-rank-cnn"]
    )
    parser.add_argument("--more", nargs="*", type=int, default=[], metavar="LANES")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    arena = random_arena(torch.device("cuda"))
    results: dict[str, object] = {
        **circumstances(arena.device),
        "batch": 128,
        "steps": STEPS,
        "repeats": given.repeats,
    }
    for name in given.networks:
        began = time.perf_counter()
        plain = timed(plain_epoch(name, arena), 1)
        one = timed(Engine(lanes(name, 1, arena, admm=True)).epoch, given.repeats)
        four = timed(Engine(lanes(name, 4, arena, admm=True)).epoch, given.repeats)
        bare = timed(Engine(lanes(name, 4, arena, admm=False)).epoch, given.repeats)
        row: dict[str, Any] = {
            "plain": plain,
            "engine, one": one,
            "engine, four, per network": shared(four, 4),
            **{
                f"engine, {count}, per network": per_network(name, count, arena, given.repeats)
                for count in given.more
            },
            "speed-up of four over plain": 4 * plain["median"] / four["median"],
            "pull and mask, share of a step": four["median"] / bare["median"] - 1,
            **between_epochs(name, arena, given.repeats),
            "seconds to measure": time.perf_counter() - began,
        }
        results[name] = row
        medians = {key: v if isinstance(v, float) else v["median"] for key, v in row.items()}
        print(name, medians, flush=True)
        if given.out:
            write_json(given.out, results)


if __name__ == "__main__":
    main()
