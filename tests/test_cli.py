"""The command line: exit codes, sentences, and no torch before it is needed."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
from commands import call
from tiny import tiny_data, tiny_options, tiny_settings

from sparsepath import __version__
from sparsepath.lab.settings import Settings, toml
from sparsepath.storage import read_tensors, write_tensors

STAGES = ("iteration 1", "iteration 2", "fine-tune")


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return tiny_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def finished(data, tmp_path_factory) -> tuple[Path, str]:
    """A finished run and what was printed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    result = call("run", "--no-deploy", *tiny_options(data), "--out", str(folder))
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def refused(*arguments: str) -> str:
    """The sentence with which these arguments are refused."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.stderr


def test_run_prints_a_line_for_each_mu_the_table_and_where_everything_is(finished):
    folder, printed = finished
    assert printed.startswith(f"folder: {folder}\n")
    assert len(re.findall(r"^point +\d/2: mu", printed, re.MULTILINE)) == 2
    assert "zero blocks  zero weights" in printed
    assert f"Written to {folder}" in printed
    results = json.loads((folder / "results.json").read_text())
    assert results["finished"]


def test_run_again_shows_the_same_table_at_once(data, finished):
    folder, printed = finished
    again = call("run", "--no-deploy", *tiny_options(data), "--out", str(folder))
    assert again.exit_code == 0
    assert printed[printed.index("run: digit-net") :] in again.stdout


def test_the_folder_is_named_by_the_settings(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("train", *tiny_options(data)).exit_code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [tiny_settings(data).name]


def test_train_writes_the_dense_reference_and_path_starts_from_it(data, finished, tmp_path):
    trained = call("train", *tiny_options(data), "--out", str(tmp_path / "dense"))
    assert trained.exit_code == 0
    checkpoint = tmp_path / "dense" / "dense.safetensors"
    assert f"Written to {checkpoint}" in trained.stdout
    options = [*tiny_options(data), "--out", str(tmp_path / "path")]
    walked = call("path", "--no-deploy", "--from", str(checkpoint), *options)
    assert walked.exit_code == 0
    table = finished[1][finished[1].index("    1  ") : finished[1].index("In percent")]
    assert table in walked.stdout


def test_path_without_a_checkpoint_is_refused(data):
    assert "give --from CHECKPOINT" in refused("path", *tiny_options(data))


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv", "json"])
def test_report_shows_a_run(finished, form):
    result = call("report", str(finished[0]), "--format", form)
    assert result.exit_code == 0
    results = json.loads((finished[0] / "results.json").read_text())
    if form == "json":
        assert json.loads(result.stdout) == results
    elif form == "csv":
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        assert [float(row["test"]) for row in rows[1:]] == [p["test"] for p in results["points"]]
    else:
        assert "digit-net on" in result.stdout


def test_report_draws_a_figure(finished, tmp_path):
    assert call("report", str(finished[0]), "--figure", str(tmp_path / "c.png")).exit_code == 0
    assert (tmp_path / "c.png").exists()


def test_run_ends_with_every_view_and_table_in_a_folder(finished):
    pytest.importorskip("matplotlib")
    folder, printed = finished
    assert "tables and pictures in report" in printed
    names = {path.name for path in (folder / "report").iterdir()}
    views = ("curve", "layers", "blocks", "convergence")
    assert names == {
        *(f"{view}.{ending}" for view in views for ending in ("png", "svg")),
        *(f"report.{ending}" for ending in ("md", "tex", "csv")),
        "convergence.csv",
    }
    shown = call("report", str(folder), "--format", "csv").stdout
    assert (folder / "report" / "report.csv").read_text() == shown


def test_a_run_whose_report_cannot_be_written_is_no_failure(data, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    shutil.rmtree(folder / "report")
    (folder / "report").write_text("mine")
    result = call("run", "--no-deploy", *tiny_options(data), "--out", str(folder))
    assert result.exit_code == 0, result.output
    assert re.search(r"no report \('.*' cannot be written", result.stdout)
    assert (folder / "report").read_text() == "mine"


@pytest.mark.parametrize("command", ["show", "runs", "report"])
def test_a_name_does_not_act_on_the_terminal(finished, tmp_path, command):
    folder = tmp_path / "a\x1b[31m\nb"
    shutil.copytree(finished[0], folder)
    results = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps({**results, "name": folder.name}))
    result = call(command, str(tmp_path if command == "runs" else folder))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert r"a\x1b[31m\nb" in result.stdout
    (folder / "results.json").write_text("{")
    result = call(command, str(tmp_path if command == "runs" else folder))
    assert result.exit_code == (0 if command == "runs" else 2)
    assert "\x1b" not in result.output
    assert "cannot be read as JSON" in result.output


def test_report_draws_every_view_into_a_folder(finished, tmp_path):
    pytest.importorskip("matplotlib")
    result = call("report", str(finished[0]), "--figures", str(tmp_path / "figures"))
    assert result.exit_code == 0
    assert len(list((tmp_path / "figures").iterdir())) == 8
    assert f"Drawn: {tmp_path / 'figures' / 'curve.png'}, " in result.stderr
    assert "Drawn" not in result.stdout  # which may go to a program


def test_report_draws_several_runs_as_a_comparison(finished, tmp_path):
    pytest.importorskip("matplotlib")
    both = 2 * [str(finished[0])]
    figures, one = tmp_path / "figures", tmp_path / "one.svg"
    result = call("report", *both, "--figures", str(figures), "--figure", str(one), draw=True)
    assert result.exit_code == 0, result.output
    assert {path.name for path in figures.iterdir()} == {"comparison.png", "comparison.svg"}
    assert b"2 runs" in one.read_bytes()


def test_report_takes_several_runs(finished):
    folder = str(finished[0])
    result = call("report", folder, folder, "--format", "json")
    assert [record["name"] for record in json.loads(result.stdout)] == ["run", "run"]
    assert "with --out" in refused("report", folder, folder, "--format", "html")
    said = refused("report", folder, "--out", "page.html")
    assert "--out page.html says where a page goes: add --format html." in said


def test_report_writes_a_page(finished, tmp_path):
    pytest.importorskip("plotly")
    place = tmp_path / "page.html"
    result = call("report", str(finished[0]), "--format", "html", "--out", str(place))
    assert result.exit_code == 0
    assert result.stdout == f"Written to {place}.\n"
    assert place.read_text().startswith("<!doctype html>")


def test_run_writes_the_page_and_says_where(finished):
    pytest.importorskip("plotly")
    folder, printed = finished
    assert (folder / "report.html").exists()
    assert "the page in report.html" in printed
    losses = json.loads((folder / "losses.json").read_text())
    assert list(losses) == [
        "dense reference",
        *(f"point {k}, {what}" for k in (1, 2) for what in STAGES),
    ]


def test_a_run_without_plotly_goes_on_and_says_so_once(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    result = call("run", "--no-deploy", *tiny_options(data), "--out", str(tmp_path / "run"))
    assert result.exit_code == 0
    said = "No report.html: The page needs plotly and jinja2: pip install 'sparsepath[report]'."
    assert result.stdout.splitlines().count(said) == 1
    assert "the page in" not in result.stdout
    assert "needs plotly" in refused("report", str(tmp_path / "run"), "--format", "html")


def test_tensorboard_gets_what_the_live_line_shows(data, finished, tmp_path):
    pytest.importorskip("tensorboard")
    options = [*tiny_options(data), "--out", str(tmp_path / "run")]
    result = call("run", "--no-deploy", *options, "--tensorboard", str(tmp_path / "board"))
    assert result.exit_code == 0, result.output
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    losses = json.loads((tmp_path / "run" / "losses.json").read_text())
    every = {int(done): loss for stage in losses.values() for done, loss in stage.items()}

    def values(tag):
        return [entry.value for entry in events.Scalars(tag)]

    assert values("training/loss") == pytest.approx([every[done] for done in sorted(every)])
    rows = [row for point in results["points"] for row in point["residuals"]]
    for name in ("primal", "dual"):
        assert values(f"residuals/{name}") == pytest.approx([row[name] for row in rows])
    for name in ("test", "validation"):
        both = [results["dense"][name], *(point[name] for point in results["points"])]
        assert values(f"path/{name}") == pytest.approx(both)
    for layer in results["points"][0]["sparsity"]["zero_blocks"]:
        zeros = [point["sparsity"]["zero_blocks"][layer] for point in results["points"]]
        assert values(f"zero_blocks/{layer}")[-2:] == zeros


def test_tensorboard_that_is_missing_is_named_before_anything_is_done(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    options = [*tiny_options(data), "--out", str(tmp_path / "run")]
    said = refused("run", *options, "--tensorboard", str(tmp_path / "board"))
    assert "pip install 'sparsepath[tensorboard]'" in said
    assert not (tmp_path / "run").exists()


def test_show_prints_the_table_and_a_plot(finished):
    result = call("show", str(finished[0]))
    assert result.exit_code == 0
    assert "zero blocks  zero weights" in result.stdout
    assert "dense reference in the test" in result.stdout
    assert "is no run" in refused("show", str(finished[0].parent))


def test_report_of_an_unfinished_run_says_so(data, tmp_path):
    call("train", *tiny_options(data), "--out", str(tmp_path / "run"))
    result = call("report", str(tmp_path / "run"))
    assert result.exit_code == 0
    assert "unfinished: 0 of 2 points" in result.stdout


def test_report_refuses_an_unknown_format_and_a_folder_without_a_run(finished, tmp_path):
    assert "no format 'pdf'" in refused("report", str(finished[0]), "--format", "pdf")
    assert "is no run" in refused("report", str(tmp_path))


def test_runs_lists_every_run(finished, tmp_path):
    result = call("runs", str(finished[0].parent))
    assert result.exit_code == 0
    titles, row, *_ = result.stdout.splitlines()
    assert titles.split()[:3] == ["run", "network", "data"]
    assert row.split()[:2] == ["run", "digit-net"]
    assert row.endswith("finished")
    assert "no runs in" in refused("runs", str(tmp_path))
    (tmp_path / "copied").mkdir()
    shutil.copy(finished[0] / "results.json", tmp_path / "copied")
    assert call("runs", str(tmp_path)).stdout.splitlines()[1].endswith("finished")


def test_options_come_before_the_settings_file(data, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(toml(tiny_settings(data, seed=3, dense_epochs=1)))
    options = ["--settings", str(file), "--seed", "4", "--flip", "--out", str(tmp_path / "run")]
    assert call("train", *options).exit_code == 0
    written = (tmp_path / "run" / "settings.toml").read_text()
    assert written == toml(tiny_settings(data, seed=4, dense_epochs=1, flip=True))


def test_the_written_settings_repeat_the_run(finished):
    folder, _ = finished
    settings = ["--settings", str(folder / "settings.toml"), "--out", str(folder)]
    assert call("run", "--no-deploy", *settings).exit_code == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rho", "0"], "rho must be a finite number above zero, not 0"),
        (["--rho", "-1"], "rho must be"),
        (["--rho", "nan"], "rho must be"),
        (["--rho", "inf"], "rho must be"),
        (["--rho", "strong"], "--rho"),
        (["--mu-min", "-1", "--mu-max", "1"], "mu_min must be"),
        (["--mu-min", "1"], "Give both mu_min and mu_max"),
        (["--points", "0"], "points must be a whole number of at least 1, not 0"),
        (["--points", "2.5"], "--points"),
        (["--guard", "2"], "guard is a share from 0 to 1, not 2"),
        (["--settings", "nowhere.toml"], "'nowhere.toml' cannot be read"),
        (["--bananas", "3"], "--bananas"),
        (["--data", "nowhere"], "'nowhere' does not exist"),
        (["--network", "resnet"], "There is no network 'resnet'"),
        (["--penalty", "l7"], "There is no penalty 'l7'"),
        (["--blocks", "kernel"], "did you mean 'kernels'?"),
        (["--blocks", "tiles(5, 5)"], "does not divide"),
        (["--device", "toaster"], "'toaster' cannot be used"),
        (["--from", "nowhere.pt"], "'nowhere.pt' cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused_in_a_sentence(data, tmp_path, options, sentence):
    said = refused("run", *tiny_options(data), "--out", str(tmp_path / "run"), *options)
    assert sentence in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("rhos = 1", "no setting 'rhos'; did you mean 'rho'?"), ("rho = 'strong'", "rho must be")],
)
def test_bad_settings_files_are_refused_in_a_sentence(tmp_path, content, sentence):
    (tmp_path / "mine.toml").write_text(content)
    said = refused("run", "--settings", str(tmp_path / "mine.toml"))
    assert sentence in said
    assert len(said.strip().splitlines()) == 1


def test_a_folder_of_other_settings_is_refused_and_left_alone(data, finished):
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    said = refused("run", *tiny_options(data), "--seed", "9", "--out", str(folder))
    assert "belongs to other settings (seed = 9 instead of 0)" in said
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_folder_that_cannot_be_written_is_refused(data, tmp_path):
    (tmp_path / "file").write_text("mine")
    said = refused("run", *tiny_options(data), "--out", str(tmp_path / "file" / "run"))
    assert "cannot be written" in said


def test_debug_shows_the_traceback_and_keeps_the_exit_code():
    result = call("run", "--rho", "0", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def test_a_run_that_diverges_fails_with_one(data, tmp_path):
    options = [*tiny_options(data), "--dense-rate", "1e30", "--out", str(tmp_path / "run")]
    result = call("run", *options)
    assert result.exit_code == 1
    assert "no longer finite" in result.stderr
    assert "Traceback" not in result.stderr


def test_anything_unexpected_fails_with_one(finished, monkeypatch):
    def broken(folder):
        raise OSError("the disk is gone")

    monkeypatch.setattr("sparsepath.report.reading.gather", broken)
    result = call("report", str(finished[0]))
    assert result.exit_code == 1
    assert "the disk is gone" in result.stderr


def test_no_command_at_all_explains_itself():
    result = call()
    assert result.exit_code == 2
    assert "Usage" in result.output


def test_help_names_every_setting():
    result = call("run", "--help")
    assert result.exit_code == 0
    for option in fields(Settings):
        flag = "from" if option.name == "checkpoint" else option.name.replace("_", "-")
        assert f"--{flag}" in result.output


def test_python_m_is_the_same_command():
    command = [sys.executable, "-m", "sparsepath", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"sparsepath {__version__}\n"


WITHOUT_TORCH = """
import sys
from sparsepath.cli import app
try:
    app({arguments!r})
except SystemExit as stop:
    assert stop.code == {code}, stop.code
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["--version"], 0),
        (["run", "--rho", "0"], 2),
        (["run", "--settings", "nowhere.toml"], 2),
        (["download", "mnist"], 2),
    ],
    ids=str,
)
def test_help_version_and_settings_errors_do_not_wait_for_torch(arguments, code):
    program = WITHOUT_TORCH.format(arguments=arguments, code=code)
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_an_interrupt_says_how_to_go_on(data, tmp_path):
    folder = tmp_path / "run"
    options = [*tiny_options(data), "--dense-epochs", "5000", "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparsepath", "train", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A shell lets what it starts in the background ignore interrupts, which would be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 100
    while not (folder / "training.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to go on" in said
    assert "Traceback" not in said


def test_a_download_of_something_else_is_refused():
    assert "no download of 'mnist'; choose one of cifar10, cifar100, svhn" in refused(
        "download", "mnist"
    )


def test_an_experiment_that_is_not_there_or_has_no_data_is_refused(tmp_path):
    assert "no experiment 'mnist'; choose one of cifar10" in refused("reproduce", "mnist")
    said = refused("reproduce", "svhn", "--device", "cpu", "--data", str(tmp_path))
    assert "sparsepath download svhn" in said
    said = refused("reproduce", "svhn", "--only", "nin-l2", "--device", "cpu")
    assert "No walk of 'svhn' is called 'nin-l2'" in said
    said = refused("reproduce", "t-test", "--network", "cnn", "--device", "cpu")
    assert "'t-test' has nothing of cnn" in said


def test_runs_lists_the_others_beside_a_damaged_one(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "good")
    shutil.copytree(finished[0], tmp_path / "torn")
    (tmp_path / "torn" / "results.json").write_text("{}")
    result = call("runs", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].endswith("finished")
    assert "torn: " in result.stdout
    assert "is damaged: it lacks chosen, dense" in result.stdout
    assert "is damaged: it lacks" in refused("report", str(tmp_path / "torn"))


def test_names_are_shown_as_they_are(finished, tmp_path):
    odd = tmp_path / "a:dog:[b]"
    shutil.copytree(finished[0], odd)
    (odd / "results.json").unlink()
    shown = json.loads(call("report", str(odd), "--format", "json").stdout)
    assert shown["name"] == "a:dog:[b]"


def test_a_figure_that_cannot_be_written_is_bad_usage(finished):
    said = refused_after("report", str(finished[0]), "--figure", "/proc/none/c.png")
    assert "'/proc/none/c.png' cannot be written" in said


def refused_after(*arguments: str) -> str:
    """The sentence of a refusal that comes after something was shown."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_a_checkpoint_with_nan_is_refused_before_anything_is_written(data, finished, tmp_path):
    weights, _ = read_tensors(finished[0] / "dense.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    write_tensors(tmp_path / "nan.safetensors", weights, {})
    options = [*tiny_options(data), "--out", str(tmp_path / "run")]
    assert "not finite" in refused("path", "--from", str(tmp_path / "nan.safetensors"), *options)
    assert not (tmp_path / "run").exists()


def test_the_dense_row_counts_the_zeros_it_starts_from(data, finished, tmp_path):
    options = [*tiny_options(data), "--out", str(tmp_path / "run")]
    sparse = finished[0] / "points" / "02.safetensors"
    walked = call("path", "--no-deploy", "--from", str(sparse), *options)
    assert walked.exit_code == 0
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    before = json.loads((finished[0] / "results.json").read_text())["points"][1]["sparsity"]
    assert record["dense"]["sparsity"] == before
    assert f"{100 * before['of_blocks']:.2f}" in walked.stdout


def test_inspect_shows_a_saved_network_without_its_weights(tmp_path) -> None:
    import torch

    from sparsepath.deploy.files.artifact import save

    layer = torch.nn.Conv2d(3, 8, 3)
    layer.weight.data[:7] = 0
    path = tmp_path / "net"
    save(torch.nn.Sequential(layer), path, figures={"accuracy": 0.5, "\x1b[2J": "\x1b[31m"})
    shown = call("inspect", str(path))
    assert shown.exit_code == 0
    assert "a graph of 1 nodes: 1 conv" in shown.stdout
    stored = r"dense, plain \(deflated\) +1\d\d +0\.1"
    assert re.search(rf"0\.weight +8 x 3 x 3 x 3 +float32 +{stored}", shown.stdout)
    assert "accuracy: 0.5" in shown.stdout
    assert "\x1b" not in shown.stdout
    # The weights are not read: damage there is for load() to find.
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert call("inspect", str(path)).stdout == shown.stdout


def test_inspect_refuses_what_is_no_saved_network(tmp_path) -> None:
    (tmp_path / "net").write_text("hello")
    (tmp_path / "page").write_text("# A page, and none of a network's files\n")
    kind = "cannot be read as safetensors: it is empty, cut off or a file of another kind."
    says = {"net": kind, "page": kind, "missing": "There is no file"}
    for name, sentence in says.items():
        result = call("inspect", str(tmp_path / name))
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert sentence in result.stderr
