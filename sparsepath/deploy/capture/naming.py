"""What the nodes and arrays of a graph are called: as the model calls its layers and weights."""

import operator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from sparsepath.deploy.capture.translate import Draft
from sparsepath.deploy.graph.graph import Array

LAYERS = (_ConvNd, nn.Linear, _BatchNorm)


class Names:
    """Names that are given once, and those of weights by the arrays that stand for them."""

    def __init__(self, model: nn.Module) -> None:
        """Give the names of this model."""
        self.model = model
        self._taken: set[str] = set()
        self._titles: dict[int, Array] = {}

    def free(self, name: str) -> str:
        """The name, or one with a number where it is given already."""
        given, count = name, 1
        while given in self._taken:
            count += 1
            given = f"{name}#{count}"
        self._taken.add(given)
        return given

    def found(self, path: str) -> Any:
        """What the model has at that path."""
        return operator.attrgetter(path)(self.model)

    def remember(self, path: str, array: Any) -> None:
        """Let an array stand for the weight at that path, the first where it is shared."""
        learned = isinstance(self.found(path), nn.Parameter)
        self._titles.setdefault(id(array), Array(path.rpartition(".")[2], learned, path))

    def title(self, array: Tensor | None, otherwise: str = "array") -> Array:
        """What the model calls an array and whether it is learned."""
        return self._titles.get(id(array), Array(otherwise, learned=False))

    def fixed(self, draft: Draft) -> bool:
        """Whether the weight of an operation is none that the model learns."""
        title = self._titles.get(id(draft.arrays.get("weight")))
        return title is not None and not title.learned

    def of(self, draft: Draft, place: str) -> str:
        """A node's name: that of a layer for what has its weight, below it for all else there.

        A place that ends in a dot is that of a user's own module, in which operations name nodes.
        """
        path = place.rstrip(".")
        if draft.op == "constant" or not path:
            return place or draft.op
        layer = isinstance(self.model.get_submodule(path), LAYERS)
        weight = self.title(draft.arrays.get("weight")).path == f"{path}.weight"
        if draft.arrays and (layer or weight):
            return path
        return f"{path}.{draft.op}" if layer or place != path else path
