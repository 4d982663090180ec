"""The multiplications that torch makes in nodes of which only torch knows what they do."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.inputs import batch_of
from sparsepath.deploy.graph.operations import run_node
from sparsepath.deploy.graph.reference import walk


def _recurrent(x: Any, weight: Any, hidden: Any, *rest: Any, **_: Any) -> int:
    return 2 * int(prod(x.shape[:2]) * (weight.numel() + hidden.numel()))


def _attention(query: Any, key: Any, value: Any, *rest: Any, **_: Any) -> int:
    *heads, length, width = query.shape
    return 2 * int(prod(heads) * length * key.shape[-2] * (width + value.shape[-1]))


def _fused(*places: int) -> Callable[..., int]:
    """The formula of a whole block of attention, whose matrices are at these places."""

    def flops(x: Any, *rest: Any, **_: Any) -> int:
        images, length, width = x.shape
        matrices = sum(rest[place - 1].numel() for place in places)
        return 2 * int(images * length * (matrices + 2 * length * width))

    return flops


# What torch's own table leaves out, of what it runs on a CPU.
OTHERS: Mapping[Any, Callable[..., int]] = {
    torch.ops.aten.mkldnn_rnn_layer: _recurrent,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._native_multi_head_attention: _fused(5, 7),
    torch.ops.aten._transformer_encoder_layer_fwd: _fused(3, 5, 14, 16),
}


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in flop_registry and packet not in OTHERS:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=result)
        elif packet in OTHERS:
            self.flops += OTHERS[packet](*args, **kwargs)
        return result


def macs_in_torch(graph: Graph, inputs: Sequence[Tensor]) -> Mapping[str, int]:
    """By node of which only torch knows, its multiplications for one image, zeros included."""
    found: dict[str, int] = {}
    images = max(1, batch_of(inputs[0].shape))

    def step(node: Node, *given: Any) -> Any:
        if node.call is None:
            return run_node(node, *given)
        try:
            with _Counter() as counter:
                result = run_node(node, *given)
        except Exception:  # code that does not like to be watched runs uncounted
            return run_node(node, *given)
        found[node.name] = counter.flops // (2 * images)
        return result

    if any(node.call is not None for node in graph):
        with torch.no_grad():
            walk(graph, [x.clone() for x in inputs], step)
    return found
