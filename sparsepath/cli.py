"""The command line: parse, call, and say where everything was written."""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console

from sparsepath import __version__
from sparsepath.errors import BadInput
from sparsepath.lab.settings import Settings, from_mapping, read

# torch takes seconds to import, so whatever needs it is imported by the commands themselves.

app = typer.Typer(
    name="sparsepath",
    help="From a trained convolutional network to a sparse one, along a path you can see.",
    epilog="Exit codes: 0 done, 1 the run failed, 2 bad usage, 130 stopped by Ctrl-C.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)
Act = Callable[[Settings, Path, Path | None], None]
AGAIN = "Stopped; run the same command again to go on from here."
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main() -> None:
    """The `sparsepath` command."""
    app()


@contextmanager
def _sentences(debug: bool, *, stopped: str = "Stopped.") -> Iterator[None]:
    """Errors as one sentence on stderr and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        raise typer.Exit(130) from None
    except Exception as error:
        if debug:
            traceback.print_exc()
        expected = isinstance(error, BadInput)
        reason = error if expected else f"{type(error).__name__}: {error}"
        print(f"sparsepath: {reason}", file=sys.stderr)
        raise typer.Exit(2 if expected else 1) from None


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"sparsepath {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def _options() -> Iterator[inspect.Parameter]:
    """Every setting as an option that is None unless given, and what all such commands share."""
    shared = {
        "settings": (Path, "TOML file with any of these settings; options given here come first"),
        "out": (Path, "the run's folder (default: runs/ and a name made from the settings)"),
        "tensorboard": (Path, "also log losses, residuals and points into this folder"),
    }
    for name, (kind, says) in shared.items():
        yield _option(name, kind, typer.Option(f"--{name}", help=says))
    yield inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, annotation=Debug, default=False
    )
    hints = get_type_hints(Settings)
    for setting in fields(Settings):
        kind = (get_args(hints[setting.name]) or (hints[setting.name],))[0]
        flag = "--from" if setting.name == "checkpoint" else f"--{setting.name.replace('_', '-')}"
        info = typer.Option(
            f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
            help=setting.metadata["says"] + _default(setting.default),
            rich_help_panel=setting.metadata["group"],
        )
        yield _option(setting.name, kind, info)


def _default(value: object) -> str:
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return "" if value is None else f" (default: {value})"


def _option(name: str, kind: type, info: object) -> inspect.Parameter:
    annotation = Annotated[kind | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None
    )


def _command(act: Act) -> Act:
    """Make a command of a function of settings and folders: all settings become its options."""

    def command(**given: Any) -> None:
        shared = ("settings", "out", "tensorboard", "debug")
        settings_file, out, board, debug = (given.pop(name) for name in shared)
        with _sentences(debug, stopped=AGAIN):
            settings, places = _settings(settings_file, given)
            folder = out or places.get("out") or Path("runs", settings.name)
            act(settings, folder, board or places.get("tensorboard"))

    paragraphs = (inspect.getdoc(act) or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature(list(_options()))  # type: ignore[attr-defined]
    app.command(act.__name__)(command)
    return act


def _settings(file: Path | None, given: Mapping[str, object]) -> tuple[Settings, dict[str, Path]]:
    """The settings file's values, then the options that were given; and the file's own places."""
    values, places = ({}, {}) if file is None else read(file)
    values |= {name: value for name, value in given.items() if value is not None}
    return from_mapping(values, "The command line"), places


def _execute(
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
        page = PageWatch(_say, deploy=_has("deploy"))
        watch = Watches(shown, LossLog(), page, *boards)
        record = execute(settings, folder, watch=watch, dense_only=dense_only)
        page.write(folder)
    return record


@_command
def run(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Train a dense reference, walk the path from it, and show what was found.

    Without options this is the main job: the embedded digits, a small network, the l0 path over
    kernels. Run it again after a stop, and it goes on where it was.
    """
    from sparsepath.report.figures import curve
    from sparsepath.report.page import NAME
    from sparsepath.report.tables import as_text

    record = _execute(settings, folder, tensorboard)
    _say(f"\n{as_text(record)}\n")
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
    _say(f"Written to {folder}: all figures in results.json{weights}{drawn}{page}.")


@_command
def train(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Train the dense reference alone; `run` with the same options goes on from it."""
    _execute(settings, folder, tensorboard, dense_only=True)
    _say(f"Written to {folder / 'dense.safetensors'}.")


@_command
def path(settings: Settings, folder: Path, tensorboard: Path | None) -> None:
    """Walk the path from trained weights of one of the networks: --from CHECKPOINT.

    The checkpoint is a safetensors file, or a torch file of plain weights (a state_dict), of the
    --network. For a model of your own use the library: sparsepath.regularisation_path.
    """
    if settings.checkpoint is None:
        raise BadInput("`sparsepath path` needs the weights to start from: give --from CHECKPOINT.")
    run(settings, folder, tensorboard)


@app.command()
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, or JSON records of reproduced paths."
        ),
    ],
    layout: Annotated[
        str,
        typer.Option("--format", help="text, markdown, latex, csv, json (every figure) or html."),
    ] = "text",
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Also draw the curve into this PNG or SVG.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", help="Also draw every view into this folder, as PNG and SVG."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where html goes (default: report.html in the first run)."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show runs, finished or not, as tables or as a page that compares them."""
    with _sentences(debug):
        from sparsepath.report.figures import curve
        from sparsepath.report.formats import FORMATS
        from sparsepath.report.page import NAME, write_page
        from sparsepath.report.pictures import write_pictures
        from sparsepath.report.reading import read_run

        if layout not in (*FORMATS, "html"):
            known = ", ".join((*FORMATS, "html"))
            raise BadInput(f"There is no format {layout!r}; choose one of {known}.")
        if (figure or figures) and len(folders) > 1:
            option = "--figure draws" if figure else "--figures draws"
            raise BadInput(f"{option} one run, not {len(folders)}: give one folder.")
        records = [read_run(folder) for folder in folders]
        if layout == "html":
            first = folders[0]
            place = out or (first.with_suffix(".html") if first.is_file() else first / NAME)
            write_page(folders, place, deploy=_has("deploy"))
            _say(f"Written to {place}.")
        else:
            _say(FORMATS[layout](records))
        if figure is not None:
            curve(records[0], figure)
        if figures is not None:
            write_pictures(records[0], figures)


def _has(command: str) -> bool:
    """Whether this command line has such a command, which the page may then advise."""
    return any(
        (known.name or getattr(known.callback, "__name__", "")) == command
        for known in app.registered_commands
    )


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    debug: Debug = False,
) -> None:
    """Show one run in the terminal: its table and its curve."""
    with _sentences(debug):
        from sparsepath.report.reading import read_run
        from sparsepath.report.terminal import marks_for
        from sparsepath.report.terminal import show as shown

        _say(shown(read_run(folder), marks=marks_for(console.encoding)))


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Where the runs are.")] = Path("runs"),
    debug: Debug = False,
) -> None:
    """List the runs in a folder with their best figures and how far each has come."""
    with _sentences(debug):
        from sparsepath.lab.folders import sorted_runs
        from sparsepath.report.overview import overview
        from sparsepath.report.reading import read_run

        found = sorted_runs(folder)
        if not found:
            raise BadInput(f"There are no runs in {str(folder)!r}.")
        records, damaged = [], []
        for run_folder in found:
            try:
                records.append(read_run(run_folder))
            except BadInput as error:  # one damaged run must not hide the others
                damaged.append(f"{run_folder.name}: {error}")
        table = overview(records)
        parts = [table.text(), table.note] if records else []
        _say("\n\n".join([*parts, *damaged]))


@app.command()
def download(
    name: Annotated[str, typer.Argument(metavar="DATA", help="cifar10, cifar100 or svhn.")],
    folder: Annotated[
        Path | None, typer.Option("--to", help="where to (default: data/ and its name)")
    ] = None,
    debug: Debug = False,
) -> None:
    """Fetch a data set's official files, checked; run it again after a stop, and it goes on."""
    with _sentences(debug, stopped=AGAIN):
        from sparsepath.lab.download import download as fetch
        from sparsepath.lab.official import SOURCES
        from sparsepath.report.transfer import transfer

        if name not in SOURCES:
            raise BadInput(f"There is no download of {name!r}; choose one of {', '.join(SOURCES)}.")
        place = folder or Path("data", name)
        with transfer(console) as seen:
            fetch(SOURCES[name], place, seen=seen)
        _say(f"Checked and complete: use it with --data {place}.")


@app.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="cifar10, cifar100, svhn, comparisons, t-test, or all of them."
        ),
    ],
    data: Annotated[
        Path, typer.Option("--data", help="where cifar10, cifar100 and svhn are, or their .npz")
    ] = Path("data"),
    folder: Annotated[
        Path, typer.Option("--out", help="where dense networks, paths and records go")
    ] = Path("reproduction"),
    minutes: Annotated[
        float, typer.Option("--minutes", help="stop then; the same command goes on from there")
    ] = float("inf"),
    device: Annotated[str, typer.Option("--device", help="a GPU, such as cuda:1")] = "cuda",
    debug: Debug = False,
) -> None:
    """Run the paper's experiments on a GPU: its paths, the comparisons, the t-test.

    Whatever is done already is kept, and a stopped walk goes on, on this machine or another.
    """
    with _sentences(debug, stopped=AGAIN):
        from sparsepath.lab.reproduce import reproduce as run_experiments

        done = run_experiments(what, data=data, folder=folder, minutes=minutes, device=device)
        _say(f"{'Done' if done else AGAIN[:-1]}: the records are in {folder}.")


@app.command("inspect")
def inspect_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A network that was saved.")],
    debug: Debug = False,
) -> None:
    """Show what a saved network holds, without reading its weights."""
    with _sentences(debug):
        from sparsepath.deploy.contents import contents

        _say(contents(file))


def _say(text: str) -> None:
    console.print(text, soft_wrap=True, markup=False, emoji=False)
