"""A network in one file: safetensors with a manifest, without pickle, whole or refused."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath import __version__
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.capture.verified import verified
from sparsepath.deploy.files import graph_json
from sparsepath.deploy.files.manifest import TYPES, Entry, Manifest, read_manifest, refusing
from sparsepath.deploy.files.packing import DENSE, KINDS, MASK, Packed, bits, booleans, pack, unpack
from sparsepath.deploy.files.target import free, named, writing
from sparsepath.deploy.graph.fold import without_dead_code
from sparsepath.deploy.graph.inputs import checked_example
from sparsepath.deploy.graph.network import GraphNetwork, as_module
from sparsepath.errors import BadInput
from sparsepath.metrics import evaluating
from sparsepath.modules import checked_module
from sparsepath.storage import read_tensors, write_tensors
from sparsepath.support import Support

Factories = Mapping[str, Callable[[], nn.Module]]
# A few bytes may stand for any number of zeros: what a file claims to hold is bounded.
LIMIT = 4 << 30


@dataclass(frozen=True)
class Artifact:
    """A loaded file: the network in eval mode and what was saved with it."""

    model: nn.Module = field(repr=False)
    figures: Mapping[str, Any]
    support: Support
    """without any mask where none was saved"""
    versions: Mapping[str, str]


def save(
    model: nn.Module,
    path: str | Path,
    *,
    factory: str | None = None,
    inputs: int = 1,
    example: Tensor | Sequence[Tensor] | None = None,
    support: Support | None = None,
    figures: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Manifest:
    """Write the model, its function in eval mode, to one file; returns what it says of itself.

    The architecture is written as a graph of `inputs` tensors; an `example` of them tells their
    number and axes, where the code alone does not, and the graph must give on it what the model
    gives. A model that no graph describes is saved with the name of a `factory` instead, which
    `load` must then be given. `figures` is any plain data that belongs to the network.
    """
    model = checked_module("save", model)
    if factory is not None and isinstance(model, GraphNetwork):
        raise BadInput(
            "This network was made by sparsepath, as compact() does, and no factory of yours can "
            "build it: save the model that it was made of, or leave factory out."
        )
    path = free(path, force=force)
    given = None if example is None else checked_example(example)
    if given is not None and inputs not in (1, len(given)):
        raise BadInput(f"inputs={inputs!r}, but the example has {len(given)}: leave inputs out.")
    graph, arrays = _described(model, factory, inputs, given)
    for name, array in arrays.items():
        if str(array.dtype).removeprefix("torch.") not in TYPES or array.layout != torch.strided:
            raise BadInput(f"{name!r} is {array.dtype}, {array.layout}: no file holds that.")
    tensors: dict[str, Tensor] = {}
    entries = {name: _stored(name, array, tensors) for name, array in arrays.items()}
    masks = {
        name: _stored_mask(name, mask, arrays, tensors) for name, mask in (support or {}).items()
    }
    manifest = Manifest(
        versions={"sparsepath": __version__, "torch": torch.__version__},
        graph=graph,
        factory=factory,
        arrays=entries,
        support=masks,
        figures=dict(figures or {}),
        checksums={name: _checksum(tensor) for name, tensor in tensors.items()},
    )
    header = manifest.header()
    with writing(path):
        write_tensors(path, tensors, header)
    return manifest


def _described(
    model: nn.Module, factory: str | None, inputs: int, example: Sequence[Tensor] | None
) -> tuple[Any, Mapping[str, Tensor]]:
    if factory is not None:
        return None, model.state_dict()
    with evaluating(model):
        if example is None:
            found = capture(model, inputs=inputs)
        else:
            found = verified(model, example, told=True)
        made = isinstance(model, GraphNetwork)
        return graph_json.written(without_dead_code(found), told=example is not None, own=made)


def _stored(name: str, array: Tensor, tensors: dict[str, Tensor]) -> Entry:
    packed = pack(array)
    tensors.update({f"{kind}:{name}": part for kind, part in packed.parts.items()})
    dtype = str(array.dtype).removeprefix("torch.")
    return Entry(
        tuple(array.shape),
        dtype,
        packed.how,
        packed.block,
        packed.code,
        packed.deflated,
        packed.axis,
    )


def _stored_mask(
    name: str, mask: Tensor, arrays: Mapping[str, Tensor], tensors: dict[str, Tensor]
) -> Entry:
    """A mask that the weight's own zeros do not tell anyway takes a bit for each block."""
    if name not in arrays:
        raise BadInput(f"The support names {name!r}, which this model lacks.")
    told = mask.dim() == arrays[name].dim() and torch.equal(
        _alive(arrays[name].cpu(), tuple(mask.shape)), mask.cpu()
    )
    if not told:
        tensors[f"support:{name}"] = bits(mask)
    return Entry(tuple(mask.shape), "bool", DENSE if told else MASK)


def _alive(array: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Which blocks hold something, where a mask of that shape has one number for each of them."""
    alive = array != 0
    for axis, length in enumerate(shape):
        alive = alive.any(axis, keepdim=True) if length == 1 else alive
    return alive


def _checksum(tensor: Tensor) -> str:
    plain = tensor.contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()


def load(path: str | Path, *, factories: Factories | None = None, limit: int = LIMIT) -> Artifact:
    """Read a file that `save` wrote; nothing in it can make code of its own choice run.

    Everything is checked before anything is built. A file that names a factory needs that one in
    `factories`; one whose arrays would take more than `limit` bytes of memory is refused.
    """
    path = named(path)
    manifest = read_manifest(path)
    make = _chosen(path, manifest, factories or {})
    size = sum(entry.nbytes for entry in (*manifest.arrays.values(), *manifest.support.values()))
    if size > limit:
        raise BadInput(
            f"{str(path)!r} would take {size:,} bytes of memory, more than {limit:,}: "
            "if you trust it, load it with a higher limit."
        )
    with refusing(path):
        tensors, _ = read_tensors(path)
        arrays, support = _checked(manifest, tensors)
        own = None if make else as_module(graph_json.read(manifest.graph, arrays))
    model = own if make is None else _filled(path, make, arrays)
    assert model is not None
    return Artifact(model.eval(), manifest.figures, support, manifest.versions)


def _chosen(path: Path, manifest: Manifest, factories: Factories) -> Callable[[], nn.Module] | None:
    if manifest.factory is None:
        return None
    if manifest.factory not in factories:
        raise BadInput(
            f"{str(path)!r} needs the factory {manifest.factory!r}: give load() factories="
            f"{{{manifest.factory!r}: a function that makes the model}}."
        )
    return factories[manifest.factory]


def _checked(
    manifest: Manifest, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], Support]:
    """The arrays and masks, once every byte is known to be the one that was written."""
    if set(tensors) != set(manifest.checksums):
        raise BadInput("its tensors are not those of its manifest")
    for name, tensor in tensors.items():
        if _checksum(tensor) != manifest.checksums[name]:
            raise BadInput(f"the checksum of {name!r} is wrong")
    arrays = {}
    for name, entry in manifest.arrays.items():
        parts = {kind: tensors[key] for kind in KINDS if (key := f"{kind}:{name}") in tensors}
        packed = Packed(entry.how, entry.block, entry.code, parts, entry.deflated, entry.axis)
        try:
            arrays[name] = unpack(packed, entry.shape, TYPES[entry.dtype])
        except BadInput as error:
            raise BadInput(f"{name!r}: {error}") from error
    masks = {}
    for name, entry in manifest.support.items():
        if entry.how == DENSE:
            masks[name] = _alive(arrays[name], entry.shape)
        else:
            flags = booleans(tensors[f"support:{name}"], math.prod(entry.shape))
            masks[name] = flags.reshape(entry.shape)
        if tuple(masks[name].shape) != entry.shape:
            raise BadInput(f"the support of {name!r} does not fit its weight")
    return arrays, Support(masks)


def _filled(path: Path, make: Callable[[], nn.Module], arrays: Mapping[str, Tensor]) -> nn.Module:
    """A new model of the caller's own with the file's arrays, which must be exactly its own."""
    model = make()
    own = model.state_dict()
    unlike = sorted(set(own) ^ set(arrays)) or [
        name
        for name, array in arrays.items()
        if (own[name].shape, own[name].dtype) != (array.shape, array.dtype)
    ]
    if unlike:
        raise BadInput(
            f"{str(path)!r} belongs to another model than the factory's {type(model).__name__}: "
            f"they differ in {unlike[0]!r}"
            + (f" and {len(unlike) - 1} more." if unlike[1:] else ".")
        )
    model.load_state_dict(dict(arrays))
    return model
