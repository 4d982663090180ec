"""Outputs have the order in memory that the model gives them, whichever runtime is taken."""

import pytest
import torch
from torch import nn

from sparsepath.deploy.graph.order import format_of, in_format
from sparsepath.deploy.running import kernels
from sparsepath.deploy.running.runtime import compile
from sparsepath.deploy.running.tuning import Times

IMAGES = torch.randn(2, 3, 12, 10)


class Many(nn.Module):
    """Gives its input, a map that a layer reads, what a layer gives, and a row."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        between = self.first(x).relu()
        last = torch.sigmoid(self.second(between))
        return {"all": (x, between, last), "row": last.mean((2, 3))}


MODELS = {
    "layer": lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1)),
    "normed": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
    "many": Many,
    "nothing": nn.Sequential,
}
RUNNERS = ["native", "torch", "onnxruntime"]


def strides(given):
    if isinstance(given, dict):
        return {key: strides(part) for key, part in given.items()}
    return [strides(part) for part in given] if isinstance(given, tuple) else given.stride()


def compiled(model, images, runner, monkeypatch, tmp_path, **options):
    """The model in this runtime: a tuner chooses what takes no time."""
    if runner == "native":
        return compile(model, images, tune=False, **options)
    if runner == "torch":
        monkeypatch.setattr(kernels, "why_missing", lambda: "not built")
        return compile(model, images, tune=False, **options)
    pytest.importorskip("onnxruntime")
    least = lambda self, asked, works, **_: {n: float(n != runner) for n in works}
    monkeypatch.setattr(Times, "of", least)
    return compile(model, images, cache=tmp_path, **options)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("last", [False, True], ids=["plain", "channels_last"])
def test_outputs_have_the_order_of_the_models(name, runner, last, monkeypatch, tmp_path):
    model = MODELS[name]().eval()
    if last:
        model = model.to(memory_format=torch.channels_last)
    runtime = compiled(model, IMAGES, runner, monkeypatch, tmp_path)
    if kernels.available() and name in ("layer", "normed"):  # onnxruntime gives no input back
        assert runtime.report().runner == runner
    for images in (IMAGES, IMAGES, torch.randn(1, 3, 9, 11), torch.randn(20, 3, 9, 11)):
        with torch.no_grad():
            assert strides(runtime(images)) == strides(model(images))


def test_a_strict_runtime_has_it_too(monkeypatch, tmp_path):
    model = MODELS["normed"]().eval()
    runtime = compiled(model, IMAGES, "torch", monkeypatch, tmp_path, strict=True)
    assert runtime(IMAGES).view(2, -1).shape == (2, 640)


def test_a_view_that_has_no_order_stays_as_it_comes():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(2)).eval()
    rows = model(IMAGES).mT
    assert format_of(rows) is None
    assert in_format(rows, torch.channels_last) is in_format(rows, None) is rows
