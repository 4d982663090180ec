"""The public names: a contract."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sparsepath

CONTRACT = [
    "kernels",
    "outputs",
    "inputs",
    "positions",
    "columns",
    "elements",
    "tiles",
    "L1",
    "L0",
    "MCP",
    "SCAD",
    "L12",
    "LogSum",
    "TopK",
    "NofM",
    "mean_norm_guard",
    "ADMM",
    "Residuals",
    "Support",
    "regularisation_path",
    "Schedule",
]


@pytest.mark.parametrize("name", [*CONTRACT, *sparsepath.__all__])
def test_every_public_name_is_there(name: str) -> None:
    assert name in sparsepath.__all__
    assert getattr(sparsepath, name) is not None
    assert name in dir(sparsepath)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'L7'"):
        _ = sparsepath.L7  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(sparsepath.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    typed = {
        alias.name: node.module
        for node in imports
        for alias in node.names
        if node.module and node.module.startswith("sparsepath.")
    }
    assert typed == {name: f"sparsepath.{home}" for name, home in sparsepath._HOME.items()}


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, sparsepath; assert 'torch' not in sys.modules; sparsepath.L0"
    subprocess.run([sys.executable, "-c", code], check=True)
