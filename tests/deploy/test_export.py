"""Exported files are run, not only written: the same numbers, at any size of batch."""

import math

import pytest
import torch
from torch import nn

from sparsepath.deploy.bits.quantise import int8_onnx
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.export import export
from sparsepath.deploy.graph.apart import difference
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput
from sparsepath.storage import read_tensors

from .cases import scrambled
from .test_compact import NAMES, pruned

IMAGES = torch.randn(2, 3, 32, 32)


@pytest.fixture(scope="module", params=["cnn", "low-rank-nin", "resnet-20", "u-net"])
def model(request):
    torch.manual_seed(0)
    return pruned(NAMES[request.param](10, 3), share=0.3)


def onnx_run(path, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        path.read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: images.numpy()})[0])


def close(given, wanted):
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_onnx_gives_the_same_at_any_batch(model, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    for net in (model, compact(model, IMAGES).model):
        made = export(net, IMAGES, tmp_path / "net.onnx", force=True)
        assert made.difference <= 1e-4
        for batch in (1, 5):
            images = torch.randn(batch, 3, 32, 32)
            with torch.no_grad():
                close(onnx_run(made.path, images), model(images))


@pytest.mark.parametrize("pool", [nn.AdaptiveMaxPool2d(3), nn.AdaptiveAvgPool2d((3, None))])
def test_an_adaptive_pool_is_written_for_the_size_of_the_example(pool, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = scrambled(nn.Sequential(nn.Conv2d(3, 4, 3), pool, nn.Conv2d(4, 2, 1)))
    images = torch.randn(2, 3, 9, 9)  # its windows are 3 wide, 2 apart
    made = export(model, images, tmp_path / "net.onnx")
    for batch in (1, 5):
        images = torch.randn(batch, 3, 9, 9)
        close(onnx_run(made.path, images), model(images).detach())
    with pytest.raises(Exception, match="Got: 13 Expected: 9"):
        onnx_run(made.path, torch.randn(1, 3, 13, 13))


def test_an_adaptive_pool_of_uneven_windows_is_not_written(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(3))
    with pytest.raises(BadInput, match="'1' pools to another size than 1: install onnxscript"):
        export(model, torch.randn(2, 3, 10, 10), tmp_path / "net.onnx")


CUT_OFF = nn.Softplus(threshold=1)  # ONNX has no such thing


def test_dynamo_serves_what_our_writer_does_not_know(tmp_path):
    pytest.importorskip("onnxscript")
    model = scrambled(nn.Sequential(nn.Conv2d(3, 4, 3), CUT_OFF, nn.Conv2d(4, 2, 3)))
    made = export(compact(model, IMAGES).model, IMAGES, tmp_path / "net.onnx")
    images = torch.randn(3, 3, 32, 32)
    close(onnx_run(made.path, images), model(images).detach())


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.GELU(), nn.GroupNorm(2, 8), nn.PReLU(8)])
@pytest.mark.parametrize("smaller", [False, True])
def test_activations_and_norms_run(layer, smaller, tmp_path, caplog):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), layer, nn.Conv2d(8, 2, 3)).eval()
    net = compact(model, IMAGES).model if smaller else model
    made = export(net, IMAGES, tmp_path / "net.onnx")
    images = torch.randn(3, 3, 32, 32)
    close(onnx_run(made.path, images), model(images).detach())
    assert not [entry for entry in caplog.records if entry.levelname == "WARNING"]


class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x) if x.sum() > 0 else self.conv(-x)


@pytest.mark.parametrize("write", [export, int8_onnx])
@pytest.mark.parametrize("script", [False, True])
def test_the_line_that_cannot_be_traced_is_named(write, script, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    if script:
        pytest.importorskip("onnxscript")
    else:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = Deciding.forward.__code__.co_firstlineno + 1
    says = rf"'model', since it cannot be traced \(test_export.py, line {line}\).* no translation"
    with pytest.raises(BadInput, match=says) as caught:
        write(Deciding(), IMAGES, tmp_path / "net.onnx")
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_without_onnxscript_it_is_told(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="is cut off early: install onnxscript"):
        export(CUT_OFF, IMAGES, tmp_path / "net.onnx")


def test_without_onnxruntime_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(BadInput, match=r"needs onnxruntime: pip install 'sparsepath\[onnx\]'"):
        export(nn.ReLU(), IMAGES, tmp_path / "net.onnx")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_pt2_gives_the_same_at_any_batch(tmp_path):
    model = pruned(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)))
    for net in (model, compact(model, IMAGES).model):
        made = export(net, IMAGES[:1], tmp_path / "net.pt2", format="pt2", force=True)
        program = torch.export.load(made.path)
        for batch in (1, 5):
            images = torch.randn(batch, 3, 32, 32)
            with torch.no_grad():
                close(program.module()(images), model(images))


def test_a_state_dict_is_a_plain_file_of_weights(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    made = export(model, IMAGES, tmp_path / "net", format="state-dict")
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    other.load_state_dict(read_tensors(made.path)[0])
    assert torch.equal(other.eval()(IMAGES), model.eval()(IMAGES))
    assert f"state-dict, {made.path.stat().st_size:,} bytes" in str(made)


@pytest.mark.parametrize(
    ("name", "format"), [("net.pt2", "pt2"), ("net.safetensors", "state-dict"), ("a.PT2", "pt2")]
)
def test_the_suffix_tells_the_format(name, format, tmp_path):
    model = nn.Conv2d(3, 4, 3)
    made = export(model, IMAGES, tmp_path / name)
    assert made.format == format
    if format == "pt2":
        with torch.no_grad():
            close(torch.export.load(made.path).module()(IMAGES), model(IMAGES))
    else:
        assert set(read_tensors(made.path)[0]) == {"weight", "bias"}


class Restless(nn.Module):
    def forward(self, x):
        return x + torch.rand(())


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (nn.ReLU(), {"format": "tflite"}, "no format 'tflite'; choose one of onnx, pt2, state"),
        (nn.ReLU(), {}, "'net' does not tell its format: end it in .onnx, .pt2, .safetensors, or"),
        (nn.ReLU(), {"path": "net.sparsepath"}, "'net.sparsepath' does not tell its format"),
        (nn.ReLU(), {"path": "a.onnx", "format": "pt2"}, "'a.onnx' is named as onnx and format"),
        (nn.ReLU(), {"path": "a.pt2", "format": "state-dict"}, "is named as pt2 and format says"),
        (Restless(), {"format": "state-dict"}, "nothing was written"),
        (nn.ReLU(), {"format": "state-dict", "path": "old"}, "exists: choose another name"),
    ],
)
def test_bad_input_gets_a_sentence(model, options, says, tmp_path):
    (tmp_path / "old").write_text("precious")
    path = tmp_path / options.pop("path", "net")
    with pytest.raises(BadInput, match=says):
        export(model, IMAGES, path, **options)
    assert [x.read_text() for x in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3)),
        (nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
        (nn.Flatten(), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 2)),
    ],
)
@pytest.mark.parametrize("scramble", [False, True])
def test_batch_norm_of_rows_keeps_their_shape(layers, scramble, tmp_path):
    pytest.importorskip("onnxruntime")
    model = nn.Sequential(*layers).eval()
    model = scrambled(model) if scramble else model
    made = export(model, torch.randn(2, 6), tmp_path / "net.onnx")
    for batch in (1, 5):
        rows = torch.randn(batch, 6)
        with torch.no_grad():
            wanted = model(rows)
        given = onnx_run(made.path, rows)
        assert given.shape == wanted.shape
        close(given, wanted)


def test_results_of_other_shapes_or_not_finite_are_apart():
    row = torch.ones(3)
    assert difference(row, row) == (0, 1)
    assert difference(row, row.expand(2, 3))[0] == math.inf
    assert difference(row, (row, row))[0] == math.inf
    assert math.isnan(difference((row, row), (row, row * math.nan))[0])


def test_a_single_image_without_a_batch_is_refused():
    onnx_graph = pytest.importorskip("sparsepath.deploy.files.onnx_graph")
    for layer in (nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)):
        graph = capture(nn.Sequential(layer).eval())
        with pytest.raises(onnx_graph.Inexpressible, match="single image"):
            onnx_graph.onnx_for(graph, [torch.randn(3, 8, 8)])


class Told(nn.Module):
    """A model whose output depends on the size of its batch, which an export fixes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return self.conv(x) / len(x)


PADDED = [
    ((1, 0, 2, 1), nn.AvgPool2d(3, 2, 1)),
    ((2, 2, 2, 2), nn.AvgPool2d(2)),
    ((1, 1, 1, 1), nn.MaxPool2d(3, 2)),
    ((2, 2, 2, 2), nn.MaxPool2d(2)),
    ((0, 3), nn.MaxPool2d(2)),
    ((1, 2, 0, 3, 2, 0), nn.MaxPool2d(2)),
    ((1, 2, 3, 4), nn.Conv2d(4, 2, 3)),
]


@pytest.mark.parametrize(("room", "behind"), PADDED, ids=str)
@pytest.mark.parametrize("value", [0.0, -3.5])
def test_a_pad_is_written_for_as_many_axes_as_it_has(room, behind, value, tmp_path):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.behind = nn.Conv2d(3, 4, 1), behind
            nn.init.constant_(self.conv.bias, -5.0)  # a pool that pads by nothing would be seen

        def forward(self, x):
            return self.behind(nn.functional.pad(self.conv(x), room, value=value))

    padded, images = Padded().eval(), torch.randn(2, 3, 14, 14)
    export(padded, images, tmp_path / "net.onnx")
    again = torch.randn(5, 3, 10, 12)  # our own writer leaves all lengths open
    close(onnx_run(tmp_path / "net.onnx", again), padded(again).detach())


def test_a_batch_that_the_file_cannot_take_gets_a_sentence(tmp_path):
    with pytest.raises(BadInput, match=r"exported file cannot be run on a batch of 5: .* written"):
        export(Told().eval(), torch.randn(4, 3, 6, 6), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_what_onnxruntime_refuses_gets_a_sentence(tmp_path, monkeypatch):
    def refuse(content):
        raise RuntimeError("Fail: a pad\nand more")

    monkeypatch.setattr("sparsepath.deploy.files.export.session", refuse)
    with pytest.raises(BadInput, match=r"^onnxruntime refuses the exported model: Fail: a pad\.$"):
        export(nn.Conv2d(3, 4, 1).eval(), torch.randn(1, 3, 4, 4), tmp_path / "net.onnx")


def test_whole_numbers_go_in_by_torchs_exporter(tmp_path):
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)).eval()
    tokens = torch.randint(10, (2, 5))
    export(model, tokens, tmp_path / "net.onnx")
    close(onnx_run(tmp_path / "net.onnx", tokens), model(tokens).detach())


def test_yes_and_no_can_be_apart():
    yes, no = torch.tensor([True, True]), torch.tensor([True, False])
    assert difference(yes, yes) == (0.0, 1.0)
    assert difference(yes, no) == (1.0, 1.0)
    assert difference(no, yes) == (1.0, 1.0)


def test_a_model_that_says_yes_or_no_is_made_small():
    class Sign(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            return self.conv(x) > 0

    images = torch.randn(2, 3, 6, 6)
    model = Sign().eval()
    assert torch.equal(compact(model, images).model(images), model(images))


def test_a_compiled_model_is_exported_as_itself(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1)).eval()
    images = torch.randn(1, 3, 4, 4)
    export(torch.compile(model, backend="eager"), images, tmp_path / "net.safetensors")
    assert set(read_tensors(tmp_path / "net.safetensors")[0]) == {"0.weight", "0.bias"}
    small = compact(torch.compile(model, backend="eager"), images).model
    assert torch.equal(small(images), model(images))
