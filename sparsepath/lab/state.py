"""The state of a path in one file, so that no two files can disagree after a kill."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from sparsepath.admm import ADMM
from sparsepath.errors import BadInput
from sparsepath.lab.weights import copied, load_weights, part, prefixed
from sparsepath.path import Progress
from sparsepath.residuals import Residuals
from sparsepath.storage import read_tensors, write_tensors

Snapshot = tuple[dict[str, Tensor], dict[str, str]]
"""The tensors and the header of such a file."""


def snapshot(admm: ADMM, *, progress: Progress, about: Mapping[str, Any]) -> Snapshot:
    """W, F, Gamma, the progress, and what else the run wants to know again, as they are now."""
    state = admm.state_dict()
    tensors = {
        **copied("W", admm.model.state_dict()),
        **prefixed("F", state.pop("F")),
        **prefixed("Gamma", state.pop("Gamma")),
    }
    header = {"progress": asdict(progress), "admm": state, **about}
    return tensors, {"sparsepath": json.dumps(header)}


def write_state(path: Path, admm: ADMM, *, progress: Progress, about: Mapping[str, Any]) -> None:
    """Write them down."""
    write_tensors(path, *snapshot(admm, progress=progress, about=about))


def plain_residuals(residuals: Sequence[Residuals]) -> list[dict[str, Any]]:
    """Residuals as JSON holds them: it has no infinity, as the relative ones are when Gamma = 0."""
    rows = [asdict(each) for each in residuals]
    return [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in rows
    ]


def read_state(path: Path, admm: ADMM) -> tuple[Progress, dict[str, Any]]:
    """Put W, F and Gamma of such a file back into the model and its ADMM; the rest of it."""
    tensors, header = read_tensors(path)
    try:
        about: dict[str, Any] = json.loads(header["sparsepath"])
        state, progress = about.pop("admm"), about.pop("progress")
        residuals = tuple(
            Residuals(**{**row, "guarded": tuple(row["guarded"])}) for row in progress["residuals"]
        )
        come = Progress(progress["index"], residuals)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{str(path)!r} holds no state of a path that this version knows; move it away."
        ) from error
    load_weights(admm.model, part(tensors, "W"), path)
    pair = {kind: part(tensors, kind) for kind in ("F", "Gamma")}
    admm.load_state_dict({**state, **pair})
    return come, about
