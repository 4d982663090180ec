"""The native sources on their own: under sanitizers, and as another processor would run them."""

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

import sparsepath.deploy
from sparsepath.deploy import kernels

NATIVE = Path(sparsepath.deploy.__file__).parent / "native"
PROGRAM = Path(__file__).with_name("kernels_test.cpp")
COMPILE = runpy.run_path(str(NATIVE / "compile.py"))
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
# The same sources with other loads and stores: their addresses are what is left to look at.
ADDRESSES = ["-fsanitize=address", "-O0"]
CROSS = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


def build(command, target, flags):
    try:
        COMPILE["build"](command, {target: flags}, extra=[PROGRAM])
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)


def run(command, **environment):
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "agree" in result.stdout


@pytest.mark.timeout(900)
@pytest.mark.skipif(COMPILE["compiler"]() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("isa", COMPILE["instruction_sets"]())
def test_the_kernels_are_clean_under_sanitizers(isa, tmp_path):
    # The best of this machine's sets stands for those between, whose code is the same but narrower.
    if isa not in (kernels.isas()[0], "portable"):
        pytest.skip(f"this machine does not run {isa}, or a better one")
    flags = COMPILE["instruction_sets"]()[isa]
    sanitizers = SANITIZERS if isa == "portable" else ADDRESSES
    build(COMPILE["compiler"](), tmp_path / "sanitized", [*flags, *sanitizers])
    run([tmp_path / "sanitized", "60"], ASAN_OPTIONS="detect_leaks=1", LD_PRELOAD="")


@pytest.mark.timeout(900)
@pytest.mark.skipif(not (CROSS and EMULATOR), reason="needs g++-aarch64-linux-gnu and qemu-user")
def test_the_portable_kernels_run_on_aarch64(tmp_path):
    build([CROSS], tmp_path / "crossed", ["-static"])
    run([EMULATOR, tmp_path / "crossed", "20"])
