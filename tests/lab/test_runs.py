"""Runs: the same bits however often they are killed, and folders that are never taken over."""

import fcntl
import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import begun, forked
from tiny import tiny_data, tiny_options, tiny_settings

from sparsepath import storage
from sparsepath.cli import app
from sparsepath.errors import BadInput
from sparsepath.lab.bench import Watch, Watches
from sparsepath.lab.folders import chosen, gather
from sparsepath.lab.runs import execute
from sparsepath.lab.training import Diverged
from sparsepath.report.losses import LossLog, read_losses


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return tiny_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def unbroken(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    execute(tiny_settings(data), folder)
    return folder


def without_times(content):
    if isinstance(content, dict):
        return {key: without_times(value) for key, value in content.items() if key != "seconds"}
    return [without_times(item) for item in content] if isinstance(content, list) else content


REPORTED = ("report", "report.html", "losses.json")
"""What the command writes beside what a run itself does."""


def contents(folder: Path) -> dict[str, object]:
    """Everything in a run's folder that must not depend on how often it was killed."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.relative_to(folder).parts[0] in REPORTED:
            continue
        if path.suffix == ".json":
            found[name] = without_times(json.loads(path.read_text()))
        elif name == "path.safetensors":
            tensors, header = storage.read_tensors(path)
            found[name] = without_times(json.loads(header["sparsepath"]))
            found |= {f"{name}/{key}": bytes(t.numpy().data) for key, t in tensors.items()}
        elif path.is_file() and path.name != ".lock":
            found[name] = path.read_bytes()
    return found


class Killed(BaseException):
    """Stands for the death of the process."""


# Settings, 2 dense epochs, the dense reference (2), 2 points of 2 iterations (2 + 2 + 1 each),
# results.
WRITES = 1 + 2 + 2 + 2 * 5 + 1


@pytest.mark.parametrize("lived", range(1, WRITES + 1))
def test_a_run_that_dies_after_any_of_its_writes_ends_in_the_same_bits(
    data, unbroken, tmp_path, monkeypatch, lived
):
    write, written = storage.write_atomically, []

    def write_and_die(path, fill):
        write(path, fill)
        written.append(path.name)
        if len(written) == lived:
            raise Killed

    folder = tmp_path / "run"
    monkeypatch.setattr(storage, "write_atomically", write_and_die)
    with pytest.raises(Killed):
        execute(tiny_settings(data), folder)
    assert (folder / "results.json").exists() == (lived == WRITES)
    execute(tiny_settings(data), folder)
    assert contents(folder) == contents(unbroken)


def command(data: Path, folder: Path) -> int:
    """`sparsepath run` in a process of its own."""
    try:
        app(["run", *tiny_options(data), "--no-deploy", "--out", str(folder)])
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("a command ends its process")


def test_a_run_that_is_killed_by_the_system_ends_in_the_same_bits(data, unbroken, tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    for awaited in ("training.safetensors", "path.safetensors", "points/01.safetensors"):
        process = begun(command, data, folder, log=log)
        deadline = time.monotonic() + 100
        while not (folder / awaited).exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, log.read_text()
        assert (folder / awaited).exists()
    code, printed = forked(command, data, folder, log=log)
    assert code == 0, printed
    assert "point  1/2" in printed
    assert contents(folder) == contents(unbroken)
    execute(tiny_settings(data), tmp_path / "straight", watch=LossLog())
    assert read_losses(folder) == read_losses(tmp_path / "straight")


def test_a_write_that_was_cut_short_leaves_nothing_behind(data, unbroken, tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def die(path, fill):
        (path.parent / f".{path.name}.x.part").write_text("half")
        raise Killed

    execute(tiny_settings(data), folder, dense_only=True)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_atomically", die)
        with pytest.raises(Killed):
            execute(tiny_settings(data), folder)
    execute(tiny_settings(data), folder)
    assert contents(folder) == contents(unbroken)


def test_the_dense_reference_alone_is_the_first_part_of_the_run(data, unbroken, tmp_path):
    folder = tmp_path / "run"
    record = execute(tiny_settings(data), folder, dense_only=True)
    assert not record["finished"]
    assert not (folder / "path.safetensors").exists()
    execute(tiny_settings(data), folder)
    assert contents(folder) == contents(unbroken)


def test_a_finished_run_is_not_touched(data, unbroken):
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*")}
    record = execute(tiny_settings(data), unbroken)
    assert record["finished"]
    assert before == {path: path.stat().st_mtime_ns for path in unbroken.rglob("*")}


def test_results_hold_every_figure(data, unbroken):
    results = json.loads((unbroken / "results.json").read_text())
    assert results["settings"]["data"] == str(data)
    assert results["versions"]["torch"] == torch.__version__
    assert results["machine"]["cores"] > 0
    assert results["dense"]["images"] == {"train": 175, "validation": 25, "test": 80}
    assert [point["index"] for point in results["points"]] == [0, 1]
    for point in results["points"]:
        weights, _ = storage.read_tensors(
            unbroken / "points" / f"{point['index'] + 1:02d}.safetensors"
        )
        layers = point["sparsity"]["zero_blocks"]
        zero = {name: int((weights[name].flatten(2) == 0).all(2).sum()) for name in layers}
        assert layers == zero
        assert point["sparsity"]["of_blocks"] == sum(zero.values()) / (24 + 24 * 48 + 48 * 64)
        assert point["epochs"] == 3
        assert len(point["residuals"]) == 2
        assert point["macs"]["sparse"] <= results["dense"]["macs"]["dense"]
        assert point["mu"] > 0


def test_the_penalty_really_zeroes_blocks_and_more_as_mu_grows(unbroken):
    first, last = (point["sparsity"]["of_blocks"] for point in gather(unbroken)["points"])
    assert 0 < first < last


@pytest.mark.parametrize(
    "changes",
    [
        {"restart": True},
        {"balancing": True},
        {"guard": 0.5},
        {"penalty": "scad", "rho": 1.0},
        {"blocks": "tiles(2, 1)"},
        {"mu_min": 1e-3, "mu_max": 1e-1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_option_resumes_too(data, tmp_path, monkeypatch, changes):
    settings = tiny_settings(data, dense_epochs=1, **changes)
    execute(settings, tmp_path / "a" / "run")
    write = storage.write_tensors

    def die_on_the_path(path, tensors, header):
        write(path, tensors, header)
        if path.name == "path.safetensors":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("sparsepath.lab.state.write_tensors", die_on_the_path)
        for _ in range(3):
            with pytest.raises(Killed):
                execute(settings, tmp_path / "b" / "run")
    execute(settings, tmp_path / "b" / "run")
    assert contents(tmp_path / "b" / "run") == contents(tmp_path / "a" / "run")


def test_a_given_range_is_walked_in_even_steps_of_the_logarithm(data, tmp_path):
    settings = tiny_settings(data, dense_epochs=1, xi=1, points=3, mu_min=1e-4, mu_max=1e-2)
    points = execute(settings, tmp_path / "run")["points"]
    assert [point["mu"] for point in points] == pytest.approx([1e-4, 1e-3, 1e-2])


def test_layers_are_chosen_by_name_pattern(data, tmp_path):
    settings = tiny_settings(data, points=1, layers="conv2, f*")
    record = execute(settings, tmp_path / "run")
    assert list(record["dense"]["blocks"]) == ["conv2.weight", "fc.weight"]
    with pytest.raises(BadInput, match="No layer matches 'conv9'"):
        execute(tiny_settings(data, layers="conv9"), tmp_path / "other")


def test_one_point_of_a_given_range_is_its_end(data, tmp_path):
    settings = tiny_settings(data, dense_epochs=1, xi=1, points=1, mu_min=1e-4, mu_max=1e-2)
    assert [p["mu"] for p in execute(settings, tmp_path / "run")["points"]] == [1e-2]


def point(index, *, zero, validation, test):
    return {
        "index": index,
        "sparsity": {"of_blocks": zero},
        "validation": validation,
        "test": test,
    }


def test_the_point_is_chosen_in_validation_and_never_in_the_test():
    points = [
        point(0, zero=0.5, validation=0.96, test=0.10),
        point(1, zero=0.8, validation=0.95, test=0.20),
        point(2, zero=0.9, validation=0.94, test=0.99),
    ]
    record = {"dense": {"validation": 0.96, "test": 0.5}, "points": points}
    assert chosen(record, 0.01) == 1
    assert chosen(record, 0.0) == 0
    assert chosen({**record, "points": points[2:]}, 0.01) is None
    twins = [{**points[1], "index": n, "validation": v} for n, v in enumerate((0.5, 0.6, 0.55))]
    lenient = {**record, "points": twins}
    assert chosen(lenient, 1.0) == 1  # equally sparse: the most accurate


def test_a_checkpoint_replaces_the_dense_training(data, unbroken, tmp_path):
    start = unbroken / "dense.safetensors"
    weights, _ = storage.read_tensors(start)
    torch.save(weights, tmp_path / "plain.pt")
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "nested.pt")
    points = {}
    for source in (start, tmp_path / "plain.pt", tmp_path / "nested.pt"):
        settings = tiny_settings(data, checkpoint=str(source))
        record = execute(settings, tmp_path / f"from-{source.name}")
        assert record["dense"]["epochs"] == 0
        points[source] = without_times(record["points"])
    assert all(p == without_times(gather(unbroken)["points"]) for p in points.values())


def test_a_checkpoint_that_changed_is_refused(data, unbroken, tmp_path):
    source = tmp_path / "mine.safetensors"
    weights, _ = storage.read_tensors(unbroken / "dense.safetensors")
    storage.write_tensors(source, weights, {})
    settings = tiny_settings(data, checkpoint=str(source))
    execute(settings, tmp_path / "run", dense_only=True)
    storage.write_tensors(source, {n: 2 * w for n, w in weights.items()}, {})
    with pytest.raises(BadInput, match=r"checkpoint of the run in .* changed"):
        execute(settings, tmp_path / "run")


def test_data_that_changed_is_refused(data, tmp_path):
    copy = tmp_path / "copy.npz"
    copy.write_bytes(data.read_bytes())
    execute(tiny_settings(copy), tmp_path / "run", dense_only=True)
    with np.load(data) as arrays:
        np.savez(copy, **{**arrays, "y_test": arrays["y_test"][::-1]})
    with pytest.raises(BadInput, match=r"data of the run in .* changed"):
        execute(tiny_settings(copy), tmp_path / "run")


def save_text(path):
    path.write_text("no weights")


def save_other_network(path):
    torch.save({"weight": torch.zeros(2, 2)}, path)


def save_object(path):
    torch.save({"state_dict": {"conv1.weight": "text"}}, path)


def save_nothing(path):
    pass


@pytest.mark.parametrize(
    ("save", "sentence"),
    [
        (save_text, "neither a .safetensors file nor a torch file"),
        (save_other_network, "belongs to another network than DigitNet: conv1.bias"),
        (save_object, "holds no state_dict"),
        (save_nothing, "cannot be read"),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_refused(data, tmp_path, save, sentence):
    source = tmp_path / "start.pt"
    save(source)
    with pytest.raises(BadInput, match=sentence):
        execute(tiny_settings(data, checkpoint=str(source)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"network": "digitnet"}, "digit-net"),
        ({"penalty": "logsun"}, "no penalty 'logsun'; did you mean 'logsum'"),
        ({"penalty": "l3"}, "choose one of l0, l1"),
        ({"blocks": "kernel"}, "did you mean 'kernels'"),
        ({"blocks": "tiles(5, 1)"}, "does not divide"),
        ({"blocks": "zzz"}, r"or 'tiles\(2, 2\)'"),
        ({"device": "toaster"}, "device 'toaster' cannot be used"),
        ({"data": "nowhere"}, "nowhere"),
        ({"validation": 0.0}, "validation"),
    ],
)
def test_what_the_settings_cannot_name_is_refused_before_anything_is_written(
    data, tmp_path, changes, sentence
):
    with pytest.raises(BadInput, match=sentence):
        execute(tiny_settings(data, **changes), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_settings_is_refused(data, unbroken):
    before = contents(unbroken)
    with pytest.raises(BadInput, match=r"other settings \(seed = 5 instead of 0\)"):
        execute(tiny_settings(data, seed=5), unbroken)
    assert contents(unbroken) == before


def test_a_folder_with_other_files_is_refused(data, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(BadInput, match="holds other files and no run"):
        execute(tiny_settings(data), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(data, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(BadInput, match="is a file"):
        execute(tiny_settings(data), tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_refused(data, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput, match=r"run' cannot be written \(Not a directory\)"):
        execute(tiny_settings(data), tmp_path / "file" / "run")


def test_a_folder_in_use_is_refused(data, tmp_path):
    execute(tiny_settings(data), tmp_path, dense_only=True)
    with (tmp_path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="Another process works in"):
            execute(tiny_settings(data), tmp_path)


def test_a_dense_reference_that_diverges_says_which_rate(data, tmp_path):
    with pytest.raises(Diverged, match=r"dense reference's loss .* lower dense_rate = 1e\+30"):
        execute(tiny_settings(data, dense_rate=1e30), tmp_path / "run")


def test_a_path_that_diverges_says_where_and_keeps_its_points(data, tmp_path, monkeypatch):
    from sparsepath.lab import runs

    train = runs.train

    def break_the_second_point(model, data, recipe, *, key, **options):
        if key == (0, 1, 1):
            raise Diverged("loss was bad")
        train(model, data, recipe, key=key, **options)

    monkeypatch.setattr(runs, "train", break_the_second_point)
    with pytest.raises(Diverged, match=r"At mu = .* \(point 2, iteration 2\) the loss was bad"):
        execute(tiny_settings(data), tmp_path / "run")
    record = gather(tmp_path / "run")
    assert [point["index"] for point in record["points"]] == [0]
    assert not record["finished"]


def test_a_watch_is_told_of_every_epoch_and_point_in_order(data, tmp_path):
    told, losses, iterations = [], [], []

    class Noting(Watch):
        def begin(self, folder):
            told.append(folder.name)

        def epoch(self, stage, *, done, planned, loss):
            told.append((stage, done, planned))
            losses.append(loss)

        def iteration(self, index, residuals):
            iterations.append((index, len(residuals), residuals[-1].primal))

        def dense(self, record):
            told.append("dense")

        def point(self, record):
            told.append(record["index"])

    settings = tiny_settings(data, delta=1, nu=2)
    record = execute(settings, tmp_path / "run", watch=Watches(Watch(), Noting()))
    epochs = [entry for entry in told if isinstance(entry, tuple)]
    # 2 dense, 1 epoch for each of 2 iterations and the fine-tune, then 2 for each.
    assert [done for _, done, _ in epochs] == list(range(1, 2 + 3 + 6 + 1))
    assert {planned for _, _, planned in epochs} == {11}
    assert [entry for entry in told if not isinstance(entry, tuple)] == ["run", "dense", 0, 1]
    assert epochs[-1][0] == "point 2, fine-tune"
    # A mean of four classes that are easy to tell, so it starts near log 4 and falls.
    assert 0 < losses[1] < losses[0] < 3
    assert iterations == [
        (point["index"], number + 1, row["primal"])
        for point in record["points"]
        for number, row in enumerate(point["residuals"])
    ]


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(BadInput, match="is no run"):
        gather(tmp_path)
