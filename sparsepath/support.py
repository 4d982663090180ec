"""Which weights survive: checked masks, imposed on a model and held through any optimizer."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from sparsepath.errors import BadInput
from sparsepath.modules import uncompiled
from sparsepath.storage import read_tensors, write_tensors

FORMAT = "sparsepath support 1"
Dead = list[tuple[nn.Parameter, Tensor]]


class Support(Mapping[str, Tensor]):
    """Boolean masks by parameter name, each broadcasting against its weight; True survives."""

    def __init__(self, masks: Mapping[str, Tensor]) -> None:
        """Keep the masks, which must be boolean."""
        for name, mask in masks.items():
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise BadInput(f"The mask of {name!r} must be a boolean tensor, not {given}.")
        self._masks = dict(masks)

    def __getitem__(self, name: str) -> Tensor:
        """The mask of one parameter."""
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the parameters."""
        return iter(self._masks)

    def __len__(self) -> int:
        """How many parameters have a mask."""
        return len(self._masks)

    def __eq__(self, other: object) -> bool:
        """Whether the same weights survive."""
        if not isinstance(other, Support):
            return NotImplemented
        return self.keys() == other.keys() and all(
            self[name].shape == other[name].shape
            and torch.equal(self[name].cpu(), other[name].cpu())
            for name in self
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        living = ", ".join(f"{name}: {int(m.sum())}/{m.numel()}" for name, m in self.items())
        return f"Support({living})"

    def _dead(self, model: nn.Module) -> Dead:
        """Each parameter with the mask of what is zero in it, on its device; all checked first."""
        parameters = dict(uncompiled(model).named_parameters(remove_duplicate=False))
        dead = []
        for name, mask in self.items():
            if name not in parameters:
                raise BadInput(
                    f"The support names {name!r}, which this {type(model).__name__} lacks."
                )
            weight = parameters[name]
            try:
                fits = torch.broadcast_shapes(mask.shape, weight.shape) == weight.shape
            except RuntimeError:
                fits = False
            if not fits:
                raise BadInput(
                    f"The mask of {name!r} has shape {tuple(mask.shape)}, which does not broadcast "
                    f"against the weight's {tuple(weight.shape)}: it belongs to another model."
                )
            dead.append((weight, ~mask.to(weight.device)))
        return dead

    @torch.no_grad()
    def impose(self, model: nn.Module) -> None:
        """Zero the weights outside the support."""
        _zero(self._dead(model))

    @contextmanager
    def held(self, model: nn.Module, optimizer: Optimizer) -> Iterator[None]:
        """Impose the support, keep its zeros through every step of the optimizer, then let go."""
        if not isinstance(optimizer, Optimizer):
            raise BadInput(f"held() needs a torch optimizer, not {type(optimizer).__name__}.")
        dead = self._dead(model)
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if dead and not any(id(weight) in trained for weight, _ in dead):
            raise BadInput(
                "This optimizer trains none of the support's weights: is it another model's?"
            )
        _zero(dead)
        _forget(optimizer, dead)
        # Gradients are masked so that no momentum, curvature or norm is built on dead weights;
        # weights are masked after the step because decay, noise or history may still move them.
        handles = [
            weight.register_hook(_masked(mask)) for weight, mask in dead if weight.requires_grad
        ]
        handles.append(optimizer.register_step_post_hook(lambda *_: _zero(dead)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def save(self, path: str | Path) -> None:
        """Write the masks to a safetensors file, atomically."""
        write_tensors(Path(path), self, {"format": FORMAT})

    @classmethod
    def load(cls, path: str | Path) -> "Support":
        """Read the masks of a file that `save` wrote."""
        masks, header = read_tensors(Path(path))
        if header.get("format") != FORMAT:
            raise BadInput(
                f"{str(path)!r} holds no support: its format is {header.get('format')!r}."
            )
        return cls(masks)


def _masked(dead: Tensor) -> Callable[[Tensor], Tensor]:
    # Filled rather than multiplied: under AMP a dead gradient may be infinite.
    return lambda gradient: gradient.masked_fill(dead, 0.0)


@torch.no_grad()
def _zero(dead: Dead) -> None:
    for weight, mask in dead:
        weight.masked_fill_(mask, 0.0)


@torch.no_grad()
def _forget(optimizer: Optimizer, dead: Dead) -> None:
    """Clear what the optimizer remembers of dead weights: it would push them for many steps."""
    if isinstance(optimizer, LBFGS):
        # Its history is flat over all parameters, and of a problem that is no longer solved.
        optimizer.state.clear()
    for weight, mask in dead:
        if weight.grad is not None:
            weight.grad.masked_fill_(mask, 0.0)
        for remembered in optimizer.state.get(weight, {}).values():
            if isinstance(remembered, Tensor) and remembered.shape == weight.shape:
                remembered.masked_fill_(mask, 0.0)
