"""One network of the engine: its weights in one flat buffer, and all that its step reads."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput
from sparsepath.lab.dropout import HIGHEST, keyed
from sparsepath.support import Support

# Parts of the flat buffer start at multiples of this many floats, so that kernels may load aligned.
ALIGNED = 64


class Lane:
    """One network of the engine: its weights in one flat buffer, and all that its step reads.

    Every tensor here keeps its address for life. A new stage copies its U, rho, support and rates
    into them, so that the captured step needs no new capture.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        sparsified: Sequence[str] = (),
        example: Tensor,
        steps: int,
        decay: float = 5e-4,
        beta: float = 0.9,
        lasso: Mapping[str, Blocks] | None = None,
        teacher: nn.Module | None = None,
        distil: float = 0.0,
    ) -> None:
        """Move the model's parameters into a flat buffer, the sparsified weights first.

        With the blocks of some weights in `lasso` a step also descends the group lasso's
        subgradient, as strong as the tensor `lasso` says: the method that ADMM is compared with.
        A share `distil` of the loss asks for the answers of a `teacher`.
        """
        named = dict(model.named_parameters())
        unknown = [name for name in sparsified if name not in named]
        if unknown:
            raise BadInput(f"The network has no parameters {unknown}; it has {sorted(named)}.")
        names = [*sparsified, *(name for name in named if name not in sparsified)]
        device = example.device
        ends = _ends([named[name].numel() for name in names])
        self.model = model
        self.teacher = None if teacher is None else teacher.eval().requires_grad_(False)
        self.distil = torch.full((), distil, device=device)
        self.names = names
        self.W, self.gradient, self.momentum = (
            torch.zeros(ends[-1], device=device) for _ in range(3)
        )
        self.parameters = [named[name] for name in names]
        self.working: dict[str, Tensor] = dict(zip(names, self.parameters, strict=True))
        self._half: Tensor | None = None
        self._starts = [0, *ends[:-1]]
        self.gradients = []
        for parameter, start in zip(self.parameters, self._starts, strict=True):
            stored = _stored(self.W, start, parameter.shape)
            stored.copy_(parameter.detach())
            parameter.data = stored
            self.gradients.append(_stored(self.gradient, start, parameter.shape))
        split = ends[len(sparsified) - 1] if sparsified else 0
        self.split = split
        self.U = torch.zeros(split, device=device)
        self.mask = torch.ones(split, device=device)
        self.pull = torch.zeros((), device=device)
        self.decay = torch.full((), decay, device=device)
        self.beta = torch.full((), beta, device=device)
        self.lasso = torch.zeros((), device=device)
        self.lasso_blocks = [
            (parameter, gradient, lasso[name])
            for name, parameter, gradient in zip(
                names, self.parameters, self.gradients, strict=True
            )
            if lasso and name in lasso
        ]
        self.key = torch.zeros((), dtype=torch.int32, device=device)
        keyed(model, self.key)
        self.rates = torch.zeros(steps, device=device)
        self.loss = torch.zeros((), device=device)
        self.images = torch.zeros(steps * len(example), *example.shape[1:], device=device)
        self.images = self.images.to(example.dtype)
        self.labels = torch.zeros(steps * len(example), dtype=torch.long, device=device)
        self._views = {
            name: (
                _stored(self.U, start, named[name].shape),
                _stored(self.mask, start, named[name].shape),
            )
            for name, start in zip(sparsified, self._starts, strict=False)
        }

    def halve(self) -> None:
        """Let a step run on a copy of the weights in bfloat16, made in one go; W stays exact."""
        self._half = torch.zeros_like(self.W, dtype=torch.bfloat16)
        parts = zip(self.names, self.parameters, self._starts, strict=True)
        self.working = {
            name: _stored(self._half, start, parameter.shape).requires_grad_()
            for name, parameter, start in parts
        }

    def draw(self, seed: int) -> None:
        """Let this seed decide the masks of dropout from the next step on."""
        self.key.fill_(seed % HIGHEST)

    def whole(self) -> bool:
        """Whether weights and their squares are finite: a last step may break them after a loss."""
        return math.isfinite(self.W.square().sum(dtype=torch.float64))

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring the working copy, if there is one, up to the weights."""
        if self._half is not None:
            self._half.copy_(self.W)

    @torch.no_grad()
    def begin(
        self,
        *,
        U: Mapping[str, Tensor] | None = None,
        rho: float = 0.0,
        support: Support | None = None,
    ) -> None:
        """Set up one stage: pull towards U with strength rho, or hold a support, or neither."""
        self.momentum.zero_()
        self.lasso.zero_()
        self.pull.fill_(rho if U is not None else 0.0)
        for name, (aim, mask) in self._views.items():
            if U is not None:
                aim.copy_(U[name])
            mask.copy_(support[name] if support else torch.ones((), device=mask.device))


def _ends(sizes: Sequence[int]) -> list[int]:
    ends, end = [], 0
    for size in sizes:
        end += -(-size // ALIGNED) * ALIGNED
        ends.append(end)
    return ends


def _stored(flat: Tensor, start: int, shape: torch.Size) -> Tensor:
    """A view of the flat buffer with this shape; four axes in the memory order of channels_last."""
    part = flat[start : start + shape.numel()]
    if len(shape) != 4:
        return part.view(shape)
    outputs, inputs, height, width = shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
