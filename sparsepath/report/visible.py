"""Whatever a page is given, with its texts made visible, and texts that a shell may be given."""

import os
import shlex
from collections.abc import Mapping
from typing import Any

from sparsepath.report.safe import unseen, visible


def all_visible(value: Any) -> Any:
    """The same with every text, however deep inside, as it can be shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {all_visible(key): all_visible(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_visible(part) for part in value]
    return value


def quoted(text: str) -> str:
    """One word of a shell, which can be seen and pasted whatever the text holds."""
    if not any(map(unseen, text)):
        return shlex.quote(text)
    plain = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\{byte:03o}"
        for byte in os.fsencode(text)
    )
    return f"$'{plain}'"
