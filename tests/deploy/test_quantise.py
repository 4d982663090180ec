"""Eight bits: weights as levels in our own file, and whole networks for onnxruntime."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from tracing import untraced

from sparsepath.deploy import int8_onnx, int8_weights, load, save
from sparsepath.deploy.bits.levels import levels_of
from sparsepath.deploy.bits.quantise import _check_zeros, levelled
from sparsepath.deploy.files.manifest import read_manifest
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput

from .cases import network, scrambled


def small():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
    return scrambled(nn.Sequential(*layers))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 6),
    width=st.integers(8, 200),
    zero=st.sampled_from([0.0, 0.5, 0.9]),
    power=st.integers(-30, 30),
    seed=st.integers(0, 999),
)
def test_levels_are_found_again_whatever_the_scale(rows, width, zero, power, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, width, generator=generator) * 2.0**power
    weight[torch.rand(rows, width, generator=generator) < zero] = 0
    made = levelled(weight)
    values = made.values
    assert int(made.levels.abs().max()) <= 127
    assert torch.equal(values == 0, made.levels == 0)
    assert not values[weight == 0].any()
    assert bool(((values - weight).abs() <= 0.5001 * made.scales[:, None]).all())
    found = levels_of(values)
    assert found is not None
    assert torch.equal(found.values, values)
    # Without its largest weights a slice has other levels, and is found all the same.
    fewer = values[:, : width // 2 + 1].contiguous()
    again = levels_of(fewer)
    assert again is not None
    assert torch.equal(again.values, fewer)


def test_what_is_not_quantised_has_no_levels():
    torch.manual_seed(0)
    values = levelled(torch.randn(8, 100)).values
    for spoiled in (torch.nan, torch.inf, float(values[3, 5]) * (1 + 1e-6), 1e-30):
        other = values.clone()
        other[3, 5] = spoiled
        assert levels_of(other) is None
    assert levels_of(values.double()) is None
    assert levels_of(torch.randn(8, 100)) is None
    assert levels_of(torch.tensor(1.0)) is None


@untraced
@pytest.mark.parametrize("name", ["cnn", "resnet-20", "mobilenet-v2"])
def test_int8_weights_take_a_byte_and_come_back(name, tmp_path):
    model = network(name, zero=0.6)
    before = {key: x.clone() for key, x in model.state_dict().items()}
    made = int8_weights(model)
    assert all(torch.equal(x, before[key]) for key, x in model.state_dict().items())
    save(made, tmp_path / "net")
    back, own = load(tmp_path / "net").model.state_dict(), made.state_dict()
    assert all(
        torch.equal(x.flatten().view(torch.int32), own[key].flatten().view(torch.int32))
        for key, x in back.items()
    )
    arrays = read_manifest(tmp_path / "net").arrays
    large = [key for key, entry in arrays.items() if len(entry.shape) > 1 and entry.nbytes > 8192]
    assert len(large) > 3
    for key in large:
        assert arrays[key].code == "levels"
        assert not own[key][before[key] == 0].any()
        slices = (own[key] - before[key]).abs().flatten(1).amax(1)
        assert bool((slices <= before[key].abs().flatten(1).amax(1) * 0.5001 / 127).all())
    sizes = {key: before[key].numel() for key in large}
    stored = (tmp_path / "net").stat().st_size
    assert stored < sum(x.nbytes for x in before.values()) / 4
    assert sum(sizes.values()) > 0
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert not torch.equal(made(images), model(images))


class Called(nn.Module):
    """A transposed convolution by its function, with a weight of the user's own."""

    def __init__(self, layer):
        super().__init__()
        self.kernels, self.groups = nn.Parameter(layer.weight.detach().clone()), layer.groups

    def forward(self, x):
        return nn.functional.conv_transpose2d(x, self.kernels, None, 2, 1, 1, self.groups)


def as_compact(layer):
    return compact(nn.Sequential(layer), torch.randn(1, 12, 5, 5)).model


@pytest.mark.parametrize("groups", [1, 3, 12])
@pytest.mark.parametrize("spelled", [nn.Sequential, Called, as_compact])
def test_a_small_output_channel_of_a_transposed_convolution_stays(groups, spelled, tmp_path):
    torch.manual_seed(0)
    layer = nn.ConvTranspose2d(12, 24, 5, stride=2, padding=1, output_padding=1, groups=groups)
    layer.bias = None
    sizes = 10.0 ** -torch.arange(24.0)[torch.randperm(24)].div(3)  # of each output channel
    each = 24 // groups
    for channel, size in enumerate(sizes):
        part = layer.weight.data.reshape(groups, 12 // groups, each, 25)
        part[channel // each, :, channel % each] *= size
    x = torch.randn(3, 12, 6, 6)
    made = int8_weights(spelled(layer.eval()))
    with torch.no_grad():
        wanted, given = layer(x), made(x)
    errors = (given - wanted).abs().amax((0, 2, 3)) / wanted.abs().amax((0, 2, 3))
    assert float(errors.max()) < 0.02
    save(made, tmp_path / "net")
    (entry,) = read_manifest(tmp_path / "net").arrays.values()
    assert (entry.code, entry.axis) == ("levels", 1)
    assert (tmp_path / "net").stat().st_size < layer.weight.numel() + 4 * 24 + 1200
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "net").model(x), given)


def test_slices_of_zeros_and_of_almost_nothing_are_zero():
    weight = torch.zeros(3, 4)
    weight[1] = 1e-44
    weight[2] = torch.tensor([1.0, -1.0, 0.003, 0.0])
    values = levelled(weight).values
    assert not values[:2].any()
    assert torch.equal(values[2], torch.tensor([127.0, -127.0, 0.0, 0.0]) * torch.tensor(1 / 127))


def onnx_file(path, images):
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: images.numpy()})[0])


@untraced
@pytest.mark.parametrize("name", ["cnn", "resnet-20"])
@pytest.mark.parametrize("small", [False, True])
def test_int8_onnx_runs_and_keeps_zeros(name, small, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = network(name, zero=0.5)
    images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    if small:
        model = compact(model, images[:1]).model
    path = tmp_path / "net.onnx"
    made = int8_onnx(model, [images[:8], images[8:]], path)
    assert made.path == path
    with torch.no_grad():
        wanted = model(images)
    given = onnx_file(path, images)
    assert given.shape == wanted.shape
    assert 0 < made.difference < 0.3
    assert float((given - wanted).abs().max() / wanted.abs().max()) < 0.3
    assert onnx_file(path, images[:3]).shape == wanted[:3].shape
    arrays = {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(path).graph.initializer}
    weights = {key.replace(".weight", ":weight"): x for key, x in model.named_parameters()}
    seen = 0
    for key in (key for key, weight in weights.items() if weight.dim() == 4):
        levels = torch.from_numpy(arrays[f"{key}_quantized"].copy())
        assert levels.dtype == torch.int8
        assert len(arrays[f"{key}_scale"]) == len(levels)
        assert not arrays[f"{key}_zero_point"].any()
        assert not levels[weights[key] == 0].any()
        seen += int((weights[key] == 0).sum())
    assert seen > 1000
    assert path.stat().st_size < sum(x.nbytes for x in model.parameters()) / 2
    with pytest.raises(BadInput, match="exists: choose another name"):
        int8_onnx(model, images, path)
    int8_onnx(model, images, path, force=True)


def test_zeros_that_moved_are_noticed():
    plain = {"w": torch.tensor([[0.0, 1.0], [2.0, 0.0]]).numpy(), "b": torch.ones(2).numpy()}
    levels = torch.tensor([[0, 64], [127, 0]], dtype=torch.int8).numpy()
    point = torch.zeros(2, dtype=torch.int8).numpy()
    _check_zeros(plain, {"w_quantized": levels, "w_zero_point": point})
    _check_zeros(plain, {"w": plain["w"]})
    with pytest.raises(BadInput, match="moved zeros of 'w'"):
        _check_zeros(plain, {"another": plain["w"]})
    with pytest.raises(BadInput, match="moved zeros of 'w'"):
        _check_zeros(plain, {"w_quantized": levels + 1, "w_zero_point": point})
    with pytest.raises(BadInput, match="moved zeros of 'w'"):
        _check_zeros(plain, {"w_quantized": levels, "w_zero_point": point + 1})


IMAGES = torch.zeros(2, 3, 8, 8)


def broken():
    model = small()
    model[3].weight.data[0, 0] = torch.inf
    return model


@pytest.mark.parametrize(
    ("model", "calibration", "says"),
    [
        (small(), [], "at least one image in all, as tensors: 0 batches were given"),
        (small(), IMAGES[:0], "at least one image"),
        (small(), None, "needs batches as tensors, not NoneType"),
        (small(), [IMAGES, IMAGES * torch.nan], "Calibration batch 1 holds numbers that are not"),
        (small(), ["images"], "1 batches were given, 0 of them tensors"),
        (small(), torch.zeros(()), "at least one image"),
        (small(), [IMAGES, IMAGES[:, :2]], r"cannot run calibration images of shape \(2, 8, 8\)"),
        (broken(), IMAGES, "'3.weight' holds numbers that are not finite"),
        (nn.ReLU(), IMAGES, "has no weight of two axes"),
    ],
)
def test_bad_calibration_gets_a_sentence(model, calibration, says, tmp_path):
    with pytest.raises(BadInput, match=says) as caught:
        int8_onnx(model, calibration, tmp_path / "net")
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.ReLU(), "has no weight of two axes"),
        (broken(), "'3.weight' holds numbers that are not finite"),
        (small().double(), r"'0.weight' is torch.float64: .* call float\(\)"),
    ],
)
def test_bad_weights_get_a_sentence(model, says):
    with pytest.raises(BadInput, match=says):
        int8_weights(model)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_what_is_not_installed_is_named(missing, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BadInput, match=r"needs .*: pip install 'sparsepath\[onnx\]'"):
        int8_onnx(small(), IMAGES, tmp_path / "net")
    assert not list(tmp_path.iterdir())
