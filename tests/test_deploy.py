"""deploy and bench on a real run: the file, the table, the record, and every refusal."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import BRIEF_TURN, call
from tiny import tiny_data, tiny_options

from sparsepath.deploy import export, load, save
from sparsepath.lab.deployment import BEST
from sparsepath.report.tables import MISSING

BRIEF = ("--quick", "--no-tune")


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return tiny_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def options(data) -> list[str]:
    """A run whose last point is among those that are good enough."""
    return [*tiny_options(data), "--last-share", "0.6", "--tolerance", "0.2"]


@pytest.fixture(scope="session")
def ended(options, tmp_path_factory) -> tuple[Path, str]:
    """A run that ended by deploying its best point, and what was printed; to be left alone."""
    folder = tmp_path_factory.mktemp("ended") / "run"
    result = call("run", *options, "--out", str(folder))
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.fixture
def folder(ended, tmp_path) -> Path:
    """A copy of that run."""
    return Path(shutil.copytree(ended[0], tmp_path / "run"))


def refused(*arguments: str) -> str:
    """The one sentence with which these arguments are refused."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def deployed(*arguments: str) -> str:
    result = call("deploy", *arguments, *BRIEF)
    assert result.exit_code == 0, result.output
    return result.stdout


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def row(printed: str, title: str) -> list[str]:
    """The cells of a row of the table."""
    (found,) = [x for x in printed.splitlines() if x.strip().startswith(title)]
    return found.strip().removeprefix(title).split()


def test_run_ends_by_deploying_its_chosen_point(ended):
    folder, printed = ended
    record = results(folder)
    chosen = record["chosen"]
    assert f"Point {chosen + 1} of run, deployed:" in printed
    assert f"Written to {folder / BEST}." in printed
    artifact = load(folder / BEST)
    point = record["points"][chosen]
    assert artifact.figures["point"]["number"] == chosen + 1
    assert artifact.figures["point"]["sparsity"] == point["sparsity"]
    *counts, gain = row(printed, "weights")
    dense, kept = (int(count.replace(",", "")) for count in counts)
    assert dense == record["dense"]["parameters"]
    assert kept == sum(int((weight != 0).sum()) for weight in artifact.model.parameters())
    assert gain == f"{dense / kept:.2f}x"
    assert row(printed, "bytes of the file")[1] == f"{(folder / BEST).stat().st_size:,}"


def test_run_again_neither_deploys_again_nor_fails(ended, options):
    folder, _ = ended
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix != ".html"}
    again = call("run", *options, "--out", str(folder))
    assert again.exit_code == 0
    assert f"The chosen point is deployed in {BEST}" in again.stdout
    after = {path: path.stat().st_mtime_ns for path in before}
    changed = {path.name for path in before if before[path] != after[path]}
    assert changed <= {"report"}


def test_a_command_that_is_printed_can_be_pasted(ended, options, tmp_path):
    spaced = tmp_path / "my run"
    shutil.copytree(ended[0], spaced)
    printed = call("run", *options, "--out", str(spaced)).stdout
    assert f"`sparsepath deploy '{spaced}'` does it anew" in printed


def test_run_without_a_good_point_names_the_nearest_and_is_no_failure(data, tmp_path):
    options = [*tiny_options(data), "--first-share", "0.97", "--last-share", "0.999"]
    options += ["--tolerance", "0", "--out", str(tmp_path / "run")]
    result = call("run", *options)
    assert result.exit_code == 0
    assert results(tmp_path / "run")["chosen"] is None
    assert "Nothing is deployed: No point of 'run' has" in result.stdout
    assert re.search(r"the nearest is point \d with [\d.]+ %", result.stdout)
    assert not (tmp_path / "run" / BEST).exists()


def test_a_file_that_cannot_be_written_is_no_failure_of_the_run(folder, options, monkeypatch):
    (folder / BEST).unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparsepath.deploy.files.artifact.write_tensors", full)
    result = call("run", *options, "--out", str(folder))
    assert result.exit_code == 0, result.output
    assert "Nothing is deployed: " in result.stdout
    assert "No space left on device" in result.stdout
    assert not (folder / BEST).exists()
    assert not list(folder.glob(".*.part"))


def empty_what_is_loaded(monkeypatch):
    """From now on every file gives a network of zeros."""
    from sparsepath.deploy.files import opened

    true_load = opened.load

    def emptied(path):
        artifact = true_load(path)
        with torch.no_grad():
            for weight in artifact.model.parameters():
                weight.zero_()
        return artifact

    monkeypatch.setattr(opened, "load", emptied)


def test_accuracy_and_difference_are_those_of_the_file_as_loaded(folder, monkeypatch):
    good = deployed(str(folder))
    record = results(folder)
    point = record["points"][record["chosen"]]
    tested = row(good, "test accuracy of the loaded file, %")
    assert tested == [f"{100 * x:.2f}" for x in (record["dense"]["test"], point["test"])]
    assert float(row(good, "max difference, file to sparse network")[0]) < 1e-4
    empty_what_is_loaded(monkeypatch)
    bad = deployed(str(folder), "--force")
    assert row(bad, "test accuracy of the loaded file, %")[1] == "25.00"  # one of four classes
    assert float(row(bad, "max difference, file to sparse network")[0]) > 0.1


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("artifact", "point-01.sparsepath"),
        ("onnx", "point-01.onnx"),
        ("pt2", "point-01.pt2"),
        ("state-dict", "point-01.safetensors"),
    ],
)
def test_every_format_is_written_and_run(folder, form, name):
    if form == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    printed = deployed(str(folder), "--point", "1", "--format", form)
    assert f"Written to {folder / name}." in printed
    test = results(folder)["points"][0]["test"]
    assert row(printed, "test accuracy of the loaded file, %")[1] == f"{100 * test:.2f}"
    assert float(row(printed, "max difference, file to sparse network")[0]) < 1e-4
    assert row(printed, "bytes of the file")[1] == f"{(folder / name).stat().st_size:,}"


@pytest.mark.parametrize("given", ["--int8", "--share 3", "--int8 --format onnx"])
def test_fewer_bits_make_a_smaller_file_that_is_judged_as_loaded(folder, given):
    pytest.importorskip("sparsepath.deploy.bits.quantise")
    form = given.partition("--format ")[2] or "artifact"
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    plain = deployed(str(folder), "--format", form)
    small = deployed(str(folder), *given.split())
    sizes = [int(row(x, "bytes of the file")[1].replace(",", "")) for x in (plain, small)]
    assert sizes[1] < sizes[0] / 2
    kept = [int(row(x, "weights")[1].replace(",", "")) for x in (plain, small)]
    assert kept[1] <= kept[0]  # zeros stay zeros
    assert float(row(small, "max difference, file to sparse network")[0]) > 0
    assert float(row(small, "test accuracy of the loaded file, %")[1]) > 50  # of four classes
    again = deployed(str(folder), *given.split(), "--force")
    assert row(again, "bytes of the file")[1] == row(small, "bytes of the file")[1]


def test_the_latency_lands_in_the_record_and_on_the_page(folder):
    pytest.importorskip("plotly")
    before = results(folder)
    printed = deployed(str(folder), "--point", "2", "--force")
    after = results(folder)
    latency = after["points"][1].pop("latency")
    before["points"][1].pop("latency", None)
    before["deployed"]["point-02.sparsepath"] = after["deployed"]["point-02.sparsepath"]
    assert after == before  # nothing else changed
    for side, column in (("dense", 0), ("sparse", 1)):
        figures = latency[side]
        assert 0 < figures["p50"] <= figures["p95"]
        shown = row(printed, f"p50 at batch 1, {figures['runtime']}, ms")
        assert shown[column] == f"{1e3 * figures['p50']:.3f}"
    assert latency["threads"] == 1
    page = (folder / "report.html").read_text()
    assert f'"latency_seconds":{json.dumps(latency["sparse"]["p50"])}' in page
    csv = call("report", str(folder), "--format", "csv").stdout
    assert repr(latency["sparse"]["p50"]) in csv


def test_a_record_that_cannot_be_written_costs_the_latency_alone(folder, monkeypatch):
    before = (folder / "results.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparsepath.lab.deploy_record.write_json", full)
    printed = deployed(str(folder), "--out", str(folder / "mine"))
    assert "stay without what was measured: [Errno 28] No space left on device" in printed
    assert row(printed, "weights")
    assert load(folder / "mine")
    assert (folder / "results.json").read_bytes() == before


def test_a_file_may_have_any_name(folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    for form in ("onnx", "state-dict", "pt2"):
        deployed(str(folder), "--format", form, "--out", str(folder / form))
    assert call("bench", str(folder / "onnx"), *BRIEF).exit_code == 0
    said = refused("bench", str(folder / "state-dict"), *BRIEF)
    assert "is no artifact of sparsepath: its format is 'pt'" in said
    assert "is a zip file, as .pt2 and .pt are" in refused("bench", str(folder / "pt2"), *BRIEF)


def test_the_pages_command_is_one_that_works(folder):
    pytest.importorskip("plotly")
    assert call("report", str(folder), "--format", "html").exit_code == 0
    page = (folder / "report.html").read_text()
    (parts,) = re.findall(r'"Deploy":(\[.*?\])', page)
    before, after = json.loads(parts)
    words = f"{before}1{after}".split()
    assert words[:2] == ["sparsepath", "deploy"]
    deployed(*words[2:], "--force")


def test_a_run_without_a_page_gets_none(folder):
    (folder / "report.html").unlink(missing_ok=True)
    deployed(str(folder))
    assert not (folder / "report.html").exists()


def test_an_existing_file_is_only_replaced_by_force(folder, tmp_path):
    target = tmp_path / "net"
    target.write_text("precious")
    said = refused("deploy", str(folder), "--out", str(target))
    assert f"'{target}' exists: choose another with --out, or replace it with --force" in said
    assert target.read_text() == "precious"
    deployed(str(folder), "--out", str(target), "--force")
    assert load(target).figures["run"] == "run"


def test_a_full_disk_leaves_the_run_as_it_was(folder, tmp_path, monkeypatch):
    before = (folder / "results.json").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparsepath.storage.os.fsync", full)
    said = refused("deploy", str(folder), "--out", str(tmp_path / "net"), *BRIEF)
    assert "No space left on device" in said
    assert not (tmp_path / "net").exists()
    assert (folder / "results.json").read_bytes() == before
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--point", "7"], "There is no point 7: 'run' has the points 1 to 2"),
        (["--point", "0"], "There is no point 0"),
        (["--min-accuracy", "97"], "--min-accuracy is a share from 0 to 1, not 97"),
        (["--point", "1", "--max-drop", "0.1"], "--point and --max-drop each choose a point"),
        (["--format", "tflite"], "no format 'tflite'"),
        (["--int8", "--share", "4"], "--int8 and --share 4 are two ways"),
        (["--int8", "--format", "pt2"], "pt2 holds no int8 weights"),
        (["--int8", "--format", "state-dict"], "state-dict holds no int8 weights"),
        (["--share", "11"], "--share takes 1 to 8 bits"),
        (["--threads", "0"], "threads must be a whole number of at least 1, not 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused_in_a_sentence(ended, given, says):
    folder, _ = ended
    before = sorted(folder.rglob("*"))
    assert says in refused("deploy", str(folder), *given)
    assert sorted(folder.rglob("*")) == before


def test_what_is_no_run_or_unfinished_is_refused(options, data, tmp_path):
    assert "is no run: it has no settings.toml" in refused("deploy", str(tmp_path))
    assert "is no run" in refused("deploy", str(tmp_path / "nowhere"))
    call("train", *tiny_options(data), "--out", str(tmp_path / "run"))
    said = refused("deploy", str(tmp_path / "run"))
    assert "is unfinished, 0 of 2 points: go on with `sparsepath run --settings" in said


def test_a_damaged_run_or_changed_data_is_refused(folder, data, tmp_path):
    record = results(folder)
    content = (folder / "results.json").read_text()
    del record["points"][0]["validation"]
    (folder / "results.json").write_text(json.dumps(record))
    assert "are damaged (KeyError: 'validation')" in refused("deploy", str(folder))
    (folder / "results.json").write_text(content)
    (folder / "points" / "01.safetensors").write_bytes(b"torn")
    said = refused("deploy", str(folder), "--point", "1", "--force")
    assert "01.safetensors' cannot be read as safetensors" in said
    record = json.loads(content)
    record["dense"]["digests"]["data"] = "other"
    (folder / "results.json").write_text(json.dumps(record))
    said = refused("deploy", str(folder), "--point", "2", "--force")
    assert "data of the run" in said
    assert "changed since it began" in said


def test_bench_measures_a_file_again(ended, tmp_path):
    folder, printed = ended
    result = call("bench", str(folder / BEST), *BRIEF, "--batch", "1", "--batch", "3")
    assert result.exit_code == 0, result.output
    for title in ("weights", "MACs", "bytes of the file"):
        assert row(result.stdout, title)[0] == row(printed, title)[1]
    assert float(row(result.stdout, "p50 at batch 1, sparsepath, ms")[0]) > 0
    assert row(result.stdout, "images a second at batch 3, torch")
    assert "peak memory" not in result.stdout


def test_bench_measures_an_onnx_file_and_knows_its_images(folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    deployed(str(folder), "--point", "1", "--format", "onnx")
    result = call("bench", str(folder / "point-01.onnx"), *BRIEF)
    assert result.exit_code == 0, result.output
    assert float(row(result.stdout, "p50 at batch 1, onnxruntime, ms")[0]) > 0


def test_bench_shows_the_peak_memory_of_a_fresh_process(ended):
    folder, _ = ended
    code = f"""
from sparsepath.cli import app
from sparsepath.deploy.measuring import timing
timing.TURN, timing.MOST = {BRIEF_TURN}, timing.LEAST
app()
"""
    command = [sys.executable, "-c", code, "bench", str(folder / BEST), "--no-tune"]
    without = {**os.environ, "CXX": "/nonexistent/c++"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=without)
    assert row(done.stdout, "p50 at batch 1, torch.compile, ms") == ["no", "C++", "compiler"]
    if Path("/proc/self/clear_refs").exists():
        assert float(row(done.stdout, "peak memory at batch 64, MB")[0]) > 0
        assert "above what Python and torch take by themselves" in done.stdout


def test_bench_refuses_what_it_cannot_measure(ended, tmp_path):
    folder, _ = ended
    (tmp_path / "net").write_text("hello")
    assert "cannot be read as safetensors" in refused("bench", str(tmp_path / "net"))
    assert "There is no file" in refused("bench", str(tmp_path / "none.onnx"))
    assert "is a folder" in refused("bench", str(tmp_path))
    content = bytearray((folder / BEST).read_bytes())
    content[-1] ^= 1
    (tmp_path / "net").write_bytes(content)
    assert "nothing was loaded" in refused("bench", str(tmp_path / "net"))
    assert "no artifact of sparsepath" in refused("bench", str(folder / "dense.safetensors"))
    assert "is no shape" in refused("bench", str(folder / BEST), "--shape", "1,x")
    assert "batch must be" in refused("bench", str(folder / BEST), "--batch", "0", *BRIEF)
    assert "cannot take inputs" in refused("bench", str(folder / BEST), "--shape", "5,3", *BRIEF)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("net.onnx", [], "ends in .onnx, and artifact was asked for: give --format onnx"),
        ("net.PT2", ["--force"], "ends in .pt2, and artifact was asked for: give --format pt2"),
        ("o.sparsepath", ["--format", "onnx"], "ends in .sparsepath, and onnx was asked for"),
        ("o.safetensors", ["--format", "pt2"], "ends in .safetensors, and pt2 was asked for"),
    ],
)
def test_a_name_of_another_format_is_refused_before_anything_is_written(
    ended, tmp_path, name, given, says
):
    said = refused("deploy", str(ended[0]), "--out", str(tmp_path / name), *given, *BRIEF)
    assert says in said
    assert list(tmp_path.iterdir()) == []


def test_the_runs_own_files_are_never_the_target(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    shutil.copytree(folder, tmp_path / "other")
    every = [path for path in folder.rglob("*") if path.is_file() and path.name != BEST]
    before = {path: path.read_bytes() for path in every}
    assert {"results.json", "dense.safetensors", "settings.toml", ".lock"} <= {
        path.name for path in every
    }
    for path in every:
        own = path.relative_to(folder)
        for place in (path, tmp_path / "link" / own, tmp_path / "other" / own):
            form = ["--format", "state-dict"] if path.suffix == ".safetensors" else []
            said = refused("deploy", str(folder), "--out", str(place), "--force", *form, *BRIEF)
            assert f"'{place}' is a run's own file: choose another name with --out" in said
    said = refused("deploy", str(folder), "--out", str(folder / "points" / "new"), *BRIEF)
    assert "is a run's own file" in said
    assert {path: path.read_bytes() for path in every} == before


def test_force_replaces_regular_files_alone(folder, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "pipe"):
        for force in ([], ["--force"]):
            said = refused("deploy", str(folder), "--out", str(tmp_path / name), *force, *BRIEF)
            kind = "no regular file" if name == "pipe" else "a link to "
            assert f"'{tmp_path / name}' is {kind}" in said
            assert ", and stays: " in said
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "pipe").is_fifo()


def test_the_files_figures_tell_the_point_from_the_file(folder):
    printed = deployed(str(folder), "--int8", "--point", "2")
    figures = load(folder / "point-02-int8.sparsepath").figures
    point = results(folder)["points"][1]
    assert figures["point"] == {
        "number": 2,
        **{name: point[name] for name in ("mu", "validation", "test", "sparsity", "macs")},
    }
    assert not {"test", "validation", "sparsity", "mu"} & figures.keys()
    assert figures["macs"] == int(row(printed, "MACs")[1].replace(",", ""))
    assert figures["macs"] < point["macs"]["sparse"]  # rounding made more zeros


def test_a_file_that_loses_more_than_the_tolerance_says_so(folder, monkeypatch):
    assert "tolerance" not in deployed(str(folder), "--point", "1")
    empty_what_is_loaded(monkeypatch)
    printed = deployed(str(folder), "--point", "1", "--force")
    (said,) = [line for line in printed.splitlines() if "tolerance" in line]
    lost = results(folder)["dense"]["test"] - 0.25
    assert said == (
        f"Warning: the file's test accuracy is {100 * lost:.2f} points below the dense network's, "
        "more than the run's tolerance of 20.00."
    )
    assert "careful" not in deployed(str(folder), "--force"), "the file lost it, not its point"
    # Who named no point is told what to expect of the run's own choice, and how to choose again.
    record = results(folder)
    for point in record["points"]:
        point["test"] = 0.25
    (folder / "results.json").write_text(json.dumps(record))
    printed = deployed(str(folder), "--force")
    (said,) = [line for line in printed.splitlines() if "tolerance" in line]
    assert said.endswith(
        f"of 20.00. The sparsest point that {record['dense']['images']['validation']} validation "
        "images allow is at the edge of it, so that other images are as likely to put it beyond: "
        "--max-drop 0.1 is more careful."
    )
    assert "careful" not in deployed(str(folder), "--max-drop", "0.2", "--force")


def test_the_record_keeps_every_deployment_with_all_that_was_measured(folder, tmp_path):
    outside = tmp_path / "mine"
    wanted = {
        BEST: None,
        "point-01.sparsepath": ["--point", "1"],
        "point-01-int8.sparsepath": ["--point", "1", "--int8"],
        str(outside.resolve()): ["--point", "1", "--out", str(outside)],
    }
    printed = {name: deployed(str(folder), *given) for name, given in wanted.items() if given}
    kept = results(folder)["deployed"]
    assert list(kept) == list(wanted)
    for name, text in printed.items():
        found = kept[name]
        assert (found["point"], found["format"], found["share"]) == (1, "artifact", None)
        assert found["int8"] == ("int8" in name)
        assert row(text, "max difference, file to sparse network") == [f"{found['difference']:.1e}"]
        tests = [f"{100 * found[side]['test']:.2f}" for side in ("dense", "file")]
        assert row(text, "test accuracy of the loaded file, %") == tests
        for column, side in enumerate(("dense", "file")):
            figures = found[side]
            for title, key in (("weights", "weights"), ("MACs", "macs")):
                assert row(text, title)[column] == f"{figures[key]:,}"
            assert row(text, "bytes of the file")[column] == f"{figures['bytes']:,}"
            assert figures["peak"] is None  # --quick measures none
            assert set(figures["speeds"]["1"]) == {"sparsepath", "torch", "onnxruntime"}
            for runtime, speed in figures["speeds"]["1"].items():
                if not isinstance(speed, str):
                    shown = row(text, f"p50 at batch 1, {runtime}, ms")[column]
                    assert shown == f"{1e3 * speed['p50']:.3f}"
                    many = figures["speeds"]["64"][runtime]["throughput"]
                    shown = row(text, f"images a second at batch 64, {runtime}")[column]
                    assert shown == f"{many:,.0f}"
    assert kept["point-01.sparsepath"]["file"] != kept["point-01-int8.sparsepath"]["file"]


def test_an_int8_onnx_file_has_its_own_weights_and_no_macs(folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    printed = deployed(str(folder), "--point", "1", "--int8", "--format", "onnx")
    measured = call("bench", str(folder / "point-01-int8.onnx"), *BRIEF).stdout
    assert row(printed, "weights")[1] == row(measured, "weights")[0]
    assert row(printed, "MACs")[1] == row(measured, "MACs")[0] == MISSING
    plain = deployed(str(folder), "--point", "1", "--format", "onnx")
    measured = call("bench", str(folder / "point-01.onnx"), *BRIEF).stdout
    assert row(plain, "weights")[1] == row(measured, "weights")[0]
    assert row(plain, "weights")[1] != row(printed, "weights")[1]


class Two(torch.nn.Module):
    """A network of two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x, y):
        return self.layer(x) + self.layer(y)


def test_bench_and_inspect_say_in_a_sentence_which_files_they_do_not_take(tmp_path):
    one, two, x = torch.nn.Conv2d(3, 4, 3).eval(), Two().eval(), torch.randn(2, 3, 8, 8)
    save(two, tmp_path / "two", inputs=2)
    says = "'{}' takes 2 inputs, and only networks of one are measured."
    assert says.format(tmp_path / "two") in refused("bench", str(tmp_path / "two"))
    export(one, x, tmp_path / "net.pt2", format="pt2")
    for command in ("bench", "inspect"):
        none = refused(command, str(tmp_path / "nope"))
        assert none == f"sparsepath: There is no file '{tmp_path / 'nope'}'.\n"
        assert "is a zip file, as .pt2 and .pt are: give an" in refused(
            command, str(tmp_path / "net.pt2")
        )
    pytest.importorskip("onnxruntime")
    export(two, (x, x), tmp_path / "two.onnx", format="onnx")
    assert says.format(tmp_path / "two.onnx") in refused("bench", str(tmp_path / "two.onnx"))
    assert "is an ONNX model: give an artifact" in refused("inspect", str(tmp_path / "two.onnx"))


def test_bench_with_images_that_do_not_fit(ended):
    file = str(ended[0] / BEST)
    assert "cannot take inputs of shape" in refused("bench", file, "--shape", "1,1,1", *BRIEF)
    small = call("bench", file, "--shape", "1,3,3", *BRIEF)  # torch takes them
    assert small.exit_code == 0, small.output
    assert "integer division" not in small.output


def test_a_damaged_best_file_is_deployed_anew(folder, options):
    whole = (folder / BEST).read_bytes()
    (folder / BEST).write_bytes(whole[: len(whole) // 2])
    again = call("run", *options, "--out", str(folder))
    assert again.exit_code == 0, again.output
    assert f"{BEST} is damaged and is made anew" in again.stdout
    assert f"Written to {folder / BEST}." in again.stdout
    assert load(folder / BEST)


def test_inspect_shows_figures_as_plain_json(tmp_path):
    figures = {"image_shape": [1, 28, 28], "point": {"number": 2, "shares": [0.5, {"a": None}]}}
    save(torch.nn.Conv2d(1, 2, 3), tmp_path / "net", figures=figures)
    lines = call("inspect", str(tmp_path / "net")).stdout.splitlines()
    assert "image_shape: [1, 28, 28]" in lines
    assert 'point: {"number": 2, "shares": [0.5, {"a": null}]}' in lines
