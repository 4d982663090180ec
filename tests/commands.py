"""Commands called in this process, quick where tests look at neither speeds nor pictures."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsepath.cli import app
from sparsepath.deploy.measuring import timing
from sparsepath.storage import write_atomically

BRIEF_TURN = 1e-3


def call(*arguments: str, draw: bool = False):
    """What a command prints and how it ends; few calls are timed, and pictures are left empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "TURN", BRIEF_TURN)
        patch.setattr(timing, "MOST", timing.LEAST)
        if not draw:  # which takes longer than such a run; tests/report looks at what is drawn
            patch.setattr("sparsepath.report.figures._write", _write_empty)
        return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def _write_empty(figure: object, path: Path, **how: object) -> None:
    write_atomically(path, lambda neighbour: neighbour.touch())
