"""Bad input to the kernels gets a sentence, and never reaches the native side."""

import pytest
import torch

from sparsepath.deploy.running import kernels, library
from sparsepath.deploy.running.kernels import Conv, Engine, Linear, available
from sparsepath.deploy.running.maps import Layout
from sparsepath.deploy.running.program import Program
from sparsepath.errors import BadInput

pytestmark = pytest.mark.skipif(not available(), reason="built without a C++ compiler")

WEIGHT = torch.randn(4, 3, 3, 3)


def mapped(channels=3, size=8):
    program = Program()
    return program, program.enter(program.input((channels, size, size)))


def simple():
    program, maps = mapped()
    program.output(program.leave(program.conv(maps, Conv(WEIGHT))))
    return program


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Engine(0), "threads must be a whole number of at least 1, not 0"),
        (lambda: Engine(1_000_000), "threads must be at most 1024, not 1000000"),
        (lambda: Engine(isa="sse9"), "does not run the instruction set 'sse9'"),
        (lambda: Conv(torch.randn(4, 3)), "weight must have 4 dimensions"),
        (lambda: Conv(torch.randn(4, 0, 3, 3)), "none of them empty"),
        (lambda: Conv(WEIGHT, torch.randn(3)), "one value per filter (4), not 3"),
        (lambda: Conv(WEIGHT, groups=3), "4 filters do not divide into 3 groups"),
        (lambda: Conv(WEIGHT, stride=(0, 1)), "stride and dilation must be at least 1"),
        (lambda: Conv(WEIGHT, stride=(2, 2), method="winograd4"), "use 'direct'"),
        (lambda: Conv(WEIGHT, method="depthwise"), "use 'direct'"),
        (lambda: Linear(WEIGHT), "weight must have 2 dimensions"),
        (lambda: Layout.of(8, 8, 3), "grid must be 1, 2 or 4, not 3"),
        (lambda: Program(group=0), "group must be a whole number"),
        (lambda: mapped(channels=2)[0].conv(mapped(channels=2)[1], Conv(WEIGHT)), "not 2"),
        (lambda: mapped()[0].conv(mapped()[1], Conv(WEIGHT), panel=5), "panel must be one of"),
        (lambda: mapped(size=2)[0].conv(mapped(size=2)[1], Conv(WEIGHT)), "does not fit into"),
        (lambda: mapped()[0].max_pool(mapped()[1], (9, 9), stride=(1, 1)), "does not fit"),
        (lambda: mapped()[0].add(mapped()[1], mapped(channels=2)[1]), "have no sum"),
        (lambda: mapped()[0].affine(mapped()[1], torch.ones(2)), "one value per channel (3)"),
        (lambda: mapped()[0].relayout(mapped()[1], Layout.of(9, 8, 1)), "keeps the size"),
        (lambda: mapped()[1].part(2, 2), "has no channels 2 to 3"),
        (lambda: Program().enter(Program().input((3, 8))), "(channels, height, width), not (3, 8)"),
        (lambda: simple().run([]), "it was given 0"),
        (lambda: simple().run([torch.randn(2, 3, 8, 9)]), "not (2, 3, 8, 9)"),
        (lambda: simple().run([torch.randn(0, 3, 8, 8)]), "at least one image"),
        (lambda: simple().run([torch.randn(2, 3, 8, 8).double()]), "must be float32 on the CPU"),
        (lambda: simple().run([torch.randn(2, 8, 8, 3).permute(0, 3, 1, 2)]), "contiguous"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(BadInput) as raised:
        call()
    assert sentence in str(raised.value)
    assert str(raised.value).endswith(".")


def test_a_linear_layer_and_outputs_are_checked_too():
    program = Program()
    row = program.input((3,))
    with pytest.raises(BadInput, match=r"takes rows of 4, not \(3,\)"):
        program.linear(row, Linear(torch.randn(2, 4)))
    with pytest.raises(BadInput, match="cannot be an output"):
        program.output(row)
    with pytest.raises(BadInput, match="cannot be written into"):
        program.conv(mapped()[1], Conv(WEIGHT), into=program.buffer(5, Layout.of(6, 6, 1)))


@pytest.mark.parametrize("group", [1, 16])
def test_a_stride_beyond_the_image_takes_no_more_memory_than_the_image(group):
    program = Program(group=group)
    maps = program.enter(program.input((3, 32, 32)), grid=4)
    made = program.conv(maps, Conv(WEIGHT, stride=(1000, 1000), padding=(1, 1)))
    program.output(program.leave(made))
    plan = program._plan(group)
    assert plan.arena.floats < 2 * 16 * 3 * 40 * 40, "the lanes of 16 images, before and after"


def test_the_environment_forces_the_instruction_set(monkeypatch):
    monkeypatch.setenv(kernels.ISA_VARIABLE, "portable")
    assert Engine().isa == "portable"
    assert kernels.isas()[-1] == "portable"
    monkeypatch.setenv(kernels.ISA_VARIABLE, "")
    assert Engine().isa == kernels.isas()[0]


def test_without_the_libraries_it_says_why(monkeypatch):
    monkeypatch.setattr(library, "_LIBRARY", None)
    monkeypatch.setattr(library, "_MISSING", "no compiler")
    assert not kernels.available()
    assert kernels.why_missing() == "no compiler"
    with pytest.raises(BadInput, match="not available: no compiler"):
        Engine()


def test_a_library_that_cannot_be_used_says_why(monkeypatch, tmp_path):
    assert library.load("sse9")[1] == "the install found no C++ compiler to build them with"
    monkeypatch.setattr(library, "VERSION", 0)
    assert "built from other sources; install sparsepath again" in library.load("portable")[1]
    (tmp_path / "_kernels_portable.so").write_text("not a library")
    monkeypatch.setattr(library, "__file__", str(tmp_path / "running" / "library.py"))
    assert "does not load here" in library.load("portable")[1]
