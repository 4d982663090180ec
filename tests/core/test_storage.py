"""Files are whole or absent; numbers are checked with a sentence."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from sparsepath.errors import BadInput, checked_count, checked_number
from sparsepath.storage import (
    read_json,
    read_tensors,
    write_atomically,
    write_json,
    write_tensors,
    write_text,
)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_text(path, "old")

    def torn(neighbour: Path) -> None:
        neighbour.write_text("half")
        raise OSError("disk full")

    with pytest.raises(BadInput, match=r"deep/file. cannot be written .disk full."):
        write_atomically(path, torn)
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def watched(neighbour: Path) -> None:
        neighbour.write_text("new")
        assert path.read_text() == "old"

    write_atomically(path, watched)
    assert path.read_text() == "new"


def test_a_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "text")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_json_goes_round(tmp_path: Path) -> None:
    content = {"b": [1, 2.5], "a": {"ä": None}}
    write_json(tmp_path / "file", content)
    assert read_json(tmp_path / "file") == content
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file", {"x": float("nan")})
    assert read_json(tmp_path / "file") == content


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "cannot be read as JSON"), ("[1]", "should hold a JSON object, not list")],
)
def test_a_damaged_json_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(BadInput, match=rf"broken.json' {sentence}"):
        read_json(tmp_path / "broken.json")
    with pytest.raises(BadInput, match="cannot be read as JSON"):
        read_json(tmp_path / "none.json")


def test_tensors_go_round(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    tensors = {
        "whole": base,
        "same memory": base,
        "transposed": base.T,
        "half": base.bfloat16(),
        "last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "empty": torch.empty(0, 3),
    }
    write_tensors(tmp_path / "file", tensors, {"header": "text"})
    found, header = read_tensors(tmp_path / "file")
    assert header == {"header": "text"}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(3), Fraction(1, 2)])
def test_any_kind_of_real_number_is_taken(value: float) -> None:
    assert checked_number("x", value) == float(value)


@pytest.mark.parametrize("value", [True, "1", None, 1j, torch.tensor(1.0)])
def test_what_is_no_number_is_quoted_with_its_type(value: object) -> None:
    with pytest.raises(BadInput, match=rf"x must be a number .*\({type(value).__name__}\)\.$"):
        checked_number("x", value)


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_number_out_of_range_is_quoted(value: float) -> None:
    with pytest.raises(BadInput, match="x must be a finite number above zero, not"):
        checked_number("x", value)


def test_zero_is_taken_where_it_may_be() -> None:
    assert checked_number("x", 0, zero=True) == 0.0
    assert checked_count("n", 0, least=0) == 0
    with pytest.raises(BadInput, match="n must be a whole number of at least 1, not 0"):
        checked_count("n", 0)


FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from sparsepath.errors import BadInput
from sparsepath.storage import write_json, write_tensors

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, [5000] * 2)
folder = Path(sys.argv[1])
for write in (
    lambda: write_json(folder / "walk.json", {"figures": "1" * 9000}),
    lambda: write_tensors(folder / "walk.safetensors", {"W": torch.zeros(9000)}, {}),
):
    try:
        write()
    except BadInput as error:
        print(error)
"""


def test_a_disk_that_fills_is_a_sentence_and_keeps_what_was_there(tmp_path: Path) -> None:
    names = ["walk.json", "walk.safetensors"]
    for name in names:
        (tmp_path / name).write_text("before")
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for name, sentence in zip(names, said, strict=True):
        assert f"{name}' cannot be written (" in sentence
        assert "File too large" in sentence
        assert (tmp_path / name).read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("content", [b"", b"\x10\x00", b"A page of words, and no tensors\n"])
def test_a_file_of_another_kind_is_told_as_such(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(
        BadInput, match=r"file. cannot be read .*: it is empty, cut off or a file of"
    ):
        read_tensors(path)


def test_a_file_that_is_not_there_is_of_no_kind(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_tensors(tmp_path / "header too" / "net")
