"""Who asks what a value to come is: Python's own questions, or compiled code."""

import dis
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType

QUESTION = "isinstance"
NAME = "LOAD_GLOBAL"
CALLS = ("PRECALL", "CALL")
ATTRIBUTE = "__class__"
LOADS = ("LOAD_ATTR", "LOAD_METHOD")
MATCH = "MATCH_CLASS"
# Bytes of one unit of code.
WORD = 2


def asks(frame: FrameType) -> bool:
    """Whether a frame is at an `isinstance`, a `.__class__` or a `case` of a class just now.

    Compiled code that it has called asks in the same way, and takes a tensor's memory for granted.
    """
    return frame.f_lasti in _questions(frame.f_code)


@lru_cache(maxsize=1024)
def _questions(code: CodeType) -> frozenset[int]:
    """Where a code asks; a call begins where the name of what it calls does.

    An instruction that met a property before may stand at its end meanwhile (Python 3.12).
    """
    begins = set()
    found: set[int] = set()
    for step, after in pairwise(dis.get_instructions(code)):
        where = step.positions and (step.positions.lineno, step.positions.col_offset)
        if where and None not in where and step.opname == NAME and step.argval == QUESTION:
            begins.add(where)
        called = step.opname in CALLS and where in begins
        read = step.opname in LOADS and step.argval == ATTRIBUTE
        if called or read or step.opname == MATCH:
            found.update(range(step.offset, after.offset, WORD))
    return frozenset(found)
