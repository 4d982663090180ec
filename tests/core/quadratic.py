"""A two-layer model whose loss is a coupled quadratic of its weights: gradients by hand."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from sparsepath import Stage

from .cases import members
from .reference import Block, Vector


class Quadratic(nn.Module):
    """L(W) = 1/2 ||A w - b||^2 over the weights w of a convolution and a linear layer."""

    A: Tensor
    b: Tensor

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 2, bias=False, dtype=dtype)
        self.fc1 = nn.Linear(3, 4, bias=False, dtype=dtype)
        generator = torch.Generator().manual_seed(seed)
        n = sum(W.numel() for W in self.parameters())
        draw = torch.randn(n + 2, n, generator=generator, dtype=torch.float64)
        A = torch.eye(n + 2, n, dtype=torch.float64) + 0.05 * draw
        # Blocks of growing size, so that they die one after the other.
        best = torch.linspace(0.1, 1, n) * torch.randn(n, generator=generator)
        self.register_buffer("A", A.to(dtype))
        self.register_buffer("b", (A @ best.double()).to(dtype))
        with torch.no_grad():
            start = best + 0.1 * torch.randn(n, generator=generator)
            self.conv.weight.copy_(start[:32].view(4, 2, 2, 2))
            self.fc1.weight.copy_(start[32:].view(4, 3))

    def forward(self) -> Tensor:
        return (self.A @ self.flat() - self.b).square().sum() / 2

    def flat(self) -> Tensor:
        return torch.cat([self.conv.weight.flatten(), self.fc1.weight.flatten()])

    def gradient(self, w: Vector) -> Vector:
        """The gradient by hand: A^T (A w - b)."""
        A, b = self.A.double().numpy(), self.b.double().numpy()
        return list(A.T @ (A @ np.array(w) - b))

    def blocks(self) -> list[Block]:
        """The paper's blocks as flat indices, by a plain loop."""
        shapes = [self.conv.weight.shape, self.fc1.weight.shape]
        kernels = members(self.conv, "kernels")
        rows = members(self.fc1, "kernels")
        offset = self.conv.weight.numel()
        return [[int(np.ravel_multi_index(i, shapes[0])) for i in kernel] for kernel in kernels] + [
            [offset + int(np.ravel_multi_index(i, shapes[1])) for i in row] for row in rows
        ]


def together(tensors: Mapping[str, Tensor]) -> Vector:
    """The tensors of both layers as one flat list."""
    return [float(x) for tensor in tensors.values() for x in tensor.detach().flatten()]


RATE = 0.3


def descend(model: nn.Module, stage: Stage) -> None:
    """A stage's epochs, each one step of plain gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    with stage.support.held(model, optimizer):
        for _ in range(stage.epochs):
            optimizer.zero_grad()
            (model() + stage.proximity()).backward()
            optimizer.step()


def quality(model: nn.Module) -> float:
    """Stands for an accuracy: the higher the better."""
    with torch.no_grad():
        return -float(model())
