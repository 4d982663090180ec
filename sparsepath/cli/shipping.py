"""The commands on networks as files: deploy, bench and inspect."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparsepath.cli.speech import Debug, console, say, sentences
from sparsepath.errors import BadInput

if TYPE_CHECKING:
    from sparsepath.deploy.measuring.sides import Effort
    from sparsepath.lab.deploying import Deployed

Threads = Annotated[int, typer.Option("--threads", help="How many threads all runtimes get.")]
NoTune = Annotated[
    bool,
    typer.Option("--no-tune", help="Let a rule choose our kernels, instead of measuring them."),
]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Without torch.compile and peak memory, and with fewer turns."),
]
QUICK_SECONDS = 1.0
WAIT = "Measuring in every runtime by turns; compiling for torch.compile takes the longest ..."


def deploy(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    point: Annotated[
        int | None, typer.Option("--point", help="Number, from 1 (default: the run's choice).")
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option("--min-accuracy", help="The sparsest point of at least this, as in 0.97."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", help="The sparsest that loses at most this, as in 0.01."),
    ] = None,
    layout: Annotated[
        str, typer.Option("--format", help="artifact, onnx, pt2 or state-dict.")
    ] = "artifact",
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights of eight bits: artifact and onnx.")
    ] = False,
    share: Annotated[
        int | None,
        typer.Option("--share", metavar="BITS", help="At most 2^BITS different weights a layer."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file (default: in RUN, named by the point).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there already.")
    ] = False,
    threads: Threads = 1,
    no_tune: NoTune = False,
    quick: Quick = False,
    debug: Debug = False,
) -> None:
    """Write a point of a run as one file, without its dead channels, and measure what was gained.

    Accuracies to choose by are those in validation. The file is loaded again, and what is shown of
    it is measured then: beside the dense network, in every runtime that is here.
    """
    with sentences(debug):
        from sparsepath.deploy.ship import Form
        from sparsepath.lab.deploying import deploy as deployed
        from sparsepath.lab.deployment import Wish

        wish, form = Wish(point, min_accuracy, max_drop), Form(layout, int8, share)
        effort = _effort(threads, no_tune=no_tune, quick=quick)
        with console.status(WAIT):
            found = deployed(folder, wish=wish, form=form, out=out, force=force, effort=effort)
        _show(folder, found)


def bench(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artifact, or an .onnx file.")],
    batches: Annotated[
        list[int] | None, typer.Option("--batch", help="Images at once (default: 1 and 64).")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", help="Of one image, as in 3,32,32, if the file does not say."),
    ] = None,
    threads: Threads = 1,
    no_tune: NoTune = False,
    quick: Quick = False,
    debug: Debug = False,
) -> None:
    """Measure a network's file on this machine, in every runtime that is here."""
    with sentences(debug):
        from sparsepath.deploy.files.opened import opened
        from sparsepath.deploy.measuring.sides import Subject, random_images, sides
        from sparsepath.report.deployed import measured_text

        network = opened(file)
        images = random_images(shape, network.figures, file)
        subject = Subject(network, file.stat().st_size, file)
        effort = _effort(threads, no_tune=no_tune, quick=quick)
        with console.status(WAIT):
            found = sides({file.name: subject}, images, batches or [1, 64], effort)
        say(f"\n{measured_text(file.name, found[file.name])}")


def inspect_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A network that was saved.")],
    debug: Debug = False,
) -> None:
    """Show what a saved network holds, without reading its weights."""
    with sentences(debug):
        from sparsepath.deploy.files.contents import contents

        say(contents(file))


def _effort(threads: int, *, no_tune: bool, quick: bool) -> "Effort":
    from sparsepath.deploy.measuring.sides import QUICK, Effort

    if quick:
        return Effort(QUICK_SECONDS, QUICK, memory=False, threads=threads, tune=not no_tune)
    return Effort(threads=threads, tune=not no_tune)


def deploy_best(folder: Path) -> None:
    """What `run` ends with: its chosen point as a file, measured in seconds; or why there is none.

    The run itself is done by then, so nothing that is wrong here is an error of the run.
    """
    from sparsepath.deploy.files.opened import opened
    from sparsepath.lab.deploying import deploy as deployed
    from sparsepath.lab.deployment import BEST
    from sparsepath.report.visible import quoted

    best, effort = folder / BEST, _effort(1, no_tune=True, quick=True)
    there = best.exists()
    if there:
        try:
            opened(best)
        except BadInput:
            say(f"{BEST} is damaged and is made anew.")
        else:
            again = f"`sparsepath deploy {quoted(str(folder))}` does it anew"
            say(f"The chosen point is deployed in {BEST}; {again}.")
            return
    try:
        found = deployed(folder, out=best, force=there, effort=effort)
    except (BadInput, OSError) as error:
        say(f"Nothing is deployed: {error}")
        return
    _show(folder, found)
    again = f"`sparsepath deploy {quoted(str(folder))}`"
    say(f"Measured in brief: {again} takes its time, and tunes for this CPU.")


def _show(folder: Path, found: "Deployed") -> None:
    """The table of a deployment; the run's page, where there is one, shows what was measured."""
    from sparsepath.report.deployed import deployed_text
    from sparsepath.report.page import NAME, write_page
    from sparsepath.report.written import FOLDER, write_tables

    say(f"\nPoint {found.point} of {found.run}, deployed:\n\n{deployed_text(found)}\n")
    say(f"Written to {found.path}.")
    if (folder / NAME).exists():
        try:
            write_page([folder], folder / NAME)
        except BadInput as error:
            say(f"{NAME} stays as it was: {error}")
    if (folder / FOLDER).is_dir():
        try:
            write_tables(folder)
        except (BadInput, OSError) as error:
            say(f"{FOLDER} stays as it was: {error}")
