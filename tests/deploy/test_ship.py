"""Networks to files and back: every format, and what cannot be written."""

import errno

import pytest
import torch
from torch import nn

from sparsepath.deploy.files import artifact, contents
from sparsepath.deploy.files.opened import living, opened
from sparsepath.deploy.measuring.sides import macs
from sparsepath.deploy.ship import ENDINGS, Form, difference, ship
from sparsepath.errors import BadInput
from sparsepath.storage import read_tensors

from .cases import scrambled

IMAGES = torch.randn(4, 3, 10, 10, generator=torch.Generator().manual_seed(0))
FIGURES = {"point": 2, "validation": 0.5, "image_shape": [3, 10, 10]}


def sparse():
    torch.manual_seed(0)
    model = scrambled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3)))
    model[0].weight.data[:6] = 0
    return model.eval()


@pytest.mark.parametrize("kind", ENDINGS)
def test_the_file_has_the_models_function_and_is_smaller(kind, tmp_path):
    if kind == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    model = sparse()
    made = ship(model, IMAGES, tmp_path / f"net{ENDINGS[kind]}", form=Form(kind), figures=FIGURES)
    (name, run), *_ = made.opened.runs(IMAGES, names=["torch"], tune=False).items()
    assert name == {"onnx": "onnxruntime"}.get(kind, "torch")
    with torch.no_grad():
        assert difference(model, run, IMAGES) < 1e-5
    if kind != "state-dict":
        assert made.opened.weights < living(model)  # biases of dead channels are folded
        assert living(made.opened.model) <= made.opened.weights
    if kind in ("artifact", "onnx"):
        counted = {"macs": macs(made.opened.model, IMAGES[:1])}
        assert opened(made.path).figures == {**FIGURES, **counted}


def test_a_state_dict_keeps_the_shapes_of_the_networks_own_class(tmp_path):
    model = sparse()
    made = ship(model, IMAGES, tmp_path / "net", form=Form("state-dict"))
    sparse().load_state_dict(read_tensors(made.path)[0])
    assert "its own class takes them" in made.notes[0]


class Undecided(nn.Module):
    """Its way depends on its input, which no trace can follow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


class InRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.layer(x).view(x.size(0), -1)


def test_what_cannot_be_traced_is_written_as_it_is_and_it_says_why(tmp_path):
    model = Undecided().eval()
    made = ship(model, IMAGES, tmp_path / "net.safetensors", form=Form("state-dict"))
    assert torch.equal(read_tensors(made.path)[0]["layer.weight"], model.layer.weight)
    with pytest.raises(BadInput, match=r"test_ship\.py, line \d+.*factory="):
        ship(model, IMAGES, tmp_path / "net")
    assert not (tmp_path / "net").exists()
    assert model(IMAGES).shape == (4, 3, 10, 3)


def test_what_cannot_be_made_smaller_is_written_as_it_is_and_it_says_why(tmp_path, monkeypatch):
    def refused(*_):
        raise BadInput("it amplifies its rounding")

    monkeypatch.setattr("sparsepath.deploy.ship.compact", refused)
    model = sparse()
    made = ship(model, IMAGES, tmp_path / "net")
    assert made.notes == ("The network is written as it is: it amplifies its rounding",)
    assert made.opened.weights == living(model)
    ship(InRows(), IMAGES, tmp_path / "rows")  # whose axes only the example tells


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (("tflite",), "no format 'tflite'; choose one of artifact, onnx, pt2, state-dict"),
        (("artifact", True, 4), "--int8 and --share 4 are two ways to store a weight: choose one"),
        (("pt2", True), "pt2 holds no int8 weights: choose --format artifact or onnx"),
        (("state-dict", True), "state-dict holds no int8 weights"),
        (("artifact", False, 0), "--share takes 1 to 8 bits a weight, not 0"),
        (("artifact", False, 9), "--share takes 1 to 8 bits a weight, not 9"),
    ],
)
def test_forms_that_no_file_can_have_are_refused(form, says):
    with pytest.raises(BadInput, match=says):
        Form(*form)


def test_endings_tell_the_forms_apart():
    forms = [Form(kind) for kind in ENDINGS] + [Form(int8=True), Form(share=4), Form(share=5)]
    assert len({form.ending for form in forms}) == len(forms)
    assert Form("onnx", int8=True).ending == "-int8.onnx"


@pytest.mark.parametrize("kind", ENDINGS)
def test_a_file_that_is_there_stays(kind, tmp_path):
    (tmp_path / "net").write_text("precious")
    with pytest.raises(BadInput, match="exists: choose another name, or force=True"):
        ship(sparse(), IMAGES, tmp_path / "net", form=Form(kind))
    assert (tmp_path / "net").read_text() == "precious"


@pytest.mark.parametrize("kind", ENDINGS)
def test_a_full_disk_leaves_no_half_file(kind, tmp_path, monkeypatch):
    if kind == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")

    def full(path, write):
        path.write_bytes(b"half")
        path.unlink()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sparsepath.storage.os.fsync", lambda _: full(tmp_path / "half", None))
    with pytest.raises(BadInput, match=r"cannot be written .*No space left.*make room"):
        ship(sparse(), IMAGES, tmp_path / "net", form=Form(kind))
    assert list(tmp_path.iterdir()) == []


def test_the_notes_of_compacting_are_kept(tmp_path):
    model = sparse()
    model[0].weight.data.zero_()
    made = ship(model, IMAGES, tmp_path / "net")
    assert made.notes == ("0 was pruned to nothing: 1 zero channel(s) stay.",)


def test_difference_is_relative_to_the_largest_output():
    assert difference(lambda x: x, lambda x: x + 1, torch.tensor([4.0, -8.0])) == 1 / 8
    assert difference(lambda x: 0 * x, lambda x: x, torch.tensor([4.0])) == 4


def test_inspect_shows_the_figures_of_a_shipped_file(tmp_path):
    made = ship(sparse(), IMAGES, tmp_path / "net", figures=FIGURES)
    assert "validation: 0.5" in contents.contents(made.path)
    assert artifact.load(made.path).figures.items() >= FIGURES.items()
