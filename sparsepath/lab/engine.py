"""Several networks trained side by side on a GPU, one captured graph a step, updated in place."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput
from sparsepath.support import Support

# Images a step.
BATCH = 128

# A block of no more than this length has no direction to shrink in.
TINY = 1e-12

# What logits are divided by before a teacher's and a pupil's are compared.
SOFTNESS = 4.0

# Parts of the flat buffer start at multiples of this many floats, so that kernels may load aligned.
ALIGNED = 64


def loss_of(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    teacher: nn.Module | None = None,
    distil: Tensor | None = None,
) -> Tensor:
    """The recognition loss, by these weights, of a batch that is stored as pixels (N, H, W, C).

    A share `distil` of it is the cross entropy with a teacher's answers, both softened (Hinton et
    al. 2015). The softness itself, not its square as there, gives its gradient the bound of the
    labels' own, so that a rate which serves without a teacher serves with one.
    """
    pixels = images.permute(0, 3, 1, 2)
    logits = torch.func.functional_call(model, dict(weights), (pixels,))
    loss = functional.cross_entropy(logits, labels)
    if teacher is None or distil is None:
        return loss
    with torch.no_grad():
        answers = (teacher(pixels).float() / SOFTNESS).softmax(1)
    softened = functional.cross_entropy(logits.float() / SOFTNESS, answers)
    return (1 - distil) * loss + distil * SOFTNESS * softened


def sgd(
    W: Tensor, gradient: Tensor, momentum: Tensor, *, rate: Tensor, beta: Tensor, decay: Tensor
) -> None:
    """One step of SGD with momentum and decay, in place."""
    momentum.mul_(beta).add_(gradient + decay * W)
    W.sub_(rate * momentum)


def sgd_towards(
    W: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    *,
    U: Tensor,
    mask: Tensor,
    pull: Tensor,
    rate: Tensor,
    beta: Tensor,
    decay: Tensor,
) -> None:
    """The same with the pull rho (W - U) of a performance step and the mask of a fine-tune."""
    momentum.mul_(beta).add_(gradient + decay * W + pull * (W - U)).mul_(mask)
    W.sub_(rate * momentum).mul_(mask)


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
        starts = [0, *ends[:-1]]
        self.gradients = []
        for parameter, start in zip(self.parameters, starts, strict=True):
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
            for name, start in zip(sparsified, starts, strict=False)
        }

    def halve(self) -> None:
        """Let a step run on a copy of the weights in bfloat16, made in one go; W stays exact."""
        self._half = torch.zeros_like(self.W, dtype=torch.bfloat16)
        starts = [0, *_ends([parameter.numel() for parameter in self.parameters])[:-1]]
        self.working = {
            name: _stored(self._half, start, parameter.shape).requires_grad_()
            for name, parameter, start in zip(self.names, self.parameters, starts, strict=True)
        }

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


class Engine:
    """Trains its lanes side by side, each on its own stream, all forked and joined in one graph."""

    def __init__(
        self, lanes: Sequence[Lane], *, batch: int = BATCH, bfloat16: bool | None = None
    ) -> None:
        """Compile and capture one step of all lanes, or run it plainly, as a CPU must.

        The forward and backward pass of a captured step are in bfloat16 unless told otherwise.
        """
        if not lanes:
            raise BadInput("An engine needs at least one lane.")
        self.lanes = list(lanes)
        self.batch = batch
        device = lanes[0].W.device
        captured = device.type == "cuda"
        self.bfloat16 = captured if bfloat16 is None else bfloat16
        # Older GPUs emulate it, slower than float32.
        if captured and self.bfloat16 and not torch.cuda.is_bf16_supported(False):
            raise BadInput(
                f"The GPU {str(device)!r} has no bfloat16: choose a newer one (Ampere or later), "
                "or train with the plain loop."
            )
        self.cursor = torch.zeros((), dtype=torch.long, device=device)
        self._offsets = torch.arange(batch, device=device)
        self.steps = len(lanes[0].rates)
        compiled = partial(torch.compile, dynamic=False) if captured else _as_it_is
        if self.bfloat16:
            for lane in self.lanes:
                lane.halve()
        self._loss = compiled(loss_of)
        self._gather = compiled(torch._foreach_copy_)
        self._sgd = compiled(sgd)
        self._sgd_towards = compiled(sgd_towards)
        self._replay: Callable[[], None] = self._capture() if captured else self._step

    def epoch(self) -> list[Tensor]:
        """Run every step of one epoch over the lanes' images; the mean loss of each lane."""
        self.cursor.zero_()
        for lane in self.lanes:
            lane.loss.zero_()
        for _ in range(self.steps):
            self._replay()
        return [lane.loss / self.steps for lane in self.lanes]

    def _step(self) -> None:
        for lane in self.lanes:
            self._lane_step(lane)
        self.cursor.add_(1)

    def _lane_step(self, lane: Lane) -> None:
        batch = self._offsets + self.cursor * self.batch
        images, labels = lane.images.index_select(0, batch), lane.labels.index_select(0, batch)
        rate = lane.rates.index_select(0, self.cursor.view(1))
        lane.refresh()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = self._loss(lane.model, lane.working, images, labels, lane.teacher, lane.distil)
        gradients = torch.autograd.grad(loss, list(lane.working.values()))
        with torch.no_grad():
            self._gather(lane.gradients, gradients)
            for W, gradient, blocks in lane.lasso_blocks:
                unit = blocks.of(W) / blocks.norms(W).clamp(min=TINY)
                gradient.add_(lane.lasso * unit.reshape(W.shape))
            lane.loss.add_(loss)
            self._update(lane, rate)

    def _update(self, lane: Lane, rate: Tensor) -> None:
        settings: dict[str, Any] = {"rate": rate, "beta": lane.beta, "decay": lane.decay}
        rest = slice(lane.split, None)
        self._sgd(lane.W[rest], lane.gradient[rest], lane.momentum[rest], **settings)
        if lane.split:
            first = slice(0, lane.split)
            self._sgd_towards(
                lane.W[first],
                lane.gradient[first],
                lane.momentum[first],
                U=lane.U,
                mask=lane.mask,
                pull=lane.pull,
                **settings,
            )

    def _capture(self) -> Callable[[], None]:
        main = torch.cuda.Stream()
        main.wait_stream(torch.cuda.current_stream())
        state = [
            tensor
            for lane in self.lanes
            for tensor in (lane.rates, lane.W, lane.momentum, lane.loss)
        ]
        kept = [tensor.clone() for tensor in state]
        # Every kind of network compiles the step anew; past eight torch would leave it uncompiled.
        many = torch._dynamo.config.patch(recompile_limit=64)
        with torch.cuda.stream(main), many:
            # Compiles and allocates; at rate 0 the weights stand still, and all is put back after.
            for lane in self.lanes:
                lane.rates.zero_()
            for _ in range(3):
                self.cursor.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(main)
        graph = torch.cuda.CUDAGraph()
        streams = [torch.cuda.Stream() for _ in self.lanes]
        with torch.cuda.graph(graph, stream=main):
            for lane, stream in zip(self.lanes, streams, strict=True):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    self._lane_step(lane)
            for stream in streams:
                main.wait_stream(stream)
            self.cursor.add_(1)
        for tensor, before in zip(state, kept, strict=True):
            tensor.copy_(before)
        self._streams = streams
        return graph.replay


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
