"""Lengths that a model computes as it runs: pieces, shuffled channels, sizes of other images."""

import pytest
import torch
import torch.fx
from torch import nn
from torch.nn import functional

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.capture.verified import verified
from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.graph.reference import run
from sparsepath.deploy.running.runtime import compile
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput

from .builds import built
from .embedded import NEEDS, answered
from .test_capture import Model, conv, unknown


def shuffled(x, groups):
    """As ShuffleNet's own code has it."""
    batch, channels, height, width = x.size()
    x = x.view(batch, groups, channels // groups, height, width)
    x = torch.transpose(x, 1, 2).contiguous()
    return x.view(batch, channels, height, width)


def unit(m, x):
    """Half of the channels go by, as in ShuffleNet v2."""
    x = shuffled(m.a(x), 2)
    by, through = x.chunk(2, dim=1)
    return m.b(shuffled(torch.cat((by, m.c(through)), dim=1), 2))


def listed(m, x):
    """As YOLO has it."""
    y = list(m.a(x).chunk(2, 1))
    y.extend(layer(y[-1]) for layer in (m.c, m.d))
    return m.b(torch.cat(y, 1))


def scaled(m, x):
    """Rungs of several widths, as in Res2Net."""
    first, second, third = torch.split(m.a(x), [2, 4, 6], dim=1)
    return m.b(torch.cat((third, second + functional.pad(first, (0, 0, 0, 0, 0, 2))), 1))


def colours(m, x):
    """Pieces whose lengths are listed, of an image of which nothing else is known."""
    red, green, blue = torch.split(x, (1, 1, 1), dim=1)
    return m.b(m.a(torch.cat((blue, red, green), 1)))


def thirds(m, x):
    """Pieces whose lengths are computed, as one and as a list."""
    y = m.a(x)
    n = y.size(1) // 3
    first, rest = torch.split(y, (n, y.size(1) - n), 1)
    one, other = first.split(n // 2, dim=1)
    return m.b(torch.cat((other, rest, one), 1))


def ladder(m, x):
    """The way back up of a pyramid: every image as large as the one below it."""
    small = m.c(m.a(x))
    smaller = m.d(small)
    up = functional.interpolate(smaller, size=small.shape[-2:], mode="nearest")
    up = functional.interpolate(up + small, size=x.shape[2:], mode="bilinear", align_corners=False)
    return functional.interpolate(m.b(up), size=(x.size(2), x.size(3)), mode="bilinear")


def apart(m, x):
    """The mean of two branches that one convolution gives."""
    y = m.a(x)
    y = y.view(y.size(0), 2, y.size(1) // 2, y.size(2), y.size(3))
    return m.b(y.mean(1))


def weighed(m, x):
    """Branches that one convolution gives, weighed by what their sum says, as in ResNeSt."""
    y = m.a(x)
    batch, channels, height, width = y.shape
    y = y.reshape((batch, 2, channels // 2, height, width))
    by = m.c(y.sum(dim=1).mean((2, 3), keepdim=True)).view(batch, 2, -1).softmax(dim=1)
    return m.b((y * by.reshape(batch, -1, 1, 1).reshape((batch, 2, channels // 2, 1, 1))).sum(1))


def attending(m, x):
    """Attention over channels and places, as in CBAM, by sums too, as in ResNeSt."""
    y = m.a(x)
    most, _ = torch.max(y, dim=1, keepdim=True)
    least = y.min(1, True)[0]
    y = y * (torch.cat((most, y.mean(1, keepdim=True)), 1).sum(1, keepdim=True) - least).sigmoid()
    two = torch.stack((y, y.amax((2, 3), keepdim=True) * y), dim=1)
    return m.b(two.sum(dim=1)) ** 2


def picking(m, x):
    y = m.a(x)
    one = y[:, 0][:, None] + y[:, -1].unsqueeze(1) + y[:, -2:-1] + y.narrow(1, 2, 1)
    row = functional.adaptive_avg_pool2d(y, 1).squeeze(-1).squeeze(-1)
    return m.b(y * one + row[..., None, None] + y.select(1, 3).unsqueeze(1).square())


def normed(m, x):
    return m.b(m.norm(m.a(x)) + m.bare(m.a(x)))


NETWORKS = {
    "attending": lambda: Model(attending, a=conv(3, 12), b=conv(12, 4)),
    "picking": lambda: Model(picking, a=conv(3, 12), b=conv(12, 4)),
    "normed": lambda: Model(
        *(normed,),
        **{"a": conv(3, 12), "b": conv(12, 4), "bare": nn.InstanceNorm2d(12)},
        norm=nn.InstanceNorm2d(12, affine=True, eps=1e-3),
    ),
    "unit": lambda: Model(unit, a=conv(3, 12), b=conv(12, 4), c=conv(6, 6)),
    "listed": lambda: Model(listed, a=conv(3, 12), b=conv(24, 4), c=conv(6, 6), d=conv(6, 6)),
    "colours": lambda: Model(colours, a=conv(3, 12), b=conv(12, 4)),
    "weighed": lambda: Model(weighed, a=conv(3, 12), c=nn.Conv2d(6, 12, 1), b=conv(6, 4)),
    "thirds": lambda: Model(thirds, a=conv(3, 12), b=conv(12, 4)),
    "scaled": lambda: Model(scaled, a=conv(3, 12), b=conv(10, 4)),
    "ladder": lambda: Model(
        ladder, a=conv(3, 12), b=conv(12, 4), c=conv(12, 12, stride=2), d=conv(12, 12, stride=2)
    ),
    "apart": lambda: Model(apart, a=conv(3, 12), b=conv(6, 4)),
    "layer": lambda: nn.Sequential(conv(3, 12), nn.ChannelShuffle(3), conv(12, 4)),
}


def example(batch=2, height=12, width=16):
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(batch))


SIZES = [(2, 12, 16), (1, 12, 16), (3, 9, 7)]


@pytest.mark.parametrize("name", NETWORKS)
def test_lengths_stay_open(name):
    model = NETWORKS[name]().eval()
    graph = verified(model, (example(),), told=True)
    assert not unknown(graph)
    for size in SIZES:
        with torch.no_grad():
            given, wanted = run(graph, example(*size)), model(example(*size))
            torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_they_are_saved_compiled_and_cut(name, tmp_path):
    model = NETWORKS[name]().eval()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight[1::3] = 0
                layer.bias[1::3] = 0
    save(model, tmp_path / "net", example=example())
    small = compact(model, example()).model
    save(small, tmp_path / "small", example=example())
    loaded = [load(tmp_path / which).model for which in ("net", "small")]
    runtime = compile(model, example(), tune=False)
    for size in SIZES:
        with torch.no_grad():
            wanted = model(example(*size))
            for each in (small, *loaded, runtime):
                torch.testing.assert_close(each(example(*size)), wanted, rtol=1e-4, atol=1e-5)


def needs(test):
    """Marked with all that a test of the C++ program needs."""
    for mark in NEEDS:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def sanitized():
    return [built("sanitized") / "sparsepath-infer"]


@needs
@pytest.mark.parametrize("name", NETWORKS)
def test_the_program_without_python_computes_them_too(name, sanitized, tmp_path):
    model = NETWORKS[name]().eval()
    save(model, tmp_path / "net", example=example())
    for size in SIZES:
        given = answered(sanitized, tmp_path / "net", example(*size))
        with torch.no_grad():
            torch.testing.assert_close(given, model(example(*size)), rtol=1e-4, atol=1e-5)


# ---- what stays torch's, and right


def by_count(m, x):
    return torch.cat(m.a(x).split(5, dim=1)[::-1], 1)


def uneven(m, x):
    return torch.cat(m.a(x).chunk(5, 1)[::-1], 1)


def too_many(m, x):
    return torch.stack(m.a(x).chunk(7, 1)[:2])


def merged(m, x):
    batch, channels, height, width = m.a(x).size()
    return m.a(x).view(batch * channels // 3, 3, height, width)


def swapped(m, x):
    """As many numbers, but no axis is where it was."""
    batch, channels, height, width = m.a(x).size()
    return m.a(x).view(batch, channels, width, height)


def flattened_sides(m, x):
    batch, channels, height, width = m.a(x).size()
    return m.a(x).view(batch, channels, height * width).mean(2)


def asked_for(m, x):
    return m.a(x), x.shape[2:], x.shape[-1:], x.shape[1:][-1]


def of_another(m, x):
    y = m.a(x)
    return functional.interpolate(y, size=(y.shape[3], y.shape[2]))


def half_of_another(m, x):
    y = m.a(x)
    return functional.interpolate(y[..., ::2], size=(y.shape[2] // 2, y.shape[3]))


OTHERS = [by_count, uneven, too_many, merged, swapped, flattened_sides, asked_for, of_another]


@pytest.mark.parametrize("function", [*OTHERS, half_of_another], ids=lambda f: f.__name__)
@pytest.mark.parametrize("told", [True, False])
def test_whatever_else_is_computed_is_right(function, told):
    model = Model(function, a=conv(3, 12)).eval()
    graph = verified(model, (example(),), told=told)
    assert graph.nodes[0].name != "model"
    for size in [(2, 12, 16), (4, 10, 6)]:
        with torch.no_grad():
            given, wanted = run(graph, example(*size)), model(example(*size))
        if isinstance(wanted, torch.Tensor):
            assert torch.equal(given, wanted)
        else:
            assert torch.equal(given[0], wanted[0])
            assert given[1:] == wanted[1:]
            assert [type(x) for x in given] == [type(x) for x in wanted]


def changed_afterwards(m, x):
    y = m.a(x)
    pieces = y.chunk(2, 1)
    y += 1
    return torch.cat((pieces[1], y), 1)


def changed_piece(m, x):
    y = m.a(x)
    first, second = y.chunk(2, 1)
    first += 1
    return torch.cat((second, y), 1)


@pytest.mark.parametrize("function", [changed_afterwards, changed_piece])
def test_a_change_shows_in_pieces_and_in_what_they_are_of(function):
    model = Model(function, a=conv(3, 12)).eval()
    for told in (True, False):
        graph = verified(model, (example(),), told=told)
        with torch.no_grad():
            assert torch.equal(run(graph, example()), model(example()))


def test_too_few_pieces_are_told_as_ever():
    model = Model(lambda m, x: torch.cat(list(m.a(x).chunk(7, 1)), 1), a=conv(3, 12)).eval()
    graph = verified(model, (example(),), told=True)
    with torch.no_grad():  # torch gives six of seven
        assert torch.equal(run(graph, example()), model(example()))


# ---- functions that torch.fx.wrap marked, and batch norms with a forward of their own


def depth(x, p, training):
    """Stochastic depth, as torchvision marks it."""
    if not training or p == 0:
        return x
    return x * torch.empty(len(x), 1, 1, 1).bernoulli_(1 - p)


def asking(x):
    return x * 2 if x.sum() > 0 else x


def doubled(x, times):
    return doubled(x * 2, times - 1) if times else x


def both(x):
    return x, x + 1


def drawing(x):
    return x + torch.rand(1)


def changing(x):
    x += 1
    return x, x * 2


for _name in ("depth", "asking", "doubled", "both", "drawing", "changing"):
    torch.fx.wrap(_name)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda m, x: depth(m.a(x), 0.5, m.training), []),
        (lambda m, x: doubled(m.a(x), 3), []),
        (lambda m, x: doubled(asking(m.a(x)), 2), ["asking"]),
        (lambda m, x: both(m.a(x))[1], ["both", "getitem"]),
        (lambda m, x: asking(drawing(m.a(x)) * 0), ["drawing", "asking"]),
        (lambda m, x: changing(m.a(x))[1], ["changing", "getitem"]),
    ],
    ids=["depth", "recursive", "asking", "both", "drawing", "changing"],
)
def test_what_is_marked_as_a_whole_is_traced_into_where_it_can_be(function, left):
    model = Model(function, a=conv(3, 12)).eval()
    graph = capture(model)
    assert list(unknown(graph)) == left
    with torch.no_grad():
        torch.testing.assert_close(run(graph, example()), model(example()))


def test_depth_is_drawn_in_training():
    model = Model(lambda m, x: depth(m.a(x), 0.5, m.training), a=conv(3, 12)).train()
    assert list(unknown(capture(model))) == ["depth"]


class NormAct(nn.BatchNorm2d):
    """Batch norm and an activation, as timm has them in one."""

    def forward(self, x):
        torch._assert(x.ndim == 4, f"expected 4 axes (got {x.ndim})")
        x = functional.batch_norm(
            *(x, self.running_mean, self.running_var, self.weight, self.bias),
            *(self.training, self.momentum, self.eps),
        )
        return functional.silu(x)


def test_a_batch_norm_with_a_forward_of_its_own_is_seen_through(tmp_path):
    model = nn.Sequential(conv(3, 12), NormAct(12), conv(12, 4))
    model(example())  # in training: the norm learns
    model.eval()
    save(model, tmp_path / "net")
    loaded = load(tmp_path / "net").model
    assert set(loaded.state_dict()) == set(model.state_dict())
    with torch.no_grad():
        assert torch.equal(loaded(example()), model(example()))


def test_a_shape_that_hangs_on_more_says_what_helps(tmp_path):
    model = nn.Sequential(conv(3, 12), Model(lambda m, x: x.chunk(2, 1)[0])).eval()
    with pytest.raises(BadInput, match="save with example="):
        save(model, tmp_path / "net")
    save(model, tmp_path / "net", example=example())
