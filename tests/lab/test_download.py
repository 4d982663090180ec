"""Downloads against a local server that breaks off, ignores ranges, lies, stalls or says no."""

import fcntl
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Serving, serving
from test_data import write_cifar_archive
from typer.testing import CliRunner

from sparsepath.cli import app
from sparsepath.errors import BadInput
from sparsepath.lab.data import load
from sparsepath.lab.download import download
from sparsepath.lab.official import SOURCES, Source

CONTENT = random.Random(0).randbytes(1_000_000)
NAME = "images.bin"
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with serving(CONTENT, NAME) as how:
        yield how


def fetch(server: Serving, folder: Path, *, md5: str = MD5, timeout: float = 20, **options) -> None:
    download([Source(server.url, md5)], folder, pause=0, timeout=timeout, **options)


def whole(folder: Path) -> bool:
    """The file is there, right, and all that is there."""
    names = [path.name for path in folder.iterdir()]
    return names == [NAME] and (folder / NAME).read_bytes() == CONTENT


def test_a_file_is_fetched_and_told_of_as_it_comes(server, tmp_path):
    told = []
    fetch(server, tmp_path / "new", seen=lambda *args: told.append(args))
    assert whole(tmp_path / "new")
    assert server.asked == [None]
    assert told[0] == (NAME, 0, len(CONTENT))
    assert told[-1] == (NAME, len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_what_is_there_and_right_is_not_fetched_again(server, tmp_path):
    (tmp_path / NAME).write_bytes(CONTENT)
    told = []
    fetch(server, tmp_path, seen=lambda *args: told.append(args))
    assert server.asked == []
    assert told == [(NAME, len(CONTENT), len(CONTENT))]


def test_what_is_there_and_wrong_is_named_with_both_checksums_and_left_alone(server, tmp_path):
    (tmp_path / NAME).write_bytes(b"mine")
    with pytest.raises(BadInput, match=f"{NAME}.*delete it") as caught:
        fetch(server, tmp_path)
    assert hashlib.md5(b"mine").hexdigest() in str(caught.value)
    assert MD5 in str(caught.value)
    assert (tmp_path / NAME).read_bytes() == b"mine"


def test_a_connection_that_breaks_off_is_taken_up_where_it_broke(server, tmp_path):
    server.breaks = [400_000, 0, 300_000]
    fetch(server, tmp_path)
    assert whole(tmp_path)
    assert server.asked == [None, "bytes=400000-", "bytes=400000-", "bytes=700000-"]


def test_as_long_as_something_comes_it_is_not_given_up(server, tmp_path):
    server.breaks = [100_000] * 9
    fetch(server, tmp_path, attempts=2)
    assert whole(tmp_path)
    assert len(server.asked) == 10


def test_the_next_call_goes_on_from_the_part_that_is_kept(server, tmp_path):
    server.breaks = [400_000]
    with pytest.raises(BadInput, match=r"broke off.*400,000 bytes are kept in .*\.part"):
        fetch(server, tmp_path, attempts=1)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.part"]
    fetch(server, tmp_path)
    assert server.asked[1:] == ["bytes=400000-"]
    assert whole(tmp_path)


def test_a_server_without_ranges_is_asked_for_the_whole(server, tmp_path):
    server.ranges, server.breaks = False, [400_000]
    fetch(server, tmp_path)
    assert whole(tmp_path)


@pytest.mark.parametrize("length", [True, False])
def test_a_page_in_place_of_the_rest_costs_nothing_that_is_here(server, tmp_path, length):
    part = tmp_path / f"{NAME}.part"
    part.write_bytes(CONTENT[:400_000])
    server.page, server.length = b"<html>Log in first" + b"." * 500_000, length
    with pytest.raises(BadInput, match=rf"400,000 bytes that are here.*a page.*{NAME}\.part"):
        fetch(server, tmp_path)
    assert part.read_bytes() == CONTENT[:400_000]
    server.page = None
    fetch(server, tmp_path)
    assert whole(tmp_path)
    assert server.asked == ["bytes=400000-"] * 2


def test_an_answer_shorter_than_what_is_here_costs_nothing(server, tmp_path):
    part = tmp_path / f"{NAME}.part"
    part.write_bytes(CONTENT + b"of another file")
    server.ranges = False
    with pytest.raises(BadInput, match="or delete them to begin anew"):
        fetch(server, tmp_path)
    assert part.read_bytes() == CONTENT + b"of another file"
    assert len(server.asked) == 1, "asking again would not change the answer"


def test_a_server_that_breaks_and_knows_no_ranges_is_given_up_on(server, tmp_path):
    server.ranges, server.breaks = False, [400_000] * 9
    with pytest.raises(BadInput, match="did not come through"):
        fetch(server, tmp_path, attempts=3)
    assert len(server.asked) == 3


def test_a_server_that_sends_less_than_it_is_asked_for_is_asked_for_the_rest(server, tmp_path):
    server.breaks, server.most = [100_000], 300_000
    told = []
    fetch(server, tmp_path, seen=lambda *args: told.append(args))
    assert whole(tmp_path)
    assert server.asked == [None, "bytes=100000-", "bytes=400000-", "bytes=700000-"]
    assert {total for _, _, total in told} == {len(CONTENT)}


def test_what_is_there_and_no_file_is_a_sentence(server, tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(BadInput, match=rf"{NAME}' cannot be read .Is a directory.: move it away"):
        fetch(server, tmp_path)


def test_a_part_that_begins_elsewhere_is_not_appended(server, tmp_path):
    server.breaks, server.shift = [400_000], 7
    fetch(server, tmp_path)
    assert whole(tmp_path)


@pytest.mark.parametrize("extra", [b"", b"too much"])
def test_a_part_that_has_all_or_more_is_finished_or_begun_anew(server, tmp_path, extra):
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT + extra)
    fetch(server, tmp_path)
    assert whole(tmp_path)
    assert len(server.asked) == (2 if extra else 1)


def test_wrong_bytes_are_named_with_both_checksums_and_thrown_away(server, tmp_path):
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(BadInput, match=f"{NAME}.*thrown away") as caught:
        fetch(server, tmp_path)
    assert hashlib.md5(server.content).hexdigest() in str(caught.value)
    assert MD5 in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_file_is_found_out_by_the_checksum(server, tmp_path):
    (tmp_path / f"{NAME}.part").write_bytes(b"another" * 1000)
    with pytest.raises(BadInput, match="thrown away"):
        fetch(server, tmp_path)
    fetch(server, tmp_path)
    assert whole(tmp_path)


def test_an_answer_without_a_length_is_judged_by_its_checksum(server, tmp_path):
    server.length = False
    fetch(server, tmp_path)
    assert whole(tmp_path)


def test_a_file_that_is_not_there_is_not_asked_for_again(server, tmp_path):
    server.status = [404] * 9
    with pytest.raises(BadInput, match=f"{server.url} answered 404 Not Found; fetch {NAME}"):
        fetch(server, tmp_path)
    assert len(server.asked) == 1


def test_a_server_in_trouble_is_asked_again(server, tmp_path):
    server.status = [503, 500]
    fetch(server, tmp_path)
    assert whole(tmp_path)
    server.status = [503] * 9
    with pytest.raises(BadInput, match="answered 503 Service Unavailable"):
        fetch(server, tmp_path / "other", attempts=2)


def test_a_server_that_stalls_is_left_and_asked_for_the_rest(server, tmp_path):
    server.stalls = 1
    fetch(server, tmp_path, timeout=0.5)
    assert whole(tmp_path)
    assert server.asked == [None, "bytes=500000-"]


def test_a_server_that_is_not_there_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    source = Source(f"http://127.0.0.1:9/{NAME}", MD5)
    with pytest.raises(BadInput, match=r"did not come through .*Connection refused"):
        download([source], tmp_path, attempts=2, pause=0)


def test_a_full_disk_is_a_sentence(server, tmp_path):
    (tmp_path / f"{NAME}.part").symlink_to("/dev/full")
    with pytest.raises(BadInput, match=r"cannot be written .No space left on device"):
        fetch(server, tmp_path)
    assert len(server.asked) == 1


LIMITED = """
import resource, signal, sys
from pathlib import Path
from sparsepath.errors import BadInput
from sparsepath.lab.download import download
from sparsepath.lab.official import Source

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, [int(sys.argv[4])] * 2)
try:
    download([Source(sys.argv[1], sys.argv[2])], Path(sys.argv[3]), pause=0)
except BadInput as error:
    print(error)
"""


@pytest.mark.parametrize("room", [600_000, len(CONTENT) - 1])
def test_what_fitted_on_the_disk_is_kept_and_gone_on_from(server, tmp_path, room):
    command = [sys.executable, "-c", LIMITED, server.url, MD5, str(tmp_path), str(room)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"cannot be written (File too large); {room:,} bytes are kept" in said
    fetch(server, tmp_path)
    assert server.asked == [None, f"bytes={room}-"]
    assert whole(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_sentence(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot be written .Not a directory"):
        fetch(server, tmp_path / "file" / "folder")


def test_two_processes_do_not_fetch_into_one_file(server, tmp_path):
    with (tmp_path / f"{NAME}.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="Another process"):
            fetch(server, tmp_path)
    fetch(server, tmp_path)
    assert whole(tmp_path)


@pytest.mark.parametrize("anew", [False, True])
def test_a_part_that_another_process_finishes_meanwhile_is_left_alone(
    server, tmp_path, monkeypatch, anew
):
    part = tmp_path / f"{NAME}.part"
    part.write_bytes(CONTENT)

    def finished_first(*arguments):
        os.rename(part, tmp_path / NAME)
        if anew:
            part.touch()

    monkeypatch.setattr(fcntl, "flock", finished_first)
    with pytest.raises(BadInput, match="Another process"):
        fetch(server, tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert server.asked == []


def test_every_source_has_a_name_and_a_whole_checksum():
    sources = [source for group in SOURCES.values() for source in group]
    assert {source.name for source in sources} == {
        "cifar-10-python.tar.gz",
        "cifar-100-python.tar.gz",
        "train_32x32.mat",
        "test_32x32.mat",
    }
    assert all(len(bytes.fromhex(source.md5)) == 16 for source in sources)


def call(*arguments: str):
    return CliRunner().invoke(app, ["download", *arguments])


def test_a_download_is_what_data_takes(tmp_path, monkeypatch):
    """From a local server, resumed after it broke off, to the first line of a run."""
    monkeypatch.setenv("no_proxy", "*")
    content = write_cifar_archive(tmp_path).read_bytes()
    name = "cifar-10-python.tar.gz"
    with serving(content, name) as server:
        source = Source(server.url, hashlib.md5(content).hexdigest())
        monkeypatch.setattr("sparsepath.lab.official.SOURCES", {"cifar10": (source,)})
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        monkeypatch.chdir(tmp_path)
        server.breaks = [len(content) // 2]
        result = call("cifar10")
        assert result.exit_code == 0, result.output
        assert server.asked == [None, f"bytes={len(content) // 2}-"]
        assert result.stdout.endswith("Checked and complete: use it with --data data/cifar10.\n")
        assert call("cifar10", "--to", "other").exit_code == 0
        server.status = [404]
        assert "answered 404" in call("cifar10", "--to", "third").stderr
    assert (tmp_path / "other" / name).read_bytes() == content
    assert load("data/cifar10").name == "cifar-10"
