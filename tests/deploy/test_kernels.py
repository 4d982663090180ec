"""Every kernel against torch in float64: shapes, patterns, layouts, vector widths, threads."""

import math
import threading

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from sparsepath.deploy.running.kernels import NO_CLAMP, RELU, RELU6, Conv, Linear, available, isas
from sparsepath.deploy.running.maps import Layout
from sparsepath.deploy.running.program import Program
from sparsepath.deploy.running.stages import PLANS

pytestmark = pytest.mark.skipif(not available(), reason="built without a C++ compiler")

EPS = torch.finfo(torch.float32).eps
LIMIT = {"winograd4": 1e-4, "winograd2": 1e-5}
CLAMPS = st.sampled_from([NO_CLAMP, RELU, RELU6])
GRIDS = st.sampled_from([1, 2, 4])
WEAVES = st.sampled_from([0, 2, 4])
PATTERNS = [
    "none zero",
    "all zero",
    "one kernel",
    "empty rows",
    "empty columns",
    "kernels",
    "elements",
]
FEW = settings(max_examples=60, deadline=None)


def pattern_of(kind, weight, generator):
    """A mask of zeros and ones for a (out, in, ...) weight."""
    out, into = weight.shape[:2]
    mask = torch.ones_like(weight)
    if kind == "all zero":
        mask.zero_()
    elif kind == "one kernel":
        mask.zero_()[out // 2, into // 2] = 1
    elif kind == "empty rows":
        mask[::2] = 0
    elif kind == "empty columns":
        mask[:, ::2] = 0
    elif kind == "kernels":
        shape = (out, into) + (1,) * (weight.ndim - 2)
        mask *= torch.rand(shape, generator=generator) < 0.4
    elif kind == "elements":
        mask *= torch.rand(weight.shape, generator=generator) < 0.4
    return mask


@st.composite
def convolutions(draw, methods=("direct", "winograd2", "winograd4", "depthwise", "rows")):
    """A convolution, its input and how it is to be run."""
    method = draw(st.sampled_from(methods))
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))
    kernel, stride, dilation, groups = pair(1, 5), pair(1, 3), pair(1, 2), draw(st.integers(1, 3))
    multiple = draw(st.integers(1, 2))
    if method == "rows":
        groups = 1
    into, out = groups * draw(st.integers(1, 9)), groups * draw(st.integers(1, 9))
    if method == "depthwise":
        groups = draw(st.integers(2, 9))
        into, out = groups, groups * multiple
    elif method.startswith("winograd"):
        kernels = [(3, 3), (1, 3), (3, 1)] if method == "winograd4" else [(3, 3)]
        kernel, stride, dilation, groups = draw(st.sampled_from(kernels)), (1, 1), (1, 1), 1
    padding = pair(0, 3)
    batch, size = draw(st.integers(1, 20)), pair(1, 19)
    assume(
        all(
            n + 2 * p > d * (k - 1)
            for n, p, d, k in zip(size, padding, dilation, kernel, strict=True)
        )
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    weight = torch.randn(out, into // groups, *kernel, generator=generator)
    weight *= pattern_of(draw(st.sampled_from(PATTERNS)), weight, generator)
    bias = torch.randn(out, generator=generator)
    x = torch.randn(batch, into, *size, generator=generator)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, weight, bias, options, method


def run_conv(
    x, weight, bias, options, method, *,
    grid, clamp=NO_CLAMP, pool=False, panel=0, woven=0, **how,
):  # fmt: skip
    program = Program(**how)
    maps = program.enter(program.input(x.shape[1:]), grid=grid)
    conv = Conv(weight, bias, **options, method=method, woven=woven)
    maps = program.conv(maps, conv, clamp=clamp, pool=pool, panel=panel)
    program.output(program.leave(maps))
    (y,) = program.run([x])
    return y


def limit_of(method, x, weight, bias, exact, function):
    """What is promised, but of the magnitudes that are summed: few random sums may cancel."""
    summed = float(function(x.double().abs(), weight.double().abs(), bias.double().abs()).max())
    if method in LIMIT:
        return LIMIT[method] * summed
    return 2 * float((function(x, weight, bias) - exact).abs().max()) + 4 * EPS * summed


@FEW
@given(
    convolutions(),
    GRIDS,
    CLAMPS,
    st.booleans(),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([7, 16]),
    WEAVES,
)
def test_a_convolution_equals_torchs(case, grid, clamp, pool, panel, threads, isa, group, woven):
    x, weight, bias, options, method = case
    exact = nn.functional.conv2d(x.double(), weight.double(), bias.double(), **options)
    assume(not pool or min(exact.shape[2:]) >= 2)
    convolve = lambda *tensors: nn.functional.conv2d(*tensors, **options)
    limit = limit_of(method, x, weight, bias, exact, convolve)
    expected = exact.clamp(*clamp)
    if pool:
        expected = nn.functional.max_pool2d(expected, 2)
    y = run_conv(
        *case, grid=grid, clamp=clamp, pool=pool, panel=panel,
        threads=threads, isa=isas()[isa % len(isas())], group=group, woven=woven,
    )  # fmt: skip
    assert y.shape == expected.shape
    assert float((y - expected).abs().max()) <= limit


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize(
    ("method", "kernel"),
    [("direct", 1), ("direct", 3), ("direct", 5), ("winograd2", 3), ("winograd4", 3)],
)
@pytest.mark.parametrize("woven", [0, 2, 4])
def test_a_layer_of_real_size_is_as_exact_as_promised(method, kernel, woven, isa):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 96, kernel, kernel, generator=generator)
    weight *= pattern_of("kernels", weight, generator)
    bias, x = torch.randn(64, generator=generator), torch.randn(4, 96, 16, 16, generator=generator)
    options = {"padding": (kernel // 2, kernel // 2)}
    exact = nn.functional.conv2d(x.double(), weight.double(), bias.double(), **options)
    error = lambda y: float((y - exact).abs().max() / exact.abs().max())
    plain = nn.functional.conv2d(x, weight, bias, **options)
    limit = LIMIT.get(method, 2 * error(plain) + 4 * EPS)
    y = run_conv(x, weight, bias, options, method, grid=4, woven=woven, isa=isa)
    assert error(y) <= limit


@FEW
@given(convolutions(), GRIDS, st.integers(2, 4), WEAVES)
def test_threads_change_no_bit(case, grid, threads, woven):
    several = run_conv(*case, grid=grid, threads=threads, woven=woven)
    assert torch.equal(several, run_conv(*case, grid=grid, woven=woven))


@pytest.mark.parametrize("method", ["winograd4", "winograd2"])
@pytest.mark.parametrize("panel", [1, 2, 3])
@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("woven", [0, 2, 4])
def test_threads_part_no_slices_that_are_multiplied_together(method, panel, threads, woven):
    """A slice alone sums in another order than beside others, so no number may part them."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(5, 9, 3, 3, generator=generator), torch.zeros(5)
    x = torch.randn(2, 9, 7, 6, generator=generator)
    case = (x, weight, bias, {"padding": (1, 1)}, method)
    several = run_conv(*case, grid=1, panel=panel, threads=threads, woven=woven)
    assert torch.equal(several, run_conv(*case, grid=1, panel=panel, woven=woven))


@FEW
@given(
    convolutions(), GRIDS, st.sampled_from([math.inf, -math.inf, math.nan]), WEAVES,
    st.data(),
)  # fmt: skip
def test_what_is_not_finite_reaches_every_output_that_reads_it(case, grid, value, woven, data):
    x, weight, bias, options, method = case
    n, c, h, w = (data.draw(st.integers(0, size - 1)) for size in x.shape)
    seen = torch.zeros_like(x)
    seen[n, c, h, w] = 1
    reads = nn.functional.conv2d(seen, (weight != 0).float(), **options) > 0
    x = x.clone()
    x[n, c, h, w] = value
    finite = run_conv(x, weight, bias, options, method, grid=grid, woven=woven).isfinite()
    assert not finite[reads].any()
    if method == "rows":  # as in torch, a zero weight too passes it on
        covers = nn.functional.conv2d(seen, torch.ones_like(weight), **options) > 0
        assert finite[~covers].all()
    elif not method.startswith("winograd"):
        assert finite[~reads].all()
    else:  # only within the tile of a pixel that reads it, and only in its own image
        assert finite[torch.arange(len(x)) != n].all()


@pytest.mark.parametrize(("size", "group", "kinds"), [
    (4, 1, ["import", "conv", "relayout", "max_pool", "export"]),  # squares would fill 4 lanes
    (4, 16, ["import", "relayout", "conv", "export"]),  # sixteen images side by side lose none
    (8, 1, ["import", "conv", "export"]),
])  # fmt: skip
def test_pixels_are_pooled_after_a_convolution_that_squares_of_them_would_slow(size, group, kinds):
    weight, x = torch.randn(3, 2, 3, 3), torch.randn(group, 2, size, size)
    program = Program(group=group)
    maps = program.enter(program.input(x.shape[1:]), grid=4)
    maps = program.conv(maps, Conv(weight, padding=(1, 1)), pool=True)
    program.output(program.leave(maps))
    assert [kind for kind, _ in program.profile([x])] == kinds
    expected = nn.functional.max_pool2d(nn.functional.conv2d(x, weight, padding=1), 2)
    assert torch.allclose(program.run([x])[0], expected, atol=1e-4)


def test_rows_of_unequal_length_read_no_other_input():
    """What a row has more than its neighbours must not reach them if it is not finite."""
    weight = torch.zeros(4, 9, 1, 1)
    weight[0] = 1
    weight[1:, 8] = 1
    for channel in range(9):
        x = torch.ones(1, 9, 2, 2)
        x[:, channel] = math.inf
        y = run_conv(x, weight, None, {}, "direct", grid=2)
        assert torch.equal(y.isfinite()[0, :, 0, 0], weight[:, channel, 0, 0] == 0)


@FEW
@given(
    st.tuples(st.integers(1, 17), st.integers(2, 21), st.integers(2, 21)),
    st.tuples(*[st.sampled_from(["direct", "winograd2", "winograd4", "rows"])] * 2),
    st.tuples(*[st.integers(0, 2)] * 2),
    GRIDS,
    st.booleans(),
)
def test_what_lies_over_the_edge_of_a_map_reaches_no_later_layer(
    shape, methods, padding, grid, pool
):
    batch, *size = shape
    assume(min(size) + 4 * min(padding) > 5)
    x, weights = torch.randn(batch, 3, *size), torch.randn(2, 3, 3, 3, 3)
    program = Program()
    maps = program.enter(program.input(x.shape[1:]), grid=grid)
    expected = x.double()
    for weight, method in zip(weights, methods, strict=True):
        bias = torch.full((3,), 5.0)  # what is not masked is far from zero
        conv = Conv(weight, bias, padding=padding, method=method)
        maps = program.conv(maps, conv)
        expected = nn.functional.conv2d(expected, weight.double(), bias.double(), padding=padding)
    if pool and min(expected.shape[2:]) >= 2:
        maps = program.avg_pool(maps, (3, 3), stride=(1, 1), padding=(1, 1))
        expected = nn.functional.avg_pool2d(expected, 3, 1, 1)
    program.output(program.leave(maps))
    (y,) = program.run([x])
    assert float((y - expected).abs().max()) <= 1e-3


@pytest.mark.parametrize("method", ["winograd2", "winograd4"])
@pytest.mark.parametrize("size", [(14, 16), (16, 14), (24, 16), (16, 24), (16, 16), (30, 27)])
@pytest.mark.parametrize("grid", [1, 2, 4])
@pytest.mark.parametrize("isa", isas())
def test_tiles_that_begin_inside_and_end_outside_are_read_right(method, size, grid, isa):
    # Of 14 rows the last lanes of four hold two, and of 24 each holds one tile and a half.
    x, weights = torch.randn(5, 3, *size), torch.randn(2, 3, 3, 3, 3)
    program = Program(isa=isa)
    maps = program.enter(program.input(x.shape[1:]), grid=grid)
    expected = x.double()
    for weight in weights:
        bias = torch.full((3,), 5.0)  # what lies over the edge is far from zero
        maps = program.conv(maps, Conv(weight, bias, padding=(1, 1), method=method))
        expected = nn.functional.conv2d(expected, weight.double(), bias.double(), padding=1)
    program.output(program.leave(maps))
    (y,) = program.run([x])
    assert float((y - expected).abs().max()) <= 1e-3


@pytest.mark.parametrize("method", ["direct", "winograd2", "winograd4"])
@pytest.mark.parametrize("pool", [False, True])
def test_a_clamp_and_a_pool_keep_nan(method, pool):
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    x[1, 2, 3, 4] = math.nan
    y = run_conv(x, weight, None, {"padding": (1, 1)}, method, grid=4, clamp=RELU6, pool=pool)
    expected = nn.functional.conv2d(x, weight, padding=1).clamp(*RELU6)
    if pool:
        expected = nn.functional.max_pool2d(expected, 2)
    assert y[expected.isnan()].isnan().all()
    assert expected.isnan().any()


@FEW
@given(
    st.tuples(*[st.integers(1, 18)] * 2, *[st.integers(1, 20)] * 2),
    st.tuples(*[st.integers(1, 4)] * 4),
    st.tuples(*[st.integers(0, 2)] * 2),
    GRIDS,
    st.sampled_from(["max", "avg", "avg without padding"]),
    st.integers(0, 2),
)
def test_a_pool_equals_torchs(shape, steps, padding, grid, kind, isa):
    window, stride = steps[:2], steps[2:]
    padding = tuple(min(p, w // 2) for p, w in zip(padding, window, strict=True))
    assume(all(n + 2 * p >= w for n, p, w in zip(shape[2:], padding, window, strict=True)))
    x = torch.randn(shape)
    if kind == "max":
        expected = nn.functional.max_pool2d(x, window, stride, padding)
    else:
        counted = kind == "avg"
        expected = nn.functional.avg_pool2d(x, window, stride, padding, count_include_pad=counted)
    program = Program(isa=isas()[isa % len(isas())])
    maps = program.enter(program.input(shape[1:]), grid=grid)
    if kind == "max":
        maps = program.max_pool(maps, window, stride=stride, padding=padding)
    else:
        maps = program.avg_pool(maps, window, stride=stride, padding=padding, count_padding=counted)
    program.output(program.leave(maps))
    torch.testing.assert_close(program.run([x])[0], expected)


def test_a_max_pool_keeps_nan_and_ignores_padding():
    x = torch.full((1, 1, 4, 4), -5.0)
    x[0, 0, 0, 0] = math.nan
    for grid in (1, 2, 4):
        program = Program()
        maps = program.enter(program.input((1, 4, 4)), grid=grid)
        program.output(program.leave(program.max_pool(maps, (3, 3), stride=(1, 1), padding=(1, 1))))
        (y,) = program.run([x])
        assert y.isnan().sum() == 4
        assert (y[~y.isnan()] == -5).all()


@pytest.mark.parametrize("isa", isas())
def test_a_mean_of_many_pixels_loses_no_more_digits_than_torchs(isa):
    x = 0.7 + torch.rand(2, 1, 512, 512, generator=torch.Generator().manual_seed(0)) / 1000
    program = Program(isa=isa)
    source = program.enter(program.input((1, 512, 512)))
    program.output(program.mean(source))
    program.output(program.leave(program.avg_pool(source, (512, 512), stride=(512, 512))))
    means, pooled = program.run([x])
    exact = x.double().mean((2, 3))
    error = lambda y: ((y.reshape(2, 1) - exact).abs() / exact).max()
    limit = 2 * error(x.mean((2, 3))) + 4 * EPS
    assert error(means) <= limit
    assert error(pooled) <= limit


@FEW
@given(
    st.tuples(*[st.integers(1, 18)] * 2, *[st.integers(1, 20)] * 2), GRIDS, GRIDS, CLAMPS,
    st.integers(0, 2),
)  # fmt: skip
def test_sums_scales_and_concatenation_equal_torchs(shape, grid, other_grid, clamp, isa):
    a, b = torch.randn(shape), torch.randn(shape)
    scale, shift = torch.randn(shape[1]), torch.randn(shape[1])
    program = Program(isa=isas()[isa % len(isas())], threads=2)
    first = program.enter(program.input(shape[1:]), grid=grid)
    second = program.enter(program.input(shape[1:]), grid=other_grid)
    summed = program.add(first, second, clamp=clamp)
    scaled = program.affine(summed, scale, shift, clamp=clamp)
    joined = program.concat([scaled, second, first])
    program.output(program.leave(joined))
    program.output(program.mean(joined))
    everything, means = program.run([a, b])
    expected = (a + b).clamp(*clamp)
    column = lambda v: v[:, None, None]
    expected = (expected * column(scale) + column(shift)).clamp(*clamp)
    expected = torch.cat([expected, b, a], 1)
    torch.testing.assert_close(everything, expected)
    torch.testing.assert_close(means, expected.mean((2, 3)), rtol=1e-5, atol=1e-6)


@FEW
@given(
    st.integers(1, 70), st.integers(1, 200), st.integers(1, 40), st.sampled_from(PATTERNS), CLAMPS,
    st.integers(1, 3), st.integers(0, 2),
)  # fmt: skip
def test_a_linear_layer_equals_torchs(batch, into, out, pattern, clamp, threads, isa):
    generator = torch.Generator().manual_seed(batch)
    weight = torch.randn(out, into, generator=generator)
    weight *= pattern_of(pattern, weight, generator)
    bias, x = torch.randn(out, generator=generator), torch.randn(batch, into, generator=generator)
    program = Program(threads=threads, isa=isas()[isa % len(isas())], group=64)
    row = program.input((into,))
    program.output(program.linear(row, Linear(weight, bias), clamp=clamp))
    (y,) = program.run([x])
    exact = x.double() @ weight.double().T + bias.double()
    limit = limit_of("direct", x, weight, bias, exact, nn.functional.linear)
    assert float((y - exact.clamp(*clamp)).abs().max()) <= limit


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("into", [4096, 25088, 65536])
@pytest.mark.parametrize("positive", [False, True])
def test_the_error_of_a_long_row_is_about_torchs(into, positive, isa):
    generator = torch.Generator().manual_seed(into)
    weight = torch.rand(64, into, generator=generator) - (0.0 if positive else 0.5)
    for batch in (1, 3, 4):
        images = torch.rand(batch, into, generator=generator)
        program = Program(isa=isa)
        program.output(program.linear(program.input((into,)), Linear(weight, few=True)))
        wanted = images.double() @ weight.double().T
        ours, torchs = (
            ((given - wanted).abs().max() / wanted.abs().max()).item()
            for given in (program.run([images])[0], nn.functional.linear(images, weight))
        )
        assert ours <= 2 * torchs + 4 * EPS


@FEW
@given(st.integers(1, 150), st.integers(1, 900), st.integers(1, 40), st.integers(2, 4))
def test_threads_change_no_bit_of_a_linear_layer(batch, into, out, threads):
    generator = torch.Generator().manual_seed(batch)
    linear = Linear(torch.randn(out, into, generator=generator))
    x, found = torch.randn(batch, into, generator=generator), []
    for count in (1, threads):
        program = Program(threads=count, group=batch)
        program.output(program.linear(program.input((into,)), linear))
        found += program.run([x])
    assert torch.equal(*found)


def test_producers_may_write_side_by_side_into_one_buffer():
    x, weight = torch.randn(3, 4, 8, 8), torch.randn(5, 4, 1, 1)
    program = Program()
    joined = program.buffer(9, Layout.of(8, 8, 4))
    maps = program.enter(program.input((4, 8, 8)), grid=4, into=joined.part(0, 4))
    program.conv(maps, Conv(weight), into=joined.part(4, 5))
    program.output(program.leave(joined))
    (y,) = program.run([x])
    expected = torch.cat([x, nn.functional.conv2d(x, weight)], 1)
    torch.testing.assert_close(y, expected)


def deep_program():
    """Several layers, whose buffers share their places."""
    torch.manual_seed(0)
    program = Program(threads=2, group=4)
    x = program.enter(program.input((3, 12, 12)), grid=4)
    layers = [torch.randn(8, 3, 3, 3), torch.randn(8, 8, 3, 3), torch.randn(8, 8, 3, 3)]
    for weight in layers:
        conv = Conv(weight, padding=(1, 1), method="winograd2")
        kept, x = x, program.conv(x, conv, clamp=RELU)
    program.output(program.leave(program.add(x, kept)))

    def reference(images):
        for weight in layers:
            kept = images
            images = nn.functional.conv2d(images, weight, padding=1).relu()
        return images + kept

    return program, reference


def test_a_program_runs_from_many_threads_at_once():
    program, reference = deep_program()
    inputs = [torch.randn(5 + k, 3, 12, 12) for k in range(6)]
    expected = [program.run([x])[0] for x in inputs]
    torch.testing.assert_close(expected[0], reference(inputs[0]), rtol=1e-4, atol=1e-4)
    wrong = []

    def work(k):
        wrong.extend(
            k for _ in range(20) if not torch.equal(program.run([inputs[k]])[0], expected[k])
        )

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_size_of_batch_may_be_forgotten_while_another_thread_does_so():
    program, _ = deep_program()
    images = torch.randn(PLANS + 2, 3, 12, 12)
    other = threading.Thread(target=program.run, args=([images],))
    forgotten, looked = threading.Event(), threading.Event()

    class Meanwhile(dict):
        """Lets the other thread forget a size just as this one looks for the oldest."""

        def __iter__(self):
            oldest = super().__iter__()
            if other.ident is None:
                other.start()
                forgotten.wait(0.3)  # in vain where it waits for this one
            return oldest

        def __setitem__(self, batch, plan):
            if threading.current_thread() is other:
                forgotten.set()
                looked.wait(0.3)
            super().__setitem__(batch, plan)

    program._plans = Meanwhile()
    for batch in range(1, PLANS + 2):
        program.run([images[:batch]])
    looked.set()
    other.join()
    assert len(program._plans) == PLANS


def test_a_profile_names_every_call_in_order():
    program, _ = deep_program()
    profile = program.profile([torch.randn(5, 3, 12, 12)])
    assert [kind for kind, _ in profile] == ["import", "conv", "conv", "conv", "add", "export"]
    assert all(seconds > 0 for _, seconds in profile)


@pytest.mark.parametrize("zeros", [0, 0.34, 0.5, 0.8, 0.9])
def test_packed_winograd_weights_take_at_most_4_3_times_the_kept_values(zeros):
    torch.manual_seed(0)
    weight = torch.randn(192, 192, 3, 3) * (torch.rand(192, 192, 1, 1) >= zeros)
    conv = Conv(weight, padding=(1, 1), method="winograd4")
    assert conv.kept == int(weight.count_nonzero())
    assert conv.bytes <= 4.3 * 4 * conv.kept


def test_rows_that_share_inputs_are_packed_together_wherever_they_lie():
    generator = torch.Generator().manual_seed(0)
    kept = torch.stack([torch.randperm(64, generator=generator) < 32 for _ in range(4)])
    weight = torch.randn(16, 64, 3, 3, generator=generator)

    def packed(rows: torch.Tensor) -> int:
        return Conv(weight * rows[:, :, None, None], padding=(1, 1), method="winograd4").bytes

    neighbours, scattered = kept.repeat_interleave(4, 0), kept.repeat(4, 1)
    assert packed(scattered) == packed(neighbours)
