"""A compiled network is the network: same numbers, any batch, any size, any thread, any model."""

import logging
import re
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from tracing import untraced

import sparsepath
from sparsepath.deploy.running import kernels
from sparsepath.deploy.running.runtime import Runtime, compile

from .cases import BUILDERS, network, scrambled, sizes
from .test_capture import KNOWN, UNKNOWN

# Batch norm is folded before anything runs, and folding has tests of its own.
BUILT = [name for name in BUILDERS if name.removesuffix("-bn") not in set(BUILDERS) - {name}]
NAMED = [name for name in BUILT if not name.startswith("digit")]
native = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")


def exact(model, images):
    """The model in float64."""
    with torch.no_grad():
        wanted = model.double()(images.double())
    model.float()
    return wanted


def error(ours, wanted):
    """The largest difference over the largest value."""
    return ((ours - wanted).abs().max() / wanted.abs().max()).item()


def small(*, channels=3):
    """A network that compiles in no time: 3 x 3, 1 x 1, depthwise, pool and linear layers."""
    torch.manual_seed(0)
    return scrambled(
        nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.ReLU6(),
            nn.Conv2d(8, 12, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, 5),
        )
    )


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEPATH_CACHE", str(tmp_path / "cache"))


@untraced
@pytest.mark.parametrize("name", BUILT)
def test_a_network_keeps_its_function_at_any_batch_and_size(name):
    model = network(name)
    runtime = compile(model, torch.randn(2, 3, 32, 32), tune=False)
    for size in sizes(name):
        for batch in (1, 18):
            images = torch.randn(batch, 3, size, size)
            assert error(runtime(images), exact(model, images)) < 1e-5


@untraced
@native
@pytest.mark.parametrize("name", NAMED)
def test_nearly_all_multiplications_are_in_our_kernels(name):
    report = compile(network(name), torch.randn(16, 3, 32, 32), tune=False).report()
    assert report.native_share >= 0.95
    assert len(report.rows) > 5
    assert not report.notes


@untraced
@pytest.mark.parametrize("zero", [0.0, 0.97, 1.0])
def test_networks_with_no_or_hardly_any_or_only_zero_kernels(zero):
    for name in ("cnn", "resnet-20", "mobilenet-v2"):
        model = network(name, zero=zero)
        images = torch.randn(3, 3, 32, 32)
        runtime = compile(model, images, tune=False)
        assert error(runtime(images), exact(model, images)) < 1e-5


def test_a_tuned_network_keeps_its_function():
    model = small()
    runtime = compile(model, torch.randn(4, 3, 16, 16))
    for batch in (1, 4, 32, 40):
        images = torch.randn(batch, 3, 16, 16)
        assert error(runtime(images), exact(model, images)) < 1e-5


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", [*KNOWN, *UNKNOWN])
def test_whatever_users_write_runs(name):
    model = (KNOWN[name] if name in KNOWN else UNKNOWN[name][0]).float().eval()
    images = torch.randn(3, 4, 8, 6)
    runtime = compile(model, images.clone(), tune=False)
    with torch.no_grad():
        wanted = model(images.clone())
    torch.testing.assert_close(runtime(images), wanted, rtol=1e-4, atol=1e-4)


def test_what_is_not_known_gets_its_tensors_in_the_order_they_have(monkeypatch):
    monkeypatch.setattr(kernels, "why_missing", lambda: "no compiler was found")
    model = UNKNOWN["changed view"][0].float().eval()
    images = torch.randn(3, 4, 8, 6)
    runtime = compile(model, images.clone(), tune=False)
    with torch.no_grad():
        torch.testing.assert_close(runtime(images), model(images), rtol=1e-4, atol=1e-4)


class Centred(nn.Module):
    """What U-Nets do where sizes differ: a dozen lengths and a pad that no kernel takes."""

    def forward(self, x):
        small = nn.functional.max_pool2d(x, 2)
        down, across = x.shape[2] - small.shape[2], x.shape[3] - small.shape[3]
        room = [across // 2, across - across // 2, down // 2, down - down // 2]
        return nn.functional.pad(small, room, mode="reflect") + x


def test_nodes_that_run_in_torch_for_one_reason_have_one_line(caplog):
    with caplog.at_level(logging.WARNING, "sparsepath"):
        runtime = compile(Centred().eval(), torch.randn(1, 2, 7, 9), tune=False)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert re.fullmatch(r"'length', 'length#2' and \d+ more run in torch: .*\.", said[0])
    assert said[0] in str(runtime.report())


def test_a_node_that_is_not_known_is_named_in_one_line(caplog):
    with caplog.at_level(logging.WARNING, "sparsepath"):
        runtime = compile(UNKNOWN["chunks"][0].float().eval(), torch.randn(2, 4, 8, 6), tune=False)
    said = [record.getMessage() for record in caplog.records]
    assert any("'chunk' runs in torch: its shape is computed" in line for line in said)
    assert all(len(line.splitlines()) == 1 for line in said)
    assert "'chunk' runs in torch" in str(runtime.report())


def test_without_kernels_it_runs_in_torch_and_says_so_in_one_line(monkeypatch, caplog):
    monkeypatch.setattr(kernels, "why_missing", lambda: "no compiler was found")
    model = small()
    images = torch.randn(4, 3, 16, 16)
    with caplog.at_level(logging.WARNING, "sparsepath"):
        runtime = compile(model, images)
    (said,) = [record.getMessage() for record in caplog.records]
    assert (
        said
        == "Everything runs in torch: there are no native kernels here (no compiler was found)."
    )
    assert error(runtime(images), exact(model, images)) < 1e-5
    assert runtime.report().runner == "torch"
    assert runtime.report().native_share == 0


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_a_value_may_be_given_before_and_after_dropout(strict):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.drop = nn.Conv2d(3, 4, 3), nn.Dropout()

        def forward(self, x):
            found = self.conv(x)
            return self.drop(x), found, self.drop(found)

    model, images = Twice().eval(), torch.randn(2, 3, 9, 9)
    runtime = compile(model, images, tune=False, strict=strict)
    for ours, wanted in zip(runtime(images), model(images), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_several_inputs_and_a_dict_of_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x, y):
            maps = self.conv(x) + y
            return {"maps": maps, "both": (maps.relu(), y)}

    model = Two().eval()
    x, y = torch.randn(2, 3, 8, 8), torch.randn(2, 4, 8, 8)
    runtime = compile(model, (x, y), tune=False)
    for batch in (1, 6):
        x, y = torch.randn(batch, 3, 9, 8), torch.randn(batch, 4, 9, 8)
        with torch.no_grad():
            torch.testing.assert_close(runtime(x, y), model(x, y), rtol=1e-4, atol=1e-5)


def test_strict_gives_what_torch_gives_for_numbers_that_are_not_finite():
    model = small()
    with torch.no_grad():
        model[0].weight[:, 1] = 0  # nothing of ours reads it, but torch multiplies it by zero
    strict = compile(model, torch.randn(2, 3, 16, 16), tune=False, strict=True)
    for value in (torch.nan, torch.inf, -torch.inf):
        images = torch.randn(2, 3, 16, 16)
        images[0, 1, 5, 5] = value
        with torch.no_grad():
            wanted = model(images)
        assert not wanted[0].isfinite().all()
        torch.testing.assert_close(strict(images), wanted, rtol=0, atol=0, equal_nan=True)
    plain = torch.randn(2, 3, 16, 16)
    assert error(strict(plain), exact(model, plain)) < 1e-5


@native
def test_strict_rounds_no_pixel_by_another_that_it_does_not_read():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU6(), nn.Conv2d(8, 2, 1)).eval()
    images = torch.rand(1, 4, 16, 16)
    images[0, 0, 5, 5] = 1e6
    wanted = exact(model, images)
    assert error(compile(model, images, tune=False)(images), wanted) > 1e-3
    assert error(compile(model, images, tune=False, strict=True)(images), wanted) < 1e-6


def test_strict_sees_an_overflow_on_the_way():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 2, 1)).eval()
    with torch.no_grad():
        for layer in model:
            layer.weight.fill_(1e20)
            layer.bias.zero_()
        model[1].weight[1] = 0  # times infinity, torch says, is no number
    images = torch.full((1, 1, 4, 4), 1e30)
    strict = compile(model, images, tune=False, strict=True)
    with torch.no_grad():
        wanted = model(images)
    assert wanted[0, 1].isnan().all()
    torch.testing.assert_close(strict(images), wanted, rtol=0, atol=0, equal_nan=True)


@native
def test_a_kept_weight_passes_on_what_is_not_finite():
    model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1)).eval()
    with torch.no_grad():
        model[0].weight[0, 1] = 0
        model[0].weight[1, 0] = 0
    images = torch.randn(16, 2, 12, 12)
    images[3, 0, 6, 6] = torch.nan
    given = compile(model, images, tune=False)(images)
    assert not given[3, 0, 5:8, 5:8].isfinite().any()
    assert given[3, 1].isfinite().all()  # its kernel of that channel is zero
    assert given[4].isfinite().all()


def test_threads_share_a_runtime():
    model = small()
    runtime = compile(model, torch.randn(2, 3, 16, 16), tune=False)
    cases = [torch.randn(batch, 3, size, size) for batch in (1, 3, 20) for size in (12, 16, 21)]
    wanted = [exact(model, images) for images in cases]
    wrong: list[object] = []

    def work(first):
        try:
            for turn in range(40):
                place = (first + turn) % len(cases)
                if error(runtime(cases[place]), wanted[place]) > 1e-5:
                    wrong.append(place)
        except Exception as caught:
            wrong.append(caught)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_same_images_give_the_same_numbers_every_time():
    runtime = compile(small(), torch.randn(2, 3, 16, 16), tune=False)
    images = torch.randn(5, 3, 13, 17)
    assert torch.equal(runtime(images), runtime(images))


@pytest.mark.parametrize("threads", [2, 1_000_000])
def test_more_threads_give_the_same_network(threads):
    model = small()
    images = torch.randn(20, 3, 16, 16)
    runtime = compile(model, images, threads=threads, tune=False)
    assert error(runtime(images), exact(model, images)) < 1e-5
    assert error(runtime(images[:1]), exact(model, images[:1])) < 1e-5


def resident():
    """The memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_memory_is_flat_over_ten_thousand_calls():
    runtime = compile(small(), torch.randn(2, 3, 8, 8), tune=False)
    batches = [torch.randn(batch, 3, 8, size) for batch in (1, 3, 16) for size in (8, 9)]
    for turn in range(500):
        runtime(batches[turn % len(batches)])
    before = resident()
    for turn in range(10_000):
        runtime(batches[turn % len(batches)])
    assert resident() - before < 2_000_000


def test_the_runtime_keeps_the_weights_it_was_compiled_with():
    model = small()
    images = torch.randn(2, 3, 16, 16)
    runtime = compile(model, images, tune=False)
    before = runtime(images)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert torch.equal(runtime(images), before)


def test_an_input_that_wants_gradients_gives_a_plain_result_and_stays_as_it_is():
    runtime = compile(small(), torch.randn(2, 3, 16, 16), tune=False)
    images = torch.randn(2, 3, 16, 16, requires_grad=True)
    copy = images.detach().clone()
    assert not runtime(images).requires_grad
    assert torch.equal(images, copy)


@native
def test_the_report_lists_every_node_and_its_work():
    model = small()
    report = compile(model, torch.randn(4, 3, 16, 16), tune=False).report()
    assert [(row.name, row.method) for row in report.rows] == [
        ("0", "winograd4"),
        ("4", "depthwise"),
        ("6", "direct"),
        ("8", "native"),
        ("9", "native"),
        ("10", "rows"),
    ]
    with torch.no_grad():
        assert report.macs == sparsepath.macs(model, torch.zeros(1, 3, 16, 16)).dense
    assert "by rule" in str(report)


def test_the_public_way_in():
    runtime = sparsepath.deploy.compile(small(), torch.randn(1, 3, 16, 16), tune=False)
    assert isinstance(runtime, Runtime)
