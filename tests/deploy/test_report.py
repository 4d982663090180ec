"""The compile report tells the truth: every node, where it runs, and all multiplications."""

import logging

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from tracing import untraced

import sparsepath
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.running import kernels, segments
from sparsepath.deploy.running.runtime import compile

from .cases import BUILDERS, network
from .test_capture import Model, Stubborn, conv

native = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")


def reported(model, example, **options):
    return compile(model.eval(), example, tune=False, **options).report()


def rows(report):
    return {row.name: row for row in report.rows}


# ---- multiplications that torch makes


class Whole(nn.Module):
    """Stays whole, as its way depends on its input."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) if x.sum() > -1e30 else x


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 10, batch_first=True)

    def forward(self, x):
        return self.lstm(x.mean(1))[0]


class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)


def product(self, x):
    return self.a(x) @ self.w


class Tokens(nn.Module):
    """A block of attention over the rows of the first channel."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x[:, 0])


class SelfAttention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


X = torch.randn(3, 4, 8, 6)
TOKENS, WIDTH = 8, 6
ATTENDED = TOKENS * 4 * WIDTH**2 + 2 * TOKENS**2 * WIDTH
COUNTED = {
    "a module that stays whole": (Whole(nn.Conv2d(4, 32, 5)), 32 * 4 * 25 * 4 * 2),
    "a product": (
        Model(product, a=nn.Identity(), w=nn.Parameter(torch.randn(6, 7))),
        4 * 8 * 6 * 7,
    ),
    "a recurrent layer": (Recurrent(), 8 * 4 * 10 * (6 + 10)),
    "attention": (Attention(), 2 * 4 * 8 * 8 * 6),
    "an encoder": (
        Tokens(nn.TransformerEncoderLayer(WIDTH, 2, 10, batch_first=True)),
        ATTENDED + TOKENS * 2 * WIDTH * 10,
    ),
    "heads": (Tokens(SelfAttention(WIDTH, 2, batch_first=True)), ATTENDED),
    "no product": (Stubborn(), 0),
}


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_torch_multiplies_counts(name, mode):
    model, macs = COUNTED[name]
    with mode():
        report = reported(model, X)
    assert report.macs == macs
    assert report.native_share == 0


@native
def test_the_share_is_that_of_all_multiplications():
    report = reported(nn.Sequential(conv(4, 4, 1, padding=0), Whole(conv(4, 4))), X)
    assert report.macs == 48 * 16 * (1 + 9)
    assert report.native_share == pytest.approx(0.1)
    assert "10.0% of them" in str(report)


@native
def test_pruned_layers_count_with_all_their_weights():
    big = nn.Conv2d(4, 64, 5)
    prune.l1_unstructured(big, "weight", 0.5)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), big).eval()
    report = reported(model, torch.randn(2, 3, 16, 16))
    assert report.macs == 3 * 4 * 256 + 4 * 64 * 25 * 144
    assert rows(report)["1"].zero == 0.5
    assert rows(report)["1"].method != "torch"


# ---- images of other numbers


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.d = conv(), conv()

    def forward(self, x, y):
        return self.c(x).relu() + self.d(y).relu()


class Folded(nn.Module):
    """Looks at each frame by itself, and at all of them besides."""

    def __init__(self):
        super().__init__()
        self.c, self.d = conv(), conv(8)

    def forward(self, x, y):
        n = x.shape[0]
        frames = self.c(x.reshape(2 * n, 4, 8, 6)).reshape(n, 8, 8, 6)
        return self.d(frames) + self.c(y.flip(0))


CASES = {
    "one for many": (Two, [(8, 4, 8, 6), (1, 4, 8, 6)], {"c", "d"}, {"add"}),
    "many for one": (Two, [(1, 4, 8, 6), (8, 4, 8, 6)], {"c", "d"}, {"add"}),
    "folded": (Folded, [(3, 8, 8, 6), (3, 4, 8, 6)], {"c", "d", "c#2", "add"}, set()),
}


@native
@pytest.mark.parametrize("name", CASES)
def test_rows_say_where_images_of_other_numbers_run(name, monkeypatch, caplog):
    build, shapes, ours, torchs = CASES[name]
    model = build().eval()
    xs = [torch.randn(shape) for shape in shapes]
    runtime = compile(model, xs, tune=False)
    methods = {row.name: row.method for row in runtime.report().rows}
    assert ours <= {name for name, method in methods.items() if method != "torch"}
    assert torchs <= {name for name, method in methods.items() if method == "torch"}
    ran = []
    plain = segments.run_node
    monkeypatch.setattr(
        segments, "run_node", lambda node, *given: (ran.append(node.name), plain(node, *given))[1]
    )
    caplog.clear()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "sparsepath"):
        torch.testing.assert_close(runtime(*xs), model(*xs), rtol=1e-4, atol=1e-5)
    assert not ours & set(ran)
    assert not caplog.records


@native
def test_other_numbers_of_images_than_the_examples_go_their_own_way(caplog):
    model = Two().eval()
    runtime = compile(model, [torch.randn(4, 4, 8, 6)] * 2, tune=False)
    assert {row.method for row in runtime.report().rows} == {"winograd2", "native"}
    for batches in ((4, 1), (1, 4), (4, 4), (1, 1)):
        xs = [torch.randn(batch, 4, 8, 6) for batch in batches]
        with torch.no_grad():
            torch.testing.assert_close(runtime(*xs), model(*xs), rtol=1e-4, atol=1e-5)
    assert not caplog.records  # nothing fell back to torch behind the report's back


@native
def test_a_folded_axis_counts_with_its_images():
    report = reported(Folded(), [torch.randn(3, 8, 8, 6), torch.randn(3, 4, 8, 6)])
    layer = 9 * 48 * 16
    assert rows(report)["c"].macs == 2 * layer
    assert report.macs == (2 + 1 + 2) * layer


# ---- every node


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Dropout(0.1)
        self.conv1, self.norm1, self.relu1 = conv(4, 8), nn.BatchNorm2d(8), nn.ReLU()
        self.pool1, self.drop = nn.MaxPool2d(2), nn.Dropout2d()
        self.fc = nn.Linear(96, 5)

    def forward(self, x):
        x = self.pool1(self.relu1(self.norm1(self.conv1(self.start(x)))))
        return nn.functional.dropout(self.fc(self.drop(x).flatten(1)), training=self.training)


def test_rows_name_what_they_took_in():
    report = reported(Small(), X)
    titles = [row.title for row in report.rows]
    assert titles[0] == "conv1 + start + norm1 + relu1 + drop + pool1" or titles[0] == (
        "conv1 + start + norm1 + relu1 + pool1 + drop"
    )
    assert titles[1:] == ["flatten", "fc + dropout"]
    assert titles[0] in str(report)


@untraced
@pytest.mark.parametrize("name", BUILDERS)
def test_every_node_of_the_network_is_in_the_report(name):
    model = network(name)
    wanted = {node.name for node in capture(model)}
    report = reported(model, torch.randn(1, 3, 32, 32))
    named = [part for row in report.rows for part in (row.name, *row.took)]
    assert len(named) == len(set(named))
    # A batch norm or ReLU behind a concatenation is in each of its parts, by both names.
    missing = {x for x in wanted - set(named) if not any(y.startswith(f"{x}.") for y in named)}
    assert not missing
    leaves = [path for path, part in model.named_modules() if not list(part.children())]
    kinds = (nn.ReLU, nn.ReLU6, nn.BatchNorm2d, nn.MaxPool2d, nn.Dropout, nn.Dropout2d)
    for path in leaves:
        if isinstance(model.get_submodule(path), kinds):
            assert any(y == path or y.startswith((f"{path}.", f"{path}#")) for y in named), path


def test_the_multiplications_are_those_of_the_model():
    model = network("mobilenet-v2")
    report = reported(model, torch.randn(2, 3, 32, 32))
    with torch.no_grad():
        assert report.macs == sparsepath.macs(model, torch.zeros(1, 3, 32, 32)).dense


class Counts(nn.Module):
    """Adds, joins and takes values of other types than float32 on its way."""

    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(4, 8, 3, padding=1)
        self.d = nn.Conv2d(8, 8, 3, padding=1)
        self.e = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        y = self.c(x)
        z = self.d(y + (y > 0))
        return self.e(torch.cat((z, (z * 3).long()), 1).relu().float()), y.double().relu()


@native
@pytest.mark.parametrize("tune", [False, True])
def test_what_is_not_float32_runs_in_torch_and_costs_no_layer(tune, caplog, tmp_path):
    model, x = Counts().eval(), torch.randn(2, 4, 16, 16)
    runtime = compile(model, x, tune=tune, native_only=True, cache=tmp_path)
    found = {row.name: row for row in runtime.report().rows}
    assert (found["add"].method, found["add"].why) == ("torch", "'gt' is torch.bool, not float32")
    assert found["cat"].why == "'long' is torch.int64, not float32"
    assert found["relu#2"].why == "'double' is torch.float64, not float32"
    if not tune:
        assert {found[name].method for name in "cde"} == {"winograd4"}
    caplog.clear()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "sparsepath"):
        for images in (x, torch.randn(3, 4, 20, 24)):
            torch.testing.assert_close(runtime(images), model(images), rtol=1e-3, atol=1e-4)
    assert not caplog.records  # nothing fell back to torch behind the report's back
