"""The experiments from one call, on a network and images so small that a CPU walks them all."""

import json
import math
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsepath import BadInput
from sparsepath.lab import abreast, comparisons, experiments, parts, reproduce, walks
from sparsepath.lab.dense import train_dense
from sparsepath.lab.folders import locked
from sparsepath.lab.recipes import DENSE, DenseRecipe, PathRecipe
from sparsepath.lab.training import Diverged

TINY = {"digit-net": DenseRecipe(2, 0.05)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set in the place of CIFAR-10, and experiments of a few epochs."""
    random = np.random.default_rng(0)

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 4
        pixels = random.integers(0, 60, (count, 8, 8, 3)) + 60 * labels[:, None, None, None]
        return pixels.astype(np.uint8), labels

    x_train, y_train = images(128)
    x_test, y_test = images(40)
    np.savez(
        tmp_path / "cifar10.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test
    )
    monkeypatch.setitem(reproduce.CONTENTS, "cifar10", (128, 40, 4, (3, 8, 8)))
    monkeypatch.setattr(experiments, "DENSE", {**DENSE, **TINY})
    monkeypatch.setattr(reproduce, "NETWORKS", (*experiments.NETWORKS, *TINY))
    monkeypatch.setattr(parts, "COMPARED", tuple(TINY))
    monkeypatch.setattr(parts, "FINETUNES", {"digit-net": (2, 4)})
    monkeypatch.setattr(comparisons, "BEST_SPAN", {"digit-net": (0.5, 2.0)})
    monkeypatch.setattr(comparisons, "L1_SPAN", {"digit-net": (0.5, 2.0)})
    monkeypatch.setattr(comparisons, "L1_RHO", {"digit-net": 0.003})
    monkeypatch.setattr(comparisons, "ITERATIONS", 2)
    monkeypatch.setattr(comparisons, "EPOCHS", 2)
    monkeypatch.setattr(comparisons, "DIVIDED", 3)
    monkeypatch.setattr(comparisons, "KEEP", {"digit-net": (0.5, 0.2)})
    monkeypatch.setattr(comparisons, "ONE_SHOT", (0.2,))
    monkeypatch.setattr(comparisons, "LASSO", {0.5: 0.5, 0.2: 1.0})
    monkeypatch.setattr(comparisons, "LASSO_TIMES", {"digit-net": 1.0})
    monkeypatch.setattr(parts, "comparisons", partial(comparisons.comparisons, seeds=2))
    t_test = partial(experiments.t_test, "digit-net", pairs=2, networks=2)
    monkeypatch.setattr(parts, "t_test", t_test)
    return tmp_path


def run(what: str, folder: Path, *, minutes: float = 60.0, **more: Any) -> bool:
    return reproduce.reproduce(
        what,
        data=folder,
        folder=folder / "out",
        networks=tuple(TINY),
        device="cpu",
        minutes=minutes,
        **more,
    )


def test_all_arms_of_a_comparison_have_equal_epochs_and_their_sparsities(folder: Path) -> None:
    assert not run("comparisons", folder, minutes=0.0)
    assert run("comparisons", folder)
    place = folder / "out/cifar10/comparisons"
    walked = place / "walked"
    epochs = {
        path.stem: [point["epochs"] for point in json.loads(path.read_text())["points"]]
        for path in walked.glob("*.json")
    }
    for finetune, own in ((2, "gradual-late"), (4, "one-shot")):
        record = json.loads((place / f"digit-net-{finetune}.json").read_text())
        arms = record["arms"]
        divided = {"l0-divided"} if own == "gradual-late" else set()
        assert set(arms) == {"l0", "l1", "gradual", "ssl", own, *divided}
        assert all(set(seeds) == {"0", "1"} for seeds in arms.values())
        for arm in {"gradual", "gradual-late", "ssl"} & set(arms):
            zeros = [share for share, _ in arms[arm]["1"]]
            assert zeros == pytest.approx([0.5, 0.8], abs=1e-3)
        assert {len(each) for each in record["fine_tuning"].values()} == {len(arms["l0"]["0"])}
        zeros = [share for share, _ in arms["l0"]["0"]]
        assert zeros == sorted(zeros)
        assert zeros[-1] > 0.4
        late = ["magnitude-gradual-late", "l0-divided"] if own == "gradual-late" else []
        for name in ("l0", "l1", "ssl", "fine-tuning", "magnitude-gradual", *late):
            # As many points too: the sparsest network of each arm has had as many epochs as any.
            assert epochs[f"digit-net-{name}-{finetune}-0"] == [4 + finetune] * 2, name
    assert [share for share, _ in arms["one-shot"]["1"]] == pytest.approx([0.8], abs=1e-3)
    assert epochs["digit-net-magnitude-one-shot-0.2-4-0"] == [16]
    weights = sorted(path.name for path in walked.glob("digit-net-l0-2-*.safetensors"))
    assert weights == [
        "digit-net-l0-2-0-0.safetensors",
        "digit-net-l0-2-0-1.safetensors",
        "digit-net-l0-2-1.safetensors",
    ]


def test_best_mode_walks_more_points_with_longer_fine_tunes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "LONG", {"digit-net": 3})
    monkeypatch.setattr(comparisons, "STEPS", {"digit-net": 3})
    monkeypatch.setattr(parts, "best_mode", partial(comparisons.best_mode, seeds=2))
    assert not run("best-mode", folder, minutes=0.0)
    assert run("best-mode", folder)
    place = folder / "out/cifar10/best-mode"
    record = json.loads((place / "digit-net-3.json").read_text())
    assert record["finetune"] == 3
    assert {seed: len(points) for seed, points in record["arms"]["l0"].items()} == {"0": 3, "1": 3}
    walked = json.loads((place / "walked/digit-net-l0-best-1.json").read_text())
    assert [point["epochs"] for point in walked["points"]] == [7, 7, 7]
    assert walked["seed"] == walked["dense_seed"] == 1
    control = json.loads((place / "walked/digit-net-fine-tuning-best-1.json").read_text())
    assert record["fine_tuning"]["1"] == [point["test"] for point in control["points"]]
    assert [point["epochs"] for point in control["points"]] == [7, 7, 7], "as long"
    kept = {path.name for path in (place / "walked").glob("digit-net-l0-*.safetensors")}
    first = {f"digit-net-l0-best-0-{index}.safetensors" for index in range(3)}
    assert kept == {*first, "digit-net-l0-best-1.safetensors"}, "every point of the first seed"


@pytest.mark.parametrize("network", ["cnn", "nin"])
def test_best_mode_starts_where_its_comparisons_do_and_takes_smaller_steps(network: str) -> None:
    (best, *_), (compared, *_) = (
        comparisons.best_mode(network)["l0"],
        comparisons.comparisons(network)["l0"],
    )
    assert best.start == compared.start
    assert best.recipe.span == compared.recipe.span
    assert best.recipe.length == best.recipe.points > compared.recipe.points
    longer, usual = (job.recipe.schedule.finetune or 0 for job in (best, compared))
    assert longer > usual


@pytest.mark.parametrize("network", ["cnn", "nin"])
def test_l0_iterates_every_epoch_with_a_growing_pull_where_the_fine_tune_is_short(
    network: str,
) -> None:
    (_, short), (_, long) = (comparisons.arms(network, finetune=n)["l0"] for n in (5, 40))
    assert (short.schedule.xi, short.schedule.delta) == (18, 1)
    assert (long.schedule.xi, long.schedule.delta) == (6, 3)
    # From a sixth of the usual pull to nearly four times as much.
    pulls = [short.rho * short.ramp**iteration for iteration in range(18)]
    assert pulls[0] == pytest.approx(long.rho / 6)
    assert pulls[-1] == pytest.approx(3.7 * long.rho, rel=0.01)
    assert long.ramp == 1
    same = {"rho": long.rho, "ramp": 1.0, "schedule": long.schedule}
    assert replace(short, **same) == long, "in nothing else"
    _, l1 = comparisons.arms(network, finetune=5)["l1"]
    assert l1.ramp == 1


def test_nin_is_spared_two_arms_where_fine_tunes_are_short() -> None:
    spared = {"gradual-late", "fine-tuning"}
    short, all_of_them = (set(comparisons.arms(name, finetune=5)) for name in ("nin", "cnn"))
    assert short == all_of_them - spared
    assert "fine-tuning" in comparisons.arms("nin", finetune=20)


def test_best_mode_and_its_control_train_alike() -> None:
    ways = comparisons.best_mode("cnn")
    for l0, control in zip(ways["l0"], ways["fine-tuning"], strict=True):
        assert (l0.start, l0.seed) == (control.start, control.seed)
        assert (l0.recipe.hole, l0.recipe.decay, l0.recipe.dropout) == (8, 2e-4, 0.0)
        assert replace(control.recipe, span=l0.recipe.span) == l0.recipe


@pytest.mark.parametrize("iterations", [2, 5, 18])
def test_a_divided_point_has_as_many_epochs_and_its_pull_grows_as_far(iterations: int) -> None:
    (_, usual), (_, own) = (
        comparisons.arms("cnn", finetune=5)[name] for name in ("l0", "l0-divided")
    )
    recipe = comparisons.divided(usual, iterations)
    assert recipe.schedule.xi == iterations
    assert iterations + (recipe.schedule.finetune or 0) == 18 + 5
    pull = recipe.rho * recipe.ramp ** (iterations - 1)
    assert pull == pytest.approx(usual.rho * usual.ramp**17)
    assert own == comparisons.divided(usual, comparisons.DIVIDED)


def test_all_parts_of_a_data_set_are_walked_in_one_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[int] = []
    engine = abreast.Engine
    monkeypatch.setattr(
        abreast, "Engine", lambda given: (lanes.append(len(given)), engine(given))[1]
    )
    lab = reproduce.Lab(folder, folder / "out", reproduce.torch.device("cpu"), math.inf)
    both = [part for name in ("comparisons", "t-test") for part in parts.parts(name, TINY, ())]
    assert [len(part.jobs) for part in both] == [2 * (6 + 7), 2 * 4]
    assert lab.walk(both)
    dense_first, *walking = lanes
    assert dense_first == 3
    # Full until the last jobs are taken up: no part waits for another's end.
    assert walking == sorted(walking, reverse=True)
    assert walking[0] == abreast.ABREAST
    made = ["comparisons/digit-net-2", "comparisons/digit-net-4", "t-test/one-dense-network"]
    assert all((folder / f"out/cifar10/{name}.json").exists() for name in made)
    lanes.clear()
    shutil.rmtree(folder / "out/cifar10/dense")
    for name in made:
        (folder / f"out/cifar10/{name}.json").unlink()
    assert lab.walk(both), "and again, where nothing is left, nor needed"
    assert not lanes
    assert all((folder / f"out/cifar10/{name}.json").exists() for name in made)


def test_all_parts_are_locked_while_they_are_walked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "out/cifar10"
    lab = reproduce.Lab(folder, folder / "out", reproduce.torch.device("cpu"), 123.0)
    both = [part for name in ("comparisons", "t-test") for part in parts.parts(name, TINY, ())]
    asked = []

    def train(*given: object, until: float) -> bool:
        for part in both:
            with (
                pytest.raises(BadInput, match="Another process works in"),
                locked(place / part.name),
            ):
                pass
        asked.append(until)
        return True

    monkeypatch.setattr(reproduce, "train_dense", train)
    monkeypatch.setattr(reproduce, "train_abreast", train)
    assert lab.walk(both)
    assert asked == [123.0, 123.0], "both know when time is over"
    with locked(place / both[1].name), pytest.raises(BadInput, match=r"works in .*t-test/walked"):
        lab.walk(both)


def test_what_is_there_is_gathered_whatever_ends_the_walks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, points = walks.Walk._write, []

    def write(walk: walks.Walk, point: Any) -> None:
        usual(walk, point)
        points.append(point)
        if len(points) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(walks.Walk, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        run("comparisons", folder)
    assert list((folder / "out/cifar10/comparisons").glob("digit-net-*.json"))


def test_a_pair_that_is_half_walked_is_not_gathered(folder: Path) -> None:
    assert run("t-test", folder)
    walked = folder / "out/cifar10/t-test/walked"
    written = walked / "digit-net-l0-2-0.json"
    record = json.loads(written.read_text())
    written.write_text(json.dumps({**record, "points": record["points"][:-1]}))
    several = walked.parent / "several-dense-networks.json"
    assert len(json.loads(several.read_text())["pairs"]) == 2
    several.unlink()
    parts.gather_pairs(parts.t_test(), walked)
    assert not several.exists(), "one pair is none to test"


@pytest.mark.parametrize("before", [{"dtype": "bfloat16"}, {"machine": {"device": "H200"}}])
def test_a_walk_that_went_on_elsewhere_is_in_no_pair(folder: Path, before: dict[str, Any]) -> None:
    assert run("t-test", folder)
    walked = folder / "out/cifar10/t-test/walked"
    for name in ("l0", "fine-tuning"):  # neither alone, nor both in the same way
        written = walked / f"digit-net-{name}-2-0.json"
        record = json.loads(written.read_text())
        written.write_text(json.dumps({**record, "earlier": [{"points": 1, **before}]}))
        several = walked.parent / "several-dense-networks.json"
        several.unlink(missing_ok=True)
        parts.gather_pairs(parts.t_test(), walked)
        assert not several.exists(), "one pair is none to test"


def test_an_arm_says_of_each_seed_where_it_was_walked(folder: Path) -> None:
    assert run("comparisons", folder)
    place = folder / "out/cifar10/comparisons"
    written = place / "walked/digit-net-l0-2-1.json"
    record = json.loads(written.read_text())
    # First on an H200 in bfloat16, then on a CPU in bfloat16, then in float32.
    earlier = [{"points": 0, "machine": {"device": "H200"}}, {"points": 1, "dtype": "bfloat16"}]
    written.write_text(json.dumps({**record, "earlier": earlier}))
    parts.gather_arms(parts.comparisons("digit-net", finetune=2), place / "walked")
    devices = json.loads((place / "digit-net-2.json").read_text())["devices"]["l0"]
    assert devices == {"0": "cpu float32", "1": "H200 bfloat16 and cpu bfloat16 and cpu float32"}


def test_walks_from_two_networks_of_one_name_are_not_gathered_as_of_one(folder: Path) -> None:
    assert run("t-test", folder)
    walked = folder / "out/cifar10/t-test/walked"
    kept = (walked.parent / "one-dense-network.json").read_bytes()
    written = walked / "digit-net-l0-0-1.json"
    record = json.loads(written.read_text())
    record["start"]["digest"] = "another"
    written.write_text(json.dumps(record))
    with pytest.raises(BadInput, match=r"start from 2 different networks 'digit-net'"):
        run("t-test", folder)
    assert (walked.parent / "one-dense-network.json").read_bytes() == kept


@pytest.mark.parametrize("gone", [False, True])
def test_nothing_is_walked_beside_records_that_come_from_another_network(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    assert run("t-test", folder)
    place = folder / "out/cifar10"
    (place / "t-test/walked/digit-net-l0-0-1.json").unlink()
    if gone:
        for file in (place / "dense").glob("digit-net.*"):
            file.unlink()
    else:
        shutil.copy(place / "dense/digit-net-1.safetensors", place / "dense/digit-net.safetensors")
    monkeypatch.setattr(reproduce, "train_dense", lambda *given, **named: pytest.fail("trained"))
    with pytest.raises(BadInput, match=r"digit-net-.*json' was walked from another network than"):
        run("t-test", folder)


def test_what_is_sound_is_gathered_though_something_else_is_not(folder: Path) -> None:
    (part,) = parts.parts("comparisons", tuple(TINY), ())
    seen: list[str] = []

    def wrong(place: Path) -> None:
        seen.append("wrong")
        raise BadInput(f"wrong {len(seen)}")

    mixed = replace(part, gathers=(wrong, lambda place: seen.append("right"), wrong), jobs=())
    lab = reproduce.Lab(folder, folder / "out", reproduce.torch.device("cpu"), math.inf)
    with pytest.raises(BadInput, match="wrong 1"):
        lab.walk([mixed])
    assert seen == ["wrong", "right", "wrong"]


def test_a_comparison_has_its_dense_networks_and_fine_tunings_as_far_as_they_are_walked(
    folder: Path,
) -> None:
    assert run("comparisons", folder)
    place = folder / "out/cifar10/comparisons"
    for written in (place / "walked").glob("*.json"):
        record = json.loads(written.read_text())
        record["dense"]["test"] = 0.5 + 0.2 * record["dense_seed"]
        if written.name == "digit-net-fine-tuning-2-1.json":
            record["points"] = record["points"][:-1]
        written.write_text(json.dumps(record))
    parts.gather_arms(parts.comparisons("digit-net", finetune=2), place / "walked")
    record = json.loads((place / "digit-net-2.json").read_text())
    assert record["dense"] == {"0": 0.5, "1": 0.7}
    assert {seed: len(points) for seed, points in record["fine_tuning"].items()} == {"0": 2, "1": 1}


def test_all_goes_from_one_data_set_to_the_next_until_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    methods: list[set[str]] = []

    def walk(self: reproduce.Lab, wanted: list[parts.Part]) -> bool:
        asked.append([f"{part.data}/{part.name}" for part in wanted])
        methods.append({job.method for part in wanted for job in part.jobs})
        return len(asked) % 4 > 0

    monkeypatch.setattr(reproduce.Lab, "walk", walk)
    monkeypatch.setattr(reproduce.Lab, "images", lambda self, name: None)
    for name in experiments.FLIPPED:
        (tmp_path / f"{name}.npz").touch()
    ask = partial(reproduce.reproduce, data=tmp_path, folder=tmp_path, device="cpu")
    assert not ask("all")
    first = ["cifar10/paper", "cifar10/best-mode/walked", "cifar10/comparisons/walked"]
    assert asked == [first, ["cifar100/paper"], ["svhn/paper"], ["cifar10/t-test/walked"]]
    asked.append([])
    assert not ask("all", networks=["low-rank-nin"])
    assert asked[5:] == [["cifar10/paper"], ["cifar100/paper"], ["svhn/paper"]]
    methods.clear()
    assert ask("svhn", penalties=["l1"])
    assert methods == [{"l1"}]


def test_a_network_that_is_named_twice_is_walked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    record = lambda self, wanted: bool(names.extend(job.name for p in wanted for job in p.jobs))
    monkeypatch.setattr(reproduce.Lab, "walk", record)
    (tmp_path / "svhn.npz").touch()
    ask = partial(reproduce.reproduce, "svhn", data=tmp_path, folder=tmp_path, device="cpu")
    ask(networks=["nin", "nin"], penalties=["l1", "l0", "l1"])
    assert sorted(names) == ["nin-l0", "nin-l1"]


def test_only_the_walks_that_are_named_are_walked_and_all_that_are_there_are_gathered(
    folder: Path,
) -> None:
    walked = folder / "out/cifar10/comparisons/walked"
    names = lambda: {path.stem for path in walked.glob("*.json")}
    assert run("comparisons", folder, only=["digit-net-l0-2-0", "*-ssl-2-[1]"])
    assert names() == {"digit-net-l0-2-0", "digit-net-ssl-2-1"}
    assert run("comparisons", folder, only=["digit-net-l0-2-*"])
    record = json.loads((folder / "out/cifar10/comparisons/digit-net-2.json").read_text())
    assert {arm: set(seeds) for arm, seeds in record["arms"].items()} == {
        "l0": {"0", "1"},
        "ssl": {"1"},
    }
    wrong = (
        "No walk of 'comparisons' is called 'l0-2-0': give a name or a pattern, as 'digit-net-l0"
    )
    with pytest.raises(BadInput, match=re.escape(wrong)):
        run("comparisons", folder, only=["digit-net-l0-2-0", "l0-2-0"])
    # Records that are not asked for are still looked at before a dense network is trained anew.
    shutil.rmtree(folder / "out/cifar10/dense")
    with pytest.raises(BadInput, match="was walked from another network than"):
        run("comparisons", folder, only=["digit-net-l0-4-0"])


def test_only_the_data_sets_of_the_walks_that_are_named_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(reproduce.Lab, "walk", lambda self, group: not asked.append(group[0].data))
    usual = reproduce.Lab.images
    monkeypatch.setattr(reproduce.Lab, "images", lambda self, name: None)
    ask = partial(reproduce.reproduce, "all", data=tmp_path, folder=tmp_path, device="cpu")
    for name in ("cifar10", "cifar100"):
        (tmp_path / f"{name}.npz").touch()
    with pytest.raises(BadInput, match=r"There is neither 'svhn' nor 'svhn\.npz'"):
        ask()
    assert not asked, "before any takes its hours"
    assert ask(only=["low-rank-nin-*-short"])
    assert asked == ["cifar10", "cifar100"]
    asked.clear()
    monkeypatch.setattr(reproduce.Lab, "images", usual)
    with pytest.raises(BadInput, match=r"cifar100\.npz' "):
        ask(only=["low-rank-nin-*-short"])
    assert not asked, "what is no data set is found out before any takes its hours"


def test_walks_of_a_cpu_and_of_a_gpu_are_no_pair(folder: Path) -> None:
    assert run("t-test", folder)
    place = folder / "out/cifar10/t-test"
    other = place / "walked/digit-net-l0-0-1.json"
    record = json.loads(other.read_text())
    for changed in ({"dtype": "bfloat16"}, {"machine": {"device": "NVIDIA H200"}}):
        other.write_text(json.dumps({**record, **changed}))
        (place / "one-dense-network.json").unlink(missing_ok=True)
        assert run("t-test", folder)
        assert not (place / "one-dense-network.json").exists(), "one pair of two is left"


def test_networks_train_in_bfloat16_on_a_cpu_if_told(folder: Path) -> None:
    whole = [
        reproduce.Lab(folder, folder, reproduce.torch.device("cpu"), 0.0, told).arena("cifar10")
        for told in (None, False, True)
    ]
    assert [str(arena.example(2).dtype) for arena in whole] == [
        "torch.float32",
        "torch.float32",
        "torch.bfloat16",
    ]
    assert all(arena.judged[0].dtype == reproduce.torch.float32 for arena in whole)
    assert run("comparisons", folder, only=["digit-net-l0-2-0"], bfloat16=True)
    name = "cifar10/comparisons/walked/digit-net-l0-2-0.json"
    halved = json.loads((folder / "out" / name).read_text())
    shutil.rmtree(folder / "out")
    assert run("comparisons", folder, only=["digit-net-l0-2-0"])
    plain = json.loads((folder / "out" / name).read_text())
    primal, other = (record["points"][0]["residuals"][0]["primal"] for record in (halved, plain))
    assert primal != other
    assert primal == pytest.approx(other, rel=0.05)
    gathered = json.loads((folder / "out/cifar10/comparisons/digit-net-2.json").read_text())
    assert gathered["devices"] == {"l0": {"0": "cpu float32"}}


def test_an_early_start_is_walked_by_the_usual_settings_over_the_short_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = DenseRecipe(7, 0.1)
    monkeypatch.setattr(experiments, "EARLY", {("cifar100", "nin"): early})
    jobs = experiments.paths("cifar100", ["nin", "low-rank-nin"], ["l0"])
    (job,) = [job for job in jobs if job.variant == "early"]
    assert (job.name, job.start.name, job.start.recipe) == ("nin-l0-early", "nin-early", early)
    usual = experiments.paper("nin", "l0")
    assert usual.momentum == 0.9 != experiments.paper("nin", "l0", data="cifar100").momentum
    settled = replace(usual.schedule, epsilon=experiments.EPSILON["nin"])
    short = experiments.SHORT_SPAN["nin", "l0"]
    assert job.recipe == replace(usual, span=short, schedule=settled)


def test_walks_set_since_epsilon_was_found_settle_by_it_and_no_others() -> None:
    settle = {
        f"{data} {job.name}": job.recipe.schedule.epsilon
        for data in experiments.FLIPPED
        for job in experiments.paths(data, experiments.NETWORKS, ["l0", "l1"])
        if job.recipe.schedule.epsilon != 0.01
    }
    found = experiments.EPSILON
    short = {"cifar10": ["low-rank-nin"], "cifar100": ["nin", "low-rank-nin", "low-rank-cnn"]}
    assert settle == {
        **{
            f"{data} {network}-{by}-short": found[network]
            for data, networks in short.items()
            for network in networks
            for by in ("l0", "l1")
        },
        "svhn nin-l1": found["nin"],
        "svhn low-rank-nin-l0": found["low-rank-nin"],
        "svhn low-rank-nin-l1": found["low-rank-nin"],
    }


def test_both_networks_are_compared_with_long_and_with_short_fine_tunes() -> None:
    (part,) = parts.parts("comparisons", experiments.NETWORKS, ())
    admm = [job for job in part.jobs if job.method == "l0"]
    for network in ("cnn", "nin"):
        own = {job.recipe.schedule.finetune or 0 for job in admm if job.start.network == network}
        assert min(own) == 5
        assert max(own) >= 20


def test_the_group_lasso_is_on_before_a_point_and_off_in_its_fine_tune(folder: Path) -> None:
    from sparsepath.lab.walks import Walk

    lab = reproduce.Lab(folder, folder / "out", reproduce.torch.device("cpu"), 0.0)
    arena = lab.arena("cifar10")
    (job, *_) = comparisons.comparisons("digit-net", finetune=2)["ssl"]
    train_dense([job.start], arena, folder / "out/cifar10/dense")
    walk = Walk(job, arena, dense=folder / "out/cifar10/dense", folder=folder / "ssl")
    assert walk.stage is not None
    assert walk.stage.iteration == 0
    # Over 4 of the cycle's 6 epochs of one step, with momentum 0.9, it moves half a median norm.
    rates = 0.05 * (0 + 2 / 3 + 8 / 9 + 2 / 3)
    assert float(walk.lane.lasso) * rates / 0.1 == pytest.approx(0.5 * walk.median, rel=1e-5)
    assert float(walk.lane.decay) == 0.0
    assert float(walk.lane.pull) == 0.0
    while walk.stage.iteration is not None:
        walk.done(0.0)
    assert float(walk.lane.lasso) == 0.0
    assert float(walk.lane.decay) == pytest.approx(5e-4)


def test_the_t_test_pairs_walks_that_share_their_dense_network_and_images(folder: Path) -> None:
    place = folder / "out/cifar10/t-test"
    half = place / "walked" / ".digit-net-l0-0-0.json.abc.part"
    half.parent.mkdir(parents=True)
    half.write_text("half of a file, left by a kill")
    assert run("t-test", folder)
    assert not half.exists()
    one = json.loads((place / "one-dense-network.json").read_text())
    several = json.loads((place / "several-dense-networks.json").read_text())
    assert [pair["dense_seed"] for pair in one["pairs"]] == [0, 0]
    assert [pair["dense_seed"] for pair in several["pairs"]] == [1, 2]
    assert all(pair["of_blocks"] > 0 for pair in one["pairs"])
    for kind in ("l0", "fine-tuning"):
        record = json.loads((place / f"walked/digit-net-{kind}-0-1.json").read_text())
        assert record["seed"] == 1
        assert sum(point["epochs"] for point in record["points"]) == 48


def test_a_folder_that_cannot_be_written_or_is_in_use_is_refused_before_any_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "train_dense", lambda *given, **named: pytest.fail("trained"))
    used = folder / "out/cifar10/comparisons/walked"
    with locked(used), pytest.raises(BadInput, match=r"Another process works in .*walked"):
        run("comparisons", folder)
    (folder / "out/cifar10/t-test").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        run("t-test", folder)


@pytest.mark.parametrize("what", ["best-mode", "comparisons", "t-test"])
def test_an_experiment_that_has_none_of_these_networks_says_which_it_has(
    what: str, tmp_path: Path
) -> None:
    ask = partial(reproduce.reproduce, what, data=tmp_path, folder=tmp_path, device="cpu")
    with pytest.raises(BadInput, match=f"{what}' has nothing of low-rank-nin: best mode and the"):
        ask(networks=["low-rank-nin"])
    with pytest.raises(BadInput, match="no network 'resnet'; choose of nin, low-rank-nin, cnn"):
        ask(networks=["cnn", "resnet"])


def test_another_data_set_in_its_place_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = reproduce.load
    monkeypatch.setattr(reproduce, "load", lambda source: replace(usual(source), name="cifar-100"))
    with pytest.raises(BadInput, match=r"cifar10.npz' holds cifar-100, not cifar10"):
        run("t-test", folder, minutes=0.0)


@pytest.mark.parametrize("real", [(129, 40, 4), (128, 41, 4), (128, 40, 10)])
def test_other_images_than_the_data_set_has_are_refused(
    real: tuple[int, int, int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reproduce.CONTENTS, "cifar10", (*real, (3, 8, 8)))
    training, test, classes = real
    with pytest.raises(
        BadInput,
        match=r"cifar10.npz' holds 128 training and 40 test images of 3 x 8 x 8 in 4 classes; "
        f"cifar10 is {training} training and {test} test images of 3 x 8 x 8 in {classes} classes:",
    ):
        run("t-test", folder, minutes=0.0)
    assert not list((folder / "out").rglob("*.json"))


def test_the_data_set_itself_given_as_data_is_told_from_one_that_is_missing(folder: Path) -> None:
    lab = reproduce.Lab(folder / "cifar10.npz", folder, reproduce.torch.device("cpu"), 0.0)
    with pytest.raises(BadInput, match=r"in '.*cifar10.npz': name the folder around it"):
        lab.arena("cifar10")


def test_what_is_there_is_written_down_though_some_walks_diverge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = comparisons.arms

    def wild(network: str, *, finetune: int) -> dict[str, tuple[str, PathRecipe]]:
        found = usual(network, finetune=finetune)
        method, recipe = found["ssl"]
        return {**found, "ssl": (method, replace(recipe, peak=1e30))}

    monkeypatch.setattr(comparisons, "arms", wild)
    with pytest.raises(Diverged, match="digit-net-ssl-2-0: the loss is"):
        run("comparisons", folder)
    record = json.loads((folder / "out/cifar10/comparisons/digit-net-2.json").read_text())
    assert {"l0", "l1", "gradual"} <= set(record["arms"])
    jobs = experiments.t_test("digit-net", pairs=2, networks=2)
    jobs[-1] = replace(jobs[-1], recipe=replace(jobs[-1].recipe, rate=1e30))
    monkeypatch.setattr(parts, "t_test", lambda: jobs)
    with pytest.raises(Diverged, match="digit-net-fine-tuning-2-0: the loss is"):
        run("t-test", folder)
    one = json.loads((folder / "out/cifar10/t-test/one-dense-network.json").read_text())
    assert len(one["pairs"]) == 2
