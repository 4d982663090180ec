"""Text from the user as a page may show it: nothing in it is unseen or turns what stands beside."""

import os
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Any

JOINERS = "\u200c\u200d"
"""Unseen, but words of some languages and many emoji are spelled with them."""
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(value: Any) -> Any:
    """The same with an escape for every control character, mark of direction and half character."""
    if isinstance(value, str):
        return "".join(escape(each) if _unseen(each) else each for each in value)
    if isinstance(value, Mapping):
        return {visible(key): visible(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible(part) for part in value]
    return value


def _unseen(character: str) -> bool:
    return unicodedata.category(character) in UNSEEN and character not in JOINERS


def escape(character: str) -> str:
    """A character as programmers write it."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def quoted(text: str) -> str:
    """One word of a shell, which can be seen and pasted whatever the text holds."""
    if not any(map(_unseen, text)):
        return shlex.quote(text)
    plain = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\{byte:03o}"
        for byte in os.fsencode(text)
    )
    return f"$'{plain}'"
