"""Groups of images that grow on their way through a program, and 1 x 1 convolutions in chains."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsepath.deploy.running import phases as module
from sparsepath.deploy.running.kernels import RELU, Conv, Linear, available, isas
from sparsepath.deploy.running.phases import Phase, visits
from sparsepath.deploy.running.program import Program

pytestmark = pytest.mark.skipif(not available(), reason="there are no native kernels here")


def test_groups_meet_where_the_next_phase_is_wider():
    found = (Phase(0, 3, 2), Phase(3, 5, 4))
    order = [(v.phase, v.begin, v.count, v.offset(1)) for v in visits(found, 7)]
    assert order == [
        (0, 0, 2, 0), (0, 2, 2, 2), (1, 0, 4, 0),
        (0, 4, 2, 0), (0, 6, 1, 2), (1, 4, 3, 0),
    ]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40), st.sampled_from([1, 2, 4]), st.sampled_from([1, 4, 7, 16, 32]),
    st.integers(1, 3), st.sampled_from([1, 40, 300, 5000]),
)  # fmt: skip
def test_the_size_of_groups_changes_no_result(batch, grid, group, threads, floats):
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)]
    linear = nn.Linear(8 * 4 * 4, 5)
    x = torch.randn(batch, 3, 16, 16)
    program = Program(group=group, threads=threads)
    maps = program.enter(program.input((3, 16, 16)), grid=grid)
    for layer in convolutions:
        conv = Conv(layer.weight, layer.bias, padding=(1, 1), method="winograd2")
        maps = program.conv(maps, conv, clamp=RELU, pool=True)
    rows = program.flatten(program.leave(maps))
    program.output(program.linear(rows, Linear(linear.weight, linear.bias)))
    limit, module.FLOATS = module.FLOATS, floats
    try:
        (y,) = program.run([x])
    finally:
        module.FLOATS = limit
    with torch.no_grad():
        for layer in convolutions:
            x = nn.functional.max_pool2d(layer(x).relu(), 2)
        expected = linear(x.flatten(1))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


def chain(x, convolutions, *, grid, threads=1, isa=None, group=16, read_again=None, pool=False):
    """The layers in one program; one of the maps in between may have a second reader."""
    program = Program(threads=threads, isa=isa, group=group)
    maps = [program.enter(program.input(x.shape[1:]), grid=grid)]
    for layer in convolutions:
        conv = Conv(layer.weight, layer.bias, padding=layer.padding)
        last = layer is convolutions[-1]
        maps.append(program.conv(maps[-1], conv, clamp=RELU, pool=pool and last))
    program.output(program.leave(maps[-1]))
    if read_again is not None:
        program.output(program.leave(maps[read_again]))
    return program, program.run([x])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4), st.sampled_from([1, 3]),
    st.sampled_from([(1, 1), (5, 3), (8, 8)]), st.integers(1, 19), st.sampled_from([1, 2, 4]),
    st.integers(1, 3), st.integers(0, 2), st.floats(0, 1), st.booleans(),
)  # fmt: skip
def test_a_chain_gives_what_its_layers_give(
    widths, kernel, size, batch, grid, threads, isa, zero, pool
):
    generator = torch.Generator().manual_seed(0)
    convolutions, inputs = [], 3
    pool = pool and min(size) > 1
    for place, width in enumerate(widths):
        taps = kernel if place == 0 else 1
        layer = nn.Conv2d(inputs, width, taps, padding=taps // 2).requires_grad_(False)
        layer.weight *= torch.rand(layer.weight.shape, generator=generator) >= zero
        convolutions.append(layer)
        inputs = width
    x = torch.randn(batch, 3, *size, generator=generator)
    isa = isas()[isa % len(isas())]
    program, (y,) = chain(x, convolutions, grid=grid, threads=threads, isa=isa, pool=pool)
    if not pool:  # which may need larger tiles, and these another layout in between
        assert max(call.tails for call in program._plan(batch).calls) == len(widths) - 1
    for layer in convolutions:
        x = layer(x).relu()
    expected = nn.functional.max_pool2d(x, 2) if pool else x
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


def test_a_map_with_a_second_reader_is_written():
    convolutions = [nn.Conv2d(3, 5, 1), nn.Conv2d(5, 6, 1), nn.Conv2d(6, 7, 1)]
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        middle = convolutions[1](convolutions[0](x).relu()).relu()
        last = convolutions[2](middle).relu()
    program, (y, again) = chain(x, convolutions, grid=2, group=4, read_again=2)
    assert [call.tails for call in program._plan(4).calls] == [0, 1, 0, 0, 0, 0]
    torch.testing.assert_close(y, last, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again, middle, rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 70), st.integers(1, 9), st.floats(0, 1),
    st.integers(1, 3), st.integers(0, 2), st.integers(0, 9),
)  # fmt: skip
def test_a_linear_layer_on_few_images_equals_torchs(inputs, outputs, batch, zero, threads, isa, s):
    generator = torch.Generator().manual_seed(s)
    weight = torch.randn(outputs, inputs, generator=generator)
    weight *= torch.rand(outputs, inputs, generator=generator) >= zero
    bias = torch.randn(outputs, generator=generator)
    x = torch.randn(batch, inputs, generator=generator)
    program = Program(threads=threads, isa=isas()[isa % len(isas())])
    program.output(program.linear(program.input((inputs,)), Linear(weight, bias, few=True)))
    (y,) = program.run([x])
    expected = nn.functional.linear(x.double(), weight.double(), bias.double())
    limit = 4e-6 * nn.functional.linear(x.abs(), weight.abs(), bias.abs()).max()
    assert float((y - expected).abs().max()) <= float(limit)


@pytest.mark.parametrize("channels", [16, 32, 64, 128, 192])
@pytest.mark.parametrize("zero", [0.0, 0.34, 0.5, 0.8, 0.9])
def test_packed_winograd_weights_stay_within_their_limit(channels, zero):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(channels, channels, 3, 3, generator=generator)
    weight *= torch.rand(channels, channels, 1, 1, generator=generator) >= zero
    conv = Conv(weight, padding=(1, 1), method="winograd4")
    biases = 4 * channels
    assert conv.bytes - biases <= 4.3 * 4 * conv.kept
