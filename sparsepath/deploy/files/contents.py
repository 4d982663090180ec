"""What an artifact holds, in words, from its header alone: no weight is read."""

import json
from collections import Counter
from pathlib import Path

from sparsepath.deploy.files.codes import PLAIN, VALUES
from sparsepath.deploy.files.manifest import FORMAT, Entry, Manifest, read_manifest, refusing
from sparsepath.deploy.files.opened import check_file, looks_like_onnx
from sparsepath.deploy.files.packing import KINDS, WHERE
from sparsepath.deploy.files.target import named
from sparsepath.errors import BadInput
from sparsepath.storage import tensor_sizes


def contents(path: str | Path) -> str:
    """The text of `sparsepath inspect`: architecture, arrays with their bytes, and figures."""
    path = named(path)
    check_file(path)
    if looks_like_onnx(path):
        raise BadInput(f"{str(path)!r} is an ONNX model: give an artifact of sparsepath.")
    manifest = read_manifest(path)
    with refusing(path):
        return _shown("\n".join(_lines(path, manifest)))


def _lines(path: Path, manifest: Manifest) -> list[str]:
    sizes = tensor_sizes(path)
    stored = {
        name: sum(sizes.get(f"{kind}:{name}", 0) for kind in KINDS) for name in manifest.arrays
    }
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    rows = [
        (
            name,
            _shape(entry),
            entry.dtype,
            _how(entry),
            f"{stored[name]:,}",
            _share(entry, stored[name]),
        )
        for name, entry in manifest.arrays.items()
    ]
    heads = ("array", "shape", "type", "stored as", "bytes", "of dense")
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    dense = sum(entry.nbytes for entry in manifest.arrays.values())
    total = sum(stored.values())
    return [
        f"{path.name}: {FORMAT} {manifest.version}, {path.stat().st_size:,} bytes ({versions})",
        _architecture(manifest),
        "  ".join(text.ljust(n) for text, n in zip(heads, widths, strict=True)).rstrip(),
        *("  ".join(x.ljust(n) for x, n in zip(row, widths, strict=True)).rstrip() for row in rows),
        f"{len(rows)} arrays: {total:,} of {dense:,} dense bytes ({total / max(1, dense):.3f})",
        *([f"support: masks of {', '.join(manifest.support)}"] if manifest.support else []),
        *(
            f"{name}: {json.dumps(figure, ensure_ascii=False, default=str)}"
            for name, figure in manifest.figures.items()
        ),
    ]


def _architecture(manifest: Manifest) -> str:
    if manifest.factory is not None:
        return f"made by the factory {manifest.factory!r}, which load() must be given"
    counts = Counter(str(node["op"]) for node in manifest.graph["nodes"])
    listed = ", ".join(f"{count} {op}" for op, count in counts.most_common())
    return f"a graph of {sum(counts.values())} nodes: {listed}"


def _shape(entry: Entry) -> str:
    return " x ".join(map(str, entry.shape)) or "one number"


def _how(entry: Entry) -> str:
    """Such as "mask of 9 (deflated), codebook4 (deflated)"; plain values go without saying."""
    blocks = entry.how if entry.block == 1 else f"{entry.how} of {entry.block}"
    parts = [blocks + _deflated(entry, WHERE)]
    if entry.code != PLAIN or VALUES in entry.deflated:
        parts.append(entry.code + _deflated(entry, VALUES))
    return ", ".join(parts)


def _deflated(entry: Entry, kind: str) -> str:
    return " (deflated)" if kind in entry.deflated else ""


def _share(entry: Entry, stored: int) -> str:
    return f"{stored / max(1, entry.nbytes):.3f}"


def _shown(text: str) -> str:
    """Without what could steer a terminal: a file chooses its own names."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
