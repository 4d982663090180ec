"""The native sources on their own: under sanitizers, and as another processor would run them."""

import ctypes
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparsepath.deploy
from sparsepath.deploy.running import kernels

from .embedded import BUILDS, CROSS, EMULATOR, NEEDS, built, done

NATIVE = Path(sparsepath.deploy.__file__).parent / "native"
PROGRAM = Path(__file__).with_name("kernels_test.cpp")
COMPILE = runpy.run_path(str(NATIVE / "compile.py"))
# The same sources with other loads and stores: their addresses are what is left to look at.
ADDRESSES = ["-fsanitize=address", "-O0"]
pytestmark = NEEDS


def linked(name, target):
    """The tests' program, with the portable kernels of a build of the C++ program."""
    how = {"LDFLAGS": "", "CXX": os.environ.get("CXX", "c++"), **BUILDS[name]}
    objects = {path.name: path for path in (built(name) / "objects").glob("portable-*.o")}
    del objects["portable-kernels_table.o"]  # the C++ program's own
    command = [*how["CXX"].split(), "-std=c++17", *how["CXXFLAGS"].split(), "-O1", f"-I{NATIVE}"]
    done([*command, PROGRAM, *objects.values(), "-pthread", *how["LDFLAGS"].split(), "-o", target])


def run(command, **environment):
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "agree" in result.stdout


@pytest.mark.parametrize("isa", COMPILE["instruction_sets"]())
def test_the_kernels_are_clean_under_sanitizers(isa, tmp_path):
    # The best of this machine's sets stands for those between, whose code is the same but narrower.
    if isa not in (kernels.isas()[0], "portable"):
        pytest.skip(f"this machine does not run {isa}, or a better one")
    target = tmp_path / "sanitized"
    if isa == "portable":
        linked("sanitized", target)
    else:
        flags = [*COMPILE["instruction_sets"]()[isa], *ADDRESSES]
        try:
            COMPILE["build"](COMPILE["compiler"](), {target: flags}, extra=[PROGRAM])
        except subprocess.CalledProcessError as error:
            pytest.fail(error.stderr)
    run([target, "60"], ASAN_OPTIONS="detect_leaks=1", LD_PRELOAD="")


@pytest.mark.skipif(not (CROSS and EMULATOR), reason="needs g++-aarch64-linux-gnu and qemu-user")
def test_the_portable_kernels_run_on_aarch64(tmp_path):
    linked("aarch64", tmp_path / "crossed")
    run([EMULATOR, tmp_path / "crossed", "20"])


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
