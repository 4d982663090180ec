"""From the words of the settings to the objects they name."""

import difflib
import re
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import nn

from sparsepath.admm import ADMM
from sparsepath.blocks import (
    Partition,
    columns,
    elements,
    inputs,
    kernels,
    outputs,
    positions,
    tiles,
)
from sparsepath.concave import MCP, SCAD, LogSum
from sparsepath.errors import BadInput
from sparsepath.guard import mean_norm_guard
from sparsepath.lab.settings import Settings
from sparsepath.mus import log_spaced, mu_range
from sparsepath.path import Schedule
from sparsepath.penalties import L0, L1, L12, Radial
from sparsepath.residuals import ResidualBalancing

PENALTIES: Mapping[str, Radial] = {
    "l0": L0(),
    "l1": L1(),
    "l12": L12(),
    "mcp": MCP(),
    "scad": SCAD(),
    "logsum": LogSum(),
}
PARTITIONS: Mapping[str, Partition] = {
    "kernels": kernels,
    "outputs": outputs,
    "inputs": inputs,
    "positions": positions,
    "columns": columns,
    "elements": elements,
}
TILES = re.compile(r"tiles\((\d+), ?(\d+)\)")

Named = TypeVar("Named")


def admm_of(settings: Settings, model: nn.Module, *, layers: tuple[str, ...]) -> ADMM:
    """The ADMM that the settings describe, for the layers they name, or else for these."""
    penalty = _named("penalty", settings.penalty, PENALTIES)
    if settings.layers is not None:
        layers = tuple(pattern.strip() for pattern in settings.layers.split(","))
    return ADMM(
        model,
        penalty,
        rho=settings.rho,
        blocks=partition_of(settings.blocks),
        layers=layers,
        guard=None if settings.guard is None else mean_norm_guard(settings.guard),
        balancing=ResidualBalancing() if settings.balancing else None,
        fit_shape=penalty.scaled(2.0) != penalty,
    )


def mus_of(settings: Settings, admm: ADMM) -> list[float]:
    """The path's mu, from the settings' own range or from the block norms as they are now."""
    if settings.mu_min is None or settings.mu_max is None:
        reach = (settings.first_share, settings.last_share)
        return mu_range(admm, points=settings.points, reach=reach)
    return log_spaced(settings.mu_min, settings.mu_max, settings.points)


def schedule_of(settings: Settings) -> Schedule:
    """How long each mu trains."""
    return Schedule(delta=settings.delta, nu=settings.nu, xi=settings.xi, epsilon=settings.epsilon)


def device_of(settings: Settings) -> torch.device:
    """The device, once it is known to work."""
    try:
        return torch.empty(0, device=settings.device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(
            f"The device {settings.device!r} cannot be used here; "
            f"torch says: {str(error).splitlines()[0]}"
        ) from error


def partition_of(name: str) -> Partition:
    """The partition into blocks that a word of the settings names."""
    tiled = TILES.fullmatch(name)
    if tiled:
        return tiles(int(tiled[1]), int(tiled[2]))
    return _named("partition into blocks", name, PARTITIONS, more=" or 'tiles(2, 2)'")


def _named(kind: str, name: str, table: Mapping[str, Named], *, more: str = "") -> Named:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(table)}{more}."
    raise BadInput(f"There is no {kind} {name!r}; {hint}")
