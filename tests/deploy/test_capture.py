"""A captured graph is the model: the same numbers on networks and on whatever users write."""

import json

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from tracing import untraced

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.reference import run
from sparsepath.errors import BadInput

from .cases import BUILDERS, network, sizes


def unknown(graph):
    """Why each node that torch must run is unknown."""
    return {node.name: node.call.why for node in graph if node.op == "torch"}


@untraced
@pytest.mark.parametrize("name", BUILDERS)
def test_a_graph_gives_what_its_network_gives(name):
    model = network(name).double()
    graph = capture(model)
    assert not unknown(graph)
    for size in sizes(name):
        for batch in (1, 3):
            images = torch.randn(batch, 3, size, size, dtype=torch.float64)
            with torch.no_grad():
                assert torch.equal(run(graph, images), model(images))


@untraced
def test_attributes_can_be_written_as_json():
    for name in BUILDERS:
        for node in capture(network(name)):
            json.dumps(dict(node.attributes))


def test_nodes_carry_the_names_of_the_layers():
    names = [node.name for node in capture(network("resnet-20"))]
    assert {"conv", "norm", "blocks.0.conv1", "blocks.0.add", "blocks.3.pad", "fc"} <= set(names)


class Model(nn.Module):
    """A model from a function, with layers it may use."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def conv(inputs=4, outputs=4, size=3, *, padding=1, **options):
    return nn.Conv2d(inputs, outputs, size, padding=padding, **options)


def hooked():
    layer = conv()
    layer.register_forward_hook(lambda layer, inputs, output: output + 1)
    return layer


class Stubborn(nn.Module):
    """A module whose way depends on its input."""

    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Doubled(nn.Conv2d):
    """A user's own kind of convolution."""

    def forward(self, x):
        return 2 * super().forward(x)


class Training(nn.Module):
    """A batch norm that was left in training mode."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4, momentum=0.0)

    def train(self, mode=True):
        super().train(mode)
        self.norm.train()
        return self

    def forward(self, x):
        return self.norm(x)


def shared_then_changed(self, x):
    y = self.a(x)
    z = self.relu(y)  # in place: y is z from here on
    return y + z


def changed_twice(self, x):
    y = self.a(x)
    z = y
    y += 1
    y.mul_(2)
    return torch.cat((y, z), 1)


def unknown_change(self, x):
    y = self.a(x)
    z = y.fill_(3.0)
    return y + z


def view_changed(self, x):
    y = self.a(x)
    z = y.flatten(1)
    z += 1
    return z.sum() + y.sum()


def part_changed(self, x):
    y = self.a(x)
    y[:, :2].mul_(2)
    return self.a(y)


def copy_changed(self, x):
    y = self.a(x).transpose(1, 2)
    z = y.contiguous().add_(1)
    return y + z


def copy_changed_alone(self, x):
    y = self.a(x).transpose(1, 2).contiguous()
    z = y.add_(1)
    z.mul_(2)
    return y + z


def shuffled(self, x):
    n, c, h, w = x.size()
    y = x.view(n, 2, c // 2, h, w)
    y = torch.transpose(y, 1, 2).contiguous()
    return self.a(y.view(n, c, h, w))


def like_another(self, x):
    return x.transpose(1, 2).contiguous().view_as(x)


def halves(self, x):
    a, b = x.chunk(2, dim=1)
    return torch.cat((b, a), 1)


def folded_pixels(self, x):
    n, c, h, w = x.shape
    return self.a(x).view(n, c, h * w).mean(-1)


def flat_by_product(self, x):
    b, c, h, w = x.shape
    return x.view(b, c * h * w)


def halved_length(self, x):
    n, _, h, _ = x.size()
    h //= 2
    return x.reshape(n, 4, h, 2 * 6)


def excited(self, x):
    y = self.a(x)
    b, c, _, _ = y.size()
    z = nn.functional.adaptive_avg_pool2d(y, 1).view(b, c)
    return y * self.b(z).sigmoid().view(b, c, 1, 1)


def len_of(x):
    return x.shape[0]


def joined_shape(self, x):
    rest = (-1,)
    return x.view(x.shape[:2] + rest)


def split_rows(self, x):
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w)


def turned(self, x):
    """The first axis of what is reshaped is not that of the images."""
    return x.permute(1, 0, 2, 3).reshape(x.size(0), x.size(1) * 2, -1)


def counted(self, x):
    height = x.shape[2]
    rows = height
    rows += 1
    return x * height + rows


def joined(self, x):
    a, b = self.a(x), self.b(x)
    c = torch.cat((a, b, a), 1)
    d = torch.cat((x, c, b.relu(), self.pool(c)), 1)
    return self.c(d), c, torch.cat((c, a), 1), torch.cat((self.a(b), d), 1)


def responding(self, x):
    """ConvNeXt V2's global response normalisation."""
    y = self.a(x)
    lengths = y.norm(p=2, dim=(2, 3), keepdim=True)
    scaled = y * (lengths / (lengths.mean(1, keepdim=True) + 1e-6))
    return y + torch.addcmul(self.bias, self.weight, scaled, value=1)


KNOWN = {
    "response": Model(
        responding,
        a=conv(),
        weight=nn.Parameter(torch.randn(4, 1, 1)),
        bias=nn.Parameter(torch.randn(4, 1, 1)),
    ),
    "lengths one": Model(
        lambda self, x: (
            nn.functional.normalize(x)
            + nn.functional.normalize(0 * x, dim=(2, 3))
            + torch.linalg.vector_norm(x, dim=1, keepdim=True)
            + torch.linalg.norm(x, dim=3, keepdim=True)
            + torch.linalg.norm(x, 2, 1, True)
            + x.norm(2, (1, 2), True)
            + torch.norm(x, dim=[2, 3], keepdim=True)
        )
    ),
    "activations of others": nn.Sequential(
        nn.Softsign(), nn.Tanhshrink(), nn.LogSigmoid(), nn.CELU(), nn.Softshrink(0.2)
    ),
    "unshuffle": nn.PixelUnshuffle(2),
    "by other names": Model(
        lambda self, x: (
            torch.addcmul(x, x, x.abs(), value=2)
            + torch.addcdiv(x, x, 1 + x.square(), value=0.5).clamp_min(-1)
            + torch.true_divide(torch.multiply(x, 3), 7).clamp_max(1)
            + x.swapaxes(1, 2).swapdims(dim0=1, dim1=2)
            + (1 + x.square()).reciprocal()
            + torch.rsqrt(1 + x.square())
        )
    ),
    "concatenations": Model(
        joined, a=conv(), b=conv(size=1, padding=0), c=conv(32, 3), pool=nn.MaxPool2d(3, 1, 1)
    ),
    "strides": Model(lambda self, x: self.a(x), a=conv(stride=2, dilation=2, groups=2)),
    "even same": Model(lambda self, x: self.a(x), a=conv(size=4, padding="same")),
    "odd same": Model(lambda self, x: self.a(x), a=conv(size=(3, 5), padding="same", dilation=2)),
    "valid": Model(lambda self, x: self.a(x), a=conv(padding="valid")),
    "reflected": Model(lambda self, x: self.a(x), a=conv(padding_mode="reflect")),
    "circular": Model(lambda self, x: self.a(x), a=conv(padding_mode="circular", bias=False)),
    "transposed": Model(
        lambda self, x: self.a(x),
        a=nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    ),
    "shared": Model(lambda self, x: self.a(self.a(x)), a=conv()),
    "in place": Model(shared_then_changed, a=conv(), relu=nn.ReLU(inplace=True)),
    "changed twice": Model(changed_twice, a=conv()),
    "copy changed alone": Model(copy_changed_alone, a=conv()),
    "subclass": Model(lambda self, x: self.a(x), a=Doubled(4, 4, 3)),
    "weight norm": Model(
        lambda self, x: self.a(x), a=parametrizations.weight_norm(nn.Conv2d(4, 5, 3))
    ),
    "numbers": Model(lambda self, x: (1 - x) * 2 / 3 + 0.5 - x),
    "a weight by itself": Model(
        lambda self, x: x * self.w + self.w, w=nn.Parameter(torch.randn(4, 1, 1))
    ),
    "weights computed": Model(
        lambda self, x: nn.functional.conv2d(x, self.w * self.w.abs()),
        w=nn.Parameter(torch.randn(5, 4, 1, 1)),
    ),
    "view by size": Model(lambda self, x: x.view(x.size(0), -1)),
    "view by shape": Model(lambda self, x: torch.reshape(x, (x.shape[0], 2, -1))),
    "shapes unpacked": Model(folded_pixels, a=conv()),
    "flat by product": Model(flat_by_product),
    "length of before": Model(
        lambda self, x: self.n(self.a(x)).view(x.size(0), -1), a=conv(4, 6), n=nn.BatchNorm2d(6)
    ),
    "squeeze and excite": Model(excited, a=conv(4, 6), b=nn.Linear(6, 6)),
    "halved length": Model(halved_length),
    "all but one": Model(lambda self, x: torch.reshape(x, (len_of(x), x.numel() // len_of(x)))),
    "through axes": Model(
        lambda self, x: (
            self.a(x[:, :, :, :]).flatten(2).transpose(1, 2).permute(0, 2, 1).view(x.size(0), -1)
        ),
        a=conv(4, 6),
    ),
    "elementwise": Model(
        lambda self, x: torch.sigmoid(x).tanh() + nn.functional.leaky_relu(x, 0.2) + x.clamp(0, 6)
    ),
    "modules": nn.Sequential(
        nn.SiLU(), nn.GELU(approximate="tanh"), nn.Hardswish(), nn.ELU(0.5), nn.ReLU6(), nn.PReLU()
    ),
    "norms": nn.Sequential(
        nn.GroupNorm(2, 4),
        nn.GroupNorm(4, 4, affine=False),
        nn.LayerNorm((8, 6)),
        nn.LayerNorm(6),
        nn.LayerNorm(6, bias=False),
        nn.LayerNorm(6, elementwise_affine=False),
    ),
    "slopes": nn.Sequential(nn.PReLU(), nn.PReLU(4, init=-0.5)),
    "channels last": Model(
        lambda self, x: nn.functional.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2)
    ),
    "lengths behind norms": Model(
        lambda self, x: (
            self.slopes(nn.functional.group_norm(x, 2)).view(x.size(0), x.size(1), -1).softmax(-1)
        ),
        slopes=nn.PReLU(4),
    ),
    "pools": nn.Sequential(
        nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    ),
    "adaptive": nn.Sequential(nn.AdaptiveMaxPool2d((None, 3)), nn.AdaptiveAvgPool2d(2)),
    "softmax": nn.Sequential(nn.Flatten(), nn.LogSoftmax(dim=1), nn.Softmax(-1)),
    "upsampling": nn.Sequential(nn.Upsample(scale_factor=2), nn.Upsample((9, 7), mode="bilinear")),
    "shuffle": nn.Sequential(nn.PixelShuffle(2), nn.ZeroPad2d((1, 2, 0, 1))),
    "axes": Model(lambda self, x: x.permute(0, 2, 3, 1).transpose(1, 2)[:, ::2]),
    "dropout": nn.Sequential(nn.Dropout(), nn.Dropout2d(), nn.Identity()).eval(),
    "input back": Model(lambda self, x: (x, {"half": x[:, :2], "none": None, "list": [1, x]})),
}
UNKNOWN = {
    "chunks": (Model(halves), "its shape is computed"),
    "two ways": (Model(lambda self, x: self.a(self.b(x)), a=conv(), b=Stubborn()), "test_capture"),
    "hooks": (Model(lambda self, x: self.a(x), a=hooked()), "hooks"),
    "batch statistics": (Training(), "statistics of the batch"),
    "change unknown": (Model(unknown_change, a=conv()), "no such operation"),
    "changed view": (Model(view_changed, a=conv()), "a change in place may show"),
    "changed part": (Model(part_changed, a=conv()), "too (test_capture.py, line "),
    "changed copy": (Model(copy_changed, a=conv()), "a change in place may show"),
    "shuffled": (Model(shuffled, a=conv()), "computed from the input (test_capture.py, line "),
    "like another": (Model(like_another), "no such operation (test_capture.py, line "),
    "mean of all": (
        Model(lambda self, x: x.mean(dim=None, keepdim=True)),
        "it leaves the axes open (test_capture.py, line ",
    ),
    "length of before": (
        Model(lambda self, x: self.a(x).relu().view(x.size(0), -1), a=conv(4, 6)),
        "computed from the input (test_capture.py, line ",
    ),
    "one way only": (Model(lambda self, x: x + 1 if x.sum() > 0 else x), "line"),
    "shapes computed": (Model(split_rows), "computed from the input (test_capture.py, line "),
    "shapes joined": (
        Model(joined_shape),
        "(test_capture.py, line ",
    ),
    "another axis": (Model(turned), "computed from the input (test_capture.py, line "),
    "counted": (Model(counted), "one side of it is a Length (test_capture.py, line "),
    "weights from input": (Model(lambda self, x: nn.functional.conv2d(x, x)), "computed"),
    "norm of order 1": (
        Model(lambda self, x: nn.functional.normalize(x, p=1.0)),
        "its norm is of order 1.0 (test_capture.py, line ",
    ),
    "norm of all": (Model(lambda self, x: x / x.norm()), "it leaves the axes open"),
    "one length": (Model(lambda self, x: nn.functional.normalize(x, dim=None)), "the axes open"),
    "matrix norm": (Model(lambda self, x: torch.linalg.norm(x, 2, dim=(2, 3))), "a matrix norm"),
    "other ELU": (nn.CELU(0.5), "it is no ELU"),
    "unusual": (Model(lambda self, x: torch.rsqrt(x + 9, out=x.clone())), "writes into"),
    "windows of no example": (
        Model(lambda self, x: nn.functional.avg_pool2d(x, x.shape[2:])),
        "computed from the input (test_capture.py, line ",
    ),
    "norms of a length": (
        Model(lambda self, x: nn.functional.layer_norm(x, (x.size(-1),))),
        "type Length",
    ),
    "groups of a length": (
        Model(lambda self, x: nn.functional.group_norm(x, x.shape[1])),
        "Length",
    ),
    "written into": (
        Model(lambda self, x: torch.add(x, 1, out=x.clone())),
        "writes into a tensor that it was given",
    ),
}


def images(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 4, 8, 6, generator=generator, dtype=torch.float64).to(dtype)


def check(model, graph):
    for seed in range(3):
        x = images(seed=seed)
        with torch.no_grad():
            wanted = model(x.clone())
        torch.testing.assert_close(run(graph, x.clone()), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", KNOWN)
def test_what_users_write_is_understood(name):
    model = KNOWN[name].double().eval()
    graph = capture(model)
    assert not unknown(graph)
    check(model, graph)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_understood_runs_in_torch_and_says_why(name):
    model, reason = UNKNOWN[name]
    model = model.double().eval()
    graph = capture(model)
    assert any(reason in why for why in unknown(graph).values()), unknown(graph)
    check(model, graph)


POOLED = {
    "sides": lambda x: nn.functional.avg_pool2d(x, x.size()[2:]),
    "last sides": lambda x: nn.functional.max_pool2d(x, kernel_size=x.shape[-2:], stride=1),
    "one by one": lambda x: nn.functional.avg_pool2d(x, (x.size(2), x.size(3)), 1, (0, 0)),
    "a line": lambda x: nn.functional.avg_pool1d(x.flatten(2), x.flatten(2).shape[2:]),
}


@pytest.mark.parametrize("name", POOLED)
def test_a_pool_over_a_whole_image_is_one_at_every_size(name):
    model = Model(lambda self, x: POOLED[name](x)).double()
    graph = capture(model, example=[images()])
    if name != "a line":  # nobody knows that what is flattened is what is flattened again
        kind = "max" if name == "last sides" else "avg"
        assert [node.op for node in graph] == [f"adaptive_{kind}_pool"]
    for x in (images(), images()[:, :, :5, :3]):
        torch.testing.assert_close(run(graph, x), model(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: nn.functional.avg_pool2d(x, x.shape[2:], 1, 1),
        lambda x: nn.functional.max_pool2d(x, x.shape[2:], 1, (0, 1)),
        lambda x: nn.functional.avg_pool2d(x, x.shape[2:], 1, 0, False, True, 5),
        lambda x: nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1)), x.shape[2:]),
        lambda x: nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1)), x.shape[-2:]),
        lambda x: nn.functional.avg_pool2d(x, x.shape[-2:]).squeeze(-1).squeeze(-1),
    ],
)
def test_other_windows_are_what_torch_makes_of_them(pool):
    model = Model(lambda self, x: pool(x)).double()
    graph = capture(model, example=[images()])
    check(model, graph)


def test_windows_of_an_image_without_a_batch_are_its_widths_alone():
    """Its lengths from the second on are one number, which is taken for both sides."""
    model = Model(lambda self, x: nn.functional.avg_pool2d(x, x.shape[2:])).double()
    graph = capture(model, example=[images()[0]])
    for x in (images()[0], images()[0][:, :, :3]):
        assert torch.equal(run(graph, x), model(x))


def test_only_the_module_that_cannot_be_traced_stays_whole():
    model, _ = UNKNOWN["two ways"]
    graph = capture(model.double())
    assert [node.op for node in graph] == ["torch", "conv"]


def test_capturing_leaves_the_model_as_it_was():
    model = Model(lambda self, x: x + torch.ones(4, 1, 1), a=conv())
    before = set(vars(model)), {name: x.clone() for name, x in model.state_dict().items()}
    check(model, capture(model))
    assert set(vars(model)) == before[0]
    for name, x in model.state_dict().items():
        assert torch.equal(x, before[1][name])


def test_the_graph_does_not_follow_later_training():
    model = nn.Sequential(conv(), hooked()).double()
    x, graph = images(), capture(model)
    before = run(graph, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert torch.equal(run(graph, x), before)


def test_several_inputs_and_defaults():
    class Two(nn.Module):
        def forward(self, x, y, scale=2.0, mask=None):
            return x * scale + y if mask is None else x

    x, y = images(), images(seed=1)
    graph = capture(Two(), inputs=2)
    assert graph.inputs == ("x", "y")
    assert torch.equal(run(graph, x, y), x * 2 + y)
    with pytest.raises(BadInput, match="takes 2 inputs, not 1"):
        run(graph, x)


def test_other_dimensions_and_no_batch():
    line = nn.Sequential(nn.Conv1d(4, 3, 3), nn.BatchNorm1d(3), nn.MaxPool1d(2)).double().eval()
    cube = nn.Sequential(nn.Conv3d(4, 3, 3), nn.AvgPool3d(2)).double().eval()
    flat = nn.Sequential(conv(), nn.MaxPool2d(2)).double().eval()
    for model, shape in ((line, (2, 4, 9)), (cube, (2, 4, 5, 6, 7)), (flat, (4, 8, 8))):
        x = torch.randn(shape, dtype=torch.float64)
        graph = capture(model)
        assert not unknown(graph)
        with torch.no_grad():
            assert torch.equal(run(graph, x), model(x))


def pooled(self, x):
    y = nn.functional.max_pool2d(x, (2, 1))
    return y.view(x.size(0), x.size(1), -1).softmax(-1)


def halved_channels(self, x):
    y = self.a(x)
    return y.view(y.size(0), y.size(1) // 2, -1)


def rows_before(self, x):
    return self.a(x).view(x.size(0), -1)


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (Model(pooled), [(3, 8, 8), (2, 3, 8, 8), (4, 4, 8)]),
        (Model(halved_channels, a=conv()), [(4, 4, 8), (4, 16, 8), (2, 4, 8, 8)]),
        (Model(rows_before, a=conv(4, 8)), [(4, 8, 8), (2, 4, 8, 8)]),
        (Model(rows_before, a=nn.Linear(4, 8)), [(4,), (2, 4), (2, 3, 4)]),
    ],
)
def test_a_single_image_is_not_taken_for_a_batch(model, shapes):
    graph = capture(model.double().eval())
    for shape in shapes:
        x = torch.randn(shape, dtype=torch.float64)
        with torch.no_grad():
            wanted = model(x)
        given = run(graph, x)
        assert given.shape == wanted.shape
        torch.testing.assert_close(given, wanted, rtol=1e-12, atol=1e-12)


def test_an_example_tells_a_batch_from_a_single_image():
    model = Model(rows_before, a=conv(4, 8)).double().eval()
    assert not unknown(capture(model, example=[images()]))
    assert unknown(capture(model, example=[images()[0]]))
