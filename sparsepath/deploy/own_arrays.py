"""Copies of a model's weights, and their names where a call takes them."""

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.graph import Array, Call, mapped


class OwnArrays:
    """A copy of each weight, once for all that share it: the user may go on training."""

    def __init__(self, model: nn.Module) -> None:
        """Copy when asked."""
        self._model = model
        self._copies: dict[int, Tensor] = {}
        # By copy of a weight, what the model calls it and whether it is learned.
        self._titles: dict[int, Array] = {}

    def named(self, path: str) -> Any:
        """What the model holds at a path, of our own if it is a tensor."""
        found = operator.attrgetter(path)(self._model)
        own = self.own(found)
        title = Array(path.rpartition(".")[2], isinstance(found, nn.Parameter))
        self._titles.setdefault(id(own), title)
        return own

    def own(self, x: Any) -> Any:
        """The copy of a weight; anything else as it is."""
        if not isinstance(x, Tensor):
            return x
        if id(x) not in self._copies:
            self._copies[id(x)] = x.detach().clone(memory_format=torch.contiguous_format)
        return self._copies[id(x)]

    def lifted(self, call: Call) -> tuple[Call, dict[str, Tensor]]:
        """The call with its weights by name, and those: they must train and move as any others."""
        arrays: dict[str, Tensor] = {}
        found: dict[int, Array] = {}

        def lift(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) not in found:
                title = self._titles.get(id(leaf), Array("array", learned=False))
                taken = sum(title.name == name.rstrip("_") for name in arrays)
                found[id(leaf)] = replace(title, name=title.name + "_" * taken)
                arrays[found[id(leaf)].name] = leaf
            return found[id(leaf)]

        arguments, keywords = mapped((call.arguments, dict(call.keywords)), lift)
        return replace(call, arguments=arguments, keywords=keywords), arrays
