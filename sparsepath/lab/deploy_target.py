"""Where a deployed network may be written: never over what a run is made of."""

from pathlib import Path

from sparsepath.deploy.files.target import replaceable
from sparsepath.deploy.ship import Form
from sparsepath.errors import BadInput
from sparsepath.lab.folders import RESULTS, SETTINGS

OWN = frozenset(
    {
        SETTINGS,
        RESULTS,
        ".lock",
        "dense.json",
        "dense.safetensors",
        "path.safetensors",
        "losses.json",
        "report.html",
    }
)
"""What a run keeps in its folder, beside its points and the folder of its report."""


def target(path: Path, form: Form, *, force: bool) -> Path:
    """The path, if a file of this form may be written there."""
    if _of_a_run(path):
        raise BadInput(f"{str(path)!r} is a run's own file: choose another name with --out.")
    form.check_name(replaceable(path))
    if path.exists() and not force:
        raise BadInput(
            f"{str(path)!r} exists: choose another with --out, or replace it with --force."
        )
    return path


def _of_a_run(path: Path) -> bool:
    """Whether some run, this or another, keeps a file there."""
    folder = path.parent.resolve()  # the folder may be reached by a link
    if folder.name in ("points", "report") and (folder.parent / SETTINGS).exists():
        return True
    return path.name in OWN and (folder / SETTINGS).exists()
