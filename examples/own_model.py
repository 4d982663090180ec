"""A model and a training loop of your own, from dense to a small, fast file, in one script.

    pip install 'sparsepath[digits]'
    python examples/own_model.py [--epochs 15] [--out net.sparsepath]

A residual network with batch norm, AdamW and a learning rate schedule learn the embedded digits;
every choice is made on validation digits, and the test digits are looked at once, at the end. Put
your own network, data and loop in the place of the first three parts: the rest stays as it is.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from sparsepath import (
    ADMM,
    L0,
    PathPoint,
    Schedule,
    Stage,
    deploy,
    macs,
    mu_range,
    regularisation_path,
)
from sparsepath.lab.data import Split, load, normalise

Batches = DataLoader[tuple[Tensor, ...]]

# ---- Your data: any loaders do.


def loaders() -> tuple[Batches, Batches, Batches]:
    """Training, validation and test digits in batches."""
    data = load("digits")

    def batches(split: Split, *, shuffle: bool = False) -> Batches:
        images = TensorDataset(normalise(split.images, data), split.labels)
        return DataLoader(images, batch_size=100, shuffle=shuffle)

    return batches(data.train, shuffle=True), batches(data.validation), batches(data.test)


# ---- Your model: any module does, batch norm, branches and all.


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """From so many maps to so many others."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.around = nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """What both ways add up to."""
        inner = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(inner + self.around(x))


def network() -> nn.Module:
    """Three blocks between 28 x 28 pixels and ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        Block(16, 32, 1),
        Block(32, 64, 2),
        Block(64, 64, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


# ---- Your loop: three lines of it are sparsepath's, those with `stage`.


def train(model: nn.Module, stage: Stage, *, loader: Batches, rate: float = 2e-3) -> None:
    """AdamW with a cosine schedule, for as many epochs as the stage asks for."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, stage.epochs * len(loader))
    model.train()
    with stage.support.held(model, optimizer):  # in a fine-tune, zeros stay zero
        for _ in range(stage.epochs):
            for images, labels in loader:
                loss = functional.cross_entropy(model(images), labels) + stage.proximity()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module | Callable[[Tensor], Tensor], loader: Batches) -> float:
    """The share of digits that are named rightly."""
    right = [
        (model(images).argmax(1) == labels).double().mean().item() for images, labels in loader
    ]
    return statistics.fmean(right)


# ---- From here on nothing depends on them.


def walked(model: nn.Module, epochs: int, training: Batches, judging: Batches) -> PathPoint:
    """The sparsest point of the l0 path that loses at most a point of accuracy in validation."""
    dense = accuracy(model.eval(), judging)
    print(f"dense: {dense:.1%} of the validation digits")
    # The kernels of all 3 x 3 convolutions but the first, which has few and feeds all others.
    admm = ADMM(model, L0(), rho=0.05, layers=lambda name, layer: name.endswith(("conv1", "conv2")))
    chosen = None
    for point in regularisation_path(
        admm,
        lambda model, stage: train(model, stage, loader=training),
        evaluate=lambda model: accuracy(model, judging),
        schedule=Schedule(delta=1, nu=1, xi=3, finetune=max(1, epochs // 3)),
        mus=mu_range(admm, points=8, reach=(0.3, 0.98)),
    ):
        print(f"mu {point.mu:.1e}: {point.sparsity.of_blocks:.1%} zero, {point.accuracy:.1%}")
        if chosen is None or point.accuracy >= dense - 0.01:
            chosen = point
        if point.accuracy < dense - 0.05:
            break  # what follows is sparser still
    assert chosen is not None
    return chosen


def times_as_fast(one: Callable[[], object], other: Callable[[], object], turns: int = 30) -> float:
    """How many times sooner the first is done than the other, the median over turns."""

    def seconds(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    one(), other()
    return statistics.median(seconds(other) / seconds(one) for _ in range(turns))


def main() -> None:
    """Train, walk, choose, make it small, save it, and look what was gained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15, help="of the dense training")
    parser.add_argument("--out", type=Path, default=Path("net.sparsepath"))
    given = parser.parse_args()
    if given.out.exists():  # better said now than after the training
        parser.error(f"{str(given.out)!r} exists: name another file with --out.")
    torch.manual_seed(0)
    training, judging, testing = loaders()
    model = network()
    train(model, Stage(0, 0.0, None, given.epochs), loader=training)
    dense = copy.deepcopy(model).eval()

    point = walked(model, given.epochs, training, judging)
    point.load(model)
    example = next(iter(testing))[0][:1]
    small = deploy.compact(model.eval(), example)
    deploy.save(small.model, given.out, figures={"validation accuracy": point.accuracy})

    runtime = deploy.compile(deploy.load(given.out).model.eval(), example)
    with torch.no_grad():
        faster = times_as_fast(lambda: runtime(example), lambda: dense(example))
    print(
        f"chosen: {point.sparsity.of_blocks:.1%} of the kernels are zero, "
        f"{macs(model, example).speedup:.1f} times fewer multiplications\n"
        f"test digits: {accuracy(runtime, testing):.1%} (dense {accuracy(dense, testing):.1%})\n"
        f"one image: {faster:.1f} times as fast as the dense network in torch, on this machine\n"
        f"{given.out}: {given.out.stat().st_size:,} bytes (dense weights: "
        f"{sum(4 * weight.numel() for weight in dense.state_dict().values()):,})"
    )


if __name__ == "__main__":
    main()
