"""Whatever a file holds: it is refused with one sentence, and nothing in it runs."""

import copy
import hashlib
import json
import os
import pickle
import tracemalloc
import zipfile
import zlib

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.graph.network import GraphNetwork
from sparsepath.errors import BadInput
from sparsepath.storage import read_tensors, write_tensors
from sparsepath.support import Support

from .cases import scrambled


class Mean(nn.Module):
    """The mean over pixels."""

    def forward(self, x):
        return x.mean((2, 3))


FUZZ = settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    model = scrambled(
        nn.Sequential(
            *(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(1)),
            *(nn.Linear(256, 3), nn.Linear(3, 40), nn.Linear(40, 60), nn.Linear(60, 200)),
        ),
        zero=0.6,
    )
    levels, few = model[6].weight.data, model[7].weight.data
    levels.copy_((levels * 500).round() * torch.rand(60, 1))
    few.copy_(torch.randn(9)[torch.randint(9, few.shape)] * (torch.rand(few.shape) < 0.1))
    path = tmp_path_factory.mktemp("artifact") / "net"
    support = Support({"4.weight": torch.rand(3, 256) < 0.5, "0.weight": model[0].weight != 0})
    made = save(model, path, support=support, figures={"accuracy": 0.5})
    assert [made.arrays[f"{n}.weight"].code for n in (0, 6, 7)] == ["plain", "levels", "codebook4"]
    assert set(made.arrays["7.weight"].deflated) == {"values", "where"}
    return path


def refused(path, content=None):
    """The sentence with which a file is refused."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load(path)
    sentence = str(caught.value)
    assert len(sentence.splitlines()) == 1
    assert repr(str(path)) in sentence
    assert len(sentence) < 600
    return sentence


@FUZZ
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(saved, tmp_path, place, bit):
    content = bytearray(saved.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    refused(tmp_path / "net", bytes(content))


@FUZZ
@given(place=st.floats(0, 1, exclude_max=True), more=st.binary(max_size=20))
def test_a_truncated_or_patched_file_is_noticed(saved, tmp_path, place, more):
    content = saved.read_bytes()
    cut = content[: int(place * len(content))] + more
    if not content.startswith(cut) or len(cut) < len(content):
        refused(tmp_path / "net", cut)
    refused(tmp_path / "net", content + more + b"\0")


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", ".", "../../etc/passwd", "__class__", "forward", "os.system", "\0", "mask", "gaps4"]
    ),
    st.just([]),
    st.just({}),
    st.just({"value": "nothing"}),
    st.just({"list": [1]}),
    st.lists(st.integers(-2, 2**39), max_size=3),
)


def places(content, path=()):
    """The paths to everything in some JSON."""
    yield path
    if isinstance(content, (dict, list)):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
        for key, part in list(parts):
            yield from places(part, (*path, key))


def resealed(saved, path, change, tensors=None):
    """The file with another manifest, or other tensors, whose checksums are right."""
    kept, header = read_tensors(saved)
    content = json.loads(header["manifest"])
    for name, tensor in (tensors or {}).items():
        kept[name] = tensor
        digest = hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes())
        content["checksums"][name] = digest.hexdigest()
    tensors = kept
    text = json.dumps(change(content))
    sealed = {**header, "manifest": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    write_tensors(path, tensors, sealed)


@FUZZ
@given(data=st.data())
def test_a_hostile_manifest_is_refused_or_harmless(saved, tmp_path, data):
    def change(content):
        for _ in range(data.draw(st.integers(1, 3))):
            *path, last = data.draw(st.sampled_from([p for p in places(content) if p]))
            inner = content
            for key in path:
                inner = inner[key]
            what = data.draw(st.sampled_from(["put", "drop", "copy"]))
            if what == "put":
                inner[last] = copy.deepcopy(data.draw(HOSTILE))
            elif what == "drop":
                del inner[last]
            else:
                other = data.draw(st.sampled_from([p for p in places(content) if p]))
                found = content
                for key in other:
                    found = found[key]
                inner[last] = copy.deepcopy(found)
        return content

    path = tmp_path / "net"
    resealed(saved, path, change)
    try:
        loaded = load(path)
    except BadInput:
        refused(path)
    else:
        assert not loaded.model.training
        assert callable(loaded.model.forward)


def test_names_are_never_paths_nor_attributes(saved, tmp_path):
    bad = ["../../../evil", "__class__", "forward.x", "_modules", "training", "a..b", "", "graph"]
    tensors, header = read_tensors(saved)
    wanted = load(saved).model(torch.ones(1, 3, 4, 4))
    for name in bad:
        text = header["manifest"].replace('"0.weight"', json.dumps(f"{name}.weight"))
        text = text.replace('"name":"0"', f'"name":{json.dumps(name)}')
        text = text.replace('"inputs":["0"]', f'"inputs":{json.dumps([name])}')
        for kind in ("values", "where"):
            text = text.replace(f'"{kind}:0.weight"', json.dumps(f"{kind}:{name}.weight"))
        renamed = {key.replace("0.weight", f"{name}.weight"): x for key, x in tensors.items()}
        digest = hashlib.sha256(text.encode()).hexdigest()
        folder = tmp_path / "inside" / "folder"
        write_tensors(folder / "net", renamed, {**header, "manifest": text, "sha256": digest})
        loaded = load(folder / "net").model
        assert isinstance(loaded, GraphNetwork)
        assert torch.equal(loaded(torch.ones(1, 3, 4, 4)), wanted)
        assert [path.name for path in tmp_path.rglob("*")] == ["inside", "folder", "net"]


def test_a_few_bytes_cannot_ask_for_all_memory(saved, tmp_path):
    def change(content):
        content["arrays"]["4.weight"]["shape"] = [1 << 30, 1 << 10]
        return content

    resealed(saved, tmp_path / "net", change)
    assert "would take 4,398,046,5" in refused(tmp_path / "net")
    with pytest.raises(BadInput, match="more than 10: if you trust it"):
        load(saved, limit=10)


def test_deep_nesting_and_double_keys_are_refused(saved, tmp_path):
    tensors, header = read_tensors(saved)
    texts = ["[" * 100_000, '{"a":1,"a":2}', "[NaN]", "", "1" * 5000, '"\\ud800"', "{}", "[]"]
    for text in texts:
        digest = hashlib.sha256(text.encode()).hexdigest()
        write_tensors(tmp_path / "net", tensors, {**header, "manifest": text, "sha256": digest})
        assert "is damaged or not ours" in refused(tmp_path / "net")


def test_other_and_newer_files_are_refused(saved, tmp_path):
    tensors, header = read_tensors(saved)
    for kind, says in {
        "sparsepath artifact 4": "reads 1 to 3: install a newer one",
        "sparsepath artifact": "is no artifact of sparsepath",
        "sparsepath support 1": "its format is 'sparsepath support 1'",
        "sparsepath artifact \u0662": "install a newer one",
    }.items():
        write_tensors(tmp_path / "net", tensors, {**header, "format": kind})
        assert says in refused(tmp_path / "net")
    write_tensors(tmp_path / "net", tensors, {})
    assert "is no artifact" in refused(tmp_path / "net")


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("evil",))


def test_foreign_files_are_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net"
    refused(path, b"")
    refused(path, pickle.dumps(Evil()))
    torch.save(Evil(), path)
    refused(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("../../evil", "evil")
    refused(path)
    refused(path, (1 << 60).to_bytes(8, "little") + b"{}")
    assert [x.name for x in tmp_path.iterdir()] == ["net"]
    refused(tmp_path / "missing")
    assert "is no file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is no file" in refused(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c["arrays"]["4.weight"].update(block=5), "do not divide"),
        (lambda c: c["arrays"]["4.weight"].update(block=3), "which are not 256 bits"),
        (lambda c: c["arrays"]["4.weight"].update(how="dense"), "and not values"),
        (lambda c: c["arrays"]["6.weight"].update(shape=[60, 41]), "2400 values are not 2460"),
        (lambda c: c["arrays"]["6.weight"].update(dtype="float64"), "not of float32"),
        (lambda c: c["arrays"]["7.weight"].update(code="codebook8"), "for 12"),
        (lambda c: c["arrays"]["7.weight"].update(code="codebook9"), "'gaps8', 'codebook9'"),
        (lambda c: c["arrays"]["7.weight"].update(code="levels"), "and not scales, values"),
        (lambda c: c["arrays"]["7.weight"].update(dtype="float16"), "numbers of torch.float16"),
        (lambda c: c["arrays"]["7.weight"].update(deflated={"evil": 1}), "no sane sizes"),
        (lambda c: c["arrays"]["7.weight"].update(deflated={"codebook": 1}), "cannot be deflated"),
        (lambda c: c["arrays"]["7.weight"]["deflated"].update(values=7), "are not 7 bytes"),
        (lambda c: c["arrays"]["7.weight"]["deflated"].update(values=0), "are not 0 bytes"),
        (lambda c: c["arrays"]["7.weight"]["deflated"].update(where=48001), "an array of 48000"),
        (lambda c: c["arrays"]["0.bias"].update(deflated={"values": 9}), "do not fit an array"),
        (lambda c: c["arrays"]["0.bias"].update(deflated={"values": 8}), "are no bytes"),
        (lambda c: c["arrays"]["0.bias"].update(dtype="float64"), "values are torch.float32"),
        (lambda c: c["arrays"]["0.bias"].update(shape=[5]), "its shape is"),
        (lambda c: c["graph"]["nodes"][0].update(op="eval"), "does 'eval', which this version"),
        (lambda c: c["graph"]["nodes"][0]["attributes"].update(more=1), "does not fit 'conv'"),
        (lambda c: first(c).update(stride=[0, 1]), "has the stride (0, 1): each number must be"),
        (lambda c: first(c).update(stride=[1.5, 1]), "must be whole and at least 1"),
        (lambda c: first(c).update(stride=[True, 1]), "must be whole and at least 1"),
        (lambda c: first(c).update(stride=2), "has the stride 2"),
        (lambda c: first(c).update(stride=[1]), "has the stride (1,) for 2 axes"),
        (lambda c: first(c).update(dilation=[1, -1]), "has the dilation (1, -1)"),
        (lambda c: first(c).update(padding=[-1, 0]), "the padding (-1, 0): each number must be"),
        (lambda c: first(c).update(groups=0), "has 0 groups, which do not divide"),
        (lambda c: first(c).update(groups=-1), "has -1 groups, which do not divide"),
        (lambda c: first(c).update(groups=10**6), "has 1000000 groups, which do not divide"),
        (lambda c: first(c).update(groups="1"), "has '1' groups"),
        (lambda c: c["graph"]["nodes"][0].update(inputs=["later"]), "which nothing before gives"),
        (lambda c: c["graph"]["nodes"][1].update(name=c["graph"]["inputs"][0]), "twice"),
        (lambda c: c["graph"]["nodes"].pop(), "which none of its nodes makes"),
        (lambda c: c["graph"]["nodes"][0]["arrays"].update(weight="9"), "which is not there"),
        (lambda c: c["support"]["4.weight"].update(shape=[3, 255]), "its mask has"),
        (lambda c: c["checksums"].update(more=""), "tensors are not those of its manifest"),
        (lambda c: c.update(factory="os.system"), "either a graph or the name of a factory"),
    ],
)
def test_what_does_not_fit_together_is_named(saved, tmp_path, change, says):
    def changed(content):
        change(content)
        return content

    resealed(saved, tmp_path / "net", changed)
    assert says in refused(tmp_path / "net")


def first(content):
    """The attributes of the first node, a convolution."""
    return content["graph"]["nodes"][0]["attributes"]


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2)])
@pytest.mark.parametrize("key", ["kernel_size", "stride", "padding"])
def test_a_pool_of_impossible_numbers_is_refused(pool, key, tmp_path):
    save(nn.Sequential(nn.Conv2d(3, 4, 3), pool), tmp_path / "whole")

    def change(content):
        content["graph"]["nodes"][1]["attributes"][key] = [-1, -1]
        return content

    resealed(tmp_path / "whole", tmp_path / "net", change)
    assert f"'1' has the {key} (-1, -1)" in refused(tmp_path / "net")


@pytest.mark.parametrize(
    ("node", "change", "says"),
    [
        (1, {"num_groups": 0}, "num_groups 0, which must be a whole number of at least 1"),
        (1, {"num_groups": 3}, "has 3 groups, which do not divide its weights"),
        (1, {"num_groups": True}, "num_groups True, which must be"),
        (1, {"eps": -1.0}, "the eps -1.0, which must be"),
        (2, {"normalized_shape": [8]}, "has arrays of the shapes [(6,)]"),
        (2, {"normalized_shape": []}, "normalized_shape (), which must be"),
        (2, {"normalized_shape": 6}, "normalized_shape 6, which must be"),
    ],
)
def test_a_norm_of_impossible_numbers_is_refused(node, change, says, tmp_path):
    layers = (nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.LayerNorm(6), nn.PReLU(4))
    save(nn.Sequential(*layers), tmp_path / "whole")

    def changed(content):
        content["graph"]["nodes"][node]["attributes"].update(change)
        return content

    resealed(tmp_path / "whole", tmp_path / "net", changed)
    assert says in refused(tmp_path / "net")


def test_slopes_in_a_square_are_refused(tmp_path):
    save(nn.Sequential(nn.PReLU(4)), tmp_path / "whole")

    def changed(content):
        content["arrays"]["0.weight"]["shape"] = [2, 2]
        return content

    square = {"values:0.weight": torch.ones(2, 2)}
    resealed(tmp_path / "whole", tmp_path / "net", changed, square)
    assert "has arrays of the shapes [(2, 2)]" in refused(tmp_path / "net")


def changed_in(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("scales:6.weight", lambda x: x[:-1], "59 scales do not fit 60 slices"),
        ("scales:6.weight", lambda x: changed_in(x, 3, -1.0), "not all finite and above zero"),
        ("scales:6.weight", lambda x: changed_in(x, 3, 0.0), "not all finite and above zero"),
        ("scales:6.weight", lambda x: changed_in(x, 3, torch.inf), "not all finite and above"),
        ("scales:6.weight", lambda x: x.double(), "no list of float32"),
        ("codebook:7.weight", lambda x: x[:-1], "reads number 8 of a codebook of 8"),
        ("codebook:7.weight", lambda x: x[:0], "up to 16 numbers"),
        ("codebook:7.weight", lambda x: torch.cat((x, x)), "up to 16 numbers"),
        ("values:7.weight", lambda x: x[:-1], "are not 60"),
        ("values:7.weight", lambda x: torch.cat((x, x[:1])), "are not 60"),
        ("values:7.weight", lambda x: x.flip(0), "deflated bytes are"),
        ("where:7.weight", lambda x: x[: len(x) // 2], "deflated bytes are not"),
        ("where:7.weight", lambda x: x.reshape(1, -1), "are no bytes"),
        ("where:4.weight", lambda x: x.reshape(1, -1), "its positions are no bytes"),
    ],
)
def test_tensors_that_do_not_fit_together_are_named(saved, tmp_path, name, change, says):
    tensor = change(read_tensors(saved)[0][name]).contiguous()
    resealed(saved, tmp_path / "net", lambda content: content, {name: tensor})
    assert says in refused(tmp_path / "net")


@pytest.mark.parametrize("told", [600, 1 << 28])
@pytest.mark.parametrize("kind", ["values", "where"])
def test_a_deflate_bomb_is_never_blown_up(saved, tmp_path, kind, told):
    coder = zlib.compressobj(9, wbits=-15)
    zeros = bytes(1 << 20)
    stream = b"".join(coder.compress(zeros) for _ in range(1 << 8)) + coder.flush()
    bomb = torch.frombuffer(bytearray(stream), dtype=torch.uint8)

    def change(content):
        content["arrays"]["7.weight"]["deflated"][kind] = told
        return content

    resealed(saved, tmp_path / "net", change, {f"{kind}:7.weight": bomb})
    tracemalloc.start()
    try:
        says = refused(tmp_path / "net")
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert ("are not 600 bytes" if told == 600 else "do not fit an array of 48000") in says


FORGED = [
    (nn.Dropout(0.5), "p", {"float": "nan"}),
    (nn.Dropout(0.5), "p", 1.5),
    (nn.BatchNorm2d(4), "momentum", "x"),
    (nn.BatchNorm2d(4), "axes", True),
    (nn.BatchNorm2d(4), "axes", 4),
    (nn.BatchNorm2d(4), "axes", 3),
    (nn.BatchNorm2d(4), "eps", "a"),
    (nn.BatchNorm2d(4), "eps", -10),
    (nn.BatchNorm2d(4), "batches", -1),
    (nn.Conv2d(4, 4, 3), "padding", [10**9, 10**9]),
    (nn.ConvTranspose2d(4, 4, 3), "output_padding", [5, 5]),
    (nn.ConvTranspose2d(4, 4, 3), "groups", 2),
    (nn.MaxPool2d(2), "padding", [2, 2]),
    (nn.MaxPool2d(2), "ceil_mode", "no"),
    (nn.AvgPool2d(2), "divisor_override", 0),
    (nn.AvgPool2d(2), "stride", [1]),
    (nn.AdaptiveAvgPool2d(2), "output_size", [-1, 2]),
    (nn.Softmax(1), "dim", None),
    (nn.Flatten(), "start_dim", "1"),
    (Mean(), "dim", [None]),
    (Mean(), "dim", []),
    (nn.LeakyReLU(), "negative_slope", "steep"),
]


@pytest.mark.parametrize(("layer", "key", "value"), FORGED)
def test_an_argument_with_which_nothing_runs_is_refused(layer, key, value, tmp_path):
    save(nn.Sequential(nn.Conv2d(3, 4, 3), layer).eval(), tmp_path / "whole")

    def change(content):
        (node,) = (x for x in content["graph"]["nodes"][1:] if key in x["attributes"])
        node["attributes"][key] = value
        return content

    load(tmp_path / "whole")
    resealed(tmp_path / "whole", tmp_path / "net", change)
    said = refused(tmp_path / "net")
    assert key.partition("_")[0] in said or "bias" in said or "kernel_size" in said


@pytest.mark.parametrize(
    ("layers", "axes"),
    [
        ([nn.Conv1d(3, 4, 3), nn.ReLU(), nn.BatchNorm1d(4)], 2),
        ([nn.Conv3d(3, 4, 3), nn.Dropout(0.5), nn.BatchNorm3d(4)], 1),
        ([nn.BatchNorm2d(3), nn.ReLU(), nn.ConvTranspose2d(3, 4, 3)], 3),
        ([nn.BatchNorm2d(3), nn.MaxPool2d(2)], 3),
        ([nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten()], 3),
    ],
)
def test_a_batch_norm_of_other_axes_than_its_neighbours_is_refused(layers, axes, tmp_path):
    save(nn.Sequential(*layers).eval(), tmp_path / "whole")

    def change(content):
        (node,) = (x for x in content["graph"]["nodes"] if x["op"] == "batch_norm")
        node["attributes"]["axes"] = axes
        return content

    load(tmp_path / "whole")
    resealed(tmp_path / "whole", tmp_path / "net", change)
    assert "axes where there can be no more than" in refused(tmp_path / "net")


def test_a_network_that_load_would_refuse_is_not_saved(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm3d(4)).eval()
    with pytest.raises(BadInput, match=r"cannot be saved: '1' \(batch_norm\) meets 5 axes where"):
        save(model, tmp_path / "net")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output", [5, None, []])
def test_a_graph_that_gives_nothing_is_refused(saved, output, tmp_path):
    def change(content):
        content["graph"]["output"] = output
        return content

    resealed(saved, tmp_path / "net", change)
    assert "gives no tensor" in refused(tmp_path / "net")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_arrays_of_several_types_are_refused(dtype, tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    save(model, tmp_path / "whole")

    def change(content):
        content["arrays"]["1.bias"]["dtype"] = str(dtype).removeprefix("torch.")
        return content

    bias = {"values:1.bias": torch.ones(3, dtype=dtype)}
    resealed(tmp_path / "whole", tmp_path / "net", change, bias)
    assert "arrays of several types (weight float32, bias" in refused(tmp_path / "net")
