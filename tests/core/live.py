"""A small network, and an ADMM beside it that is under way."""

import torch
from torch import Tensor, nn

from sparsepath import ADMM, L1, Penalty


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def shaken(model: nn.Module, seed: int = 0) -> None:
    """Stands for training: every weight moves a little."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for W in model.parameters():
            W.add_(0.1 * torch.randn(W.shape, generator=generator).to(W))


def started(model: nn.Module, penalty: Penalty | None = None, **options: object) -> ADMM:
    """An ADMM that is two steps under way, so that F, Gamma and U all differ."""
    admm = ADMM(model, penalty or L1(), rho=0.3, mu=0.03, **options)
    for seed in range(2):
        shaken(model, seed)
        admm.step()
    shaken(model, 2)
    return admm


def same(one: object, other: object) -> bool:
    """Whether two states are equal, tensor by tensor."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return one == other
