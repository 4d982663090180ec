"""Runs of the C++ program in its several builds, and what they must say."""

import os
import shutil
import subprocess

import numpy
import pytest
import torch

from sparsepath.deploy.files.artifact import save

from .builds import FOLDER

EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
X86 = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
# What every test of the program needs.
NEEDS = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler"),
    pytest.mark.skipif(not FOLDER.exists(), reason="the sources are those of the repository"),
]
# What a file may claim is at most 4 GiB; whoever asks for more at once is stopped.
MEMORY = "max_allocation_size_mb=4200"


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
