"""What is asked of settings before a final run, and how it is answered."""

import runpy
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from sparsepath import BadInput
from sparsepath.lab.comparisons import DIVIDED
from sparsepath.lab.recipes import DenseRecipe, PathRecipe
from sparsepath.lab.starts import Reference
from sparsepath.path import Schedule
from sparsepath.storage import read_json

FOLDER = Path(__file__).parent.parent / "reproduction"


@pytest.fixture
def explore(monkeypatch):
    """The script's own names; it finds its questions beside it, as a script does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return runpy.run_path(str(FOLDER / "explore.py"))


def test_every_question_of_settings_names_each_of_its_candidates_once(explore):
    for ask in explore["QUESTIONS"].values():
        question = ask()
        names = [each.name for each in (*question.dense, *question.walks)]
        assert len(names) == len(set(names)) > 1


def test_a_recipe_is_named_by_all_that_tells_it_from_others(explore):
    svhn = explore["QUESTIONS"]["svhn-low-rank-nin-longer"]()
    assert [each.variant for each in svhn.dense] == [
        "dropout0.3-shift2-rate0.1-epochs150",
        "dropout0.3-shift2-decay0.0002-rate0.1-epochs150",
        "dropout0.2-shift2-hole8-rate0.1-epochs150",
        "dropout0.2-shift2-hole8-decay0.0002-rate0.1-epochs150",
        "dropout0.1-shift2-hole14-rate0.1-epochs150",
    ]


def test_questions_of_one_data_set_are_asked_at_once(explore, tmp_path, monkeypatch):
    asked = []
    answer = lambda question, *places, **how: asked.append(question)
    monkeypatch.setitem(explore["main"].__globals__, "answer", answer)
    names = ["ramped-cnn", "cifar100", "holed-cnn", "ramped-cnn"]
    (tmp_path / "cifar10.npz").touch()
    monkeypatch.setattr("sys.argv", ["explore.py", *names, "--data", str(tmp_path), "--out", "o"])
    with pytest.raises(BadInput, match="There is neither 'cifar100' nor"):
        explore["main"]()
    assert not asked, "all data sets are looked for before the first question is asked"
    (tmp_path / "cifar100").mkdir()
    explore["main"]()
    ramped, hundred, holed, _ = (explore["QUESTIONS"][name]() for name in names)
    assert [question.data for question in asked] == ["cifar10", "cifar100"]
    assert (asked[0].dense, asked[0].walks) == (holed.dense, ramped.walks)
    assert asked[1] == hundred


def test_the_last_points_of_best_mode_are_asked_about_one_change_at_a_time(explore):
    jobs = {
        job.variant.removeprefix("tuned-"): job.recipe
        for job in explore["QUESTIONS"]["tuned-cnn"]().walks
    }
    usual, often = jobs.pop("usual"), jobs.pop("often")
    assert (usual.span, usual.length, usual.ramp) == ((1.54, 2.8), 4, 1.0)
    assert often.ramp > 1
    changed = {
        name: {key for key, value in recipe.plain().items() if value != often.plain()[key]}
        for name, recipe in jobs.items()
    }
    assert changed == {
        "longer": {"schedule"},
        "apart": {"whole", "rate"},
        "peak0.1": {"peak"},
        "decay0.001": {"decay"},
        "hole8": {"hole"},
        "hole8-decay0.0002": {"hole", "decay"},
    }
    assert jobs["longer"].schedule.finetune == 100


def test_hole_and_decay_are_asked_about_further_one_change_at_a_time(explore):
    jobs = {job.variant: job.recipe for job in explore["QUESTIONS"]["tuned-cnn-further"]().walks}
    first = jobs.pop("further-hole8-decay0.0002")
    tuned = {job.variant: job.recipe for job in explore["QUESTIONS"]["tuned-cnn"]().walks}
    assert first == tuned["tuned-hole8-decay0.0002"], "from what was best before"
    found = {}
    for name, recipe in jobs.items():
        assert recipe.length == 4
        new = {key: value for key, value in recipe.plain().items() if value != first.plain()[key]}
        higher = {2e-4: 1.0, 1e-4: 1.1, 5e-5: 1.2, 0.0: 1.3}[recipe.decay]
        assert recipe.span == pytest.approx((higher * 1.54, higher * 2.8))
        new.pop("span", None)
        found[name.removeprefix("further-")] = new
    assert found == {
        "hole8-decay0.0001": {"decay": 1e-4},
        "hole8-decay5e-05": {"decay": 5e-5},
        "hole8-decay0": {"decay": 0.0},
        "hole0-decay0.0002": {"hole": 0},
        "hole12-decay0.0002": {"hole": 12},
        "hole8-decay0.0002-peak0.1": {"peak": 0.1},
        "hole8-decay0.0002-dropout0.05": {"dropout": 0.05},
    }


def test_what_holds_nin_back_is_asked_about_beside_what_it_does_now(explore):
    jobs = {job.variant: job.recipe for job in explore["QUESTIONS"]["held-back-nin"]().walks}
    usual, often = jobs["held-back-usual"], jobs["held-back-often"]
    assert (usual.span, usual.length, usual.schedule.finetune) == ((2.0, 4.2), 3, 20)
    assert (usual.dropout, usual.hole, usual.decay) == (None, None, 5e-4)
    assert {recipe.schedule.xi * recipe.schedule.delta for recipe in jobs.values()} == {18}
    asked = {}
    for name, recipe in jobs.items():
        if recipe not in (usual, often):
            plain = {"dropout": recipe.dropout, "hole": recipe.hole, "decay": recipe.decay}
            assert replace(recipe, dropout=None, hole=None, decay=5e-4) == often
            asked[name.removeprefix("held-back-")] = tuple(plain.values())
    assert asked == {
        "drop0.1-hole0-decay0.0005": (0.1, 0, 5e-4),
        "drop0.1-hole8-decay0.0005": (0.1, 8, 5e-4),
        "drop0.1-hole8-decay0.0002": (0.1, 8, 2e-4),
        "drop0-hole8-decay0.0002": (0.0, 8, 2e-4),
        "drop0.2-hole8-decay0.0002": (0.2, 8, 2e-4),
        "drop0.3-hole8-decay0.0002": (0.3, 8, 2e-4),
    }


def test_a_points_epochs_are_divided_with_all_of_them_and_the_same_pull(explore):
    ways = {job.variant: job for job in explore["QUESTIONS"]["divided-cnn"]().walks}
    magnitude = ways.pop("divided-0")
    assert (magnitude.method, magnitude.recipe.schedule.finetune) == ("magnitude", 23)
    found = {}
    for name, job in ways.items():
        recipe, schedule = job.recipe, job.recipe.schedule
        assert schedule.delta == schedule.nu == 1
        assert schedule.xi + schedule.finetune == 23
        assert recipe.rho * recipe.ramp ** (schedule.xi - 1) == pytest.approx(0.005 * 1.2**17)
        found[name] = schedule.xi
    assert list(found.values()) == [2, 3, 5, 8, 12, 18]


def test_l0_divides_a_point_as_validation_images_prefer():
    means = {}
    for path in FOLDER.glob("cifar10/exploration/cnn-l0-divided-*.json"):
        points = [(p["sparsity"]["of_blocks"], p["validation"]) for p in read_json(path)["points"]]
        columns = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.894)  # as far as all of them go
        means[int(path.stem.split("-")[3])] = np.interp(columns, *np.array(points).T).mean()
    assert sorted(means) == [2, 3, 5, 8, 12, 18]
    assert max(means, key=means.__getitem__) == DIVIDED


@pytest.mark.parametrize(
    ("question", "holes"),
    [
        ("paper-low-rank-nin-holes", {None, 8, 14}),
        ("cifar100-paper-holes", {0, 8, 14}),
        ("svhn-paper-holes", {0, 8}),
    ],
)
def test_holes_are_asked_about_beside_none_with_all_else_the_same(explore, question, holes):
    jobs = explore["QUESTIONS"][question]().walks
    ways = {}
    for job in jobs:
        same = (job.start.name, job.method, replace(job.recipe, hole=None))
        ways.setdefault(str(same), set()).add(job.recipe.hole)
    assert all(asked == holes for asked in ways.values())


def test_a_question_is_judged_by_images_held_out_of_training_alone(explore, tmp_path, capsys):
    generator = np.random.default_rng(0)
    draw = lambda count: generator.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(600) % 10
    np.savez(
        tmp_path / "cifar10.npz",
        x_train=draw(600),
        y_train=labels,
        x_test=draw(20),
        y_test=np.arange(20) % 10,
    )
    start = Reference("digit-net", DenseRecipe(1, 0.01))
    schedule = Schedule(delta=1, nu=1, xi=1, epsilon=0.0, finetune=1)
    recipe = PathRecipe(rho=0.1, reach=(0.1, 0.5), points=2, last=1, schedule=schedule)
    walks = import_module("questions.question").walks
    question = walks(start, {"short": ("l0", recipe)})
    explore["answer"](question, tmp_path, tmp_path, device="cpu", until=float("inf"), held_out=300)
    folder = tmp_path / "cifar10" / "exploration"
    record = read_json(folder / "digit-net-l0-short.json")
    assert record["training_images"] == 300
    assert [set(point) & {"validation", "test"} for point in record["points"]] == [
        {"validation"}
    ] * 2
    said = capsys.readouterr().out
    assert f"{record['points'][1]['validation']:.4f}" in said
    # What has been answered stands, though its weights are gone.
    records = {path: path.read_bytes() for path in folder.rglob("*.json")}
    for weights in folder.rglob("*.safetensors"):
        weights.unlink()
    dense = explore["Question"]("cifar10", dense=(start,))
    for asked in (question, dense):
        explore["answer"](asked, tmp_path, tmp_path, device="cpu", until=float("inf"), held_out=300)
        assert "digit-net: 0." in capsys.readouterr().out
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == records
    assert not list(folder.rglob("*.safetensors"))
    # Nor does another recipe of the same name take its answer, or a walk its place beside others.
    ask = partial(explore["answer"], device="cpu", until=float("inf"), held_out=300)
    other = Reference("digit-net", DenseRecipe(1, 0.02))
    with pytest.raises(BadInput, match=r"digit-net.json' was made with recipe"):
        ask(explore["Question"]("cifar10", dense=(other,)), tmp_path, tmp_path)
    (folder / "dense/digit-net.json").unlink()
    more = walks(start, {"short": ("l0", recipe), "too": ("l1", recipe)})
    with pytest.raises(BadInput, match=r"short.json' was walked from another network than"):
        ask(more, tmp_path, tmp_path)
    assert not (folder / "dense/digit-net.json").exists()
