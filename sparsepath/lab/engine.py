"""Several networks trained side by side on a GPU, one captured graph a step, updated in place."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.errors import BadInput
from sparsepath.lab.lane import Lane

# Images a step.
BATCH = 128

# A block of no more than this length has no direction to shrink in.
TINY = 1e-12

# What logits are divided by before a teacher's and a pupil's are compared.
SOFTNESS = 4.0


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


class Engine:
    """Trains its lanes side by side, each on its own stream, all forked and joined in one graph."""

    def __init__(self, lanes: Sequence[Lane], *, batch: int = BATCH) -> None:
        """Compile and capture one step of all lanes, or run it plainly, as a CPU must.

        The forward and backward pass are in bfloat16 if the lanes' images are.
        """
        if not lanes:
            raise BadInput("An engine needs at least one lane.")
        self.lanes = list(lanes)
        self.batch = batch
        device = lanes[0].W.device
        captured = device.type == "cuda"
        dtypes = {lane.images.dtype for lane in lanes}
        if len(dtypes) > 1:
            found = " and ".join(sorted(map(str, dtypes)))
            raise BadInput(f"The lanes of an engine store images of one dtype, not of {found}.")
        self.bfloat16 = dtypes == {torch.bfloat16}
        # Older GPUs emulate it, slower than float32.
        if captured and self.bfloat16 and not torch.cuda.is_bf16_supported(False):
            raise BadInput(
                f"The GPU {str(device)!r} has no bfloat16: choose a newer one (Ampere or later), "
                "or train in float32 (--float32)."
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
        lane.key.add_(1)
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
            for tensor in (lane.rates, lane.W, lane.momentum, lane.loss, lane.key)
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
