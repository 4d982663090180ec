"""The C++ program's manners: where it writes, what it says of itself, what it takes and refuses."""

import os

import numpy
import pytest
import torch
from torch import nn

from sparsepath.deploy.files.artifact import save
from sparsepath.deploy.graph.graph import Graph, Node, Value
from sparsepath.deploy.graph.network import GraphNetwork

from .builds import built
from .embedded import NEEDS, answered, refused, run

pytestmark = NEEDS
X = torch.randn(3, 4, 12, 12, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def program():
    return [built("sanitized") / "sparsepath-infer"]


@pytest.fixture
def net(tmp_path):
    torch.manual_seed(0)
    layers = nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 144, 3)
    save(nn.Sequential(*layers).eval(), tmp_path / "net")
    return tmp_path / "net"


@pytest.fixture
def x_file(tmp_path):
    numpy.save(tmp_path / "x.npy", X.numpy())
    return tmp_path / "x.npy"


def test_the_folders_of_a_build_may_have_spaces_in_their_names(program):
    """The builds of the tests have; a build that does not take them fails all tests."""
    assert " " in program[0].parent.name


# ---- where it writes


def test_an_output_that_is_no_regular_file_is_refused(program, net, x_file, tmp_path):
    pipe, dangling, folder = tmp_path / "pipe", tmp_path / "dangling", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    dangling.symlink_to(tmp_path / "nothing")
    for output in (pipe, dangling, folder):
        said = refused(program, net, x_file, output)
        assert said == f"'{output}' is there and is no regular file; choose another output."
    assert pipe.is_fifo()
    assert dangling.is_symlink()


@pytest.mark.parametrize("as_what", ["itself", "symlink", "hard link"])
@pytest.mark.parametrize("which", ["net", "x.npy"])
def test_what_is_read_is_not_written(program, net, x_file, tmp_path, which, as_what):
    read, output = tmp_path / which, tmp_path / "other"
    before = read.read_bytes()
    if as_what == "symlink":
        output.symlink_to(read)
    elif as_what == "hard link":
        output.hardlink_to(read)
    else:
        output = read
    said = refused(program, net, x_file, output)
    assert f"'{output}' is the same file as '{read}'" in said
    assert output.read_bytes() == read.read_bytes() == before


def test_a_symlink_stays_and_its_file_is_written(program, net, x_file, tmp_path):
    (tmp_path / "kept").mkdir()
    target, link = tmp_path / "kept" / "target.npy", tmp_path / "y.npy"
    target.write_bytes(b"before")
    link.symlink_to("kept/target.npy")
    assert run(program, net, x_file, link).returncode == 0
    assert link.is_symlink()
    assert numpy.load(target).shape == (3, 3)


def test_files_beside_the_output_are_left_alone(program, net, x_file, tmp_path):
    # The names that it takes itself, as if another run were writing or had been killed.
    names = ["y.npy.part", ".sparsepath-infer-0.part", ".sparsepath-infer-1.part"]
    for name in names:
        (tmp_path / name).write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}
    for _ in range(2):  # to a new file, and over one
        assert run(program, net, x_file, tmp_path / "y.npy").returncode == 0
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3
    assert {path.name for path in tmp_path.iterdir()} == before | {"y.npy"}


# ---- what it says, takes and refuses


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_it_says_how_it_is_used(program, word):
    given = run(program, word)
    assert given.returncode == 0
    assert given.stdout.startswith("usage: sparsepath-infer NET.sparsepath INPUT.npy")
    assert all(word in given.stdout for word in ("OUTPUT.npy", "--threads", "--repeat"))
    assert not given.stderr


@pytest.mark.parametrize(("takes", "gives"), [(1, 2), (2, 1)])
def test_a_network_of_several_tensors_is_refused(program, x_file, tmp_path, takes, gives):
    inputs = ("x", "z")[:takes]
    node = Node("y", "add", (inputs[0], inputs[-1]))
    output = Value("y") if gives == 1 else (Value("y"), Value("x"))
    save(GraphNetwork(Graph(inputs, (node,), output)), tmp_path / "net")
    said = refused(program, tmp_path / "net", x_file)
    assert f"takes {takes} and gives {gives} tensors, and this program one of each" in said


def test_a_network_that_was_moved_says_so(net):
    given = run([built("sanitized") / "parts"], "moved", net)
    *said, other = given.stdout.splitlines()
    assert len(said) == 4
    assert all("was moved to another one" in sentence for sentence in said)
    assert other == "1 1"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_stays_in_its_image(program, net, number):
    x = X.clone()
    x[1, 2, 5, 5] = number
    given, usual = answered(program, net, x), answered(program, net, X)
    assert torch.equal(given[[0, 2]], usual[[0, 2]])
    assert not given[1].isfinite().any()


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_number_that_is_not_finite_counts_where_a_weight_reads_it(program, tmp_path, kernel):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, kernel)
    layer.weight.data[::2, 2] = 0
    save(nn.Sequential(layer), tmp_path / "net")
    x = X.clone()
    x[1, 2, 5, 5] = float("nan")
    given = answered(program, tmp_path / "net", x)[1]
    assert given[::2].isfinite().all()
    reached = slice(6 - kernel, 6)
    assert given[1::2, reached, reached].isnan().all()
