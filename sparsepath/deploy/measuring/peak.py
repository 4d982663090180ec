"""How much memory a network takes where it runs alone: in a fresh process, beyond what torch takes.

The process runs a network of one kernel first and notes its memory; then it loads the file and
runs it. What the peak is above that note, while a batch runs, is the network's own: its weights, as
loaded and as packed, its buffers, and whatever the runtime keeps besides.
"""

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

STATUS, REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
PATIENCE = 600


@dataclass(frozen=True)
class Order:
    """What the fresh process is to run."""

    file: str
    runtime: str
    shape: tuple[int, ...]
    """of one image"""
    batches: Sequence[int]
    threads: int = 1
    tune: bool = True


def peaks(order: Order) -> Mapping[int, int] | None:
    """The bytes of the peak at each batch; None where the system gives no account of it."""
    if not REFS.exists():
        return None
    command = [sys.executable, "-m", __name__, json.dumps(asdict(order))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        return None
    return {int(batch): grown for batch, grown in json.loads(done.stdout).items()}


def _measured(order: Order) -> dict[int, int]:
    import torch

    from sparsepath.deploy.files.opened import of_model, opened

    torch.set_num_threads(order.threads)
    images = [torch.randn(batch, *order.shape) for batch in order.batches]
    # Whatever a runtime loads once for all networks is not this one's.
    first = of_model(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3)).eval())
    any_image = torch.randn(1, 1, 8, 8)
    own = {"names": [order.runtime], "threads": order.threads, "tune": order.tune}
    for run in first.runs(any_image, **own).values():
        assert not isinstance(run, str), run
        run(any_image)
    _forget()
    before, found = _resident("VmRSS"), {}
    run = opened(Path(order.file)).runs(images[0], **own)[order.runtime]
    assert not isinstance(run, str), run
    for batch, given in zip(order.batches, images, strict=True):
        _forget()
        run(given)
        found[batch] = max(0, _resident("VmHWM") - before)
    return found


def _forget() -> None:
    """Give back what was only needed to get ready, and let the peak begin anew."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    REFS.write_text(RESET_PEAK)


def _resident(line: str) -> int:
    """A line of the system's account of this process, in bytes."""
    lines = dict(row.split(":", 1) for row in STATUS.read_text().splitlines() if ":" in row)
    return 1024 * int(lines[line].split()[0])


if __name__ == "__main__":
    print(json.dumps(_measured(Order(**json.loads(sys.argv[1])))))
