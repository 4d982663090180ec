"""The C++ program: what it gives is what the network gives, on either processor."""

import re
import shutil
import subprocess
from math import inf
from pathlib import Path
from platform import machine

import numpy
import pytest
import torch
from torch import nn
from tracing import untraced

from sparsepath.deploy.bits.quantise import int8_weights
from sparsepath.deploy.bits.share import share
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.files.manifest import read_manifest
from sparsepath.deploy.graph.graph import Graph, Node, Value
from sparsepath.deploy.graph.network import GraphNetwork
from sparsepath.deploy.graph.operations import DROPOUTS, ELEMENTWISE, OPERATIONS
from sparsepath.lab.models import CNN

from .builds import CROSS, FOLDER, built
from .cases import Response, network, scrambled
from .embedded import EMULATOR, NEEDS, X86, answered, check, refused, run

pytestmark = NEEDS
NAMES = (
    *("cnn", "low-rank-cnn", "nin", "low-rank-nin", "cnn-bn", "resnet-20", "vgg-16-bn"),
    *("mobilenet-v1", "mobilenet-v2", "densenet-bc-100", "u-net", "u-net-bilinear"),
)
BATCHES = {"cnn": (1, 5, 17), "vgg-16-bn": (2,), "resnet-20": (1, 17), "densenet-bc-100": (17,)}
TRAINED = FOLDER.parent / "reproduction" / "cifar10" / "paper" / "cnn-l0.sparsepath"


@pytest.fixture(scope="module")
def program():
    return [built("usual") / "sparsepath-infer"]


@pytest.fixture(scope="module")
def sanitized():
    return [built("sanitized") / "sparsepath-infer"]


@pytest.fixture(scope="module")
def crossed():
    if not (CROSS and EMULATOR):
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    return [EMULATOR, built("aarch64") / "sparsepath-infer"]


def images(batch=2, channels=3, size=(32, 32)):
    generator = torch.Generator().manual_seed(batch)
    return torch.randn(batch, channels, *size, generator=generator)


@torch.no_grad()
def lively(model):
    """The model with weights so large that images still differ at its end."""

    def grow(layer, inputs, output):
        layer.weight /= (output - output.mean(0)).std()
        return layer.forward(*inputs)

    layers = [x for x in model.modules() if isinstance(getattr(x, "weight", None), torch.Tensor)]
    hooks = [x.register_forward_hook(grow) for x in layers if x.weight.dim() > 1]
    model(images(4))
    for hook in hooks:
        hook.remove()
    return model


@untraced
@pytest.mark.parametrize("name", NAMES)
def test_networks_give_what_torch_gives(program, tmp_path, name):
    model = lively(network(name, zero=0.5))
    # Each number of images lies in the lanes in another way.
    given = [check(program, model, tmp_path / "net", images(n)) for n in BATCHES.get(name, (1, 5))]
    spread = (given[-1][0] - given[-1][1]).abs().max() / given[-1].abs().max()
    assert spread > 0.01, "the images do not count"


def trained():
    model = CNN(10, 3)
    model.load_state_dict(load(TRAINED).model.state_dict())
    return model.eval()


@pytest.mark.parametrize("isa", ["portable", "", None])
def test_a_trained_network_gives_what_torch_gives(program, tmp_path, isa):
    environment = {} if isa is None else {"SPARSEPATH_ISA": isa}
    check(program, trained(), tmp_path / "net", images(3), **environment)


@pytest.mark.parametrize("fewer", [lambda x: share(x, 3), int8_weights], ids=["shared", "int8"])
def test_weights_of_few_bits_are_read_as_python_reads_them(program, tmp_path, fewer):
    model = fewer(trained())
    check(program, model, tmp_path / "net", images(2))
    stored = {entry.code for entry in read_manifest(tmp_path / "net").arrays.values()}
    assert stored != {"plain"}, "the file does not hold what is to be read"


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_int8_weights_of_a_transposed_convolution_are_read(program, tmp_path, groups):
    torch.manual_seed(0)
    layer = torch.nn.ConvTranspose2d(8, 16, 3, stride=2, groups=groups)
    layer.weight.data[:, 0] *= 1e-3
    save(int8_weights(torch.nn.Sequential(layer)), tmp_path / "net")
    assert read_manifest(tmp_path / "net").arrays["0.weight"].axis == 1
    x = images(2, channels=8, size=(5, 5))
    given, wanted = answered(program, tmp_path / "net", x), load(tmp_path / "net").model(x)
    # A channel of small weights must be right by its own measure too.
    errors, sizes = ((y.abs().amax((0, 2, 3))) for y in (given - wanted, wanted))
    assert bool((errors <= 1e-5 * sizes).all())


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_older_versions_are_read(program, tmp_path, version):
    kept = Path(__file__).parent / "data" / f"version-{version}.safetensors"
    path = shutil.copy(kept, tmp_path / "net")
    x = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)
    given = answered(program, path, x)
    torch.testing.assert_close(given, torch.tensor(load(path).figures["output"]))


@pytest.mark.parametrize("name", ["cnn", "resnet-20"])
def test_networks_run_on_aarch64(crossed, tmp_path, name):
    model = trained() if name == "cnn" else network(name)
    check(crossed, model, tmp_path / "net", images(2))


def test_threads_change_nothing(program, tmp_path):
    save(network("resnet-20"), tmp_path / "net")
    one, three = (
        answered(program, tmp_path / "net", images(9), "--threads", threads) for threads in "13"
    )
    assert torch.equal(one, three)


# ---- every operation of a graph, by itself


def numbers(*shape, low=-1.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(*shape, generator=generator) * (1 - low) + low


def window(size, stride=1, padding=0, dilation=1, **others):
    """Attributes of a window over as many axes as its size has."""
    each = {"stride": stride, "padding": padding, "dilation": dilation}
    return {key: (x,) * size for key, x in each.items()} | others


def layer(dims, groups=1, bias=True, **options):
    arrays = {"weight": numbers(6, 4 // groups, *(3,) * dims)}
    arrays |= {"bias": numbers(6)} if bias else {}
    return window(dims, **options, groups=groups), arrays


def transposed(dims, groups=1, more=0, **options):
    arrays = {"weight": numbers(4, 3, *(3,) * dims), "bias": numbers(3 * groups)}
    return window(dims, **options, groups=groups, output_padding=(more,) * dims), arrays


def pool(dims, size=3, *, average=False, ceil=False, count=True, divisor=None, **options):
    attributes = window(dims, **options, kernel_size=(size,) * dims, ceil_mode=ceil)
    if average:
        del attributes["dilation"]
        attributes |= {"count_include_pad": count, "divisor_override": divisor}
    return attributes


def norm(**arrays):
    return {"eps": 0.01}, {"mean": numbers(4), "variance": numbers(4, low=0.5), **arrays}


LINE, MAP, SPACE = (2, 4, 9), (2, 4, 9, 7), (2, 4, 5, 6, 7)
# The operation, the shape of its input, its attributes and its arrays.
CASES = [
    *((op, MAP, {}, {}) for op in ELEMENTWISE if op not in ("sqrt", "clamp", "pow")),
    *((op, LINE if op == "dropout1d" else MAP, {"p": 0.3}, {}) for op in DROPOUTS),
    ("leaky_relu", MAP, {"negative_slope": 0.3}, {}),
    ("gelu", MAP, {"approximate": "tanh"}, {}),
    ("softplus", MAP, {"beta": 3, "threshold": 1.5}, {}),
    ("hardtanh", MAP, {"min_val": -0.25, "max_val": 0.5}, {}),
    ("clamp", MAP, {"min": 0.1, "max": None}, {}),
    ("clamp", MAP, {"min": -inf, "max": 0.1}, {}),
    *((op, MAP, {"left": 2}, {}) for op in ("add", "sub", "mul", "div")),
    *((op, MAP, {"right": 0.5}, {}) for op in ("add", "sub", "mul", "div")),
    *(("conv", shape, *layer(dims)) for dims, shape in ((1, LINE), (2, MAP), (3, SPACE))),
    ("conv", MAP, *layer(2, groups=2, stride=2, padding=2, dilation=2)),
    ("conv", (1, 4, 40, 33), *layer(2, padding=1, bias=False)),
    ("conv", (4, 9, 7), *layer(2, padding=1)),
    ("conv", MAP, window(2, padding=1, groups=4), {"weight": numbers(8, 1, 3, 3)}),
    ("conv", MAP, window(2, groups=1), {"weight": numbers(5, 4, 1, 1)}),
    ("conv", MAP, window(2, groups=1), {"weight": torch.full((5, 4, 1, 1), inf)}),
    *(("conv_transpose", s, *transposed(d)) for d, s in ((1, LINE), (2, MAP), (3, SPACE))),
    ("conv_transpose", MAP, *transposed(2, groups=2, stride=3, padding=2, dilation=2, more=1)),
    ("linear", (3, 4), {}, {"weight": numbers(5, 4), "bias": numbers(5)}),
    ("linear", (2, 3, 4), {}, {"weight": numbers(5, 4)}),
    ("batch_norm", MAP, *norm()),
    ("batch_norm", (3, 4), *norm(weight=numbers(4), bias=numbers(4))),
    ("batch_norm", MAP, {"momentum": None, "batches": 3, "axes": 2, **norm()[0]}, norm()[1]),
    *(("group_norm", s, {"num_groups": 2, "eps": 1e-5}, {}) for s in (LINE, MAP, (5, 4))),
    ("group_norm", MAP, {"num_groups": 2, "eps": 0.1}, {"weight": numbers(4), "bias": numbers(4)}),
    ("group_norm", SPACE, {"num_groups": 4, "eps": 1e-5}, {"weight": numbers(4)}),
    ("layer_norm", MAP, {"normalized_shape": (7,), "eps": 1e-5}, {}),
    (
        "layer_norm",
        MAP,
        {"normalized_shape": (9, 7), "eps": 0.1},
        {"weight": numbers(9, 7), "bias": numbers(9, 7)},
    ),
    ("layer_norm", (3, 4), {"normalized_shape": (4,), "eps": 1e-5}, {"weight": numbers(4)}),
    *(("prelu", s, {}, {"weight": numbers(4)}) for s in (LINE, MAP, (3, 4))),
    *(("prelu", s, {}, {"weight": numbers(1)}) for s in (MAP, (7,))),
    ("affine", MAP, {}, {"scale": numbers(4), "shift": numbers(4)}),
    *(("max_pool", s, pool(d), {}) for d, s in ((1, LINE), (2, MAP), (3, SPACE))),
    ("max_pool", MAP, pool(2, stride=2, padding=1, dilation=2, ceil=True), {}),
    *(("avg_pool", s, pool(d, average=True), {}) for d, s in ((1, LINE), (2, MAP), (3, SPACE))),
    ("avg_pool", MAP, pool(2, stride=2, padding=1, average=True, ceil=True), {}),
    # Rounded up, a window would begin beyond the image: torch leaves it out.
    ("max_pool", MAP, pool(2, size=2, stride=3, padding=1, ceil=True), {}),
    ("avg_pool", MAP, pool(2, size=2, stride=3, padding=1, average=True, ceil=True), {}),
    ("avg_pool", MAP, pool(2, padding=1, average=True, count=False), {}),
    ("avg_pool", MAP, pool(2, padding=1, average=True, divisor=5), {}),
    *((f"adaptive_{kind}_pool", MAP, {"output_size": (4, None)}, {}) for kind in ("avg", "max")),
    *((f"adaptive_{kind}_pool", MAP, {"output_size": (1, 1)}, {}) for kind in ("avg", "max")),
    ("flatten", MAP, {"start_dim": 1, "end_dim": -2}, {}),
    ("reshape", MAP, {"shape": (0, -1, 3)}, {}),
    ("unflatten", MAP, {"dim": 1, "sizes": (2, -1)}, {}),
    ("unflatten", MAP, {"dim": -2, "sizes": (3, 1, 3)}, {}),
    ("permute", MAP, {"dims": (0, 2, -1, 1)}, {}),
    ("transpose", MAP, {"dim0": 1, "dim1": -1}, {}),
    ("index", MAP, {"slices": ((None, None, None), (1, -1, None), (None, 99, 2))}, {}),
    ("pad", MAP, {"pad": (1, 2, -1, 0, 0, 3), "mode": "constant", "value": 0.5}, {}),
    *(
        ("pad", MAP, {"pad": (1, 2, 3, 0), "mode": m}, {})
        for m in ("reflect", "replicate", "circular")
    ),
    ("pixel_shuffle", MAP, {"upscale_factor": 2}, {}),
    ("mean", MAP, {"dim": (1, -1), "keepdim": True}, {}),
    ("mean", MAP, {"dim": (2, 3), "keepdim": False}, {}),
    *((op, MAP, {"dim": (1, -1), "keepdim": True}, {}) for op in ("sum", "norm", "amax", "amin")),
    *((op, MAP, {"dim": (2,), "keepdim": False}, {}) for op in ("sum", "norm", "amax", "amin")),
    *(("pow", MAP, {"exponent": exponent}, {}) for exponent in (2, 3, -1.0)),
    ("softmax", MAP, {"dim": 1}, {}),
    ("log_softmax", MAP, {"dim": -1}, {}),
    *(
        ("interpolate", MAP, {"mode": mode, **size}, {})
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
        for size in ({"size": (5, 13)}, {"scale_factor": (2.0, 0.6)})
    ),
    *(
        ("interpolate", MAP, {"mode": mode, "size": (18, 5), "align_corners": True}, {})
        for mode in ("bilinear", "bicubic")
    ),
    (
        "interpolate",
        LINE,
        {"mode": "linear", "scale_factor": 1.7, "recompute_scale_factor": True},
        {},
    ),
    ("interpolate", SPACE, {"mode": "trilinear", "size": 4}, {}),
]


def chain(op, attributes, arrays):
    """The operation alone."""
    return Graph(("x",), (Node("y", op, ("x",), attributes, arrays),), Value("y"))


def behind_a_layer(op, attributes, arrays):
    """The same behind a layer, whose maps lie in the kernels' layout, and before a ReLU."""
    exact = torch.eye(4).flip(0).view(4, 4, 1, 1) * 0.5  # rounds nothing
    first = Node("first", "conv", ("x",), window(2, groups=1), {"weight": exact})
    own = Node("y", op, ("first",), attributes, arrays)
    return Graph(("x",), (first, own, Node("z", "relu", ("y",))), Value("z"))


SAME = torch.randn(4, 4, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_operations_give_what_torch_gives(sanitized, tmp_path, number):
    op, shape, attributes, arrays = CASES[number]
    graphs = [chain(op, attributes, arrays)]
    if shape == MAP:
        graphs.append(behind_a_layer(op, attributes, arrays))
    for graph in graphs:
        save(GraphNetwork(graph), tmp_path / "net", force=True)
        for scale in (1.0, 30.0):
            x = scale * numbers(*shape)
            with torch.no_grad():
                wanted = load(tmp_path / "net").model.double()(x.double())
            given = answered(sanitized, tmp_path / "net", x)
            assert given.shape == wanted.shape
            size = float(wanted[wanted.isfinite()].abs().max()) if wanted.isfinite().any() else 1
            torch.testing.assert_close(
                given.double(), wanted, rtol=1e-5, atol=1e-5 * max(1, size), equal_nan=True
            )


def joined(kind):
    second = (
        Node("c", "constant", (), {}, {"value": numbers(4, 1, 7)})
        if kind == "constant"
        else Node("c", "conv", ("x",), window(2, stride=2, padding=1, groups=1), {"weight": SAME})
    )
    first = Node("a", "conv", ("x",), window(2, padding=1, groups=1), {"weight": SAME})
    if kind == "constant":
        return Graph(("x",), (second, Node("y", "mul", ("x", "c"))), Value("y"))
    larger = Node("d", "interpolate_like", ("c", "a"), {"mode": "bilinear"})
    cat = Node("e", "cat", ("a", "d", "a", "x"), {"dim": 1})
    ends = {"add": ("a", "d"), "sub": ("d", "x"), "cat": ("e", "e")}
    last = Node("y", kind, ends[kind], {"dim": -3} if kind == "cat" else {})
    nodes = [
        first,
        second,
        larger,
        *([cat] if kind == "cat" else []),
        last,
        Node("r", "sqrt", ("p",)),
    ]
    nodes.insert(-1, Node("p", "abs", ("y",)))
    return Graph(("x",), tuple(nodes), Value("r"))


@pytest.mark.parametrize("kind", ["constant", "add", "sub", "cat"])
def test_values_meet(sanitized, tmp_path, kind):
    check(sanitized, GraphNetwork(joined(kind)), tmp_path / "net", numbers(*MAP))


@pytest.mark.parametrize("op", ["add", "cat"])
def test_maps_in_other_tiles_meet(sanitized, tmp_path, op):
    """A convolution keeps the tiles of its input, which here are larger than the result needs."""
    inner = ((None, None, None), (None, None, None), (1, -1, None), (1, -1, None))
    nodes = (
        Node("a", "conv", ("x",), window(2, groups=1), {"weight": SAME}),
        Node("s", "index", ("x",), {"slices": inner}),
        Node("b", "conv", ("s",), window(2, padding=1, groups=1), {"weight": SAME}),
        Node("y", op, ("a", "b"), {"dim": 1} if op == "cat" else {}),
    )
    model = GraphNetwork(Graph(("x",), nodes, Value("y")))
    check(sanitized, model, tmp_path / "net", numbers(*MAP))


def test_every_operation_is_tried():
    graphs = [joined(kind) for kind in ("constant", "cat")]
    tried = {node.op for graph in graphs for node in graph} | {op for op, *_ in CASES}
    assert tried == set(OPERATIONS)


def test_what_a_node_carries_follows_it(sanitized, tmp_path):
    more = {"activation": "silu", "pool": (3, True)}
    graph = chain("conv", {**window(2, groups=1), **more}, {"weight": SAME})
    check(sanitized, GraphNetwork(graph), tmp_path / "net", numbers(*MAP))


def test_functions_that_are_spelled_out_give_what_torch_gives(sanitized, tmp_path):
    torch.manual_seed(0)
    model, x = scrambled(Response()), numbers(2, 3, 16, 12)
    save(model, tmp_path / "net", example=x)
    check(sanitized, model, tmp_path / "net", x)


def test_the_command_prints_classes_and_time(program, tmp_path):
    model = network("cnn")
    given = check(program, model, tmp_path / "net", images(2))
    said = run(program, tmp_path / "net", tmp_path / "net.x.npy", "--repeat", "3").stdout
    first, second, time = said.splitlines()
    assert first.startswith(f"image 0:  {int(given[0].argmax())} (")
    assert second.startswith(f"image 1:  {int(given[1].argmax())} (")
    assert time.startswith("median of 3 runs: ")


def test_an_input_of_another_shape_is_refused(program, tmp_path):
    model = network("cnn")
    check(program, model, tmp_path / "net", images(1))
    answered_before = (tmp_path / "net.y.npy").read_bytes()
    numpy.save(tmp_path / "other.npy", images(1, channels=4).numpy())
    said = refused(program, tmp_path / "net", tmp_path / "other.npy", tmp_path / "net.y.npy")
    assert "takes 3 channels, not 4" in said
    assert "'conv1'" in said
    assert (tmp_path / "net.y.npy").read_bytes() == answered_before


def test_an_input_of_other_axes_than_the_graph_is_right_for_is_refused(program, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4)).eval()
    save(model, tmp_path / "net", example=images(2))
    check(program, model, tmp_path / "net", images(3))
    numpy.save(tmp_path / "one.npy", images(1)[0].numpy())
    said = refused(program, tmp_path / "net", tmp_path / "one.npy")
    assert "made for an input of 4 axes, not of 3" in said


def test_a_set_that_does_not_run_here_is_refused(program, tmp_path):
    save(network("cnn"), tmp_path / "net")
    said = refused(program, tmp_path / "net", tmp_path / "net", SPARSEPATH_ISA="mmx")
    assert "'mmx'" in said


@pytest.mark.skipif(not (X86 and machine() == "x86_64"), reason="needs qemu-user of x86-64")
def test_a_program_of_sets_that_this_processor_lacks_says_so(program, tmp_path):
    """The kernels of AVX2 alone, on a processor without it, and on one that has it."""
    objects, alone = program[0].parent / "objects", tmp_path / "alone"
    others = {"kernels.o", "all_kernels.o", *(f"kernels_{isa}.o" for isa in ("portable", "avx2"))}
    own = [
        path
        for path in objects.glob("*.o")
        if path.name not in others and not path.name.startswith(("portable-", "avx2-"))
    ]
    sets = [objects / "kernels.o", objects / "kernels_avx2.o"]
    subprocess.run(["c++", "-static", "-pthread", *own, *sets, "-o", alone], check=True)
    save(network("cnn"), tmp_path / "net")
    numpy.save(tmp_path / "x.npy", images(1).numpy())
    files = tmp_path / "net", tmp_path / "x.npy"
    said = refused([X86, "-cpu", "Nehalem", alone], *files)
    assert said == (
        "This processor runs none of the instruction sets that were built (avx2): "
        "build again with portable among its ISAS."
    )
    assert run([X86, "-cpu", "max", alone], *files).returncode == 0


# ---- the library, as the README says


@pytest.fixture
def documented():
    """The README's C++ before and in a function, and the command that it says builds them."""
    (lines,) = re.findall(r"```cpp\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    before, within = lines.split("\n\n")
    (command,) = re.findall(r"// (g\+\+ .*)", before)
    return before, within, command


@pytest.mark.skipif(not shutil.which("g++"), reason="the README builds with g++")
def test_the_library_works_as_the_readme_says(program, tmp_path, documented):
    before, within, command = documented
    model, x = lively(network("cnn")), images(1)
    save(model, tmp_path / "net.sparsepath")
    (tmp_path / "embedded").symlink_to(FOLDER)
    (tmp_path / "build").symlink_to(program[0].parent)
    pixels = ", ".join(map(repr, x.flatten().tolist()))
    (tmp_path / "my.cpp").write_text(
        f"#include <cstdio>\n{before}\nint main() {{\n"
        f"const std::vector<float> pixels = {{{pixels.replace(',', 'f,')}f}};\n{within}"
        'for (float value : y.data) std::printf("%.9g\\n", value);\n}\n'
    )
    subprocess.run(command.split(), cwd=tmp_path, check=True)
    given = subprocess.run([tmp_path / "a.out"], cwd=tmp_path, capture_output=True, text=True)
    assert given.returncode == 0, given.stderr
    with torch.no_grad():
        wanted = model(x).flatten()
    torch.testing.assert_close(torch.tensor([*map(float, given.stdout.split())]), wanted)


def test_the_graph_it_reads_is_the_captured_one():
    assert {node.op for node in capture(network("cnn"))} <= set(OPERATIONS)
