"""sparsepath takes a trained convolutional network to a sparse one along a path you can see."""

from sparsepath.admm import ADMM
from sparsepath.blocks import (
    Blocks,
    columns,
    elements,
    inputs,
    kernels,
    outputs,
    positions,
    sqrt_size,
    tiles,
    weighted,
)
from sparsepath.concave import MCP, SCAD, LogSum
from sparsepath.errors import BadInput
from sparsepath.guard import mean_norm_guard
from sparsepath.metrics import macs, sparsity
from sparsepath.path import PathPoint, Schedule, Stage, mu_range, regularisation_path
from sparsepath.penalties import L0, L1, L12, Penalty, Radial
from sparsepath.projections import NofM, TopK
from sparsepath.residuals import ResidualBalancing, Residuals
from sparsepath.support import Support

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "L0",
    "L1",
    "L12",
    "MCP",
    "SCAD",
    "BadInput",
    "Blocks",
    "LogSum",
    "NofM",
    "PathPoint",
    "Penalty",
    "Radial",
    "ResidualBalancing",
    "Residuals",
    "Schedule",
    "Stage",
    "Support",
    "TopK",
    "columns",
    "elements",
    "inputs",
    "kernels",
    "macs",
    "mean_norm_guard",
    "mu_range",
    "outputs",
    "positions",
    "regularisation_path",
    "sparsity",
    "sqrt_size",
    "tiles",
    "weighted",
]
