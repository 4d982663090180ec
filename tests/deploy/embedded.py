"""Builds of the C++ program, each made once until its sources change, and runs of it."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
import torch

from sparsepath.deploy.files.artifact import save

FOLDER = Path(__file__).parents[2] / "embedded"
PARTS = Path(__file__).with_name("embedded_parts.cpp")
CROSS = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
X86 = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
# What every test of the program needs.
NEEDS = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler"),
    pytest.mark.skipif(not FOLDER.exists(), reason="the sources are those of the repository"),
]
# Builds outlive a session: nobody waits a minute for what has not changed.
KEPT = FOLDER.parent / ".pytest_cache" / "embedded builds"
NATIVE = FOLDER.parent / "sparsepath" / "deploy" / "native"
# What a file may claim is at most 4 GiB; whoever asks for more at once is stopped.
MEMORY = "max_allocation_size_mb=4200"
# All that differs from the documented build; the tests of x86 measure nothing and should be quick.
BUILDS = {
    "usual": {"CXXFLAGS": "-O1"},
    "sanitized": {"CXXFLAGS": f"-O0 {SANITIZERS}", "ISAS": "portable"},
    # As documented: another processor's code is looked at as it will be used.
    "aarch64": {"CXXFLAGS": "", "LDFLAGS": "-static", "CXX": CROSS},
}


def built(name):
    """The folder of a build, spaces in its name and its sources'; whoever comes first makes it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    folder, made_of = KEPT / f"the {name} build", KEPT / f"{name}.sha256"
    with (KEPT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_of.exists() or made_of.read_text() != _sources(name):
            made_of.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            sources = KEPT / "the sources"
            if not sources.is_symlink():
                sources.symlink_to(FOLDER.parent)
            environment = {**os.environ, "JOBS": "2", **BUILDS[name]}
            done([sources / FOLDER.name / "build", folder], environment)
            if name == "sanitized":
                _build_parts(folder)
            made_of.write_text(_sources(name))
    return folder


def _sources(name):
    """All that a build is made of, as one number."""
    files = [FOLDER / "build", PARTS, *FOLDER.glob("*.*"), *NATIVE.glob("*.*")]
    compiler = BUILDS[name].get("CXX", os.environ.get("CXX", "c++")).split()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True)
    flags = [(key, os.environ.get(key)) for key in ("CXXFLAGS", "LDFLAGS", "ISAS")]
    content = repr((BUILDS[name], flags, version.stdout)).encode()
    content += b"".join(str(path).encode() + path.read_bytes() for path in sorted(files))
    return hashlib.sha256(content).hexdigest()


def _build_parts(folder):
    command = [os.environ.get("CXX", "c++"), "-std=c++17", *SANITIZERS.split(), f"-I{FOLDER}"]
    library = folder / "libsparsepath_infer.a"
    done([*command, PARTS, library, "-pthread", "-o", folder / "parts"])


def built_parts():
    """The program that shows the library's parts, sanitized."""
    return built("sanitized") / "parts"


def done(command, environment=None):
    """Run a build, which must succeed."""
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
