"""What an artifact says about itself: architecture, arrays, support, figures and checksums.

The manifest is JSON in the header of a safetensors file. It names no code: an architecture is a
graph of our own operations, or the name of a factory that whoever loads the file must bring.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sparsepath.deploy.files.codes import CODES, LEVELS, PLAIN
from sparsepath.deploy.files.graph_json import JSON, decoded, encoded, fields
from sparsepath.deploy.files.packing import DENSE, KINDS, WAYS
from sparsepath.errors import BadInput
from sparsepath.storage import read_header

FORMAT, VERSION = "sparsepath artifact", 3
READ = ("1", "2", "3")
# What an entry says of its array; each version of the format added some.
KEYS = {1: ("shape", "dtype", "how", "block"), 2: ("code", "deflated"), 3: ("axis",)}
TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}


@dataclass(frozen=True)
class Entry:
    """How one array is stored."""

    shape: tuple[int, ...]
    dtype: str
    how: str = DENSE
    block: int = 1
    code: str = PLAIN
    deflated: Mapping[str, int] = field(default_factory=dict)
    """by kind of tensor, the bytes before it was deflated"""
    axis: int = 0
    """of the channels that the scales of levels belong to"""

    @property
    def nbytes(self) -> int:
        """What the array takes in memory."""
        return math.prod(self.shape) * TYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Manifest:
    """Everything about an artifact but its tensors."""

    versions: Mapping[str, str]
    graph: JSON
    """the architecture as `graph_json` writes it; None where a factory makes it"""
    factory: str | None
    arrays: Mapping[str, Entry]
    support: Mapping[str, Entry]
    """masks: as a "mask" of their own, or "dense" where the weight's own zeros tell them"""
    figures: Mapping[str, Any]
    checksums: Mapping[str, str]
    """by tensor of the file, the SHA-256 of its bytes"""
    version: int = VERSION
    """of the format it was read from; written is always the newest"""

    def header(self) -> dict[str, str]:
        """The header of the file."""
        content = {
            "versions": dict(self.versions),
            "graph": self.graph,
            "factory": self.factory,
            "arrays": {name: _written(entry) for name, entry in self.arrays.items()},
            "support": {name: _written(entry) for name, entry in self.support.items()},
            "figures": encoded(dict(self.figures)),
            "checksums": dict(self.checksums),
        }
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        return {"format": f"{FORMAT} {VERSION}", "manifest": text, "sha256": _sha256(text)}


def _written(entry: Entry) -> JSON:
    return {
        "shape": list(entry.shape),
        "dtype": entry.dtype,
        "how": entry.how,
        "block": entry.block,
        "code": entry.code,
        "deflated": dict(entry.deflated),
        "axis": entry.axis,
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file, checked, without reading the file's tensors."""
    header = read_header(path)
    kind, _, version = header.get("format", "").rpartition(" ")
    if kind != FORMAT or not version.isdecimal():
        raise BadInput(
            f"{str(path)!r} is no artifact of sparsepath: its format is {header.get('format')!r}."
        )
    if version not in READ:
        raise BadInput(
            f"{str(path)!r} has version {version} of the format and this sparsepath reads "
            f"{READ[0]} to {READ[-1]}: install a newer one, or save the network again."
        )
    text = header.get("manifest", "")
    with refusing(path):
        if header.get("sha256") != _sha256(text):
            raise BadInput("the checksum of its manifest is wrong")
        content = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        return _parsed(content, int(version))


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file inside becomes one sentence about the file."""
    try:
        yield
    except Exception as error:  # a hostile file may break what we call in ways of its own
        line = (str(error).splitlines() or [""])[0].rstrip(".")
        kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
        raise BadInput(
            f"{str(path)!r} is damaged or not ours: {kind}{line[:200]}; nothing was loaded."
        ) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadInput("its manifest has a key twice")
    return found


def _no_constant(text: str) -> None:
    raise BadInput(f"its manifest holds {text}, which is no JSON")


def _parsed(content: JSON, version: int) -> Manifest:
    versions, graph, factory, arrays, support, figures, checksums = fields(
        content, "versions", "graph", "factory", "arrays", "support", "figures", "checksums"
    )
    for texts in (versions, checksums):
        if not isinstance(texts, dict) or not all(isinstance(x, str) for x in texts.values()):
            raise BadInput("its versions or checksums are no texts")
    if (graph is None) == (factory is None) or not isinstance(factory, (str, type(None))):
        raise BadInput("it should have either a graph or the name of a factory")
    plain = decoded(figures)
    if not isinstance(plain, dict):
        raise BadInput("its figures are no object")
    return Manifest(
        versions=versions,
        graph=graph,
        factory=factory,
        arrays=_entries(arrays, version),
        support=_entries(support, version),
        figures=plain,
        checksums=checksums,
        version=version,
    )


def _entries(content: JSON, version: int) -> Mapping[str, Entry]:
    if not isinstance(content, dict):
        raise BadInput("its list of arrays is no object")
    return {name: _entry(name, entry, version) for name, entry in content.items()}


def _entry(name: str, content: JSON, version: int) -> Entry:
    known = [key for since, keys in KEYS.items() if since <= version for key in keys]
    shape, dtype, how, block, *later = fields(content, *known)
    defaults: list[JSON] = [PLAIN, {}, 0]
    code, deflated, axis = later + defaults[len(later) :]
    lengths = [*shape, block] if isinstance(shape, list) else [None]
    if not all(_sane(length) for length in lengths):
        raise BadInput(f"{name!r} has no sane shape")
    if dtype not in TYPES or how not in WAYS or code not in CODES:
        given = ", ".join(repr(str(what)[:20]) for what in (dtype, how, code))
        raise BadInput(f"{name!r} is stored as {given}")
    if not isinstance(deflated, dict) or not all(
        kind in KINDS and _sane(size) for kind, size in deflated.items()
    ):
        raise BadInput(f"{name!r} has no sane sizes of what is deflated")
    if type(axis) is not int or axis not in ((0, 1) if code == LEVELS else (0,)):
        raise BadInput(f"{name!r} has scales along {str(axis)[:20]!r}, which is no axis of them")
    return Entry(tuple(shape), dtype, how, block, code, deflated, axis)


def _sane(length: JSON) -> bool:
    return type(length) is int and 0 <= length < 1 << 40
