"""What a graph says of one example must hold at every other: or torch is to say it."""

import copy
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.nn import functional

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.capture.verified import verified
from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.files.export import export
from sparsepath.deploy.files.graph_json import read, written
from sparsepath.deploy.graph.apart import difference
from sparsepath.deploy.running.dense import in_onnxruntime, in_torch
from sparsepath.deploy.running.runtime import compile
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput

from .test_capture import Model, conv, unknown


def said(model, x):
    """What a model gives, or that it has something against it."""
    try:
        with torch.no_grad():
            return model(x)
    except Exception as error:
        return type(error)


def alike(model, other, x):
    """Whether two models give the same, or both nothing."""
    wanted, given = said(model, x), said(other, x)
    if isinstance(wanted, type) or isinstance(given, type):
        return isinstance(wanted, type) and isinstance(given, type)
    apart, largest = difference(wanted, given)
    return type(wanted) is type(given) and apart <= 1e-4 * largest


def image(batch=2, height=12, width=16):
    torch.manual_seed(batch * height * width)
    return torch.randn(batch, 3, height, width)


def line(m, x):
    """An image as a row of pixels."""
    return m.a(x).relu().flatten(2)


def changed(best):
    values = best.values
    values += 1
    return best.values * 2


MODELS = {
    "last of a row": lambda m, x: line(m, x).transpose(1, 2)[:, -1],
    "all but the first": lambda m, x: line(m, x).transpose(1, 2)[:, 1:].mean(1),
    "neighbours": lambda m, x: (m.a(x).permute(0, 2, 3, 1)[:, 1:] - 1).mean((1, 2)),
    "new axis behind": lambda m, x: line(m, x)[..., None].flatten(1)[:, :20],
    "excited": lambda m, x: m.a(x) * m.b(m.a(x).mean((2, 3))[..., None, None]).sigmoid(),
    "behind a part": lambda m, x: m.a(x)[:, 1:, ..., None, None].mean((2, 3)),
    "how many": lambda m, x: torch.stack(list(m.a(x).chunk(4, 2))[:1]) / len(x.chunk(4, 2)),
    "each of some": lambda m, x: sum(part.amax((2, 3)) for part in m.a(x).chunk(4, 2)),
    "each of the channels": lambda m, x: sum(part.amax((2, 3)) for part in m.a(x).chunk(2, 1)),
    "tenth": lambda m, x: m.a(x)[:, :, 10].amax(-1),
    "last but one": lambda m, x: m.a(x)[:, :, -2].amax(-1),
    "narrow": lambda m, x: m.a(x).narrow(2, 2, 8).mean((2, 3)),
    "by length": lambda m, x: m.a(x) * ((x.size(2) / 4) ** 2) + -(x.size(2) / 4),
    "both": lambda m, x: m.a(x).max(1),
    "first of both": lambda m, x: m.a(x).max(1)[0],
    "both in a row": lambda m, x: m.a(x).max(1)[:2],
    "changed by name": lambda m, x: changed(m.a(x).max(1)),
    "named": lambda m, x: m.a(x).view(x.size(dim=0), -1)[:, :9],
    "normed": lambda m, x: m.n(m.a(x)),
    "axis of one": lambda m, x: (m.one(x).flatten(2)[:, :, :16] + m.one(x)[:, :, :, :16]).squeeze(
        1
    ),
    "summed": lambda m, x: m.a(x).sum((2, 3)),
    "twos": lambda m, x: m.a(x).view(-1, 2, 6, x.size(2), x.size(3)).mean(1),
}
SIZES = [(2, 12, 16), (4, 20, 16), (2, 6, 16), (1, 12, 16)]


def made(name):
    torch.manual_seed(0)
    layers = {"a": conv(3, 6), "b": nn.Conv2d(6, 6, 1), "one": conv(3, 1)}
    return Model(MODELS[name], **layers, n=nn.InstanceNorm2d(3)).eval()


def dead(model):
    """With channels that are constant, but not zero."""
    model.a.weight.data[::3] = 0
    return model


@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [1, 2])
def test_what_holds_for_the_example_holds_for_others(name, batch, tmp_path):
    model = dead(made(name))
    if said(model, image(batch)) is RuntimeError:
        pytest.skip("the model itself takes no such batch")
    others = {"compiled": compile(model, image(batch), tune=False)}
    with suppress(BadInput):  # what torch runs whole is neither cut nor saved
        others["compacted"] = compact(model, image(batch)).model
    with suppress(BadInput):
        save(model, tmp_path / "net", example=image(batch))
        others["loaded"] = load(tmp_path / "net").model
    for size in SIZES:
        for what, other in others.items():
            assert alike(model, other, image(*size)), (what, size)


def test_a_new_axis_behind_is_one_of_whatever_number_of_axes():
    line = nn.Sequential(nn.Conv1d(3, 6, 3), Model(lambda m, x: x[..., None].flatten(1))).eval()
    runtime, x = compile(line, torch.randn(1, 3, 8), tune=False), torch.randn(2, 3, 8)
    torch.testing.assert_close(runtime(x), line(x).detach())
    assert not unknown(verified(made("excited"), (image(),)))


ONE_IMAGE = {
    "normed": lambda m, x: m.n(m.a(x)),
    "second": lambda m, x: m.a(x)[:, 1],
    "selected": lambda m, x: m.a(x).select(-3, 1),
    "half": lambda m, x: m.a(x).chunk(2, -3)[1],
}


@pytest.mark.parametrize("name", ONE_IMAGE)
def test_what_an_example_told_of_axes_is_asked_of_every_input(name, tmp_path):
    model = Model(ONE_IMAGE[name], a=conv(3, 6), n=nn.InstanceNorm2d(6)).eval()
    small = compact(model, image()).model
    save(model, tmp_path / "net", example=image())
    loaded = load(tmp_path / "net").model
    again = copy.deepcopy(loaded)
    for network in (small, loaded, again, compact(loaded, image()).model):
        assert alike(model, network, image(3, 9, 7))
        for runs in (network, compile(network, image(), tune=False)):
            with pytest.raises(
                BadInput, match=r"of 4 axes, as its example had them, not .*3, 12, 16"
            ):
                runs(image()[0])


def test_what_takes_one_image_as_well_as_a_batch_still_does(tmp_path):
    model = nn.Sequential(conv(3, 6), nn.ReLU(), nn.MaxPool2d(2), conv(6, 4)).eval()
    save(model, tmp_path / "net", example=image())
    for network in (compact(model, image()).model, load(tmp_path / "net").model):
        assert alike(model, network, image()[0])


@pytest.mark.parametrize("axes", [[4, 4], [4.5], ["4"], [-1], [True], 4, {}])
def test_axes_of_a_file_are_counts_of_all_inputs(axes):
    content, arrays = written(capture(made("normed"), example=[image()]))
    assert content["axes"] == [4]
    assert read(content, arrays).axes == (4,)
    with pytest.raises(BadInput):
        read({**content, "axes": axes}, arrays)


def test_a_change_in_place_of_what_is_named_is_no_plain_sum(tmp_path):
    model = made("changed by name")
    with pytest.raises(BadInput, match="a change in place may show"):
        save(model, tmp_path / "net")


def test_both_in_a_row_are_values():
    assert len(list(verified(made("both in a row"), (image(),)))) > 1


def test_a_constant_channel_may_be_summed():
    small = compact(dead(made("summed")), image())
    assert small.difference <= 1e-5 * small.largest


@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")
@pytest.mark.parametrize("name", MODELS)
def test_what_is_not_exported_is_told_in_a_sentence(name, tmp_path):
    pytest.importorskip("onnxruntime")
    with suppress(BadInput):  # whatever else it raises is no sentence
        export(made(name), image(2), tmp_path / "net.onnx")


def test_a_model_that_takes_twice_as_many_but_not_one_more_is_exported(tmp_path):
    pytest.importorskip("onnxruntime")
    by_twos = lambda m, x: m.a(x).unflatten(0, (-1, 2)).mean(1)
    assert export(Model(by_twos, a=conv(3, 6)).eval(), image(2), tmp_path / "twos.onnx")
    alone = lambda m, x: m.a(x).view(2, 6, x.size(2), x.size(3))
    with pytest.raises(BadInput, match="takes this example of 2, but neither one image more nor"):
        export(Model(alone, a=conv(3, 6)).eval(), image(2), tmp_path / "alone.onnx")
    assert not (tmp_path / "alone.onnx").exists()


# ---- what others compute in another way


def nearly_constant():
    """Channels that are constant but for a bias: their variance is nothing."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 1), nn.InstanceNorm2d(16, affine=True), nn.GELU()]
    layers += [nn.Conv2d(16, 16, 1), nn.InstanceNorm2d(16, affine=True), nn.Conv2d(16, 2, 1)]
    model = nn.Sequential(*layers).eval()
    for layer in (model[0], model[3]):
        layer.weight.data[::2] = 0
        layer.bias.data.normal_(std=3)
    return model


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_norms_keep_the_digits_of_channels_that_hardly_vary(order, tmp_path):
    model, x = nearly_constant(), torch.randn(1, 3, 96, 96)
    small = compact(model, x).model
    save(small, tmp_path / "net")
    dense = in_torch(capture(model, example=[x]))
    with torch.no_grad():
        wanted = model(x)
        for other in (small, load(tmp_path / "net").model, dense, compile(small, x, tune=False)):
            given = other(x.contiguous(memory_format=order))
            assert float((given - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())


def test_norms_in_onnx_keep_them_too(monkeypatch):
    pytest.importorskip("onnxruntime")
    from sparsepath.deploy.running import dense

    monkeypatch.setattr(dense, "TOLERANCE", 1.0)  # it would be no rival otherwise
    model, x = nearly_constant(), torch.randn(1, 3, 96, 96)
    run = in_onnxruntime(capture(model, example=[x]), [x], 1)
    assert run is not None
    with torch.no_grad():
        wanted = model(x)
        assert float((run(x) - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())


def test_maxima_of_what_is_not_a_number_are_none():
    pytest.importorskip("onnxruntime")
    model = Model(lambda m, x: m.a(x).amax((2, 3)), a=conv(3, 8)).eval()
    run = in_onnxruntime(capture(model, example=[image()]), [image()], 1)
    assert run is not None
    x = image()
    x[0, 0, 3, 4] = torch.nan
    with torch.no_grad():
        assert torch.equal(run(x).isnan(), model(x).isnan())
    unsure = [
        lambda m, x: functional.max_pool2d(m.a(x) ** 0.5, 2),
        lambda m, x: (m.a(x).exp() * m.a(x).sigmoid()).amax((2, 3)),
    ]
    for function in unsure:
        model = Model(function, a=conv(3, 8)).eval()
        assert in_onnxruntime(capture(model, example=[image()]), [image().abs()], 1) is None


@pytest.mark.parametrize("ends", [{"min": -1.0}, {"max": 1.0}], ids=str)
def test_infinity_stays_where_a_clamp_has_no_end(ends):
    pytest.importorskip("onnxruntime")
    model = Model(lambda m, x: m.a(x).clamp(**ends), a=nn.Conv2d(3, 3, 1, groups=3)).eval()
    run = in_onnxruntime(capture(model, example=[image()]), [image()], 1)
    x = image()
    x[0, :, 3, 4], x[1, :, 5, 6] = torch.inf, -torch.inf
    with torch.no_grad():
        assert model(x).isinf().any()
        assert torch.equal(run(x).isinf(), model(x).isinf())


def test_a_rival_that_gives_other_numbers_is_none(monkeypatch):
    pytest.importorskip("onnxruntime")
    from sparsepath.deploy.running import dense

    graph = capture(made("excited"), example=[image()])
    assert in_onnxruntime(graph, [image()], 1) is not None
    monkeypatch.setattr(dense.reference, "run", lambda graph, x: torch.zeros(2, 6, 12, 16))
    assert in_onnxruntime(graph, [image()], 1) is None


@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_images_are_resized_to_torchs_sizes(factor):
    pytest.importorskip("onnxruntime")
    resized = lambda m, x: functional.interpolate(m.a(x), scale_factor=factor, mode="bilinear")
    model = Model(resized, a=conv(3, 4)).eval()
    run = in_onnxruntime(capture(model, example=[image(1, 16, 16)]), [image(1, 16, 16)], 1)
    assert run is not None
    with torch.no_grad():
        for side in (16, 90, 180):
            x = image(1, side, side)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
