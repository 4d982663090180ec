"""Dense references on the engine, several side by side, and what any work on it starts from."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.engine import Engine, Lane, Optimizer
from sparsepath.lab.folders import circumstances
from sparsepath.lab.models import Network, build
from sparsepath.lab.recipes import DenseRecipe, PathRecipe
from sparsepath.lab.training import seed_of
from sparsepath.storage import read_json, write_json, write_tensors


def reference_name(network: str, seed: int) -> str:
    """What the files of a dense reference are called."""
    return network if seed == 0 else f"{network}-{seed}"


def train_dense(
    recipes: dict[str, DenseRecipe], arena: Arena, folder: Path, *, seed: int = 0
) -> None:
    """Train the dense references that `folder` lacks, all side by side."""
    names = []
    for name, recipe in recipes.items():
        written = folder / f"{reference_name(name, seed)}.json"
        if written.exists():
            check_same(read_json(written), written, recipe=recipe, seed=seed, arena=arena)
        else:
            names.append(name)
    if not names:
        return
    began = time.monotonic()
    lanes = [lane_of(fresh(name, arena, seed=seed), arena) for name in names]
    engine = Engine(lanes, Optimizer())
    losses = []
    for epoch in range(max(recipes[name].epochs for name in names)):
        for name, lane in zip(names, lanes, strict=True):
            lane.rates.copy_(recipes[name].rates(epoch, engine.steps))
            arena.fill(lane, drawn(arena, name, seed, epoch))
        losses = engine.epoch()
    for name, lane, loss in zip(names, lanes, losses, strict=True):
        figures: dict[str, Any] = {
            "network": name,
            **images_of(arena),
            "recipe": recipes[name].plain(),
            "seed": seed,
            "loss": float(loss),
            **arena.accuracies(lane.model),
            "seconds_side_by_side": time.monotonic() - began,
            **circumstances(arena.device),
        }
        place = reference_name(name, seed)
        write_tensors(folder / f"{place}.safetensors", lane.model.state_dict(), {})
        write_json(folder / f"{place}.json", figures)
        print(f"dense {name}: {arena.accuracies(lane.model)}", flush=True)


def fresh(name: str, arena: Arena, *, seed: int) -> Network:
    """A network with weights drawn by the seed, ready to train."""
    torch.manual_seed(seed)
    model = build(name, classes=arena.data.classes, image_shape=arena.data.image_shape)
    return model.to(arena.device).train()


def lane_of(
    model: Network,
    arena: Arena,
    *,
    decay: float = 5e-4,
    lasso: Mapping[str, Blocks] | None = None,
) -> Lane:
    """The lane on which a network trains with this arena's images."""
    batch = Optimizer().batch
    dtype = torch.bfloat16 if arena.device.type == "cuda" else torch.float32
    return Lane(
        model,
        sparsified=[f"{layer}.weight" for layer in model.sparsified],
        example=arena.example(batch, dtype),
        steps=arena.steps(batch),
        decay=decay,
        lasso=lasso,
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
) -> None:
    """Refuse what other settings made, or another data set."""
    wanted: dict[str, object] = {"seed": seed, **images_of(arena)}
    if not recipe.made(kept["recipe"]):
        wanted["recipe"] = recipe.plain()
    for what, value in wanted.items():
        if kept[what] != value:
            raise BadInput(
                f"{str(path)!r} was made with {what} {kept[what]}, not with {value}: "
                f"choose another folder."
            )
