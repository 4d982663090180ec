"""What a record of work on the engine says of its images and machines, and whose it is."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.folders import circumstances
from sparsepath.lab.models import Network, build
from sparsepath.lab.recipes import DenseRecipe, PathRecipe
from sparsepath.lab.weights import load_checkpoint

CONTENTS: Mapping[str, tuple[int, int, int, tuple[int, int, int]]] = {
    "cifar10": (50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": (50_000, 10_000, 100, (3, 32, 32)),
    "svhn": (73_257, 26_032, 10, (3, 32, 32)),
}
"""The paper's data sets: training images, test images, classes, and an image's shape."""

FINAL_IMAGES: Mapping[str, str] = {"cifar10": "ab820cbd41c2ed4a", "cifar100": "eeeb1e820b140862"}
"""What the real images are, for final records that are too old to say which theirs were. SVHN's may
differ in a few pixels, by how they were cropped."""


def images_of(arena: Arena) -> dict[str, Any]:
    """What a record says of its images; older ones lack the digest."""
    return {
        "data": arena.data.name,
        "training_images": len(arena.padded),
        "images": arena.digest,
    }


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
    if "images" not in kept:
        older = FINAL_IMAGES.get(arena.data.name) if arena.final else None
        kept = {**kept, "images": older or arena.digest}
    missing = sorted({*wanted, *more} - kept.keys())
    if missing:
        raise BadInput(
            f"{str(path)!r} does not say its {', '.join(missing)}: it is damaged or of an older "
            "version; move it away, or choose another folder."
        )
    kept = {**kept, "recipe": recipe.completed(kept["recipe"])}
    for what, value in wanted.items():
        if kept[what] != value:
            then, now = _apart(kept[what], value)
            raise BadInput(
                f"{str(path)!r} was made with {what} {then}, not with {now}: "
                "move it away, or choose another folder."
            )


ABSENT = "nothing"
"""What stands in a sentence for a field that one of two settings lacks."""


def _apart(one: object, other: object) -> tuple[object, object]:
    """Two values that differ; of mappings no more than what differs."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one, other
    fields = [key for key in {**one, **other} if one.get(key, ABSENT) != other.get(key, ABSENT)]
    pairs = {key: _apart(one.get(key, ABSENT), other.get(key, ABSENT)) for key in fields}
    then, now = ({key: pair[side] for key, pair in pairs.items()} for side in (0, 1))
    return then, now


def made_by(arena: Arena) -> dict[str, Any]:
    """What a record says of its making: versions, machine, and the dtype of training."""
    dtype = str(arena.dtype).removeprefix("torch.")
    return {**circumstances(arena.device), "dtype": dtype}


def trained_in(record: Mapping[str, Any]) -> tuple[str, str]:
    """On which kind of device a record's network trained last, and in which dtype.

    Older ones do not say the dtype: GPUs trained in bfloat16 alone then, CPUs in float32.
    """
    device = record.get("machine", {}).get("device", "unknown")
    return device, record.get("dtype", "float32" if device == "cpu" else "bfloat16")


def trained_anywhere(record: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The same for all the machines that a record's network trained on, one after the other."""
    then, ways = dict(record), {trained_in(record)}
    for before in reversed(record.get("earlier", [])):  # each tells what the next changed
        then |= before
        ways.add(trained_in(then))
    return ways


def taken_up(kept: Mapping[str, Any], arena: Arena, **so_far: int) -> dict[str, Any]:
    """A record whose work goes on here; where it went on elsewhere stays told, and how far."""
    here, kept = made_by(arena), {**kept, "dtype": trained_in(kept)[1]}
    other = {name: kept[name] for name in here if name in kept and kept[name] != here[name]}
    earlier = [*kept.get("earlier", []), *([{**so_far, **other}] if other else [])]
    return {**kept, **({"earlier": earlier} if earlier else {}), **here}


def network_of(record: Mapping[str, Any], weights: Path) -> Network:
    """The network of a record of one of the paper's data sets, with these weights, to be run."""
    *_, classes, shape = CONTENTS[record["data"]]
    model = build(record["network"], classes=classes, image_shape=shape)
    load_checkpoint(model, weights)
    return model.eval()
