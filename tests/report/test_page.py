"""The page: whole, small, escaped, and written while a run goes."""

import json
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from records import LATENCY, record, walked

from sparsepath.errors import BadInput
from sparsepath.report import page as page_module
from sparsepath.report.formats import FORMATS
from sparsepath.report.losses import LossLog, loss_after, read_losses
from sparsepath.report.page import LIMIT, NAME, PageWatch, in_script, page, write_page
from sparsepath.report.view import Source, view

needs_plotly = pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")


def source(whole, folder="runs/a", losses=None):
    return Source(Path(folder), whole, losses or {})


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_point_shows_the_figures_of_its_record():
    shown = view([source(record())])["runs"][0]
    first, second = shown["points"]
    assert (first["number"], second["number"]) == (1, 2)
    assert second["mu"] == record()["points"][1]["mu"]
    assert (second["test"], second["validation"]) == (0.9712, 0.975)
    assert second["zero_blocks"] == 0.9
    assert second["layers"] == {"a.weight": 1, "b.weight": 89}
    assert shown["layers"] == {"a.weight": 10, "b.weight": 90}
    assert shown["chosen"] == 2
    assert "latency_seconds" not in second


def test_weights_and_bytes_are_those_that_are_not_zero():
    shown = view([source(record())])["runs"][0]
    kept = 44_138 - round(0.3219 * 44_138)
    assert shown["points"][0]["kept"] == kept
    assert shown["points"][0]["bytes"] == 4 * kept + 13  # one bit for each of 100 blocks
    assert shown["dense"]["bytes"] == 4 * 44_138


def test_the_measured_latency_is_shown_where_there_is_one():
    timed = {**record()["points"][0], "latency": LATENCY}
    shown = view([source(record(points=[timed]))])["runs"][0]["points"][0]
    assert shown["latency_seconds"] == 0.02
    assert shown["latency_dense_seconds"] == 0.03
    assert shown["latency_speedup"] == pytest.approx(1.5)
    assert shown["latency_in"] == ["sparsepath", "torch"]
    assert (shown["throughput"], shown["throughput_dense"]) == (8000.75, 4000.25)
    assert shown["throughput_in"] == ["sparsepath", "onnxruntime"]


NAMES = ["plain", "my runs/it's @ home", '-x $(false) `a` "b" \\', "esc\x1b\n\u202e\udc80'\\101"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_can_be_pasted_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data.npz").touch()
    whole = record()
    whole["settings"] |= {"data": "my data.npz"}
    (shown,) = view([source(whole, name)])["runs"]
    said = shown["commands"]
    monkeypatch.chdir("/")  # where the reader is, is not where the page was made

    def words(title, number):
        command = number.join(said[title])
        assert command.isprintable()
        told = f"sparsepath() {{ printf '%s\\0' \"$@\"; }}; {command}"
        done = subprocess.run(["bash", "-c", told], capture_output=True, check=True)
        return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]

    folder = f"{tmp_path}/{name}"
    assert words("Deploy", "2") == ["deploy", folder, "--point", "2"]
    assert words("Walk on from it", "02") == [
        *("path", "--from", f"{folder}/points/02.safetensors"),
        *("--network", "digit-net", "--data", f"{tmp_path}/my data.npz"),
    ]
    said = {"Weights": [f"sparsepath {said['Weights'][0]}", said["Weights"][1]]}
    assert words("Weights", "02") == [f"{folder}/points/02.safetensors"]


def test_embedded_data_go_by_their_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").touch()
    (shown,) = view([source(record())])["runs"]
    assert shown["commands"]["Walk on from it"][1].endswith(" --data digits")


def test_every_iteration_has_the_loss_of_its_last_epoch():
    losses = {"point 1, iteration 1": {"9": 0.5, "10": 0.25}, "point 1, fine-tune": {"12": 0.1}}
    shown = view([source(walked(2), losses=losses)])["runs"][0]
    first, second = shown["points"][0]["residuals"]
    assert first == {"primal": 2.0, "dual": 1.0, "loss": 0.25}
    assert second == {"primal": 1.5, "dual": 0.25}
    assert loss_after(losses, index=0, iteration=None) == 0.1


def test_nothing_in_a_script_ends_it():
    name = "</script><!-- & \u2028"
    text = in_script({"name": name})
    assert json.loads(text)["name"] == name
    assert not set("<>&\u2028") & set(text)


@needs_plotly
def test_text_from_the_user_is_escaped_everywhere():
    evil = "</script><script>alert('run')</script>"
    whole = record(name=evil)
    whole["settings"] = {**whole["settings"], "data": evil, "network": f"<img src=x>{evil}"}
    whole["dense"] = {**whole["dense"], "blocks": {evil: 100}}
    text = page([source(whole, f"runs/{evil}"), source(whole)])
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert data_of(text)["runs"][0]["name"] == evil


@needs_plotly
@pytest.mark.parametrize(
    "whole",
    [
        record(dense=None, points=[], chosen=None, finished=False),
        record(points=[], chosen=None, finished=False),
        record(points=record()["points"][:1], chosen=0),
        record(points=[{"index": 0}, {"index": 1, "sparsity": None}], dense={}, chosen=1),
        {**record(), "settings": {**record()["settings"], "epsilon": None}},
    ],
    ids=["no dense", "no points", "one point", "figures missing", "settings missing"],
)
def test_a_run_with_gaps_still_has_a_page(whole):
    text = page([source(whole)])
    assert data_of(text)["runs"][0]["name"] == "my-run"
    assert ("unfinished" in text.split("<nav")[0]) == (not whole["finished"])


@needs_plotly
def test_fifty_runs_fit_and_too_many_are_refused(monkeypatch):
    many = [source(walked(20, seed=n)) for n in range(50)]
    text = page(many)
    assert len(text) <= LIMIT
    assert len(data_of(text)["runs"]) == 50
    monkeypatch.setattr(page_module, "LIMIT", 4_000_000)
    with pytest.raises(BadInput, match=r"The page of 'my-run' would have 4\..* MB.*format csv"):
        page(many[:1])
    monkeypatch.setattr(page_module, "LIMIT", 5_000_000)
    with pytest.raises(BadInput, match=r"The page of 50 runs would have 5\..* MB.*give fewer runs"):
        page(many)


@needs_plotly
def test_a_page_asks_nothing_of_anyone():
    text = page([source(record())])
    own = text.replace(pytest.importorskip("plotly.offline").get_plotlyjs(), "")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", own)
    assert "default-src 'none'" in own


def write_run(folder, whole):
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(whole))


@needs_plotly
def test_the_page_is_rewritten_after_every_point_but_not_for_those_told_again(tmp_path):
    said = []
    watch = PageWatch(said.append)
    watch.begin(tmp_path)
    write_run(tmp_path, record(finished=False, points=[], chosen=None))
    watch.dense(record()["dense"])
    assert data_of((tmp_path / NAME).read_text())["runs"][0]["points"] == []
    write_run(tmp_path, record())
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "02.json").write_text("{}")
    watch.point(record()["points"][0])
    assert data_of((tmp_path / NAME).read_text())["runs"][0]["points"] == []
    watch.point(record()["points"][1])
    assert len(data_of((tmp_path / NAME).read_text())["runs"][0]["points"]) == 2
    assert said == []


def test_a_page_that_cannot_be_written_is_said_once_and_stops_nothing(tmp_path):
    said = []
    watch = PageWatch(said.append)
    watch.begin(tmp_path)
    watch.dense({})
    watch.point({"index": 0})
    assert len(said) == 1
    assert said[0].startswith(f"No {NAME}: ")


@needs_plotly
def test_several_folders_make_one_page(tmp_path):
    write_run(tmp_path / "a", walked(3, seed=0))
    write_run(tmp_path / "b", walked(4, seed=1))
    write_page([tmp_path / "a", tmp_path / "b"], tmp_path / "both.html")
    data = data_of((tmp_path / "both.html").read_text())
    assert [len(run["points"]) for run in data["runs"]] == [3, 4]
    assert [group["runs"] for group in data["groups"]] == [[0], [1]]  # their points differ


@needs_plotly
def test_only_a_page_that_its_run_rewrites_looks_for_more(tmp_path):
    going = record(finished=False)
    write_run(tmp_path / "a", going)
    write_run(tmp_path / "b", going)

    def made(place, *names):
        write_page([tmp_path / name for name in names], place)
        text = place.read_text()
        assert "unfinished" in text
        return bool(data_of(text)["live"]), 'id="reload"' in text

    assert made(tmp_path / "a" / NAME, "a") == (True, True)
    assert made(tmp_path / "a" / "other.html", "a") == (False, False)
    assert made(tmp_path / NAME, "a") == (False, False)
    assert made(tmp_path / "a" / NAME, "a", "b") == (False, False)


def test_losses_are_kept_epoch_by_epoch_and_gone_on_with(tmp_path):
    first = LossLog()
    first.begin(tmp_path)
    first.epoch("dense reference", done=1, planned=9, loss=2.0)
    first.epoch("dense reference", done=2, planned=9, loss=1.0)
    again = LossLog()
    again.begin(tmp_path)
    again.epoch("dense reference", done=2, planned=9, loss=1.5)
    again.epoch("point 1, iteration 1", done=3, planned=9, loss=0.5)
    assert read_losses(tmp_path) == {
        "dense reference": {"1": 2.0, "2": 1.5},
        "point 1, iteration 1": {"3": 0.5},
    }


def test_damaged_losses_are_none(tmp_path):
    (tmp_path / "losses.json").write_text("{")
    assert read_losses(tmp_path) == {}
    (tmp_path / "losses.json").write_text('{"point 1, iteration 1": {"3": "x"}, "a": 3}')
    assert read_losses(tmp_path) == {"point 1, iteration 1": {}}


def damaged(**changes):
    whole = record()
    whole["points"][1].update(changes)
    return whole


@needs_plotly
@pytest.mark.parametrize(
    "changes",
    [
        {"mu": "abc"},
        {"residuals": [None, 3]},
        {"latency": {"dense": {"p50": 1.0}, "sparse": {"p50": 0}}},
        {"sparsity": []},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_figures_of_another_kind_are_left_out_or_named(changes, tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "read_run", lambda folder: damaged(**changes))
    said = []
    PageWatch(said.append).write(tmp_path)  # a run goes on, with or without its page
    assert (tmp_path / NAME).exists() or "are damaged" in said[0]
    for show in FORMATS.values():
        show([damaged(**changes)])
