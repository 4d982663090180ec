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
Act = Callable[[Settings, Path], None]
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
    """Make a command of a function of settings and folder: all settings become its options."""

    def command(**given: Any) -> None:
        settings_file, out, debug = (given.pop(name) for name in ("settings", "out", "debug"))
        with _sentences(debug, stopped=AGAIN):
            settings, place = _settings(settings_file, given)
            act(settings, out or place or Path("runs", settings.name))

    paragraphs = (inspect.getdoc(act) or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature(list(_options()))  # type: ignore[attr-defined]
    app.command(act.__name__)(command)
    return act


def _settings(file: Path | None, given: Mapping[str, object]) -> tuple[Settings, Path | None]:
    """The settings file's values, then the options that were given; and the file's own `out`."""
    values, out = ({}, None) if file is None else read(file)
    values |= {name: value for name, value in given.items() if value is not None}
    return from_mapping(values, "The command line"), out


@_command
def run(settings: Settings, folder: Path) -> None:
    """Train a dense reference, walk the path from it, and show what was found.

    Without options this is the main job: the embedded digits, a small network, the l0 path over
    kernels. Run it again after a stop, and it goes on where it was.
    """
    from sparsepath.lab.runs import execute
    from sparsepath.report.figures import curve
    from sparsepath.report.live import live
    from sparsepath.report.tables import as_text

    with live(console, points=settings.points) as watch:
        record = execute(settings, folder, watch=watch)
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
    _say(f"Written to {folder}: all figures in results.json{weights}{drawn}.")


@_command
def train(settings: Settings, folder: Path) -> None:
    """Train the dense reference alone; `run` with the same options goes on from it."""
    from sparsepath.lab.runs import execute
    from sparsepath.report.live import live

    with live(console, points=settings.points) as watch:
        execute(settings, folder, watch=watch, dense_only=True)
    _say(f"Written to {folder / 'dense.safetensors'}.")


@_command
def path(settings: Settings, folder: Path) -> None:
    """Walk the path from trained weights of one of the networks: --from CHECKPOINT.

    The checkpoint is a safetensors file, or a torch file of plain weights (a state_dict), of the
    --network. For a model of your own use the library: sparsepath.regularisation_path.
    """
    if settings.checkpoint is None:
        raise BadInput("`sparsepath path` needs the weights to start from: give --from CHECKPOINT.")
    run(settings, folder)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    layout: Annotated[
        str, typer.Option("--format", help="text, markdown or json (every figure).")
    ] = "text",
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Also draw the curve into this PNG file.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show the table of a run, finished or not."""
    with _sentences(debug):
        from sparsepath.lab.folders import gather
        from sparsepath.report.figures import curve
        from sparsepath.report.tables import FORMATS

        if layout not in FORMATS:
            raise BadInput(f"There is no format {layout!r}; choose one of {', '.join(FORMATS)}.")
        record = gather(folder)
        _say(FORMATS[layout](record))
        if figure is not None:
            curve(record, figure)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Where the runs are.")] = Path("runs"),
    debug: Debug = False,
) -> None:
    """List the runs in a folder and how far each has come."""
    with _sentences(debug):
        from sparsepath.lab.folders import gather, sorted_runs
        from sparsepath.report.tables import heading

        found = sorted_runs(folder)
        if not found:
            raise BadInput(f"There are no runs in {str(folder)!r}.")
        for run_folder in found:
            try:
                _say(heading(gather(run_folder)))
            except BadInput as error:  # one damaged run must not hide the others
                _say(f"{run_folder.name}: {error}")


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
