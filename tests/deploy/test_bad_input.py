"""Whatever a runtime is given: it works, or one sentence says what is wrong."""

import copy
import pickle

import pytest
import torch
from torch import nn

from sparsepath.deploy import compact, export, load, save
from sparsepath.deploy.running.runtime import compile
from sparsepath.errors import BadInput

from .test_runtime import error, exact, small

IMAGES = torch.randn(2, 3, 16, 16)


class EveryRow(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x):
        return x[:, :, :: self.step]


@pytest.fixture(scope="module")
def runtime():
    return compile(small(), IMAGES, tune=False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((IMAGES.double(),), "must be torch.float32 like the example, not torch.float64"),
        ((IMAGES.half(),), "not torch.float16"),
        ((IMAGES.to("meta"),), "an ordinary tensor on the CPU, not torch.strided on meta"),
        ((IMAGES.to_sparse(),), "not torch.sparse_coo on cpu"),
        ((IMAGES.numpy(),), "must be a torch tensor, not ndarray"),
        (([1, 2],), "must be a torch tensor, not list"),
        ((IMAGES, IMAGES), "compiled for 1 inputs, not 2"),
        ((), "compiled for 1 inputs, not 0"),
        ((IMAGES[:, :2],), r"cannot take inputs of shape \(2, 2, 16, 16\): "),
        ((IMAGES[0, 0],), r"cannot take inputs of shape \(16, 16\): "),
        ((torch.tensor(1.0),), r"cannot take inputs of shape \(\): "),
        ((IMAGES[:, :, :1, :1],), r"cannot take inputs of shape \(2, 3, 1, 1\): "),
    ],
)
def test_a_wrong_input_gets_a_sentence(runtime, given, says):
    with pytest.raises(BadInput, match=says) as caught:
        runtime(*given)
    assert len(str(caught.value).splitlines()) == 1


def test_a_wrong_input_does_no_harm(runtime):
    before = runtime(IMAGES)
    for wrong in (IMAGES[:, :2], IMAGES.double(), IMAGES[:, :, :1]):
        with pytest.raises(BadInput):
            runtime(wrong)
    assert torch.equal(runtime(IMAGES), before)


def test_an_empty_batch_gives_an_empty_result(runtime):
    assert runtime(IMAGES[:0]).shape == (0, 5)


def test_memory_in_any_order_will_do():
    model = small()
    runtime = compile(model, IMAGES, tune=False)
    for images in (
        IMAGES.to(memory_format=torch.channels_last),
        IMAGES.transpose(2, 3),
        torch.randn(4, 3, 32, 32)[::2, :, ::2, 1::2],
        torch.randn(1, 3, 16, 16).expand(5, 3, 16, 16),
    ):
        assert error(runtime(images), exact(model, images)) < 1e-5


@pytest.mark.parametrize(
    ("model", "example", "options", "says"),
    [
        (small().train(), IMAGES, {}, "is in training mode; call its eval()"),
        (print, IMAGES, {}, "takes a torch module, not builtin_function_or_method"),
        (small().to("meta"), IMAGES, {}, "is on meta; call the model's cpu()"),
        (nn.LazyLinear(3).eval(), IMAGES, {}, "'weight' has no values yet"),
        (small(), IMAGES[:0], {}, r"shape \(0, 3, 16, 16\); give it at least one image"),
        (small(), IMAGES[:, :2], {}, r"cannot take inputs of shape \(2, 2, 16, 16\)"),
        (small(), "images", {}, r"several in a tuple, not 'images' \(str\)"),
        (small(), None, {}, r"several in a tuple, not None \(NoneType\)"),
        (small(), (), {}, r"several in a tuple, not \(\) \(tuple\)"),
        (small(), (IMAGES, IMAGES), {}, r"cannot take inputs of shape \(2, 3, 16, 16\), "),
        (small(), IMAGES.long(), {}, r"cannot take inputs of shape"),
        (small(), IMAGES, {"threads": 0}, "threads must be a whole number of at least 1, not 0"),
        (small(), IMAGES, {"threads": -3}, "not -3"),
        (small(), IMAGES, {"threads": 1.5}, "not 1.5"),
        (small(), IMAGES, {"threads": "2"}, "not '2'"),
        (small(), IMAGES, {"threads": True}, "not True"),
        (small(), IMAGES, {"tune": "no"}, "tune must be True or False, not 'no'"),
        (small(), IMAGES, {"strict": 1}, "strict must be True or False, not 1"),
        (small(), IMAGES, {"native_only": None}, "native_only must be True or False, not None"),
        (small(), IMAGES, {"tune": True, "cache": 3}, "by a text or a path, not by 3"),
        (small(), IMAGES, {"tune": True, "cache": b"x"}, "by a text or a path, not by b'x'"),
        (small(), IMAGES, {"tune": True, "cache": "a\0b"}, "holds no zero bytes, as .* does"),
    ],
)
def test_what_cannot_be_compiled_gets_a_sentence(model, example, options, says):
    with pytest.raises(BadInput, match=says) as caught:
        compile(model, example, **{"tune": False, **options})
    assert len(str(caught.value).splitlines()) == 1


def test_what_was_exported_is_sent_back_to_its_model():
    exported = torch.export.export(nn.Sequential(nn.Conv2d(3, 2, 3)).eval(), (IMAGES,)).module()
    with pytest.raises(NotImplementedError):
        exported.eval()
    with pytest.raises(BadInput, match=r"made by torch.export .* give compile\(\) the model that"):
        compile(exported, IMAGES, tune=False)


def test_a_model_of_another_type_runs_in_torch():
    model = small().double()
    runtime = compile(model, IMAGES.double(), tune=False)
    with torch.no_grad():
        torch.testing.assert_close(runtime(IMAGES.double()), model(IMAGES.double()))
    assert {row.method for row in runtime.report().rows if row.op in ("conv", "linear")} == {
        "torch"
    }


def test_weights_that_are_not_finite_run_in_torch():
    model = small()
    with torch.no_grad():
        model[6].weight[0, 0] = torch.inf
    runtime = compile(model, IMAGES, tune=False)
    with torch.no_grad():
        torch.testing.assert_close(runtime(IMAGES), model(IMAGES), equal_nan=True)


def test_a_model_without_weights_and_one_that_does_nothing():
    for model in (nn.Identity(), nn.ReLU(), nn.Flatten()):
        runtime = compile(model.eval(), IMAGES, tune=False)
        assert torch.equal(runtime(IMAGES), model(IMAGES))


def test_images_without_a_batch_will_do():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)).eval()
    runtime = compile(model, IMAGES, tune=False)
    with torch.no_grad():
        torch.testing.assert_close(runtime(IMAGES[0]), model(IMAGES[0]), rtol=1e-4, atol=1e-5)


def test_batch_norm_of_maps_wants_its_axes_though_it_is_folded():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    runtime = compile(model, IMAGES, tune=False)
    with pytest.raises(BadInput, match=r"shape \(3, 16, 16\): batch norm takes 4 axes .* not 3"):
        runtime(IMAGES[0])
    rows = compile(nn.BatchNorm1d(3).eval(), torch.randn(2, 3), tune=False)
    assert rows(torch.randn(2, 3, 5)).shape == (2, 3, 5), "this one takes rows and signals"


def test_a_copy_is_the_runtime_and_a_pickle_gets_a_sentence(runtime):
    assert copy.deepcopy({"it": runtime})["it"] is runtime
    assert copy.copy(runtime) is runtime
    with pytest.raises(BadInput, match="cannot be pickled; save the model"):
        pickle.dumps(runtime)


def test_autocast_changes_nothing():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(14, 5)).eval()  # which torch runs on maps
    with torch.autocast("cpu", dtype=torch.bfloat16):
        runtime = compile(model, IMAGES, tune=False)
        given = runtime(IMAGES)
    torch.testing.assert_close(given, runtime(IMAGES), rtol=0, atol=0)


def test_an_input_changed_in_place_counts_once():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            x.add_(1)
            return self.conv(x)

    model, example = Shifted().eval(), IMAGES.clone()
    runtime = compile(model, example, tune=False)
    assert torch.equal(example, IMAGES)
    with torch.no_grad():
        torch.testing.assert_close(runtime(IMAGES.clone()), model(IMAGES.clone()))


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 4, 3, stride=1000, padding=1)],
        [nn.Conv2d(3, 4, 3, stride=(1, 2**30))],
        [nn.Conv2d(3, 4, 3, stride=2), nn.MaxPool2d(2, stride=2**31 - 1)],
        [nn.Conv2d(3, 4, 3), nn.AvgPool2d(2, stride=2**31 - 1)],
        [nn.Conv2d(3, 4, 3), nn.AvgPool2d(2, stride=300), nn.Conv2d(4, 4, 1)],
        [nn.Conv2d(3, 4, 3), EveryRow(2**33)],
        [nn.Conv2d(3, 4, 3), EveryRow(100), nn.Conv2d(4, 4, 1)],
    ],
    ids=str,
)
def test_a_stride_beyond_the_image_will_do(layers):
    model = nn.Sequential(*layers).eval()
    runtime = compile(model, IMAGES, tune=False)
    for images in (IMAGES[:1], IMAGES, torch.randn(20, 3, 16, 16)):
        with torch.no_grad():
            torch.testing.assert_close(runtime(images), model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: compact(small(), None), "several in a tuple, not None"),
        (lambda: compact(small(), ()), r"several in a tuple, not \(\)"),
        (lambda: compact(small(), "abc"), "several in a tuple, not 'abc'"),
        (lambda: compact(small(), ["abc"]), "must hold tensors of at least one image, not str"),
        (lambda: export(small(), None, "a.onnx"), "several in a tuple, not None"),
        (lambda: export(small(), [3], "a.onnx"), "must hold tensors .* not int"),
        (lambda: export(3, IMAGES, "a.onnx"), "takes a torch module, not int"),
        (lambda: export(small(), IMAGES, 3), "A file is named by a text or a path, not by 3"),
        (lambda: save(small(), 3), "not by 3"),
        (lambda: load(3), "A file is named by a text or a path, not by 3"),
        (lambda: load(None), "not by None"),
    ],
)
def test_arguments_of_another_kind_get_a_sentence(act, says):
    with pytest.raises(BadInput, match=says) as caught:
        act()
    assert len(str(caught.value).splitlines()) == 1
