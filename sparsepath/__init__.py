"""sparsepath takes a trained convolutional network to a sparse one along a path you can see."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparsepath.admm import ADMM as ADMM
    from sparsepath.blocks import Blocks as Blocks
    from sparsepath.blocks import columns as columns
    from sparsepath.blocks import elements as elements
    from sparsepath.blocks import inputs as inputs
    from sparsepath.blocks import kernels as kernels
    from sparsepath.blocks import outputs as outputs
    from sparsepath.blocks import positions as positions
    from sparsepath.blocks import sqrt_size as sqrt_size
    from sparsepath.blocks import tiles as tiles
    from sparsepath.blocks import weighted as weighted
    from sparsepath.concave import MCP as MCP
    from sparsepath.concave import SCAD as SCAD
    from sparsepath.concave import LogSum as LogSum
    from sparsepath.errors import BadInput as BadInput
    from sparsepath.guard import mean_norm_guard as mean_norm_guard
    from sparsepath.metrics import macs as macs
    from sparsepath.metrics import sparsity as sparsity
    from sparsepath.mus import mu_range as mu_range
    from sparsepath.path import PathPoint as PathPoint
    from sparsepath.path import Schedule as Schedule
    from sparsepath.path import Stage as Stage
    from sparsepath.path import regularisation_path as regularisation_path
    from sparsepath.penalties import L0 as L0
    from sparsepath.penalties import L1 as L1
    from sparsepath.penalties import L12 as L12
    from sparsepath.penalties import Penalty as Penalty
    from sparsepath.penalties import Radial as Radial
    from sparsepath.projections import NofM as NofM
    from sparsepath.projections import TopK as TopK
    from sparsepath.residuals import ResidualBalancing as ResidualBalancing
    from sparsepath.residuals import Residuals as Residuals
    from sparsepath.support import Support as Support

# The public names and where each lives. They are fetched when first asked for: importing torch
# takes seconds, which `sparsepath --help` and a settings error need not wait for.
_NAMES = {
    "admm": ("ADMM",),
    "blocks": (
        "Blocks",
        "columns",
        "elements",
        "inputs",
        "kernels",
        "outputs",
        "positions",
        "sqrt_size",
        "tiles",
        "weighted",
    ),
    "concave": ("MCP", "SCAD", "LogSum"),
    "deploy": (),
    "errors": ("BadInput",),
    "guard": ("mean_norm_guard",),
    "metrics": ("macs", "sparsity"),
    "mus": ("mu_range",),
    "native": (),
    "path": ("PathPoint", "Schedule", "Stage", "regularisation_path"),
    "penalties": ("L0", "L1", "L12", "Penalty", "Radial"),
    "projections": ("NofM", "TopK"),
    "residuals": ("ResidualBalancing", "Residuals"),
    "support": ("Support",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _NAMES:
        return import_module(f"sparsepath.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'sparsepath' has no attribute {name!r}")
    value = getattr(import_module(f"sparsepath.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
