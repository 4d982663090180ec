"""What every command says: results on stdout, errors as one sentence on stderr."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from sparsepath.errors import BadInput
from sparsepath.report.safe import for_terminal

console = Console(highlight=False)
MOST_NARROW = 20
"""Columns of a terminal below which lines are left to break as they may."""
AGAIN = "Stopped; run the same command again to go on from here."
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def say(text: str) -> None:
    """Print as it is: nothing in a name or a path is taken for markup, or acts on the terminal."""
    shown = for_terminal(text, console.encoding)
    console.print(shown, soft_wrap=True, markup=False, emoji=False)


def aside(text: str) -> None:
    """Say on stderr what is no result: stdout may go to a program."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    print(for_terminal(text, encoding), file=sys.stderr)


def room() -> int | None:
    """How wide tables may be: what is no terminal takes them as wide as they are."""
    return max(MOST_NARROW, console.width) if console.is_terminal else None


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
        aside(f"sparsepath: {reason}")
        raise typer.Exit(2 if expected else 1) from None
