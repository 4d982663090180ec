"""The record of a path that `reproduce` walked, in the shape of a run's."""

from collections.abc import Mapping
from typing import Any

from sparsepath.lab.folders import Record, chosen

TOLERANCE = 0.01
"""What the chosen point may lose in validation, as for a run that does not say otherwise."""


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
        "variant": walk.get("variant") or None,
        "blocks": "kernels",
        "points": len(recipe.get("keep") or ()) or recipe["last"] + 1,
        "tolerance": TOLERANCE,
    }
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


def _point(point: Mapping[str, Any], recipe: Mapping[str, Any]) -> Record:
    """W and F were judged as the point was: in validation, or in the test if there is none."""
    renamed = {"accuracy_W": "validation_W", "accuracy_F": "validation_F"}
    if "validation" not in point:
        renamed = dict.fromkeys(renamed, "")
    known = {renamed.get(key, key): value for key, value in point.items()}
    known.pop("", None)
    return {"rho": recipe["rho"], **known}
