"""The commands of experiments: download and reproduce."""

from pathlib import Path
from typing import Annotated

import typer

from sparsepath.cli.speech import AGAIN, Debug, console, say, sentences
from sparsepath.errors import BadInput


def download(
    name: Annotated[str, typer.Argument(metavar="DATA", help="cifar10, cifar100 or svhn.")],
    folder: Annotated[
        Path | None, typer.Option("--to", help="where to (default: data/ and its name)")
    ] = None,
    debug: Debug = False,
) -> None:
    """Fetch a data set's official files, checked; run it again after a stop, and it goes on."""
    with sentences(debug, stopped=AGAIN):
        from sparsepath.lab.download import download as fetch
        from sparsepath.lab.official import SOURCES
        from sparsepath.report.transfer import transfer

        if name not in SOURCES:
            raise BadInput(f"There is no download of {name!r}; choose one of {', '.join(SOURCES)}.")
        place = folder or Path("data", name)
        with transfer(console) as seen:
            fetch(SOURCES[name], place, seen=seen)
        say(f"Checked and complete: use it with --data {place}.")


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="cifar10, cifar100, svhn, best-mode, comparisons, t-test, or all of them.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option("--data", help="the folder with cifar10, cifar100, svhn, or cifar10.npz ..."),
    ] = Path("data"),
    folder: Annotated[
        Path, typer.Option("--out", help="where dense networks, paths and records go")
    ] = Path("reproduction"),
    networks: Annotated[
        list[str] | None,
        typer.Option(
            "--network", help="nin, low-rank-nin, cnn or low-rank-cnn, once each; all if none"
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="walks of this name or pattern, as 'nin-l0-*', once each; all if none"
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", help="stop then; the same command goes on from there")
    ] = float("inf"),
    device: Annotated[str, typer.Option("--device", help="a GPU, such as cuda:1, or cpu")] = "cuda",
    bfloat16: Annotated[
        bool | None,
        typer.Option(
            "--bfloat16/--float32",
            help="what networks train in; bfloat16 on a GPU and float32 on a CPU if not given",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run the paper's experiments: its paths, best mode, the comparisons, the t-test.

    All of them take hours of a GPU; a CPU has time for a few walks.

    Whatever is done already is kept, and a stopped walk goes on, on this machine or another.
    """
    with sentences(debug, stopped=AGAIN):
        from sparsepath.lab.experiments import NETWORKS
        from sparsepath.lab.reproduce import reproduce as run_experiments

        done = run_experiments(
            what,
            data=data,
            folder=folder,
            networks=networks or NETWORKS,
            only=only or (),
            minutes=minutes,
            device=device,
            bfloat16=bfloat16,
        )
        say(f"{'Done' if done else AGAIN[:-1]}: the records are in {folder}.")
