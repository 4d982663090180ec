"""What a runtime may be given: everything else gets a sentence before anything runs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sparsepath.errors import BadInput


def checked_model(model: object) -> None:
    """Refuse what is no model for the CPU in eval mode."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"compile() takes a torch module, not {type(model).__name__}.")
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


def checked_example(example: object) -> tuple[Tensor, ...]:
    """The tensors of an example, at least one image of each."""
    inputs = (example,) if isinstance(example, Tensor) else example
    if not isinstance(inputs, Sequence) or not inputs:
        raise BadInput(
            f"The example must be a tensor or several in a tuple, not {type(example).__name__}."
        )
    checked_inputs(tuple(inputs), None)
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
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise BadInput(
                f"{which} must be an ordinary tensor on the CPU, "
                f"not {tensor.layout} on {tensor.device}."
            )
        if types is not None and tensor.dtype != types[place]:
            raise BadInput(
                f"{which} must be {types[place]} like the example, not {tensor.dtype}; "
                f"convert it or compile again."
            )
