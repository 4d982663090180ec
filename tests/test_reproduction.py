"""The reproduction's tables and figures are those of its records."""

import re
import runpy
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sparsepath import BadInput, deploy
from sparsepath.lab.data import Data, Split
from sparsepath.lab.experiments import EPSILON, NETWORKS
from sparsepath.lab.jobs import Job
from sparsepath.lab.parts import EXPERIMENTS, parts
from sparsepath.report.arms import arms_table
from sparsepath.report.iterations import fit, unstopped
from sparsepath.report.statistics import Sample, interval_of
from sparsepath.storage import read_json, write_json, write_tensors

FOLDER = Path(__file__).parent.parent / "reproduction"


@pytest.fixture(scope="module")
def build():
    return runpy.run_path(str(FOLDER / "build.py"))


def test_the_committed_tables_are_made_from_the_records(build):
    made = build["tables"]()
    names = {path.name for path in (FOLDER / "tables").iterdir()}
    assert names == {f"{name}.{suffix}" for name in made for suffix in ("md", "tex")}
    for name, table in made.items():
        stands = (FOLDER / "tables" / f"{name}.md").read_text(encoding="utf-8")
        assert stands == table.markdown() + "\n", f"run reproduction/build.py: {name} is old"
        stands = (FOLDER / "tables" / f"{name}.tex").read_text(encoding="utf-8")
        assert stands.endswith("\n" + table.latex() + "\n")


def test_the_pages_tables_are_made_from_the_records(build):
    made = build["tables"]()
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "<!-- table outcome -->" in text
    assert "<!-- table t-test -->" in text
    assert build["page"](text, made) == text, "run reproduction/build.py"
    other = text.replace("| SVHN | NIN | l1 |", "| SVHN | NIN | l2 |")
    assert other != text
    assert build["page"](other, made) == text


NAMES = {
    "l1": "l1",
    "gradual magnitude": "gradual",
    "late magnitude": "gradual-late",
    "one-shot magnitude": "one-shot",
    "group lasso": "ssl",
    "its dense network": "dense",
    "dense, trained on": "dense, trained on",
}
"""What the page calls arms."""


def test_the_pages_short_tables_of_the_comparisons_say_what_the_long_ones_do(build):
    made, seen = build["tables"](), []
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    columns: list[str] = []
    table, title = made["cifar10-best-mode-cnn-100"], ""
    for line in lines:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if name == "zero kernels":
            columns = [cell.split(" %")[0] for cell in cells]
        elif name.removeprefix("**").startswith("l0"):
            arm = "l0"
            if found := re.search(r"(l0\S*), fine-tune of (\d+)", name):
                arm = found[1]
                made_by = {"40": "40", "5": "5", "18": "5-l0-divided"}[found[2]]
                table = made[f"cifar10-comparisons-cnn-{made_by}"]
                columns[-1] = re.fullmatch(r".*\((.*) %\)", cells[-1])[1]
            title = arm
            cells = [cell.split(" ")[0] for cell in cells]
        elif name.startswith("less ") and name.removeprefix("less ") in NAMES:
            title = f"{arm} - {NAMES[name.removeprefix('less ')]}"
        else:
            title = ""
        if title and line.startswith("|"):
            long = next(row for row in table.rows if row[0] == title)
            for column, cell in zip(columns, cells, strict=True):
                stands = long[list(table.titles).index(f"{column}% zero")].split(" (")[0]
                assert cell in ("", stands), line
            seen.append(title)
    assert len(seen) == 2 + 6 + 6 + 5


def test_best_mode_is_compared_with_the_dense_networks_after_all_epochs_of_the_comparisons():
    best = read_json(FOLDER / "cifar10/best-mode/cnn-100.json")["arms"]["l0"]
    tuned = read_json(FOLDER / "cifar10/comparisons/cnn-40.json")["fine_tuning"]
    found = arms_table(
        {"l0": best},
        title="",
        against="l0",
        controls={"tuned": {seed: [(0, each[-1]), (1, each[-1])] for seed, each in tuned.items()}},
    )
    cells = dict(
        zip(found.titles, next(r for r in found.rows if r[0] == "l0 - tuned"), strict=True)
    )
    shown = " | ".join(cells[f"{level}% zero"] for level in (50, 70, 80, 85, 89.5))
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"| less that after 406 epochs more | {shown} |" in page
    assert {len(each) * 58 for each in tuned.values()} == {406}


def test_what_the_page_says_of_fine_tuning_and_of_uneven_epochs_follows_from_the_records():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    gains = []
    for name in ("one", "several"):
        networks = "networks" if name == "several" else "network"
        pairs = read_json(FOLDER / f"cifar10/t-test/{name}-dense-{networks}.json")["pairs"]
        assert all(pair["admm"] < pair["fine_tuning"] for pair in pairs)
        gains.append(Sample.of([100 * (pair["fine_tuning"] - pair["dense"]) for pair in pairs]))
    low, high = interval_of(gains[1])
    said = f"({gains[0].mean:.2f}; on the five {gains[1].mean:.2f}, 95 %: {low:.2f} to {high:.2f})"
    assert said in page

    def epochs(finetune, arm):
        """Of a path when it comes to half of its kernels, as accuracies are interpolated."""
        a_point = 18 + finetune
        arms = read_json(FOLDER / f"cifar10/comparisons/cnn-{finetune}.json")["arms"]
        spent = [
            np.interp(0.5, [zeros for zeros, _ in points], a_point * np.arange(1, len(points) + 1))
            for points in arms[arm].values()
        ]
        return round(float(np.mean(spent)))

    assert [epochs(5, arm) for arm in ("gradual", "ssl")] == [23, 23]
    said = (
        f"at 50 % it has had {epochs(5, 'l0')} epochs, l0-divided {epochs(5, 'l0-divided')}, where "
        f"gradual magnitude and group lasso have had 23 ({epochs(40, 'l0')} and "
        f"{epochs(40, 'gradual')} with the long fine-tunes"
    )
    assert said in page


def test_there_is_a_table_for_each_network_on_each_data_set_and_each_comparison(build):
    parts = ("best-mode", "comparisons")
    compared = [path for part in parts for path in FOLDER.glob(f"*/{part}/*.json")]
    # Another for each further way to walk l0 that all others are compared with.
    divided = [path for path in compared if "l0-divided" in read_json(path)["arms"]]
    assert len(build["tables"]()) == 4 + 3 * (1 + 4) + len(compared) + len(divided) + 1


def test_epsilon_is_where_walks_stood_when_the_papers_stopped(build):
    found = {}
    for record in unstopped(build["records"]("*/paper/*.json")):
        epsilon = fit(build["PAPER"], record).epsilon
        found.setdefault(record["network"], []).extend(() if epsilon is None else (epsilon,))
        assert not any(point["converged"] for point in record["points"])
    medians = {network: round(statistics.median(each), 1) for network, each in found.items()}
    assert {network: medians[network] for network in EPSILON} == EPSILON


def test_the_records_are_of_the_settings_that_ship():
    jobs: list[tuple[str, Job]] = [
        (f"{part.data}/{part.name}", job)
        for experiment in EXPERIMENTS
        for part in parts(experiment, NETWORKS, ["l0", "l1"])
        for job in part.jobs
    ]
    found = 0
    for part, job in jobs:
        written = FOLDER / part / f"{job.name}.json"
        if written.exists():
            found += 1
            record = read_json(written)
            assert job.recipe.completed(record["recipe"]) == job.recipe.plain(), job.name
            assert len(record["points"]) <= job.recipe.length
    assert found > 40


@pytest.mark.parametrize(
    "path",
    sorted(FOLDER.glob("*/*/walked/*.sparsepath")),
    ids=lambda path: path.stem,
)
def test_the_sparse_networks_of_best_mode_have_the_zeros_that_their_record_says(path):
    artifact = deploy.load(path)
    index = int(path.stem.rpartition("-")[2])
    point = read_json(path.with_name(artifact.figures["record"]))["points"][index]
    assert artifact.figures["point"]["test"] == point["test"]
    network = artifact.model.state_dict()
    zeros = sum(
        int((weight.flatten(2) == 0).all(2).sum())
        for weight in network.values()
        if weight.dim() == 4
    )
    convolutions = {
        name: n for name, n in point["sparsity"]["zero_blocks"].items() if "conv" in name
    }
    assert zeros == sum(convolutions.values()) > 20_000
    assert torch.isfinite(artifact.model(torch.zeros(1, 3, 32, 32))).all()


def test_the_committed_figures_are_those_that_the_records_give(build):
    pytest.importorskip("matplotlib")
    names = {path.name for path in (FOLDER / "figures").iterdir()}
    assert names == {f"{name}.png" for name in build["figures"]()}


def test_a_comparison_and_a_t_test_find_their_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["build.py"])
    pytest.importorskip("matplotlib")
    for name in ("build.py", "paper.json"):
        shutil.copy(FOLDER / name, tmp_path / name)
    arms = {"l0": {"0": [[0.5, 0.9], [0.9, 0.8]]}, "magnitude": {"0": [[0.5, 0.8], [0.9, 0.7]]}}
    for finetune, dense, tuned in ((40, {"0": 0.92}, {"0": [0.91, 0.905]}), (5, {}, {})):
        comparison = {
            "data": "cifar10",
            "network": "nin",
            "dense": dense,
            "fine_tuning": tuned,
            "finetune": finetune,
            "arms": arms,
        }
        if tuned:
            brief = {"0": [[0.6, 0.905], [0.9, 0.81]]}
            comparison["arms"] = {**arms, "l0-divided": brief}
        write_json(tmp_path / "cifar10" / "comparisons" / f"nin-{finetune}.json", comparison)
    alone = {**comparison, "finetune": 60, "arms": {"l0": arms["l0"]}}
    write_json(tmp_path / "cifar10" / "best-mode" / "nin-60.json", alone)
    pairs = [
        {"admm": 0.9 + x, "fine_tuning": 0.89, "dense": 0.88, "dense_seed": 0, "of_blocks": 0.3}
        for x in (0.01, 0.02)
    ]
    write_json(tmp_path / "cifar10" / "t-test" / "one.json", {"title": "one net", "pairs": pairs})
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "old.md").touch()
    readme = tmp_path / "README.md"
    readme.write_text("Before.\n<!-- table outcome -->\nold\n<!-- end -->\nAfter.\n")
    runpy.run_path(str(tmp_path / "build.py"), run_name="__main__")
    page = readme.read_text()
    assert page.startswith("Before.\n<!-- table outcome -->\nOur figures at")
    assert page.endswith("\n<!-- end -->\nAfter.\n")
    assert "old" not in page
    assert "| CIFAR-10 | NIN | l1 | (90.71) | missing (33.4) |" in page
    readme.write_text("<!-- table income -->\n<!-- end -->")
    with pytest.raises(SystemExit):
        runpy.run_path(str(tmp_path / "build.py"), run_name="__main__")
    assert "names a table 'income'; there are summary, outcome" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "cifar10-best-mode-nin-60.png",
        "cifar10-comparisons-nin-40.png",
        "cifar10-comparisons-nin-5.png",
    }
    made = {path.name: path.read_text() for path in (tmp_path / "tables").iterdir()}
    assert "old.md" not in made
    assert "| l0 - magnitude |  | +10.00 |" in made["cifar10-comparisons-nin-5.md"]
    compared = made["cifar10-comparisons-nin-40.md"]
    said = "NIN on CIFAR-10 at equal epochs: 40 epochs in each fine-tune of l0."
    assert compared.startswith(said)
    # At 50 % with the epochs of the first point, at 90 % with those of the second.
    assert "| l0 - dense |  | -2.00 | -4.50 | -7.00 | -9.50 | -10.75 | -12.00 |" in compared
    assert (
        "| l0 - dense, trained on |  | -1.00 | -3.38 | -5.75 | -8.12 | -9.31 | -10.50 |" in compared
    )
    assert "l0 - dense" not in made["cifar10-comparisons-nin-5.md"], "neither is there"
    # Both ways to walk l0 are compared with all others, each with the dense networks at its points.
    divided = made["cifar10-comparisons-nin-40-l0-divided.md"]
    assert divided.startswith(f"{said} Here l0-divided beside the others.\n")
    assert "| l0-divided - l0 |  |  | +3.00 |" in divided
    assert "| l0-divided - dense, trained on |  |  | -0.50 |" in divided
    best = made["cifar10-best-mode-nin-60.md"]
    assert best.startswith("NIN on CIFAR-10 in best mode: 60 epochs in each fine-tune of l0.")
    assert "above the others" not in best, "there are none"
    assert "| figure | paper | one net |" in made["t-test.md"]
    assert "one net" in made["t-test.tex"]


def test_a_comparison_without_l0_yet_is_drawn_and_one_without_arms_is_left_out(tmp_path):
    shutil.copy(FOLDER / "build.py", tmp_path)
    shutil.copy(FOLDER / "paper.json", tmp_path)
    about = {"data": "cifar10", "network": "cnn", "dense": {}, "fine_tuning": {"0": [0.9]}}
    late = {"gradual-late": {"0": [[0.5, 0.89], [0.9, 0.85]]}}
    for finetune, arms in ((5, late), (40, {})):
        record = {**about, "finetune": finetune, "arms": arms}
        write_json(tmp_path / f"cifar10/comparisons/cnn-{finetune}.json", record)
    made = runpy.run_path(str(tmp_path / "build.py"))["tables"]()
    compared = [name for name in made if "comparisons" in name]
    assert compared == ["cifar10-comparisons-cnn-5"]
    assert [row[0] for row in made[compared[0]].rows] == ["gradual-late"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["build.py", "--nonsense"], "unrecognized arguments"),
        (["speed.py", "nonsense"], "No path here is 'nonsense'"),
        (["explore.py", "cifar100", "--data", "nowhere", "--out", "x"], "neither 'cifar100' nor"),
        (
            ["explore.py", "svhn", "--data", ".", "--out", "x", "--minutes", "nan"],
            "minutes must be zero or more, not nan",
        ),
        (["pack.py", "nowhere.safetensors"], "There is no 'nowhere.safetensors': name weights"),
    ],
)
def test_a_script_answers_what_is_asked_wrongly_in_a_sentence(call, said, tmp_path):
    script = str(FOLDER / call[0])
    done = subprocess.run(
        [sys.executable, script, *call[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def walked(tmp_path):
    """A record of a path in a folder of its own, its last network, and what packs its weights."""
    record = FOLDER / "cifar10" / "paper" / "low-rank-cnn-l1.json"
    shutil.copy(record, tmp_path)
    network = deploy.load(record.with_suffix(".sparsepath")).model

    def pack(name: str) -> Path:
        place = tmp_path / f"{name}.safetensors"
        write_tensors(place, network.state_dict(), {})
        return runpy.run_path(str(FOLDER / "pack.py"))["pack"](place)

    return tmp_path, network, pack


@pytest.mark.parametrize("name", ["low-rank-cnn-l1", "low-rank-cnn-l1-11"])
def test_weights_are_packed_with_the_figures_of_their_point_and_back_to_the_bit(walked, name):
    folder, network, pack = walked
    artifact = deploy.load(pack(name))
    again = artifact.model.state_dict()
    assert all(torch.equal(again[key], W) for key, W in network.state_dict().items())
    assert artifact.figures["record"] == "low-rank-cnn-l1.json"
    assert artifact.figures["point"]["index"] == 11
    assert {path.name for path in folder.iterdir()} == {
        "low-rank-cnn-l1.json",
        f"{name}.sparsepath",
    }


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("low-rank-cnn-l1-3", "other zero kernels than its point"),
        ("low-rank-cnn-l1-12", "No record beside"),
        ("low-rank-cnn", "No record beside"),
    ],
)
def test_weights_of_another_point_or_of_none_are_not_packed(walked, name, wrong):
    folder, _, pack = walked
    with pytest.raises(BadInput, match=wrong):
        pack(name)
    assert {path.name for path in folder.iterdir()} == {
        "low-rank-cnn-l1.json",
        f"{name}.safetensors",
    }


def test_a_stand_in_has_as_many_zeros_in_every_layer_and_lacks_the_smallest_kernels():
    speed = runpy.run_path(str(FOLDER / "speed.py"))
    record = read_json(FOLDER / "cifar100/paper/low-rank-cnn-l0.json")
    place = FOLDER / "cifar100/dense/low-rank-cnn.safetensors"
    made, whole = (speed[way](record, place) for way in ("stand_in", "network"))
    wanted = record["points"][-1]["sparsity"]["zero_blocks"]
    for name, W in made.state_dict().items():
        dense = whole.state_dict()[name]
        if name not in wanted:
            assert torch.equal(W, dense)
            continue
        kernels = (W if W.dim() == 2 else W.flatten(2)).norm(dim=-1)
        norms = (dense if W.dim() == 2 else dense.flatten(2)).norm(dim=-1)
        assert int((kernels == 0).sum()) == wanted[name]
        if wanted[name]:
            assert norms[kernels == 0].max() <= norms[kernels > 0].min()
        assert torch.equal(W[kernels > 0], dense[kernels > 0])


def test_what_was_measured_with_weights_that_are_gone_is_not_measured_again(tmp_path, monkeypatch):
    speed = runpy.run_path(str(FOLDER / "speed.py"))
    told = speed["main"].__globals__
    place = tmp_path / "cifar10/paper"
    place.mkdir(parents=True)
    usual = read_json(FOLDER / "cifar10/paper/cnn-l0.json")
    last = usual["points"][-1]
    bare = {key: value for key, value in last.items() if key != "latency"}
    for name, point in (("measured", last), ("not", bare), ("kept", last)):
        write_json(place / f"{name}.json", {**usual, "points": [point]})
    write_json(place / "other.json", {**usual, "points": [bare], "variant": "decayed"})
    (place / "kept.sparsepath").write_bytes(b"")
    asked = []
    monkeypatch.setitem(told, "HERE", tmp_path)
    monkeypatch.setitem(told, "measure", lambda last, effort: asked.append(last.name))
    monkeypatch.setattr("sys.argv", ["speed.py"])
    speed["main"]()
    assert asked == ["cifar10/paper/kept", "cifar10/paper/not"]
    for given, found in (("cifar10", asked[:2]), ("cifar10/paper/not", asked[1:2])):
        monkeypatch.setattr("sys.argv", ["speed.py", given])
        asked = []
        speed["main"]()
        assert asked == found
    for given in ("svhn", "cifar10/paper/no", "cifar10/paper/not.json", "cifar10/paper/other"):
        monkeypatch.setattr("sys.argv", ["speed.py", given])
        with pytest.raises(BadInput, match=f"No path here is '{given}': give a folder, as cifar"):
            speed["main"]()
    monkeypatch.setattr("sys.argv", ["speed.py", "--seconds", "nan"])
    with pytest.raises(BadInput, match="--seconds must be a finite number above zero, not nan"):
        speed["main"]()
    monkeypatch.setattr("sys.argv", ["speed.py"])
    monkeypatch.setitem(told, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="run in onnxruntime too: pip install"):
        speed["main"]()
    assert len(asked) == 1, "nothing more"


def test_what_is_known_by_heart_is_counted_over_all_training_images():
    known = runpy.run_path(str(FOLDER / "by_heart.py"))["known"]

    class Brightness(torch.nn.Module):
        def forward(self, images):
            bright = images.mean((1, 2, 3))
            return torch.stack([-bright, bright], 1)

    def split(bright, labels):
        images = torch.tensor(bright, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)
        return Split(images, torch.tensor(labels))

    train, held_out, test = split([0, 255, 255], [0, 1, 0]), split([0], [0]), split([0], [1])
    data = Data("two", 2, train, held_out, test, torch.tensor([0.5]), torch.tensor([0.5]))
    wrong, right = np.log1p(np.exp(2)), np.log1p(np.exp(-2))
    for batch in (1, 3):
        found = known(Brightness(), data, batch=batch)
        assert found["accuracy"] == 0.75
        assert found["loss"] == pytest.approx((wrong + 3 * right) / 4)


def test_the_error_of_a_change_is_that_of_the_images_that_one_alone_has_right(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))  # it stands beside speed.py
    compared = runpy.run_path(str(FOLDER / "paired.py"))["compared"]
    dense = torch.tensor([True] * 6 + [False] * 4)
    sparse = torch.tensor([True] * 3 + [False] * 3 + [True] + [False] * 3)
    # Of ten, three lost and one gained: differences of variance 0.4 - 0.04.
    found = compared(dense, sparse)
    assert (found["lost"], found["gained"]) == (3, 1)
    assert found["change"] == pytest.approx(-0.2)
    assert found["standard_error"] == pytest.approx((0.36 / 10) ** 0.5)
    assert compared(dense, dense)["standard_error"] == 0


def test_the_paired_changes_are_those_of_the_records():
    # Float32 here, the GPU's 10-bit stand-in for some of them there: 0.01 points or so.
    record = read_json(FOLDER / "paired.json")
    assert record["test_images"] == 10_000
    for name, pair in record["paths"].items():
        walked = read_json(FOLDER / f"{name}.json")
        change = walked["points"][-1]["test"] - walked["dense"]["test"]
        assert pair["change"] == pytest.approx(change, abs=3e-4), name
        assert pair["gained"] - pair["lost"] == round(10_000 * pair["change"])
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    errors = sorted(100 * pair["standard_error"] for pair in record["paths"].values())
    assert f"has one of {errors[0]:.2f} to {errors[-1]:.2f}\n" in page
