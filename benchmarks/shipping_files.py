"""The files of the shipping table, and how each of them is made."""

import argparse
import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from shipping_networks import Lessons, with_few_numbers, with_sparse_fc1
from torch import Tensor, nn

from sparsepath.deploy import compact, int8_onnx, int8_weights, save, share
from sparsepath.lab.data import Data, normalise
from sparsepath.lab.weights import load_checkpoint
from sparsepath.storage import write_tensors

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


class Learned:
    """Networks that took long to learn: kept in files whose names tell how, and made if missing."""

    def __init__(self, given: Given, data: Data, dense: nn.Module, model: nn.Module) -> None:
        self.given, self.data, self.model = given, data, model
        self.lessons = Lessons(data, dense, torch.device(given.device))
        self.recipe = f"{given.weights.stem} fc1 {given.zero:g} steps {given.steps}"

    def thinned(self) -> nn.Module:
        """With fewer weights in fc1, learned in half of the steps."""
        steps, rate = self.given.steps // 2, self.given.thinning_rate
        make = partial(
            with_sparse_fc1, self.model, self.lessons, zero=self.given.zero, steps=steps, rate=rate
        )
        return self._kept(f"{self.recipe} rate {rate:g}", make)

    def rounded(self, plan: str) -> nn.Module:
        """With fewer numbers too."""
        steps, rate = self.given.steps, self.given.rate

        def make() -> nn.Module:
            bits = PLANS[plan]
            return with_few_numbers(self.thinned(), bits, self.lessons, steps=steps, rate=rate)

        return self._kept(self.named(plan), make)

    def named(self, plan: str) -> str:
        """How a network of few numbers is made."""
        rates = f"{self.given.thinning_rate:g} {self.given.rate:g}"
        return f"{self.recipe} rates {rates} bits {plan}"

    def _kept(self, name: str, make: Callable[[], nn.Module]) -> nn.Module:
        path = self.given.folder / f"{name}.safetensors"
        if not path.exists():
            made = make()
            write_tensors(path, made.state_dict(), {"recipe": name})
        found = copy.deepcopy(self.model)
        load_checkpoint(found, path)
        return found.eval()

    def small(self, made: nn.Module) -> nn.Module:
        """Without what is dead."""
        return compact(made, example(self.data, 2)).model

    def shared(self, plan: str) -> nn.Module:
        """Small, and its few numbers told as such."""
        return share(self.small(self.rounded(plan)), PLANS[plan])


def saved(made: Callable[[], nn.Module]) -> Make:
    """Save a network, which is made only then."""
    return lambda path: save(made(), path, force=True)


def files_of(
    given: Given, data: Data, dense: nn.Module, model: nn.Module
) -> dict[str, tuple[str, Make]]:
    """By row, the file and how it is made, which nothing is computed for before it is needed."""
    batches = list(example(data, CALIBRATION).split(64))
    learned = Learned(given, data, dense, model)

    def fewer() -> nn.Module:
        return learned.small(learned.thinned())

    def few() -> nn.Module:
        return learned.shared(given.plan)

    def as_onnx(made: Callable[[], nn.Module]) -> Make:
        return lambda path: int8_onnx(made(), batches, path, force=True)

    return {
        "dense": ("dense", saved(lambda: dense)),
        "sparse": ("sparse", saved(lambda: model)),
        "compact": ("compact", saved(lambda: learned.small(model))),
        "sparse, fc1 too": ("thinned", saved(fewer)),
        "sparse + int8": ("int8", saved(lambda: int8_weights(fewer()))),
        "int8, onnx": ("dense.onnx", as_onnx(lambda: dense)),
        "sparse + int8, onnx": ("thinned.onnx", as_onnx(fewer)),
        f"sparse + shared, {given.plan} bits": ("shared", saved(few)),
    }
