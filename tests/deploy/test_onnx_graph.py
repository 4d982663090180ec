"""Our own writer of ONNX against torch: every operation, at the example's size and at others."""

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.export import export
from sparsepath.deploy.graph.operations import OPERATIONS

from .test_capture import Model, conv, unknown

onnx_graph = pytest.importorskip("sparsepath.deploy.files.onnx_graph")
onnxruntime = pytest.importorskip("onnxruntime")

FLEXIBLE = {
    "relu": lambda x: x.relu(),
    "relu6": lambda x: functional.relu6(x * 4),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.3),
    "elu": lambda x: functional.elu(x, 0.7),
    "selu": lambda x: functional.selu(x),
    "silu": lambda x: functional.silu(x),
    "mish": lambda x: functional.mish(x),
    "gelu": lambda x: functional.gelu(x),
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "hardswish": lambda x: functional.hardswish(x * 4),
    "hardsigmoid": lambda x: functional.hardsigmoid(x * 4),
    "hardtanh": lambda x: functional.hardtanh(x, -0.3, 0.2),
    "softplus": lambda x: functional.softplus(x * 30),
    "steep softplus": lambda x: functional.softplus(x, beta=3),
    "clamp": lambda x: x.clamp(-0.2, 0.3),
    "clamp below": lambda x: x.clamp(min=-0.2),
    "clamp above": lambda x: x.clamp(max=0.1),
    "abs": lambda x: x.abs(),
    "neg": lambda x: -x,
    "exp": lambda x: x.exp(),
    "sqrt": lambda x: x.abs().sqrt(),
    "arithmetic": lambda x: (1 - x) * 3 / (x.exp() + 2) - 0.5 / (x.abs() + 1),
    "two": lambda x: (x - x.relu()) * x.sigmoid() / (x.abs() + 1),
    "weighted": lambda x: x * torch.arange(4.0).view(4, 1, 1),
    "flatten": lambda x: x.flatten(1),
    "flatten some": lambda x: x.flatten(1, 2),
    "flatten last": lambda x: x.flatten(-2),
    "unflatten": lambda x: x.unflatten(1, (2, -1)),
    "unflatten last": lambda x: x.permute(0, 2, 3, 1).unflatten(-1, (-1, 2)),
    "reshape": lambda x: x.view(x.size(0), 2, -1),
    "transpose": lambda x: x.transpose(1, -1),
    "permute": lambda x: x.permute(0, -1, 1, 2),
    "shuffle": lambda x: functional.channel_shuffle(x, 2),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "index": lambda x: x[:, 1:-1, ::2, :-2],
    "cat": lambda x: torch.cat((x, x[:, :1]), 1),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1), value=0.5),
    "mean": lambda x: x.mean((2, 3)),
    "sum": lambda x: x.sum((1, -1), keepdim=True),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin((2, 3), keepdim=True),
    "pow": lambda x: x.abs() ** 1.5 + x.square() + x.pow(3),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "twice as large": lambda x: functional.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: functional.interpolate(x, scale_factor=1.75, mode="bilinear"),
    "bilinear, corners": lambda x: functional.interpolate(
        x, scale_factor=(2.5, 0.625), mode="bilinear", align_corners=True
    ),
    "bicubic": lambda x: functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "to a size": lambda x: functional.interpolate(x, (5, 13), mode="bilinear"),
    "to one pixel": lambda x: functional.interpolate(x, (1, 1), mode="bilinear"),
    "to a size, corners": lambda x: functional.interpolate(
        x, (5, 13), mode="bilinear", align_corners=True
    ),
    "as another": lambda x: functional.interpolate(
        functional.avg_pool2d(x, 2), size=x.shape[2:], mode="bilinear", align_corners=False
    ),
    "norm": nn.LayerNorm([10]),
    "norm of several": nn.LayerNorm([9, 10]),
    "norm without weights": nn.LayerNorm([9, 10], elementwise_affine=False, eps=0.1),
    "groups": nn.GroupNorm(2, 4),
    "groups without weights": nn.GroupNorm(4, 4, affine=False, eps=0.1),
    "prelu": nn.PReLU(4),
    "one slope": nn.PReLU(),
    "batch norm": nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4), nn.ReLU()),
    "bare batch norm": nn.BatchNorm2d(4, affine=False),
    "dropout": nn.Sequential(nn.Dropout(0.3), nn.ReLU()),
}
FIXED = {
    "by a factor that float32 rounds": lambda x: functional.interpolate(
        x, scale_factor=(1.7, 0.6), mode="bilinear"
    ),
    "nearest": lambda x: functional.interpolate(x, scale_factor=1.7),
    "nearest anew": lambda x: functional.interpolate(
        x, scale_factor=1.7, recompute_scale_factor=True
    ),
    "nearest to a size": lambda x: functional.interpolate(x, (5, 13)),
    "nearest as another": lambda x: functional.interpolate(x[:, :, ::3, ::4], size=x.shape[2:]),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, (3, 5)),
}


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def answers(content, x):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


def prepared(function):
    """A convolution, so that its kind of node is there, and whatever comes behind."""
    behind = function if isinstance(function, nn.Module) else None
    model = Model(
        (lambda m, x: m.behind(m.a(x))) if behind else (lambda m, x: function(m.a(x))),
        **{"a": conv(3, 4), **({"behind": behind} if behind else {})},
    ).eval()
    with torch.no_grad():
        for each in (*model.parameters(), *model.buffers()):
            if each.is_floating_point() and each.dim() == 1:
                each.add_(torch.rand(each.shape))
    return model


@pytest.mark.parametrize("name", [*FLEXIBLE, *FIXED])
@torch.no_grad()
def test_onnxruntime_gives_what_torch_gives(name):
    model = prepared({**FLEXIBLE, **FIXED}[name])
    x = images(2, 3, 9, 10)
    graph = capture(model, example=[x])
    assert not unknown(graph)
    content = onnx_graph.onnx_for(graph, [x])
    sides = [(9, 10)] if name in FIXED or "norm" in name else [(9, 10), (12, 10), (6, 14)]
    for size in sides:
        for batch in (1, 3):
            x = images(batch, 3, *size)
            torch.testing.assert_close(answers(content, x), model(x), rtol=1e-4, atol=1e-5)


def test_what_a_model_gives_twice_is_exported_twice(tmp_path):
    twice = lambda m, x: {"out": (y := m.a(x)), "half": y / 2, "aux": y}
    model, x = Model(twice, a=conv(3, 4)).eval(), images(2, 3, 9, 10)
    export(model, x, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    given = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for one, other in zip(given, model(x).values(), strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other.detach(), rtol=1e-4, atol=1e-5)


def test_the_table_leaves_out_nothing_that_onnx_has():
    assert set(OPERATIONS) - set(onnx_graph.WRITERS) == {"activation"} & set(OPERATIONS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.interpolate(x, (5, 7), mode="area"),
        lambda x: functional.interpolate(x, (5, 7), mode="nearest-exact"),
        lambda x: functional.interpolate(x, (5, 7), mode="bilinear", antialias=True),
        lambda x: functional.softplus(x, threshold=1),
    ],
)
def test_what_onnx_lacks_is_said(function):
    x = images(2, 3, 9, 10)
    with pytest.raises(onnx_graph.Inexpressible, match=r"no translation|cut off"):
        onnx_graph.onnx_for(capture(prepared(function), example=[x]), [x])


def test_nearest_pixels_are_torchs_own_at_every_length():
    for now in range(1, 24):
        for then in (1, 2, 3, 7, 13, 23, 29, 48):
            model = prepared(lambda x, then=then: functional.interpolate(x, (then, then)))
            x = images(1, 3, now, now)
            content = onnx_graph.onnx_for(capture(model, example=[x]), [x])
            given = answers(content, x).numpy()
            with torch.no_grad():
                numpy.testing.assert_allclose(given, model(x).numpy(), rtol=1e-5, atol=1e-6)
