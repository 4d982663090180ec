"""Packs the weights of walked points as artifacts, which are what the repository keeps of them.

    python reproduction/pack.py FOLDER/NAME.safetensors ...

NAME is a path's, for its last point, or one with the number of a point, whose zero kernels must be
those of the record. The artifact lies beside the weights, holds the figures of its point, and is
loaded again: only when every weight is the same to the bit are the plain weights deleted.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import torch

from sparsepath import kernels
from sparsepath.deploy import load, save
from sparsepath.errors import BadInput, as_script
from sparsepath.lab.models import Network
from sparsepath.lab.records import network_of
from sparsepath.storage import read_json


def point_of(weights: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The record that a file of weights belongs to, and its point there."""
    whole = weights.with_suffix(".json")
    if whole.exists():
        record = read_json(whole)
        return whole, record, record["points"][-1]
    named = re.fullmatch(r"(.+)-(\d+)", weights.stem)
    part = weights.with_name(f"{named[1]}.json") if named else whole
    record = read_json(part) if part.exists() else {"points": []}
    for point in record["points"]:
        if named and point["index"] == int(named[2]):
            return part, record, point
    raise BadInput(f"No record beside {str(weights)!r} has that point: name weights of a walk.")


def zeros(model: Network) -> dict[str, int]:
    """How many blocks of each sparsified weight are zero."""
    found = {}
    for name in model.sparsified:
        layer = model.get_submodule(name)
        blocks, weight = kernels(layer), layer.get_parameter("weight")
        assert blocks is not None
        found[f"{name}.weight"] = int((~blocks.alive(weight)).sum())
    return found


def pack(weights: Path) -> Path:
    """Write the artifact, compare, and delete the weights."""
    place, record, point = point_of(weights)
    model = network_of(record, weights)
    if zeros(model) != point["sparsity"]["zero_blocks"]:
        raise BadInput(f"{str(weights)!r} has other zero kernels than its point in {place.name!r}.")
    packed = weights.with_suffix(".sparsepath")
    told = {name: value for name, value in point.items() if name not in ("residuals", "latency")}
    example = torch.zeros(1, 3, 32, 32)
    save(model, packed, example=example, figures={"record": place.name, "point": told})
    own, again = model.state_dict(), load(packed).model.state_dict()
    if own.keys() != again.keys() or not all(torch.equal(own[name], again[name]) for name in own):
        packed.unlink()
        raise BadInput(f"{str(packed)!r} did not give the weights of {str(weights)!r} back.")
    weights.unlink()
    return packed


def main() -> None:
    """Pack all files that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("weights", nargs="+", type=Path)
    for weights in parser.parse_args().weights:
        if not weights.exists():
            raise BadInput(f"There is no {str(weights)!r}: name weights of a walk.")
        before = weights.stat().st_size
        packed = pack(weights)
        print(f"{packed}: {packed.stat().st_size:,} of {before:,} bytes", flush=True)


if __name__ == "__main__":
    as_script(main)
