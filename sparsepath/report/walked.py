"""The record of a path that `reproduce` walked, in the shape of a run's."""

import re
from collections.abc import Mapping
from typing import Any

from sparsepath.lab.folders import Record, chosen

ONE_SHOT = "one-shot"
TOLERANCE = 0.01
"""What the chosen point may lose in validation, as for a run that does not say otherwise."""


ARM = re.compile(r"(?:(?P<arm>.*?)-)?(?P<rest>\d+|best)-(?P<seed>\d+)")
"""The variant of a repeated walk: its arm, where that is not its method, a number or best mode's
name, and its seed."""
SHARE = re.compile(r"-\d*\.?\d+$")
"""What a one-shot walk adds to its arm: each of its points is a walk of its own."""


def is_walk(record: Mapping[str, Any]) -> bool:
    """Whether a JSON file is such a record."""
    return {"network", "penalty", "recipe", "dense", "mus", "points"} <= record.keys()


def as_run(walk: Mapping[str, Any], name: str) -> Record:
    """A run of this name with the walk's figures; it has no validation where the walk had none."""
    recipe = walk["recipe"]
    points = [_point(point, recipe) for point in walk["points"]]
    settings = {
        **{key: value for key, value in recipe.items() if key not in ("schedule", "points")},
        **recipe["schedule"],
        **{key: walk[key] for key in ("network", "data", "penalty", "seed")},
        **_arm(walk),
        "blocks": "kernels",
        "points": len(recipe.get("keep") or ()) or recipe["last"] + 1,
        "tolerance": TOLERANCE,
    }
    if settings["arm"] == ONE_SHOT:  # as many walks as points, and all of one arm
        settings |= {"keep": None, "finetune": None}
    first = points[0]["sparsity"]["blocks"] if points else {}
    dense = {
        **walk["dense"],
        "blocks": first,
        "sparsity": {"of_blocks": 0.0, "of_sparsified": 0.0, "of_model": 0.0},
    }
    if points:
        total = points[0]["macs"]["dense"]
        dense["macs"] = {"dense": total, "sparse": total, "speedup": 1.0}
    record = {
        "name": name,
        "finished": len(points) >= settings["points"],
        "settings": settings,
        "dense": dense,
        "points": points,
    }
    judged = "validation" in dense and all("validation" in point for point in points)
    return {**record, "chosen": chosen(record, TOLERANCE) if judged else None}


def _arm(walk: Mapping[str, Any]) -> dict[str, str | None]:
    """Which arm of a comparison a walk is of; its variant is then what all its seeds share."""
    variant = walk.get("variant") or None
    found = ARM.fullmatch(variant or "")
    if found is None or int(found["seed"]) != walk["seed"]:
        return {"arm": None, "variant": variant}
    arm = found["arm"]
    return {"arm": None if arm is None else SHARE.sub("", arm), "variant": found["rest"]}


def _point(point: Mapping[str, Any], recipe: Mapping[str, Any]) -> Record:
    """W and F were judged as the point was: in validation, or in the test if there is none."""
    renamed = {"accuracy_W": "validation_W", "accuracy_F": "validation_F"}
    if "validation" not in point:
        renamed = dict.fromkeys(renamed, "")
    known = {renamed.get(key, key): value for key, value in point.items()}
    known.pop("", None)
    return {"rho": recipe["rho"], **known}
