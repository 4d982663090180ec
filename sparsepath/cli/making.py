"""The commands that make runs: run, train and path."""

from pathlib import Path
from typing import Any

from sparsepath.cli.speech import console, say
from sparsepath.errors import BadInput
from sparsepath.lab.settings import Settings


def run(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Train a dense reference, walk the path from it, and show what was found.

    Without options this is the main job: the embedded digits, a small network, the l0 path over
    kernels. Run it again after a stop, and it goes on where it was.
    """
    from sparsepath.report.figures import curve
    from sparsepath.report.page import NAME
    from sparsepath.report.tables import as_text

    record = _executed(settings, folder, tensorboard)
    say(f"\n{as_text(record)}\n")
    try:
        curve(record, folder / "curve.png")
        drawn = ", the picture in curve.png"
    except BadInput as error:
        drawn = f" (no picture: {error})"
    weights = (
        ""
        if record["chosen"] is None
        else f", that point in points/{record['chosen'] + 1:02d}.safetensors"
    )
    page = f", the page in {NAME}" if (folder / NAME).exists() else ""
    say(f"Written to {folder}: all figures in results.json{weights}{drawn}{page}.")


def train(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Train the dense reference alone; `run` with the same options goes on from it."""
    _executed(settings, folder, tensorboard, dense_only=True)
    say(f"Written to {folder / 'dense.safetensors'}.")


def path(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Walk the path from trained weights of one of the networks: --from CHECKPOINT.

    The checkpoint is a safetensors file, or a torch file of plain weights (a state_dict), of the
    --network. For a model of your own use the library: sparsepath.regularisation_path.
    """
    if settings.checkpoint is None:
        raise BadInput("`sparsepath path` needs the weights to start from: give --from CHECKPOINT.")
    run(settings, folder, tensorboard)


def _executed(
    settings: Settings, folder: Path, board: Path | None, *, dense_only: bool = False
) -> dict[str, Any]:
    """Do a run, watched by the live line, the page, and TensorBoard where that is asked for."""
    from sparsepath.lab.bench import Watches
    from sparsepath.lab.runs import execute
    from sparsepath.report.board import Board
    from sparsepath.report.live import live
    from sparsepath.report.losses import LossLog
    from sparsepath.report.page import PageWatch

    boards = [] if board is None else [Board(board)]
    with live(console, points=settings.points) as shown:
        page = PageWatch(say, deploy=False)
        watch = Watches(shown, LossLog(), page, *boards)
        record = execute(settings, folder, watch=watch, dense_only=dense_only)
        page.write(folder)
    return record
