"""What training frees is kept: few pages have to be asked for, and blanked, in every step."""

import platform
import subprocess
import sys

import pytest

# In a process of its own, which keeps what it frees from then on; maps as a step makes them.
FAULTS = """
import resource
import torch

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    maps = [torch.ones(10_000_000) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{}
for _ in range(6):
    step()
print(sum(step() for _ in range(8)))
"""
BEGINNINGS = {
    "keep_freed": "from sparsepath.lab.memory import keep_freed; assert keep_freed()",
    "experiments": "from sparsepath.lab.reproduce import device_named; device_named('cpu')",
}


def faults(begin: str) -> int:
    """Pages asked for in eight steps, once this was done."""
    found = subprocess.run(
        [sys.executable, "-c", FAULTS.format(begin)], capture_output=True, text=True, check=True
    )
    return int(found.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_freed_memory_is_kept(begin: str):
    assert 20 * faults(begin) < faults("")


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch):
    from sparsepath.lab import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert not memory.keep_freed()
