"""The files of the shipping table, and how each of them is made."""

import argparse
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

from shipping_networks import Pool, pool_of, with_few_numbers, with_sparse_fc1
from torch import Tensor, nn

from sparsepath.deploy import compact, int8_onnx, int8_weights, save, share
from sparsepath.lab.data import Data, normalise

CALIBRATION = 512
# The first layer and the last are small and count for much.
PLANS: Mapping[str, dict[str, int]] = {
    "5": {"*": 5},
    "4": {"conv1": 5, "conv[234]": 4, "fc1": 4, "fc2": 5},
    "4, fc1 3": {"conv1": 5, "conv[234]": 4, "fc1": 3, "fc2": 5},
    "4, fc1 3, ends 6": {"conv1": 6, "conv[234]": 4, "fc1": 3, "fc2": 6},
    "3": {"conv1": 5, "conv[234]": 3, "fc1": 3, "fc2": 5},
}
Make = Callable[[Path], object]
Given = argparse.Namespace


def example(data: Data, count: int) -> Tensor:
    """Some training images."""
    return normalise(data.train.images[:count], data)


def saved(made: Callable[[], nn.Module]) -> Make:
    """Save a network, which is made only then."""
    return lambda path: save(made(), path, force=True)


def shared(small: nn.Module, plan: str, pool: Pool | None, rate: float, given: Given) -> Make:
    """Share a network's weights by a plan, once they have learned it or at once, and save it."""

    def make(path: Path) -> None:
        bits, made = PLANS[plan], small
        if pool is not None:
            made = with_few_numbers(
                small, bits, pool, steps=given.steps, rate=rate, device=given.device
            )
        save(share(made, bits), path, force=True)

    return make


def files_of(
    given: Given, data: Data, dense: nn.Module, model: nn.Module
) -> dict[str, tuple[str, Make]]:
    """By row, the file and how it is made, which nothing is computed for before it is needed."""
    batches = list(example(data, CALIBRATION).split(64))
    pool = cache(lambda: pool_of(data, dense, given.pool))

    @cache
    def small() -> nn.Module:
        fewer = with_sparse_fc1(model, pool(), zero=given.zeros[0])
        return compact(fewer, example(data, 2)).model

    plain: dict[str, Callable[[], nn.Module]] = {
        "dense": lambda: dense,
        "sparse": lambda: model,
        "compact": lambda: compact(model, example(data, 2)).model,
        "sparse, fc1 too": small,
        "sparse + int8": lambda: int8_weights(small()),
    }
    int8: dict[str, Callable[[], nn.Module]] = {
        "int8, onnx": plain["dense"],
        "sparse + int8, onnx": small,
    }

    def as_onnx(made: Callable[[], nn.Module], path: Path) -> None:
        int8_onnx(made(), batches, path, force=True)

    def as_shared(plan: str, path: Path) -> None:
        if not path.exists():  # its name tells how it learned
            shared(small(), plan, pool(), given.rates[0], given)(path)

    recipe = (given.weights.stem, given.zeros[0], given.steps, given.pool, given.rates[0])

    return {
        **{name: (name, saved(made)) for name, made in plain.items()},
        **{name: (f"{name}.onnx", partial(as_onnx, made)) for name, made in int8.items()},
        **{
            f"sparse + shared, {plan} bits": (f"shared {plan} {recipe}", partial(as_shared, plan))
            for plan in given.plans
        },
    }
