"""Bad input: one exception, whose sentence quotes what was given and says what to do."""

import math
import sys
from collections.abc import Callable
from numbers import Real

SHOWN = 100
"""Characters of what was given, at most, that a sentence quotes."""


class BadInput(ValueError):
    """Input that cannot be used; its message is one sentence for the person who gave it."""


def checked_number(name: str, value: object, *, zero: bool = False) -> float:
    """`value` as a finite float above zero, or at least zero when `zero` is allowed."""
    bound = "zero or more" if zero else "above zero"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BadInput(f"{name} must be a number {bound}, not {value!r} ({type(value).__name__}).")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise BadInput(f"{name} must be a finite number {bound}, not {value!r}.")
    return number


def checked_flag(name: str, value: object) -> bool:
    """`value` if it is True or False."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be True or False, not {value!r}.")
    return value


def check_kinds(**given: tuple[object, type]) -> None:
    """Refuse a value that is not of its class, each with the name that it was given by."""
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            shown = repr(value)
            if len(shown) > SHOWN or "\n" in shown:  # a whole network
                shown = f"one of {type(value).__name__}"
            raise BadInput(f"{name} must be of the class {kind.__name__}, not {shown}.")


def check_callable(**given: object) -> None:
    """Refuse what cannot be called: it would be found out only after hours of training."""
    for name, function in given.items():
        if not callable(function):
            raise BadInput(f"{name} must be a function, not {function!r}.")


def checked_count(name: str, value: object, *, least: int = 1) -> int:
    """`value` as a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return value


def as_script(main: Callable[[], None]) -> None:
    """Run a script of this repository: bad input is one sentence on stderr, and exit code 2."""
    try:
        main()
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
