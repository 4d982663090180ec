"""What a runtime may be given; everything else gets a sentence."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.nn.parameter import is_lazy

from sparsepath.deploy.graph.graph import Graph, mapped
from sparsepath.deploy.running.extremes import Extreme
from sparsepath.errors import BadInput
from sparsepath.modules import checked_module

# Their texts are sentences by themselves; that of a KeyError is nothing but the key.
SPEAKING = (RuntimeError, ValueError, IndexError, TypeError)


def checked_model(model: object) -> nn.Module:
    """The model, if it is one for the CPU in eval mode."""
    model = checked_module("compile", model)
    if model.training and _exported(model):
        raise BadInput(
            f"This {type(model).__name__} was made by torch.export and has no eval(); give "
            "compile() the model that was exported."
        )
    if model.training:
        raise BadInput(
            f"This {type(model).__name__} is in training mode; call its eval() before compile()."
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise BadInput(f"{name!r} has no values yet: run the model on an example first.")
        if tensor.device.type != "cpu":
            raise BadInput(
                f"{name!r} is on {tensor.device}; call the model's cpu() before compile()."
            )
    return model


def _exported(model: nn.Module) -> bool:
    """Whether a module is a graph of torch's innermost operations."""
    nodes = model.graph.nodes if isinstance(model, fx.GraphModule) else ()
    return any(isinstance(node.target, OpOverload) for node in nodes)


def given_tensors(example: object) -> tuple[Any, ...]:
    """What an example holds: one tensor, or several in a tuple or list."""
    inputs = (example,) if isinstance(example, Tensor) else example
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence) or not inputs:
        raise BadInput(
            f"The example must be a tensor or several in a tuple, not {reprlib.repr(example)} "
            f"({type(example).__name__})."
        )
    return tuple(inputs)


def checked_example(example: object) -> tuple[Tensor, ...]:
    """The tensors of an example, at least one image of each."""
    inputs = given_tensors(example)
    checked_inputs(inputs, None)
    for tensor in inputs:
        if tensor.numel() == 0:
            raise BadInput(
                f"The example has shape {tuple(tensor.shape)}; give it at least one image."
            )
    return tuple(tensor.detach() for tensor in inputs)


def checked_inputs(inputs: Sequence[object], types: Sequence[torch.dtype] | None) -> None:
    """Refuse inputs of another number, kind, type or device than the example's."""
    if types is not None and len(inputs) != len(types):
        raise BadInput(f"The model was compiled for {len(types)} inputs, not {len(inputs)}.")
    for place, tensor in enumerate(inputs):
        which = "The input" if len(inputs) == 1 else f"Input {place + 1}"
        if not isinstance(tensor, Tensor):
            raise BadInput(f"{which} must be a torch tensor, not {type(tensor).__name__}.")
        strange = _strange(tensor)
        if strange is not None:
            raise BadInput(f"{which} must be an ordinary tensor on the CPU, not {strange}.")
        if types is not None and tensor.dtype != types[place]:
            raise BadInput(
                f"{which} must be {types[place]} like the example, not {tensor.dtype}; "
                f"convert it or compile again."
            )


def in_order(
    names: Sequence[str], inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """All inputs, those given by name in the places that the model's forward gives them."""
    known = ", ".join(map(repr, names))
    for name in named:
        if name not in names:
            raise BadInput(f"The model was compiled for the inputs {known}, not for {name!r}.")
        if name in names[: len(inputs)]:
            raise BadInput(f"The input {name!r} was given twice: in its place and by name.")
    rest = names[len(inputs) :]
    missing = [name for name in rest if name not in named]
    if missing:
        raise BadInput(f"The input {missing[0]!r} is missing; the model takes {known}.")
    return (*inputs, *(named[name] for name in rest))


def _strange(tensor: Tensor) -> str | None:
    """What a tensor is that does not hold its numbers in the CPU's memory, or None."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return f"{tensor.layout} on {tensor.device}"
    if tensor.is_nested:
        return "a nested one"
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return f"a {type(tensor).__name__}"
    try:
        room = tensor.untyped_storage().nbytes()
    except RuntimeError:
        return "one inside torch.vmap or a transform of torch.func"
    if room < tensor.nbytes and room < _extent(tensor):
        return f"one of {room} bytes of memory for the shape {tuple(tensor.shape)}"
    return None


def _extent(tensor: Tensor) -> int:
    """The bytes from the beginning of a tensor's memory to its end."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.numel() else 0


def normed(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, int]:
    """The axes of what batch norms of maps read: they insist on them, until they are folded."""
    read = [node.inputs[0] for node in graph if node.op == "batch_norm"]
    return {name: len(shapes[name]) for name in read if len(shapes.get(name, ())) > 3}


def checked_axes(axes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse what a batch norm would have refused."""
    for name, wanted in axes.items():
        if len(shapes[name]) != wanted:
            raise ValueError(
                f"batch norm takes {wanted} axes behind {name!r}, not {len(shapes[name])}."
            )


def batch_of(shape: Sequence[int]) -> int:
    """How many images a tensor of this shape holds."""
    return shape[0] if shape else 1


def repeated(x: Tensor, batch: int) -> Tensor:
    """As many images as are asked for, over and over those of the example."""
    if x.dim() == 0:
        return x
    return x[torch.arange(batch, device=x.device) % len(x)]


def all_finite(structure: Any) -> bool:
    """Whether every tensor of a structure is finite."""
    found: list[bool] = []
    mapped(
        structure,
        lambda x: found.append(not isinstance(x, Tensor) or bool(x.isfinite().all())),
    )
    return all(found)


def said(inputs: Sequence[Tensor], run: Callable[[], Any]) -> Any:
    """The result, or what torch or the model's code has against these inputs in one sentence."""
    try:
        return run()
    except (BadInput, Extreme):
        raise
    except Exception as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        line = (str(error).strip().splitlines() or ["its code raised this without a word"])[0]
        kind = "" if type(error) in SPEAKING and str(error).strip() else f"{type(error).__name__}: "
        raise BadInput(f"The model cannot take inputs of shape {shapes}: {kind}{line}") from error
