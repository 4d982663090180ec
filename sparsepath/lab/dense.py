"""Dense references on the engine, several side by side, and what any work on it starts from."""

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.engine import BATCH, Engine
from sparsepath.lab.folders import circumstances
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import Network, build
from sparsepath.lab.recipes import DenseRecipe, PathRecipe
from sparsepath.lab.training import seed_of
from sparsepath.storage import read_json, write_json, write_tensors


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


def train_dense(
    references: Iterable[Reference], arena: Arena, folder: Path, *, until: float = math.inf
) -> bool:
    """Train the dense references that `folder` lacks, all side by side; False if time was over.

    Each is written when its own cycle ends; one whose cycle is cut short starts again. Masks of
    dropout come from one generator for all, which is started from their names and seeds.
    """
    lacking = []
    for reference in references:
        written = folder / f"{reference.name}.json"
        if written.exists():
            kept = read_json(written)
            check_same(kept, written, recipe=reference.recipe, seed=reference.seed, arena=arena)
        else:
            lacking.append(reference)
    began = time.monotonic()
    training = [
        (
            each,
            lane_of(fresh(each.network, arena, seed=each.seed, dropout=each.recipe.dropout), arena),
        )
        for each in lacking
    ]
    epoch = 0
    while training:
        # Those whose cycle is over make room: the others are captured anew without them.
        engine = Engine([lane for _, lane in training])
        while epoch < min(reference.recipe.epochs for reference, _ in training):
            if time.monotonic() > until:
                return False
            for reference, lane in training:
                lane.rates.copy_(reference.recipe.rates(epoch, engine.steps))
                arena.fill(lane, drawn(arena, reference.network, reference.seed, epoch))
            names = [(reference.name, reference.seed) for reference, _ in training]
            torch.manual_seed(seed_of(*names, epoch))  # of dropout's masks
            losses = [float(loss) for loss in engine.epoch()]
            epoch += 1
            for (reference, lane), loss in zip(training, losses, strict=True):
                _check_finite(reference, lane, loss, epoch)
        for (reference, lane), loss in zip(training, losses, strict=True):
            if epoch == reference.recipe.epochs:
                _write(reference, lane, arena, folder, loss=loss, began=began)
        training = [(each, lane) for each, lane in training if epoch < each.recipe.epochs]
    return True


def _check_finite(reference: Reference, lane: Lane, loss: float, epoch: int) -> None:
    """Refuse a network that is none any more; a last step may break it after a finite loss."""
    last = epoch == reference.recipe.epochs
    if not math.isfinite(loss) or (last and not lane.W.isfinite().all()):
        raise BadInput(
            f"The loss of the dense {reference.name} is no longer finite in epoch {epoch}: lower "
            f"its rate of {reference.recipe.rate:g}."
        )


def _write(
    reference: Reference, lane: Lane, arena: Arena, folder: Path, *, loss: float, began: float
) -> None:
    accuracies = arena.accuracies(lane.model)
    figures: dict[str, Any] = {
        "network": reference.network,
        **images_of(arena),
        "recipe": reference.recipe.plain(),
        "seed": reference.seed,
        "loss": loss,
        **accuracies,
        "seconds_side_by_side": time.monotonic() - began,
        **circumstances(arena.device),
    }
    write_tensors(folder / f"{reference.name}.safetensors", lane.model.state_dict(), {})
    write_json(folder / f"{reference.name}.json", figures)
    print(f"dense {reference.name}: {accuracies}", flush=True)


def fresh(name: str, arena: Arena, *, seed: int, dropout: float | None = None) -> Network:
    """A network with weights drawn by the seed, ready to train."""
    with torch.random.fork_rng(devices=[]):  # the others' dropout goes on undisturbed
        torch.manual_seed(seed)
        model = build(
            name,
            classes=arena.data.classes,
            image_shape=arena.data.image_shape,
            dropout=dropout,
        )
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
    dtype = torch.bfloat16 if arena.device.type == "cuda" else torch.float32
    return Lane(
        model,
        sparsified=[f"{layer}.weight" for layer in model.sparsified],
        example=arena.example(BATCH, dtype),
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


def images_of(arena: Arena) -> dict[str, Any]:
    """What a record says of its images."""
    return {"data": arena.data.name, "training_images": len(arena.padded)}


def check_same(
    kept: Mapping[str, Any],
    path: Path,
    *,
    recipe: DenseRecipe | PathRecipe,
    seed: int,
    arena: Arena,
    more: Collection[str] = (),
) -> None:
    """Refuse what other settings made, or another data set; or what lacks these and `more`."""
    wanted: dict[str, object] = {"seed": seed, **images_of(arena), "recipe": recipe.plain()}
    missing = sorted({*wanted, *more} - kept.keys())
    if missing:
        raise BadInput(
            f"{str(path)!r} does not say its {', '.join(missing)}: it is damaged or of an older "
            "version; move it away, or choose another folder."
        )
    if recipe.made(kept["recipe"]):
        del wanted["recipe"]
    for what, value in wanted.items():
        if kept[what] != value:
            raise BadInput(
                f"{str(path)!r} was made with {what} {kept[what]}, not with {value}: "
                f"choose another folder."
            )
