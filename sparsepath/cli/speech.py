"""What every command says: results on stdout, errors as one sentence on stderr."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from sparsepath.errors import BadInput

console = Console(highlight=False)
AGAIN = "Stopped; run the same command again to go on from here."
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def say(text: str) -> None:
    """Print as it is: nothing in a name or a path is taken for markup."""
    console.print(text, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def sentences(debug: bool, *, stopped: str = "Stopped.") -> Iterator[None]:
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
