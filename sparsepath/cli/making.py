"""The commands that make runs: run, train and path."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsepath.cli.shipping import deploy_best
from sparsepath.cli.speech import console, room, say
from sparsepath.errors import BadInput
from sparsepath.lab.settings import Settings
from sparsepath.report.safe import visible

NO_DEPLOY = inspect.Parameter(
    "no_deploy",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[
        bool, typer.Option("--no-deploy", help="end without a file of the chosen point")
    ],
    default=False,
)


def run(
    settings: Settings, folder: Path, tensorboard: Path | None, *, no_deploy: bool = False
) -> None:
    """Train a dense reference, walk the path from it, show what was found, and deploy the best.

    Without options this is the main job: the embedded digits, a small network, the l0 path over
    kernels. Run it again after a stop, and it goes on where it was.
    """
    from sparsepath.report.page import NAME
    from sparsepath.report.tables import as_text
    from sparsepath.report.written import FOLDER, write_report

    record = _executed(settings, folder, tensorboard)
    say(f"\n{as_text(record, width=room())}\n")
    try:
        undrawn = write_report(folder)
        drawn = f"tables {f'(no pictures: {undrawn})' if undrawn else 'and pictures'} in {FOLDER}"
    except Exception as error:  # no report is worth a run
        drawn = f"no {FOLDER} ({error})"
    weights = (
        ""
        if record["chosen"] is None
        else f", that point in points/{record['chosen'] + 1:02d}.safetensors"
    )
    page = f", the page in {NAME}" if (folder / NAME).exists() else ""
    place = visible(str(folder))
    say(f"Written to {place}: all figures in results.json{weights}{page}, {drawn}.")
    if not no_deploy:
        deploy_best(folder)


def train(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Train the dense reference alone; `run` with the same options goes on from it."""
    _executed(settings, folder, tensorboard, dense_only=True)
    say(f"Written to {folder / 'dense.safetensors'}.")


def path(
    settings: Settings, folder: Path, tensorboard: Path | None, *, no_deploy: bool = False
) -> None:
    """Walk the path from trained weights of one of the networks: --from CHECKPOINT.

    The checkpoint is a safetensors file, or a torch file of plain weights (a state_dict), of the
    --network. For a model of your own use the library: sparsepath.regularisation_path.
    """
    if settings.checkpoint is None:
        raise BadInput("`sparsepath path` needs the weights to start from: give --from CHECKPOINT.")
    run(settings, folder, tensorboard, no_deploy=no_deploy)


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
        page = PageWatch(say)
        watch = Watches(shown, LossLog(), page, *boards)
        record = execute(settings, folder, watch=watch, dense_only=dense_only)
        page.write(folder)
    return record
