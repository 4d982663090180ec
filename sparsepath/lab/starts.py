"""What work on the engine starts from: references, fresh weights on a lane, draws of images."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.engine import BATCH
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import Network, build
from sparsepath.lab.recipes import DenseRecipe
from sparsepath.lab.training import seed_of


@dataclass(frozen=True)
class Reference:
    """A dense network to start from: how it is trained, and by which seed."""

    network: str
    recipe: DenseRecipe
    seed: int = 0
    variant: str = ""

    @property
    def name(self) -> str:
        """What its files are called."""
        seed = str(self.seed) if self.seed else ""
        return "-".join(part for part in (self.network, self.variant, seed) if part)


def fresh(name: str, arena: Arena, *, seed: int, dropout: float | None = None) -> Network:
    """A network with weights drawn by the seed, ready to train, in the memory order of a lane.

    What is made beside it, as ADMM's F, has that order too, so that both are read in one go.
    """
    with torch.random.fork_rng(devices=[]):  # a library leaves torch's generator as it was
        torch.manual_seed(seed)
        model = build(
            name,
            classes=arena.data.classes,
            image_shape=arena.data.image_shape,
            dropout=dropout,
        )
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(arena.device).train()


def lane_of(
    model: Network,
    arena: Arena,
    *,
    decay: float = 5e-4,
    beta: float = 0.9,
    lasso: Mapping[str, Blocks] | None = None,
    teacher: Network | None = None,
    distil: float = 0.0,
) -> Lane:
    """The lane on which a network trains with this arena's images."""
    if not arena.steps(BATCH):
        raise BadInput(
            f"The data set {arena.data.name!r} has {len(arena.padded)} training images; a step "
            f"takes {BATCH}."
        )
    return Lane(
        model,
        sparsified=[f"{layer}.weight" for layer in model.sparsified],
        example=arena.example(BATCH),
        steps=arena.steps(BATCH),
        decay=decay,
        beta=beta,
        lasso=lasso,
        teacher=teacher,
        distil=distil,
    )


def drawn(arena: Arena, *key: object) -> torch.Generator:
    """A generator that the key alone decides."""
    return torch.Generator(arena.device).manual_seed(seed_of(*key))
