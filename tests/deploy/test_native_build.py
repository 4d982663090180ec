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


def prepared(folder, answer):
    """A folder with one small source, to be compiled as the kernels are."""
    native = folder / "native"
    native.mkdir(parents=True)
    shutil.copy(NATIVE / "compile.py", native)
    source = (
        f'extern "C" __attribute__((visibility("default"))) int answer() {{ return {answer}; }}'
    )
    (native / "answer.cpp").write_text(source)
    return native


@pytest.fixture
def compiled(monkeypatch):
    """The portable library of such a folder, built after those of an earlier one."""

    def compiled(native, earlier):
        monkeypatch.setitem(COMPILE["build_libraries"].__globals__, "HERE", native)
        monkeypatch.setenv(COMPILE["EARLIER_VARIABLE"], str(earlier))
        assert native.parent / "_kernels_portable.so" in COMPILE["build_libraries"]()
        return native.parent / "_kernels_portable.so"

    return compiled


def test_a_library_of_the_same_sources_is_not_built_again(tmp_path, compiled):
    first = tmp_path / "first" / "_kernels_portable.so"
    done([sys.executable, prepared(first.parent, 1) / "compile.py"])
    with first.open("ab") as file:
        file.write(b"built first")
    same = compiled(prepared(tmp_path / "same", 1), first.parent)
    assert same.read_bytes() == first.read_bytes()
    other = compiled(prepared(tmp_path / "other", 2), first.parent)
    assert not other.read_bytes().endswith(b"built first")
    assert ctypes.CDLL(str(other)).answer() == 2
