"""What training frees is kept: no page of it has to be asked for, and blanked, a second time."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_data

# In a process of its own, which keeps what it frees from then on; maps as a step makes them.
FAULTS = """
import resource
import torch

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    maps = [torch.ones(10_000_000) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{}
step()
print(sum(step() for _ in range(8)))
"""
BEGINNINGS = {
    "keep_freed": "from sparsepath.lab.memory import keep_freed; assert keep_freed()",
    "experiments": "from sparsepath.lab.abreast import train_abreast; train_abreast([], until=0)",
    "runs": """
from pathlib import Path
from sparsepath.lab.runs import execute
from sparsepath.lab.settings import Settings
data = Path(FOLDER, "tiny.npz")
execute(Settings(data=str(data), dense_epochs=1), Path(FOLDER, "run"), dense_only=True)
""",
}


def faults(begin: str) -> int:
    """Pages asked for in eight steps, once this was done."""
    found = subprocess.run(
        [sys.executable, "-c", FAULTS.format(begin)], capture_output=True, text=True, check=True
    )
    return int(found.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_freed_memory_is_kept(begin: str, tmp_path: Path):
    tiny_data(tmp_path)
    assert 2 * faults(begin.replace("FOLDER", repr(str(tmp_path)))) < faults("")


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch):
    from sparsepath.lab import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert not memory.keep_freed()
