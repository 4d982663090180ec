"""Copies of a model's weights, and their names where a call takes them."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.capture.naming import Names
from sparsepath.deploy.capture.translate import Unknown
from sparsepath.deploy.graph.graph import Array, Call, mapped


class OwnArrays:
    """A copy of each weight, once for all that share it: the user may go on training."""

    def __init__(self, names: Names) -> None:
        """Copy when asked, what these name."""
        self._names = names
        self._copies: dict[int, Tensor] = {}

    def named(self, path: str) -> Any:
        """What the model holds at a path, of our own if it is a tensor."""
        own = self.own(self._names.found(path))
        self._names.remember(path, own)
        return own

    def own(self, x: Any) -> Any:
        """The copy of a weight; anything else as it is."""
        if not isinstance(x, Tensor):
            return x
        if x.layout != torch.strided:
            raise Unknown(f"a weight is {x.layout}")
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
                title = self._names.title(leaf)
                taken = sum(title.name == name.rstrip("_") for name in arrays)
                found[id(leaf)] = replace(title, name=title.name + "_" * taken)
                arrays[found[id(leaf)].name] = leaf
            return found[id(leaf)]

        arguments, keywords = mapped((call.arguments, dict(call.keywords)), lift)
        return replace(call, arguments=arguments, keywords=keywords), arrays
