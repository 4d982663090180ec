"""The paper's paths on one data set, in paper mode, from one call that any later call continues."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.data import load
from sparsepath.lab.recipes import DENSE, paper
from sparsepath.lab.side_by_side import Job, train_dense, walk_paths


def reproduce(
    data: str | Path,
    folder: Path,
    *,
    name: str,
    networks: Sequence[str] = tuple(DENSE),
    penalties: Sequence[str] = ("l0", "l1"),
    flip: bool,
    minutes: float = float("inf"),
    device: str = "cuda",
) -> bool:
    """Walk the l0 and l1 paths of each network; False if the minutes were over before the end.

    Dense references go to `folder/dense`, paths to `folder/paper`. Mirrored images (`flip`) help
    where a mirrored object is one of its kind, and not for digits.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"There is no GPU for device {device!r}; these experiments need one.")
    until = time.monotonic() + 60 * minutes
    loaded = replace(load(data), name=name)
    arena = Arena(loaded, torch.device(device), flip=flip, final=True)
    dense = folder / "dense"
    train_dense({network: DENSE[network] for network in networks}, arena, dense)
    jobs = [Job(net, penalty, paper(net, penalty)) for net in networks for penalty in penalties]
    return walk_paths(jobs, arena, dense=dense, folder=folder / "paper", until=until)
