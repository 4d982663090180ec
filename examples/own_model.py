"""A model and a training loop of your own, from dense to a small, fast file, in one script.

    pip install 'sparsepath[digits]'
    python examples/own_model.py [--epochs 15] [--out net.sparsepath]

A residual network with batch norm, AdamW and a learning rate schedule learn the embedded digits;
every choice is made on validation digits, and the test digits are looked at once, at the end. Put
your own data, network and loop in the place of the first three parts.
"""

import argparse
import copy
import os
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
    BadInput,
    PathPoint,
    Schedule,
    Stage,
    deploy,
    macs,
    mu_range,
    regularisation_path,
)
from sparsepath.errors import as_script
from sparsepath.lab.data import Split, load, normalise

Batches = DataLoader[tuple[Tensor, ...]]
Network = Callable[[Tensor], Tensor]

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


def sparsified(name: str, layer: nn.Module) -> bool:
    """Whether a layer's kernels may die: of all 3 x 3 convolutions but the first, which has few."""
    return isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) and layer.in_channels > 1


# ---- Your loop: what `stage` asks of it is all that is sparsepath's.


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
def accuracy(model: Network, loader: Batches) -> float:
    """The share of images that are named rightly."""
    right = images_seen = 0
    for images, labels in loader:
        right += int((model(images).argmax(1) == labels).sum())
        images_seen += len(labels)
    return right / images_seen


# ---- From here on nothing is of these digits or this network.


def walked(admm: ADMM, epochs: int, training: Batches, judging: Batches) -> PathPoint:
    """The sparsest point of the path that loses at most a point of accuracy in validation."""
    dense = accuracy(admm.model.eval(), judging)
    print(f"dense: {dense:.1%} in validation", flush=True)
    chosen = None
    for point in regularisation_path(
        admm,
        lambda model, stage: train(model, stage, loader=training),
        evaluate=lambda model: accuracy(model, judging),
        schedule=Schedule(delta=1, nu=1, xi=3, finetune=max(1, epochs // 3)),
        mus=mu_range(admm, points=8, reach=(0.3, 0.98)),
    ):
        zero = point.sparsity.of_blocks
        print(f"mu {point.mu:.1e}: {zero:.1%} zero, {point.accuracy:.1%}", flush=True)
        if point.accuracy >= dense - 0.01:
            chosen = point
        if point.accuracy < dense - 0.05:
            break  # what follows is sparser still
    if chosen is None:
        raise BadInput("No point is within one of dense accuracy: train longer, or start lower.")
    return chosen


def times_as_fast(example: Tensor, one: Network, others: dict[str, Network]) -> dict[str, float]:
    """How many times sooner one is done with an example than each other: medians over turns."""

    def seconds(model: Network) -> float:
        began = time.perf_counter()
        model(example)
        return time.perf_counter() - began

    ratios: dict[str, list[float]] = {name: [] for name in others}
    with torch.no_grad():
        for _ in range(31):
            own = seconds(one)
            for name, other in others.items():
                ratios[name].append(seconds(other) / own)
    return {name: statistics.median(found[1:]) for name, found in ratios.items()}


def main() -> None:
    """Train, walk, choose, make it small, save it, and look what was gained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15, help="of the dense training")
    parser.add_argument("--out", type=Path, default=Path("net.sparsepath"))
    given = parser.parse_args()
    # Better said now than after the training.
    if given.epochs < 1:
        parser.error(f"--epochs must be 1 or more, not {given.epochs}.")
    if given.out.exists():
        parser.error(f"{str(given.out)!r} exists: name another file with --out.")
    if not os.access(given.out.parent, os.W_OK):
        parser.error(f"No file can be written in {str(given.out.parent)!r}: name another folder.")
    torch.manual_seed(0)
    training, judging, testing = loaders()
    model = network()
    admm = ADMM(model, L0(), rho=0.05, layers=sparsified)
    train(model, Stage(0, 0.0, None, given.epochs), loader=training)
    admm.restart()  # F and Gamma are of the trained weights, not of those it was made with
    dense = copy.deepcopy(model).eval()

    point = walked(admm, given.epochs, training, judging)
    point.load(model)
    example = next(iter(testing))[0][:1]
    small = deploy.compact(model.eval(), example)
    deploy.save(small.model, given.out, figures={"validation accuracy": point.accuracy})

    # As the file does it, by one thread: beside the dense network in torch, and in this runtime.
    torch.set_num_threads(1)
    runtime = deploy.compile(deploy.load(given.out).model.eval(), example)
    beside: dict[str, Network] = {"torch": dense, "our runtime": deploy.compile(dense, example)}
    faster = times_as_fast(example, runtime, beside)
    print(
        f"chosen: {point.sparsity.of_blocks:.1%} of the kernels are zero, "
        f"{macs(model, example).speedup:.1f} times fewer multiplications\n"
        f"test images: {accuracy(runtime, testing):.1%} (dense {accuracy(dense, testing):.1%})\n"
        f"one image, one thread: {faster['torch']:.1f} times as fast as the dense network in "
        f"torch, {faster['our runtime']:.1f} times as fast as in our runtime\n"
        f"{given.out}: {given.out.stat().st_size:,} bytes (dense weights: "
        f"{sum(4 * weight.numel() for weight in dense.state_dict().values()):,})"
    )


if __name__ == "__main__":
    as_script(main)
