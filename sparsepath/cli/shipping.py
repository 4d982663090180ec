"""The commands on networks as files: inspect."""

from pathlib import Path
from typing import Annotated

import typer

from sparsepath.cli.speech import Debug, say, sentences


def inspect_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A network that was saved.")],
    debug: Debug = False,
) -> None:
    """Show what a saved network holds, without reading its weights."""
    with sentences(debug):
        from sparsepath.deploy.contents import contents

        say(contents(file))
