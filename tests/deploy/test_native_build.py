"""The native sources on their own: under sanitizers, and as another processor would run them."""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest

from sparsepath.deploy.running import kernels

from .builds import COMPILE, CROSS, NATIVE, built, done
from .embedded import EMULATOR, NEEDS

pytestmark = NEEDS


def run(command, **environment):
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "agree" in result.stdout


@pytest.mark.parametrize("isa", COMPILE["instruction_sets"]())
def test_the_kernels_are_clean_under_sanitizers(isa):
    # The best of this machine's sets stands for those between, whose code is the same but narrower.
    if isa not in (kernels.isas()[0], "portable"):
        pytest.skip(f"this machine does not run {isa}, or a better one")
    folder = built("sanitized" if isa == "portable" else isa)
    run([folder / "kernels", "60"], ASAN_OPTIONS="detect_leaks=1", LD_PRELOAD="")


@pytest.mark.skipif(not (CROSS and EMULATOR), reason="needs g++-aarch64-linux-gnu and qemu-user")
def test_the_portable_kernels_run_on_aarch64():
    run([EMULATOR, built("aarch64") / "kernels", "20"])


def compiled(folder, answer, earlier):
    """The portable library of a folder with one small source, made as the kernels are."""
    (folder / "native").mkdir(parents=True)
    shutil.copy(NATIVE / "compile.py", folder / "native")
    source = (
        f'extern "C" __attribute__((visibility("default"))) int answer() {{ return {answer}; }}'
    )
    (folder / "native" / "answer.cpp").write_text(source)
    environment = {**os.environ, COMPILE["EARLIER_VARIABLE"]: str(earlier)}
    done([sys.executable, folder / "native" / "compile.py"], environment)
    return folder / "_kernels_portable.so"


def test_a_library_of_the_same_sources_is_not_built_again(tmp_path):
    first = compiled(tmp_path / "first", 1, earlier="")
    with first.open("ab") as file:
        file.write(b"built first")
    assert compiled(tmp_path / "same", 1, first.parent).read_bytes() == first.read_bytes()
    other = compiled(tmp_path / "other", 2, first.parent)
    assert not other.read_bytes().endswith(b"built first")
    assert ctypes.CDLL(str(other)).answer() == 2
