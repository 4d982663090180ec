"""Weights on their way between files and models, checked before anything is changed."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from sparsepath.errors import BadInput
from sparsepath.storage import read_tensors


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Put weights into a model, or say which of them do not belong to it."""
    own = model.state_dict()
    wrong = sorted(own.keys() ^ weights.keys())
    wrong = wrong or [name for name in own if own[name].shape != weights[name].shape]
    if wrong:
        raise BadInput(
            f"{str(source)!r} belongs to another network than {type(model).__name__}: "
            f"{_listed(wrong)} differ or are missing (choose its --network; for a model of your "
            "own use sparsepath.regularisation_path)."
        )
    broken = [name for name in own if not bool(weights[name].isfinite().all())]
    if broken:
        raise BadInput(f"{str(source)!r} holds weights that are not finite: {_listed(broken)}.")
    model.load_state_dict(weights)


def digest_of(path: Path) -> str:
    """What tells a file of weights from any other."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(
            f"The checkpoint {str(path)!r} cannot be read ({error.strerror})."
        ) from error


def load_checkpoint(model: nn.Module, path: Path) -> str:
    """Put the weights of a safetensors file or a torch file into a model; the file's digest."""
    digest = digest_of(path)
    weights = read_tensors(path)[0] if path.suffix == ".safetensors" else _torch_file(path)
    load_weights(model, weights, path)
    return digest


def _torch_file(path: Path) -> Mapping[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or unsafe file makes the parser raise
        raise BadInput(
            f"The checkpoint {str(path)!r} is neither a .safetensors file nor a torch file of "
            "plain weights."
        ) from error
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise BadInput(
            f"The checkpoint {str(path)!r} holds no state_dict: save model.state_dict() alone."
        )
    return content


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors named as one part of a file that holds several."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def copied(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors, which the model trains on beside, as one part of a file."""
    return prefixed(prefix, {name: tensor.clone() for name, tensor in tensors.items()})


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """One part of such a file."""
    start = f"{prefix}/"
    own = {name: tensor for name, tensor in tensors.items() if name.startswith(start)}
    return {name.removeprefix(start): tensor for name, tensor in own.items()}


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
