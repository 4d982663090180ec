"""Where memory or threads run out, a sentence says so, torch takes over, and no process ends."""

import sys
import textwrap

import pytest
import torch
from forked import forked
from torch import nn

from sparsepath.deploy.running import kernels, stages
from sparsepath.deploy.running.program import Program
from sparsepath.deploy.running.runtime import compile
from sparsepath.errors import BadInput

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(not kernels.available(), reason="built without a C++ compiler")
# Room for what torch needs itself, beyond what the process has by now.
LIMITED = """
import resource
import torch
from sparsepath.deploy.running.kernels import Conv, Engine, Linear
from sparsepath.deploy.running.program import Program
from sparsepath.errors import BadInput
from sparsepath.deploy.running.maps import Layout

torch.set_num_threads(1)

def limit(megabytes):
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def run(script):
    exec(script, {})
    return 0


@pytest.fixture
def said(tmp_path):
    """The sentence of BadInput that a script ends with in a process of its own."""

    def said(script):
        body = textwrap.indent(textwrap.dedent(script), "    ")
        script = f"{LIMITED}\ntry:\n{body}\nexcept BadInput as error:\n    print(error)"
        code, log = forked(run, script, log=tmp_path / "log")
        assert code == 0, log
        return log.strip()

    return said


@linux
def test_threads_that_the_system_does_not_give(said):
    assert said("limit(100)\nEngine(1000)") == (
        "The system does not give 1000 threads; ask for fewer."
    )


@linux
def test_weights_that_do_not_fit_into_memory(said):
    script = "weight = torch.ones(4096, 4096)\nlimit(40)\nLinear(weight, few={})"
    for few in (False, True):
        assert said(script.format(few)) == ("There is not enough memory to pack 16777216 weights.")


@linux
@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_that_does_not_find_its_memory(said, threads):
    script = f"""
        program = Program(threads={threads})
        maps = program.enter(program.input((2, 740, 740)), grid=1)
        maps = program.relayout(maps, Layout.of(740, 740, 2))
        program.output(program.leave(maps))
        images = torch.ones(16, 2, 740, 740)
        program.run([images])  # which takes all but the output and, on the way, 35 MB
        limit(90)
        program.run([images])
    """
    assert said(script) == "There is not enough memory for 16 such images at a time."


def test_torch_takes_over_what_finds_no_memory(monkeypatch, caplog):
    torch.manual_seed(0)
    model, images = nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), torch.randn(2, 3, 9, 9)
    runtime = compile(model, images, tune=False)

    def refused(*given):
        raise BadInput("There is not enough memory for 2 such images at a time.")

    monkeypatch.setattr(stages.Stage, "run", refused)
    with torch.no_grad():
        torch.testing.assert_close(runtime(images), model(images))
    assert "There is not enough memory" in caplog.text


@linux
@pytest.mark.parametrize(
    "layer",
    [
        "avg_pool(maps, (101, 101), stride=(1, 1), padding=(50, 50))",
        "max_pool(maps, (101, 101), stride=(1, 1), padding=(50, 50))",
        "conv(maps, Conv(torch.ones(1, 1, 101, 101), padding=(50, 50)))",
    ],
)
def test_a_large_window_takes_about_the_memory_of_its_maps(said, layer):
    script = f"""
        program = Program()
        maps = program.enter(program.input((1, 150, 150)), grid=4)
        program.output(program.leave(program.{layer}))
        limit(40)  # where a table of positions and taps would take 117 MB
        program.run([torch.ones(1, 1, 150, 150)])
    """
    assert said(script) == ""


@pytest.mark.parametrize("kind", ["avg_pool", "max_pool"])
@pytest.mark.parametrize("count_padding", [False, True])
def test_a_large_window_gives_what_torch_gives(kind, count_padding):
    torch.manual_seed(0)
    program = Program()
    maps = program.enter(program.input((1, 150, 150)), grid=4)
    options = {"count_padding": count_padding} if kind == "avg_pool" else {}
    pooled = getattr(program, kind)(maps, (101, 101), stride=(1, 1), padding=(50, 50), **options)
    program.output(program.leave(pooled))
    images = torch.randn(1, 1, 150, 150)
    if kind == "max_pool":
        wanted = nn.functional.max_pool2d(images.double(), 101, 1, 50)
    else:
        wanted = nn.functional.avg_pool2d(
            images.double(), 101, 1, 50, count_include_pad=count_padding
        )
    torch.testing.assert_close(program.run([images])[0].double(), wanted, rtol=0, atol=1e-5)
