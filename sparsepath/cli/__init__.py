"""The command line: parse, call, and say where everything was written."""

from typing import Annotated

import typer

from sparsepath import __version__
from sparsepath.cli import experiments, making, shipping, viewing
from sparsepath.cli.options import with_settings

# torch takes seconds to import, so whatever needs it is imported by the commands themselves.

app = typer.Typer(
    name="sparsepath",
    help="From a trained convolutional network to a sparse one, along a path you can see.",
    epilog="Exit codes: 0 done, 1 the run failed, 2 bad usage, 130 stopped by Ctrl-C.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(with_settings(making.run, making.NO_DEPLOY))
app.command()(with_settings(making.train))
app.command()(with_settings(making.path, making.NO_DEPLOY))
for command in (
    *(viewing.report, viewing.show, viewing.runs),
    *(shipping.deploy, shipping.bench),
    *(experiments.download, experiments.reproduce),
):
    app.command()(command)
app.command("inspect")(shipping.inspect_file)


def main() -> None:
    """The `sparsepath` command."""
    app()


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
