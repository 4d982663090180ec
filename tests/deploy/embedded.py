"""Builds of the C++ program, each made once for all test processes, and runs of it."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
import torch

from sparsepath.deploy.artifact import save

FOLDER = Path(__file__).parents[2] / "embedded"
PARTS = Path(__file__).with_name("embedded_parts.cpp")
CROSS = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
# What a file may claim is at most 4 GiB; whoever asks for more at once is stopped.
MEMORY = "max_allocation_size_mb=4200"
# All that differs from the documented build: the tests measure nothing and should be quick.
BUILDS = {
    "usual": {"CXXFLAGS": "-O1"},
    "sanitized": {"CXXFLAGS": f"-O0 {SANITIZERS}", "ISAS": "portable"},
    "aarch64": {"CXXFLAGS": "-O1", "LDFLAGS": "-static", "CXX": CROSS},
}


def built(temporary, name):
    """The folder of a build, spaces in its name and its sources'; whoever comes first makes it."""
    shared = temporary.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / f"the {name} build"
    with (shared / f"embedded-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "sparsepath-infer").exists():
            environment = {**os.environ, "JOBS": "2", **BUILDS[name]}
            sources = shared / f"the {name} sources"
            sources.symlink_to(FOLDER.parent)
            _done([sources / FOLDER.name / "build", folder], environment)
    return folder


def built_parts(temporary):
    """The program that shows the library's parts, sanitized."""
    folder = built(temporary, "sanitized")
    target = folder / f"parts-{os.getpid()}"
    if not target.exists():
        command = [os.environ.get("CXX", "c++"), "-std=c++17", *SANITIZERS.split(), f"-I{FOLDER}"]
        library = folder / "libsparsepath_infer.a"
        _done([*command, PARTS, library, "-pthread", "-o", target], os.environ)
    return target


def _done(command, environment):
    given = subprocess.run(command, capture_output=True, text=True, env=environment)
    if given.returncode:
        pytest.fail(given.stdout + given.stderr)


def run(command, *arguments, **environment):
    """What a program says; one that is killed or complains of memory fails the test."""
    given = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "LD_PRELOAD": "", "ASAN_OPTIONS": MEMORY, **environment},
    )
    assert given.returncode in (0, 2), given.stderr
    return given


def refused(command, *arguments, **environment):
    """The sentence with which a program ends with code 2."""
    given = run(command, *arguments, **environment)
    assert given.returncode == 2, given.stdout
    assert not given.stdout
    (sentence,) = given.stderr.splitlines()
    return sentence


def check_refused(command, path, content, x_file):
    """The sentence with which a file of such content is refused."""
    path.write_bytes(content)
    said = refused(command, path, x_file)
    assert said.startswith(f"'{path}' is damaged or not ours: ")
    assert said.endswith("; nothing was loaded.")
    return said


def answered(command, path, x, *arguments, **environment):
    """What the program gives for an input to a file."""
    before, after = path.with_suffix(".x.npy"), path.with_suffix(".y.npy")
    numpy.save(before, x.numpy())
    given = run(command, path, before, after, *arguments, **environment)
    assert given.returncode == 0, given.stderr
    return torch.from_numpy(numpy.load(after))


def check(command, model, path, x, **environment):
    """The program gives what the model gives in float64, to 1e-4 of its largest number."""
    if not path.exists():
        save(model, path)
    with torch.no_grad():
        wanted = model.double()(x.double())
        model.float()
    given = answered(command, path, x, **environment)
    assert given.shape == wanted.shape
    assert (given - wanted).abs().max() <= 1e-4 * wanted.abs().max()
    return given
