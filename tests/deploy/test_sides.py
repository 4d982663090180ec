"""Networks side by side: every figure is that of the network, and every runtime has its say."""

import sys

import pytest
import torch
from torch import nn

from sparsepath import metrics
from sparsepath.deploy import save
from sparsepath.deploy.files.opened import of_model, opened
from sparsepath.deploy.measuring import peak
from sparsepath.deploy.measuring.runtimes import NAMES, runtimes
from sparsepath.deploy.measuring.sides import Effort, Side, Subject, macs, random_images, sides
from sparsepath.deploy.measuring.timing import Speed
from sparsepath.errors import BadInput
from sparsepath.lab.models import NETWORKS

from .cases import scrambled

IMAGES = torch.randn(3, 3, 10, 10, generator=torch.Generator().manual_seed(0))
BRIEF = Effort(0.0, ("sparsepath", "torch"), memory=False, tune=False)


def network():
    torch.manual_seed(0)
    model = scrambled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))).eval()
    model[0].weight.data[:6] = 0
    return model


def test_every_runtime_gives_the_same():
    model = network()
    found = runtimes(model, IMAGES, names=("sparsepath", "torch", "onnxruntime"), tune=False)
    with torch.no_grad():
        wanted = model(IMAGES)
    ran = 0
    for run in found.values():
        if not isinstance(run, str):
            torch.testing.assert_close(run(IMAGES), wanted, rtol=1e-4, atol=1e-5)
            ran += 1
    assert ran >= 2


def test_a_runtime_that_is_not_here_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert runtimes(network(), IMAGES, names=("onnxruntime",)) == {
        "onnxruntime": "no onnxruntime here"
    }


def test_without_a_compiler_torch_compile_says_so(monkeypatch):
    from torch._inductor.exc import InvalidCxxCompiler

    def broken(model, **_):
        def run(images):
            raise InvalidCxxCompiler

        return run

    monkeypatch.setattr(torch, "compile", broken)
    assert runtimes(network(), IMAGES, names=("torch.compile",)) == {
        "torch.compile": "no C++ compiler"
    }


def test_what_a_side_is_made_of():
    model = network()
    found = sides({"net": Subject(of_model(model), 123)}, IMAGES, (1, 4), BRIEF)["net"]
    assert found.weights == sum(int((p != 0).sum()) for p in model.parameters())
    assert found.macs == metrics.macs(model, IMAGES[:1]).sparse
    assert found.bytes == 123
    assert found.peak is None
    assert list(found.speeds) == [1, 4]
    for batch, speeds in found.speeds.items():
        assert list(speeds) == ["sparsepath", "torch"]
        for speed in speeds.values():
            assert speed.batch == batch
            assert 0 < speed.p50 <= speed.p95


@pytest.mark.parametrize("name", NETWORKS)
def test_macs_are_those_of_the_metrics(name):
    model = NETWORKS[name](10, 3).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight[torch.rand(weight.shape) < 0.5] = 0
    image = torch.randn(1, 3, 32, 32)
    assert macs(model, image) == metrics.macs(model, image).sparse


def test_the_fastest_is_the_one_with_the_least_seconds():
    speeds = {"a": Speed(1, 0.3, 0.3), "b": Speed(1, 0.2, 0.9), "c": "not here"}
    assert Side(1, 1, 1, {1: speeds}, None).fastest(1) == ("b", speeds["b"])
    assert Side(1, 1, 1, {1: {"c": "not here"}}, None).fastest(1) is None


def test_a_runtime_that_fails_on_the_images_is_a_word_and_if_all_do_a_sentence():
    subject = Subject(of_model(network()), 1)

    def broken(images, **_):
        def run(images):
            raise RuntimeError("no")

        return {"torch": run}

    bad = Subject(type(subject.opened)(None, None, {}, broken), 1)
    found = sides({"good": subject, "bad": bad}, IMAGES, (1,), BRIEF)
    assert found["bad"].speeds[1] == {"torch": "fails (RuntimeError)"}
    assert isinstance(found["good"].speeds[1]["torch"], Speed)
    with pytest.raises(BadInput, match=r"No runtime can take images of shape \(1, 3, 10, 10\)"):
        sides({"bad": bad}, IMAGES, (1,), BRIEF)


@pytest.mark.skipif(not peak.REFS.exists(), reason="the system gives no account of memory")
def test_peak_memory_is_that_of_the_network_and_its_batch(tmp_path):
    wide = nn.Sequential(nn.Conv2d(1, 256, 1), nn.ReLU()).eval()
    save(wide, tmp_path / "net")
    order = peak.Order(str(tmp_path / "net"), "torch", (1, 64, 64), (1, 32), tune=False)
    found = peak.peaks(order)
    assert found is not None
    output = 256 * 64 * 64 * 4
    slack = 40e6  # less than torch by itself takes
    assert 32 * output < found[32] < 2 * 32 * output + slack
    assert output < found[1] < 2 * output + slack


def test_peak_memory_of_what_cannot_run_is_unknown(tmp_path):
    (tmp_path / "net").write_text("hello")
    assert peak.peaks(peak.Order(str(tmp_path / "net"), "torch", (1, 8, 8), (1,))) is None


@pytest.mark.parametrize(
    ("shape", "figures", "says"),
    [
        (None, {}, "does not say what images it takes: give --shape, as in 3,32,32"),
        ("3,x", {}, "'3,x' is no shape of an image"),
        ("3,0,4", {}, "'3,0,4' is no shape"),
        (None, {"image_shape": 7}, "7 is no shape"),
        (None, {"image_shape": [1 << 20, 1 << 20]}, "is no shape"),
    ],
)
def test_shapes_that_are_none_are_refused(shape, figures, says, tmp_path):
    with pytest.raises(BadInput, match=says):
        random_images(shape, figures, tmp_path / "net")


def test_images_have_the_shape_given_or_else_that_of_the_file(tmp_path):
    figures = {"image_shape": [3, 5, 6]}
    assert random_images(None, figures, tmp_path).shape == (2, 3, 5, 6)
    assert random_images("1,2,3", figures, tmp_path).shape == (2, 1, 2, 3)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08\x07" * 40])
def test_a_foreign_onnx_file_is_refused(content, tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(BadInput, match="is no ONNX model that runs here"):
        opened(tmp_path / "net.onnx")


def test_other_files_and_folders_are_refused(tmp_path):
    with pytest.raises(BadInput, match="is a folder"):
        opened(tmp_path)
    with pytest.raises(BadInput, match="There is no file"):
        opened(tmp_path / "missing.onnx")
    (tmp_path / "net").write_text("hello")
    with pytest.raises(BadInput, match="cannot be read as safetensors"):
        opened(tmp_path / "net")


def test_threads_and_batches_are_counts():
    with pytest.raises(BadInput, match="threads must be a whole number of at least 1, not 0"):
        Effort(threads=0)
    with pytest.raises(BadInput, match="batch must be a whole number of at least 1, not 0"):
        sides({"net": Subject(of_model(network()), 1)}, IMAGES, (0,), BRIEF)


def test_torch_has_as_many_threads_as_before_afterwards():
    before = torch.get_num_threads()
    effort = Effort(0.0, NAMES[1:2], memory=False, threads=before + 1)
    sides({"net": Subject(of_model(network()), 1)}, IMAGES, (1,), effort)
    assert torch.get_num_threads() == before


def test_a_runtime_that_cannot_be_made_is_a_word():
    def runs(images, *, names, **_):
        if "sparsepath" in names:
            raise ZeroDivisionError
        return dict.fromkeys(names, lambda images: images)

    subject = Subject(type(of_model(network()))(None, None, {}, runs), 1)
    found = sides({"net": subject}, IMAGES, (1,), BRIEF)["net"].speeds[1]
    assert found["sparsepath"] == "fails (ZeroDivisionError)"
    assert isinstance(found["torch"], Speed)
