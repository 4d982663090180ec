"""Several paths on one engine: stopped at any time they go on, and end as if never stopped."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sparsepath import BadInput, Residuals, Schedule
from sparsepath.lab import abreast, records, walks
from sparsepath.lab import dense as dense_networks
from sparsepath.lab.arena import Arena
from sparsepath.lab.data import Data, Split
from sparsepath.lab.dense import train_dense
from sparsepath.lab.engine import BATCH, Engine
from sparsepath.lab.folders import locked
from sparsepath.lab.jobs import Job
from sparsepath.lab.lane import ALIGNED
from sparsepath.lab.models import build
from sparsepath.lab.recipes import DenseRecipe, PathRecipe
from sparsepath.lab.reproduce import reproduce
from sparsepath.lab.starts import Reference, fresh, lane_of
from sparsepath.lab.state import plain_residuals
from sparsepath.lab.training import Diverged
from sparsepath.lab.walks import Walk, walk_paths
from sparsepath.path import Progress
from sparsepath.storage import read_json, read_tensors, write_tensors

CPU = torch.device("cpu")
RECIPE = PathRecipe(
    rho=1.0, reach=(0.05, 0.9), points=4, last=2, schedule=Schedule(xi=2, nu=2), rate=0.01
)
START = Reference("digit-net", DenseRecipe(20, 0.05))
JOBS = [
    Job(START, "l0", RECIPE),
    Job(START, "l1", replace(RECIPE, dropout=0.5), variant="twin"),
]


def tiny_data() -> Data:
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        labels = torch.arange(count) % 4
        images = torch.randint(0, 60, (count, 1, 8, 8), generator=generator)
        images += 60 * labels[:, None, None, None]  # brightness tells the class
        return Split(images.to(torch.uint8), labels)

    mean, std = torch.tensor([0.45]), torch.tensor([0.3])
    return Data("tiny", 4, split(256), split(40), split(40), mean, std)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    train_dense([START], Arena(tiny_data(), CPU, flip=False), folder)
    return folder


def test_dense_networks_make_room_when_their_cycle_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    short = Reference("digit-net", DenseRecipe(2, 0.05), seed=1)
    long = Reference("digit-net", DenseRecipe(4, 0.05), seed=2)
    for number, each in enumerate((short, long)):
        train_dense([each], arena, tmp_path / str(number))
    lanes = []
    usual = abreast.Engine
    monkeypatch.setattr(
        abreast, "Engine", lambda given: (lanes.append(len(given)), usual(given))[1]
    )
    assert train_dense([short, long], arena, tmp_path / "both")
    assert lanes == [2, 1]
    for number, each in enumerate((short, long)):
        name = f"{each.name}.safetensors"
        alone = load_file(tmp_path / str(number) / name)
        for key, weight in load_file(tmp_path / "both" / name).items():
            assert torch.equal(weight, alone[key])


def walked(dense: Path, folder: Path, *, until: float = math.inf) -> bool:
    arena = Arena(tiny_data(), CPU, flip=False)
    return walk_paths(JOBS, arena, dense=dense, folder=folder, until=until)


def figures(folder: Path) -> list[object]:
    records = [json.loads((folder / f"{job.name}.json").read_text()) for job in JOBS]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def test_a_dense_reference_learns_and_is_not_trained_twice(dense: Path) -> None:
    record = json.loads((dense / "digit-net.json").read_text())
    assert record["validation"] > 0.8
    before = (dense / "digit-net.safetensors").stat().st_mtime_ns
    train_dense([START], Arena(tiny_data(), CPU, flip=False), dense)
    assert (dense / "digit-net.safetensors").stat().st_mtime_ns == before


def test_paths_stopped_after_every_stage_end_as_unbroken_ones(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert walked(dense, tmp_path / "unbroken")
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    stops = 0
    while not walked(dense, tmp_path / "broken", until=next(clock) + 6):
        stops += 1
        assert stops < 200
    assert stops >= 2
    assert figures(tmp_path / "broken") == figures(tmp_path / "unbroken")
    for job in JOBS:
        weights = [
            (tmp_path / w / f"{job.name}.safetensors").read_bytes() for w in ("broken", "unbroken")
        ]
        assert weights[0] == weights[1]
    assert not list((tmp_path / "broken").glob("*.state.safetensors"))
    assert walked(dense, tmp_path / "broken", until=-1.0), "finished jobs need no more time"


def test_a_walk_with_dropout_ends_alike_beside_others_alone_and_after_a_stop(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    dropped, other = JOBS[1], replace(JOBS[1], seed=1, variant="other")
    walk = partial(walk_paths, arena=arena, dense=dense)
    assert walk([JOBS[0], other, dropped], folder=tmp_path / "beside", until=math.inf)
    assert walk([dropped], folder=tmp_path / "alone", until=math.inf)
    with monkeypatch.context() as patched:
        clock = iter(range(10_000))
        patched.setattr(time, "monotonic", lambda: float(next(clock)))
        assert not walk([dropped, other], folder=tmp_path / "after", until=30.0)
    torch.manual_seed(7)
    assert walk([dropped], folder=tmp_path / "after", until=math.inf)
    found = {
        way: (tmp_path / way / f"{dropped.name}.safetensors").read_bytes()
        for way in ("beside", "alone", "after")
    }
    assert len(set(found.values())) == 1
    weights = (tmp_path / "beside" / f"{other.name}.safetensors").read_bytes()
    assert weights != found["beside"], "another seed draws other masks"


def test_state_of_other_settings_is_refused(dense: Path, tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    while not walk.state.exists():
        walk.done(0.0)
    schedule = replace(RECIPE.schedule, nu=9)
    other = replace(JOBS[0], recipe=replace(RECIPE, rate=0.02, schedule=schedule))
    made = rf"recipe {{'schedule': {{'nu': {RECIPE.schedule.nu}}}, 'rate': {RECIPE.rate}}}"
    wanted = r"{'schedule': {'nu': 9}, 'rate': 0.02}"
    with pytest.raises(BadInput, match=f"was made with {made}, not with {wanted}: move it away"):
        Walk(other, arena, dense=dense, folder=tmp_path)


def test_a_file_that_is_no_state_is_named_and_left(dense: Path, tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    tensors, header = read_tensors(walk.state)
    known = json.loads(header["sparsepath"])
    for about in (None, [], {}, {**known, "progress": {"index": 0, "residuals": [{"primal": 1}]}}):
        header = {} if about is None else {"sparsepath": json.dumps(about)}
        write_tensors(walk.state, tensors, header)
        before = walk.state.read_bytes()
        with pytest.raises(BadInput, match=r"state.safetensors' holds no state of a path"):
            Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
        assert walk.state.read_bytes() == before
    del known["record"]  # as of another command
    write_tensors(walk.state, tensors, {"sparsepath": json.dumps(known)})
    with pytest.raises(BadInput, match=r"state.safetensors' does not say its data"):
        Walk(JOBS[0], arena, dense=dense, folder=tmp_path)


def test_a_nan_loss_stops_with_its_mu_and_keeps_the_state(dense: Path, tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    for loss in (math.nan, math.inf):
        with pytest.raises(Diverged, match=rf"loss is {loss} at mu = .*is kept in .*state"):
            walk.done(loss)
    again = Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    assert again.stage is not None
    assert (again.stage.index, again.stage.iteration) == (0, 0)


def test_a_walk_that_diverges_is_set_aside_and_the_others_go_on(
    dense: Path, tmp_path: Path
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    wild = Job(START, "l0", replace(RECIPE, rate=1e30), variant="wild")
    with pytest.raises(Diverged, match="digit-net-l0-wild: the loss is"):
        walk_paths([wild, JOBS[0]], arena, dense=dense, folder=tmp_path, until=math.inf)
    kept = json.loads((tmp_path / f"{JOBS[0].name}.json").read_text())
    assert len(kept["points"]) == 3


def test_weights_that_the_last_step_of_an_epoch_broke_are_never_kept(
    dense: Path, tmp_path: Path
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    before = walk.state.read_bytes()
    for broken in (math.nan, 1e30):  # the square of which is not finite
        walk.lane.W[-ALIGNED] = broken  # a bias, at which ADMM does not look
        with pytest.raises(Diverged, match=r"weights are not finite at mu = .*is kept in .*state"):
            walk.done(0.5)
    assert walk.state.read_bytes() == before


def test_a_walk_whose_one_step_breaks_its_weights_is_set_aside_too(
    dense: Path, tmp_path: Path
) -> None:
    data = tiny_data()
    few = replace(data, train=data.train.select(torch.arange(BATCH)))
    wild = Job(START, "l0", replace(RECIPE, rate=1e30), variant="wild")
    with pytest.raises(Diverged, match=r"digit-net-l0-wild: the loss is .* at mu = "):
        walk_paths(
            [wild, JOBS[0]],
            Arena(few, CPU, flip=False),
            dense=dense,
            folder=tmp_path,
            until=math.inf,
        )
    kept = json.loads((tmp_path / f"{JOBS[0].name}.json").read_text())
    assert len(kept["points"]) == 3


def dies_after(number: int, patched: pytest.MonkeyPatch, module: ModuleType, *writes: str) -> None:
    """Let a module's calls of these be a kill once so many files are written."""
    left = iter(range(number))

    def dying(write: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*given: object, **named: object) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            write(*given, **named)

        return wrapped

    writes = ((module, "write_json"), (module, "write_tensors"), (abreast, "write_tensors"))
    for place, name in writes:
        patched.setattr(place, name, dying(getattr(place, name)))


def test_a_path_killed_between_any_two_of_its_files_ends_as_an_unbroken_one(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(RECIPE, last=1, schedule=Schedule(xi=1, nu=1))
    jobs, arena = [Job(START, "l0", recipe)], Arena(tiny_data(), CPU, flip=False)
    go_on = partial(walk_paths, jobs, arena, dense=dense, until=math.inf)

    def kept(folder: Path) -> tuple[object, bytes, list[str]]:
        record = json.loads((folder / "digit-net-l0.json").read_text())
        weights = (folder / "digit-net-l0.safetensors").read_bytes()
        names = sorted(path.name for path in folder.iterdir())
        return {**record, "seconds": None}, weights, names

    def killed_after(number: int, folder: Path) -> bool:
        """Walk, killed once so many files are written; whether there are more."""
        with monkeypatch.context() as patched:
            patched.setattr(abreast, "KEPT_EVERY", -1.0)
            dies_after(number, patched, walks)
            try:
                assert go_on(folder=folder)
            except KeyboardInterrupt:
                return True
        return False

    assert not killed_after(100, tmp_path / "unbroken")
    number = 0
    while killed_after(number, tmp_path / str(number)):
        assert go_on(folder=tmp_path / str(number))
        assert kept(tmp_path / str(number)) == kept(tmp_path / "unbroken"), number
        number += 1
    assert number == 9, "a state before and after each step and point, and two files a point"


def test_states_are_written_now_and_then_and_a_kill_costs_no_more_than_that(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = partial(walk_paths, [JOBS[1]], arena, dense=dense, until=math.inf)
    assert walk(folder=tmp_path / "unbroken")
    name, weights = f"{JOBS[1].name}.json", f"{JOBS[1].name}.safetensors"
    whole = read_json(tmp_path / "unbroken" / name)["points"]
    # Killed before its last point is written; no state was but the first.
    states = []
    usual = walks.write_tensors

    def write(path: Path, *given: object) -> None:
        if path.name.endswith(".state.safetensors"):
            states.append(path)
        elif path.exists() and len(read_json(path.with_name(name))["points"]) == 2:
            walk_in_hand[0].write = lambda: None  # nothing is written after a kill
            raise KeyboardInterrupt
        usual(path, *given)

    walk_in_hand = []
    begin = Walk.fill
    with monkeypatch.context() as patched:
        patched.setattr(abreast, "KEPT_EVERY", 1e9)
        for module in (walks, abreast):
            patched.setattr(module, "write_tensors", write)
        patched.setattr(Walk, "fill", lambda one: (walk_in_hand.append(one), begin(one))[1])
        with pytest.raises(KeyboardInterrupt):
            walk(folder=tmp_path / "killed")
    assert len(states) == 1
    assert len(read_json(tmp_path / "killed" / name)["points"]) == 2
    assert walk(folder=tmp_path / "killed")
    assert read_json(tmp_path / "killed" / name)["points"] == whole
    ends = [(tmp_path / way / weights).read_bytes() for way in ("unbroken", "killed")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("ended_by", ["time", "interrupt"])
def test_whatever_ends_a_walk_but_a_kill_leaves_its_last_state(
    ended_by: str, dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    usual, epochs = Engine.epoch, []

    def epoch(engine: Engine) -> list[torch.Tensor]:
        epochs.append(engine)
        if len(epochs) == 7 and ended_by == "interrupt":
            raise KeyboardInterrupt
        return usual(engine)

    monkeypatch.setattr(abreast, "KEPT_EVERY", 1e9)
    monkeypatch.setattr(Engine, "epoch", epoch)
    monkeypatch.setattr(time, "monotonic", lambda: float(len(epochs)))
    if ended_by == "time":
        assert not walk_paths(JOBS, arena, dense=dense, folder=tmp_path, until=5.5)
    else:
        with pytest.raises(KeyboardInterrupt):
            walk_paths(JOBS, arena, dense=dense, folder=tmp_path, until=math.inf)
    for job in JOBS:
        walk = Walk(job, arena, dense=dense, folder=tmp_path)
        assert walk.stage is not None
        # Three epochs are the first point, two the first iteration of the second; one is lost.
        assert (walk.stage.index, walk.stage.iteration) == (1, 1)
    ended_by = "nothing"
    unbroken = tmp_path / "unbroken"
    for folder in (tmp_path, unbroken):
        assert walk_paths(JOBS, arena, dense=dense, folder=folder, until=math.inf)
    for job in JOBS:
        name = f"{job.name}.safetensors"
        assert (tmp_path / name).read_bytes() == (unbroken / name).read_bytes()


def test_a_walk_that_diverges_leaves_the_state_before_its_stage(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abreast, "KEPT_EVERY", 1e9)
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    walk.done(1.0)
    with pytest.raises(Diverged, match="the state before this stage is kept in"):
        walk.done(math.nan)
    again = Walk(JOBS[0], arena, dense=dense, folder=tmp_path).stage
    assert again is not None
    assert (again.index, again.iteration) == (0, 1)


def test_a_walk_that_is_over_leaves_no_state(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abreast, "KEPT_EVERY", 1e9)
    walk = Walk(JOBS[0], Arena(tiny_data(), CPU, flip=False), dense=dense, folder=tmp_path)
    while walk.stage is not None:
        walk.epoch = walk.stage.epochs - 1
        walk.done(1.0)
    walk.write()
    assert not list(tmp_path.glob("*.state.safetensors"))


def test_a_dense_reference_that_diverges_is_not_written(tmp_path: Path) -> None:
    wild = replace(START, recipe=DenseRecipe(3, 1e30))
    with pytest.raises(Diverged, match="dense digit-net is no longer finite in epoch"):
        train_dense([wild], Arena(tiny_data(), CPU, flip=False), tmp_path)
    assert not list(tmp_path.glob("digit-net*"))


def test_a_dense_reference_that_diverges_is_set_aside_and_can_be_trained_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abreast, "KEPT_EVERY", -1.0)
    arena = Arena(tiny_data(), CPU, flip=False)
    good, other = (Reference("digit-net", DenseRecipe(3, 0.05), seed=seed) for seed in (1, 2))
    wild = replace(START, recipe=DenseRecipe(9, 0.05))
    usual = dense_networks.Cycle.done

    def done(cycle: dense_networks.Cycle, loss: float) -> None:
        usual(cycle, math.nan if cycle.reference == wild and cycle.epoch == 2 else loss)

    monkeypatch.setattr(dense_networks.Cycle, "done", done)
    with pytest.raises(Diverged, match="dense digit-net is no longer finite in epoch 3"):
        train_dense([good, wild, other], arena, tmp_path)
    assert {path.name for path in tmp_path.glob("digit-net*.json")} == {
        "digit-net-1.json",
        "digit-net-2.json",
    }
    assert train_dense([good, START, other], arena, tmp_path), "nothing of it is in the way"


def test_weights_that_an_epoch_broke_are_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    cycle = dense_networks.Cycle(START, arena, tmp_path)
    cycle.fill()
    cycle.lane.W[3] = math.inf
    with pytest.raises(Diverged, match="no longer finite in epoch 1"):
        cycle.done(1.0)


def test_a_dense_reference_whose_one_step_breaks_it_is_not_written(tmp_path: Path) -> None:
    data = tiny_data()
    few = replace(data, train=data.train.select(torch.arange(BATCH)))
    wild = replace(START, recipe=DenseRecipe(1, 1e40))
    with pytest.raises(Diverged, match="dense digit-net is no longer finite in epoch 1"):
        train_dense([wild], Arena(few, CPU, flip=False), tmp_path)
    assert not list(tmp_path.glob("digit-net*"))


def test_dense_weights_without_their_record_are_not_overwritten(tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    assert train_dense([START], arena, tmp_path)
    weights = tmp_path / "digit-net.safetensors"
    kept = weights.read_bytes()
    (tmp_path / "digit-net.json").unlink()
    with pytest.raises(BadInput, match=r"came without its record: put digit-net.json beside it"):
        train_dense([START], arena, tmp_path)
    assert weights.read_bytes() == kept


def test_weights_that_a_kill_left_before_their_record_are_trained_to_their_end(
    tmp_path: Path,
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    assert not train_dense([START], arena, tmp_path, until=0.0)
    cycle = dense_networks.Cycle(START, arena, tmp_path)
    cycle.fill()
    cycle.done(1.0)
    cycle.write()
    (tmp_path / "digit-net.safetensors").write_bytes(b"half of what a kill left")
    assert train_dense([START], arena, tmp_path)
    assert read_json(tmp_path / "digit-net.json")["dtype"] == "float32"


def test_a_record_too_old_to_name_its_images_is_of_the_real_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = replace(tiny_data(), name="cifar10")
    final, choosing = (Arena(named, CPU, flip=False, final=each) for each in (True, False))
    recipe = START.recipe
    kept = {"seed": 0, "recipe": recipe.plain(), **records.images_of(final)}
    del kept["images"]
    check = partial(records.check_same, path=Path("old.json"), recipe=recipe, seed=0)
    with pytest.raises(BadInput, match=f"made with images {records.FINAL_IMAGES['cifar10']}, not"):
        check(kept, arena=final)
    monkeypatch.setattr(records, "FINAL_IMAGES", {"cifar10": final.digest})
    check(kept, arena=final)
    monkeypatch.setattr(records, "FINAL_IMAGES", {"cifar10": "others"})
    # Explorations hold other images out: of those nothing is known.
    check({**kept, "training_images": len(choosing.padded)}, arena=choosing)


@pytest.mark.parametrize(("device", "dtype"), [("NVIDIA H200", "bfloat16"), ("cpu", "float32")])
def test_a_walk_taken_up_that_is_too_old_to_say_its_dtype_is_told_it(
    device: str, dtype: str
) -> None:
    kept = {"machine": {"device": device}, "points": []}
    other = Arena(tiny_data(), CPU, flip=False, bfloat16=dtype == "float32")
    found = records.taken_up(kept, other, points=0)
    assert found["dtype"] != dtype
    assert found["earlier"][0]["dtype"] == dtype


def test_a_dense_record_without_its_weights_is_refused_and_kept(tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    assert train_dense([START], arena, tmp_path)
    record = tmp_path / "digit-net.json"
    kept = record.read_bytes()
    (tmp_path / "digit-net.safetensors").unlink()
    with pytest.raises(BadInput, match=r"came without its weights: put digit-net.safetensors"):
        train_dense([START], arena, tmp_path)
    assert record.read_bytes() == kept


def test_states_are_written_often_enough_for_a_kill_to_cost_little() -> None:
    assert 5 < abreast.KEPT_EVERY <= 60


def test_no_more_train_side_by_side_than_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[int] = []
    usual = abreast.Engine
    monkeypatch.setattr(
        abreast, "Engine", lambda given: (lanes.append(len(given)), usual(given))[1]
    )
    monkeypatch.setattr(abreast, "ABREAST", 2)
    three = [replace(START, recipe=DenseRecipe(1, 0.05), seed=seed) for seed in range(3)]
    assert train_dense(three, Arena(tiny_data(), CPU, flip=False), tmp_path)
    assert lanes == [2, 1]


def test_its_seed_decides_a_dense_reference_whatever_was_drawn_before(tmp_path: Path) -> None:
    dropped = replace(START, recipe=DenseRecipe(2, 0.05, dropout=0.5))
    weights = []
    for number in (0, 1):
        torch.manual_seed(number)
        train_dense([dropped], Arena(tiny_data(), CPU, flip=False), tmp_path / str(number))
        weights.append((tmp_path / str(number) / "digit-net.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_dense_recipe_has_a_decay_of_its_own(tmp_path: Path) -> None:
    arena, squares = Arena(tiny_data(), CPU), []
    for decay in (0.0, 5e-4, 1.0):
        start = replace(START, recipe=DenseRecipe(1, 0.05, decay=decay), variant=f"{decay:g}")
        assert train_dense([start], arena, tmp_path)
        weights, _ = read_tensors(tmp_path / f"{start.name}.safetensors")
        squares.append(sum(float(weight.square().sum()) for weight in weights.values()))
    assert squares[0] > squares[1] > 1.1 * squares[2]


def test_fewer_images_than_a_step_takes_are_refused(tmp_path: Path) -> None:
    data = tiny_data()
    few = replace(data, train=data.train.select(torch.arange(BATCH - 1)))
    with pytest.raises(BadInput, match="'tiny' has 127 training images; a step takes 128"):
        train_dense([START], Arena(few, CPU, flip=False), tmp_path)


def test_dense_references_stop_when_time_is_over(tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    assert not train_dense([START], arena, tmp_path, until=time.monotonic() - 1)
    assert not list(tmp_path.glob("digit-net*"))


DROPPED = [
    Reference("digit-net", DenseRecipe(4, 0.05, dropout=0.5, shift=1), variant="0.5"),
    Reference("digit-net", DenseRecipe(3, 0.05), seed=1),
]


def whole_files(folder: Path) -> dict[str, object]:
    """What is in a folder of dense references, but for how long they took."""
    found: dict[str, object] = {
        path.name: path.read_bytes() for path in folder.glob("*.safetensors")
    }
    for path in folder.glob("*.json"):
        found[path.name] = {**read_json(path), "seconds_side_by_side": None}
    return found


@pytest.mark.parametrize("every", [-1.0, 1e9])
@pytest.mark.parametrize("broken", [1, 2, 3])
def test_dense_references_stopped_in_the_midst_of_any_epoch_end_as_unbroken_ones(
    broken: int, every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    assert train_dense(DROPPED, arena, tmp_path / "unbroken")
    usual, epochs = Engine.epoch, []

    def epoch(engine: Engine) -> list[torch.Tensor]:
        if len(epochs) == broken:
            usual(engine)  # these weights are of no epoch that was counted
            raise KeyboardInterrupt
        epochs.append(engine)
        return usual(engine)

    with monkeypatch.context() as patched:
        patched.setattr(abreast, "KEPT_EVERY", every)
        patched.setattr(Engine, "epoch", epoch)
        with pytest.raises(KeyboardInterrupt):
            train_dense(DROPPED, arena, tmp_path / "broken")
    kept = (tmp_path / "broken").glob("*.state.safetensors")
    assert len(list(kept)) == (1 if broken == 3 else 2), "one has ended after three"
    done: list[Engine] = []
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "epoch", lambda engine: (done.append(engine), usual(engine))[1])
        assert train_dense(DROPPED, arena, tmp_path / "broken")
    assert len(done) == 4 - broken, "no epoch is trained twice"
    assert whole_files(tmp_path / "broken") == whole_files(tmp_path / "unbroken")


def test_dense_references_keep_their_epochs_when_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    usual = Engine.epoch
    clock = iter(range(1000))
    monkeypatch.setattr(abreast, "KEPT_EVERY", math.inf)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    assert not train_dense([START], arena, tmp_path, until=20.0)
    assert [path.name for path in tmp_path.glob("digit-net*")] == ["digit-net.state.safetensors"]
    keys: list[int] = []
    monkeypatch.setattr(
        Engine, "epoch", lambda engine: (keys.append(int(engine.lanes[0].key)), usual(engine))[1]
    )
    assert train_dense([START], arena, tmp_path)
    assert 1 < len(keys) < START.recipe.epochs
    assert len(set(keys)) == len(keys), "every epoch has its own masks of dropout"


def test_training_of_another_recipe_and_files_that_hold_none_are_named_and_left(
    tmp_path: Path,
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    cycle = dense_networks.Cycle(START, arena, tmp_path)
    cycle.fill()
    cycle.done(1.0)
    cycle.write()
    state = tmp_path / "digit-net.state.safetensors"
    good = state.read_bytes()
    longer = replace(START, recipe=DenseRecipe(21, 0.05))
    with pytest.raises(BadInput, match=r"digit-net\.state\.safetensors' was made with recipe"):
        train_dense([longer], arena, tmp_path)
    assert state.read_bytes() == good
    tensors, header = read_tensors(state)
    for damaged in (
        ({**tensors, "momentum": tensors["momentum"][1:]}, header),
        ({name: each for name, each in tensors.items() if name != "momentum"}, header),
        (tensors, {}),
        (tensors, {"sparsepath": "[]"}),
        (tensors, {"sparsepath": '{"epoch": 1, "seconds": 1, "record": 3}'}),
        ({**tensors, "momentum": tensors["momentum"] * math.nan}, header),
        *((tensors, said(header, epoch=epoch)) for epoch in (0, 20, 21, None)),
        (tensors, said(header, record={**json.loads(header["sparsepath"])["record"], "recipe": 0})),
    ):
        write_tensors(state, *damaged)
        bad = state.read_bytes()
        with pytest.raises(BadInput, match=r"holds no training .*move it away"):
            train_dense([START], arena, tmp_path)
        assert state.read_bytes() == bad
    write_tensors(state, tensors, said(header, seconds=math.nan))
    with pytest.raises(BadInput, match="seconds must be a finite number"):
        train_dense([START], arena, tmp_path)


def said(header: dict[str, str], **changed: object) -> dict[str, str]:
    """A state's header with some of it changed."""
    return {"sparsepath": json.dumps({**json.loads(header["sparsepath"]), **changed})}


def test_a_dense_reference_trained_on_elsewhere_says_where_and_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    with monkeypatch.context() as patched:
        another = {"machine": {"device": "another"}}
        patched.setattr(records, "circumstances", lambda device: another)
        cycle = dense_networks.Cycle(START, arena, tmp_path)
        cycle.fill()
        cycle._began -= 1000
        cycle.done(1.0)
        cycle.write()
    assert train_dense([START], arena, tmp_path)
    record = read_json(tmp_path / "digit-net.json")
    assert record["earlier"] == [{"epochs": 1, **another}]
    assert record["machine"] != another["machine"]
    assert record["seconds_side_by_side"] > 1000


def test_dense_references_are_kept_every_so_often_and_not_at_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(abreast, "KEPT_EVERY", 20.0)
    monkeypatch.setattr(abreast, "write_tensors", lambda path, *state: written.append(path))
    train_dense([START], Arena(tiny_data(), CPU, flip=False), tmp_path)
    assert 1 < len(written) < START.recipe.epochs / 3


def test_a_state_that_a_kill_left_beside_its_network_goes(tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    short = replace(START, recipe=DenseRecipe(2, 0.05))
    assert train_dense([short], arena, tmp_path)
    state = tmp_path / "digit-net.state.safetensors"
    state.write_text("of a training that is over")
    assert train_dense([short], arena, tmp_path)
    assert not state.exists()


def test_what_a_kill_left_of_a_write_goes(tmp_path: Path) -> None:
    (tmp_path / ".digit-net.json.x.part").write_text("{")
    short = replace(START, recipe=DenseRecipe(1, 0.05))
    assert train_dense([short], Arena(tiny_data(), CPU, flip=False), tmp_path)
    assert not list(tmp_path.glob(".*.part"))


def test_a_reference_that_another_process_trained_meanwhile_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    short = replace(START, recipe=DenseRecipe(2, 0.05))
    train_dense([short], arena, tmp_path / "other")

    @contextmanager
    def waited(folder: Path) -> Iterator[None]:
        with locked(folder):
            for path in (tmp_path / "other").glob("digit-net*"):
                shutil.copy(path, folder)
            yield

    monkeypatch.setattr(dense_networks, "locked", waited)
    monkeypatch.setattr(abreast, "Engine", None)
    assert train_dense([short], arena, tmp_path / "own")


def test_recipes_of_one_network_and_seed_see_the_same_images(tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    lanes = []
    for variant, seed in (("a", 0), ("b", 0), ("a", 1)):
        each = Reference("digit-net", DenseRecipe(2, 0.05), seed=seed, variant=variant)
        cycle = dense_networks.Cycle(each, arena, tmp_path)
        cycle.fill()
        lanes.append(cycle.lane)
    assert torch.equal(lanes[0].images, lanes[1].images)
    assert int(lanes[0].key) == int(lanes[1].key)
    assert not torch.equal(lanes[0].images, lanes[2].images)
    assert int(lanes[0].key) != int(lanes[2].key)


def test_dense_references_killed_between_any_two_files_end_as_unbroken_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    monkeypatch.setattr(abreast, "KEPT_EVERY", -1.0)
    train_dense(DROPPED, arena, tmp_path / "unbroken")
    number = 0
    while True:
        folder = tmp_path / str(number)
        with monkeypatch.context() as patched:
            dies_after(number, patched, dense_networks)
            try:
                train_dense(DROPPED, arena, folder)
            except KeyboardInterrupt:
                pass
            else:
                break
        assert train_dense(DROPPED, arena, folder)
        assert whole_files(folder) == whole_files(tmp_path / "unbroken"), number
        number += 1
    assert number == 2 + 2 + 2 + 1 + 2, "two, two and one state, and two files for each network"


def test_two_processes_never_train_the_same_dense_references(dense: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    with locked(dense):
        assert train_dense([START], arena, dense), "there is nothing to train"
        with pytest.raises(BadInput, match="Another process works in"):
            train_dense([replace(START, seed=7)], arena, dense)


def test_work_on_other_pixels_or_labels_is_refused_though_name_and_count_are_the_same(
    dense: Path, tmp_path: Path
) -> None:
    data = tiny_data()
    Walk(JOBS[0], Arena(data, CPU, flip=False), dense=dense, folder=tmp_path)
    images, labels = data.train.images.clone(), data.train.labels.clone()
    images[7, 0, 3, 3] ^= 1
    labels[9] = (labels[9] + 1) % 4
    for train in (Split(images, data.train.labels), Split(data.train.images, labels)):
        other = Arena(replace(data, train=train), CPU, flip=False)
        with pytest.raises(BadInput, match=r"made with images \w{16}, not with \w{16}: move it"):
            Walk(JOBS[0], other, dense=dense, folder=tmp_path)
        with pytest.raises(BadInput, match=r"digit-net.json' was made with images"):
            train_dense([START], other, dense)
    again = Walk(JOBS[0], Arena(tiny_data(), CPU, flip=False), dense=dense, folder=tmp_path)
    del again.record["images"]
    again._checkpoint(Progress())
    again.write()
    Walk(JOBS[0], other, dense=dense, folder=tmp_path)  # an older record does not say


def test_a_walk_from_a_dense_network_that_changed_is_refused(dense: Path, tmp_path: Path) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    Walk(JOBS[0], arena, dense=dense, folder=tmp_path / "walk")
    other = tmp_path / "dense"
    train_dense([replace(START, seed=1)], arena, other)
    (other / "digit-net-1.safetensors").rename(other / "digit-net.safetensors")
    with pytest.raises(BadInput, match="dense network 'digit-net' changed since"):
        Walk(JOBS[0], arena, dense=other, folder=tmp_path / "walk")
    shutil.copy(other / "digit-net.safetensors", other / "digit-net-1.safetensors")
    moved = replace(JOBS[0], start=replace(START, seed=1))
    with pytest.raises(BadInput, match="started from digit-net, not from digit-net-1"):
        Walk(moved, arena, dense=other, folder=tmp_path / "walk")


def test_a_walk_resumed_elsewhere_says_where_it_began(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    Walk(JOBS[0], arena, dense=dense, folder=tmp_path)
    here = records.circumstances(CPU)
    monkeypatch.setattr(records, "circumstances", lambda device: {**here, "machine": "another"})
    halved = Arena(tiny_data(), CPU, flip=False, bfloat16=True)
    again = Walk(JOBS[0], halved, dense=dense, folder=tmp_path)
    assert (again.record["machine"], again.record["dtype"]) == ("another", "bfloat16")
    began = {"points": 0, "machine": here["machine"], "dtype": "float32"}
    assert again.record["earlier"] == [began]


def test_a_final_arena_trains_on_validation_images_and_judges_by_the_test_images() -> None:
    data = tiny_data()
    final, choosing = (Arena(data, CPU, flip=False, final=final) for final in (True, False))
    assert (len(final.padded), len(choosing.padded)) == (296, 256)
    assert torch.equal(final.judged[1], data.test.labels)
    assert torch.equal(choosing.judged[0], choosing._ready(data.validation)[0])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    assert set(final.accuracies(model)) == {"test"}
    # Nothing can be chosen by test images that are never judged.
    assert set(choosing.accuracies(model)) == {"validation"}


def test_a_recipe_may_give_its_own_mu_rates_decay_and_momentum(dense: Path, tmp_path: Path) -> None:
    own = {"span": (0.1, 0.8), "peak": 0.4, "decay": 0.0, "momentum": 0.5}
    recipe = replace(RECIPE, **own, schedule=Schedule(xi=1, delta=4))
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(Job(START, "l0", recipe), arena, dense=dense, folder=tmp_path)
    norms = [
        blocks.norms(walk.admm.W[name].detach()).flatten()
        for name, blocks in walk.admm.blocks.items()
    ]
    median = float(torch.cat(norms).median())
    thresholds = [math.sqrt(2 * mu / recipe.rho) for mu in walk.record["mus"]]
    assert thresholds == pytest.approx([0.1 * median, 0.2 * median, 0.4 * median])
    assert (float(walk.lane.decay), float(walk.lane.beta)) == (0.0, 0.5)
    walk.fill()
    assert walk.lane.rates.tolist() == pytest.approx([0.01] * len(walk.lane.rates))
    while walk.stage is not None and walk.stage.iteration is not None:
        walk.done(0.0)
    peaks = []
    for epoch in range(4):
        walk.epoch = epoch
        walk.fill()
        peaks.append(float(walk.lane.rates.max()))
    assert max(peaks) == pytest.approx(0.4)
    assert peaks[-1] < 0.2, "the cycle comes down again"


def test_a_ramp_strengthens_the_pull_and_leaves_every_threshold(
    dense: Path, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, ramp=2.0, restart=True, schedule=Schedule(xi=3, nu=1, epsilon=0.0))
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(Job(START, "l0", recipe), arena, dense=dense, folder=tmp_path)
    seen = []
    while walk.stage is not None:
        if walk.stage.iteration is not None:
            admm = walk.admm
            seen.append((admm.rho, float(walk.lane.pull), admm.mu / admm.rho / walk.stage.mu))
            if len(seen) == 2:  # a resumed walk pulls as strongly
                walk.write()
                walk = Walk(Job(START, "l0", recipe), arena, dense=dense, folder=tmp_path)
                assert (walk.admm.rho, float(walk.lane.pull)) == (2.0, 2.0)
        walk.epoch = walk.stage.epochs - 1
        walk.done(1.0)
    assert seen == 3 * [(1.0, 1.0, 1.0), (2.0, 2.0, 1.0), (4.0, 4.0, 1.0)]


def test_a_cycle_may_run_over_all_epochs_of_a_point(dense: Path, tmp_path: Path) -> None:
    schedule = Schedule(xi=3, delta=2, nu=1, epsilon=0.0, finetune=2)
    recipe = replace(RECIPE, peak=0.4, whole=True, schedule=schedule)
    arena = Arena(tiny_data(), CPU, flip=False)
    walk = Walk(Job(START, "l0", recipe), arena, dense=dense, folder=tmp_path)
    rates = []
    for _ in range(8):
        walk.fill()
        rates += walk.lane.rates.tolist()
        walk.done(0.0)
    assert walk.stage is not None
    assert walk.stage.index == 1
    steps = len(walk.lane.rates)
    cycle = DenseRecipe(8, 0.4)
    expected = torch.cat([cycle.rates(epoch, steps) for epoch in range(8)])
    assert rates == pytest.approx(expected.tolist())
    assert rates[0] == 0.0
    assert max(rates) == pytest.approx(0.4)


def test_a_walk_may_be_taught_by_its_dense_network_with_dropout_of_its_own(
    dense: Path, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, distil=0.5, dropout=0.125)
    arena = Arena(tiny_data(), CPU, flip=False)
    job = Job(START, "l0", recipe)
    walk_paths([job], arena, dense=dense, folder=tmp_path, until=0.0)
    with torch.no_grad():
        for weight in (walk := Walk(job, arena, dense=dense, folder=tmp_path)).admm.W.values():
            weight.add_(1.0)
    walk.done(0.0)  # keeps weights that are the dense network's no longer
    walk = Walk(job, arena, dense=dense, folder=tmp_path)
    kept = load_file(dense / f"{START.name}.safetensors")
    assert walk.lane.teacher is not None
    assert not walk.lane.teacher.training
    for name, weight in walk.lane.teacher.state_dict().items():
        assert torch.equal(weight, kept[name])
    name, weight = next(iter(walk.admm.W.items()))
    assert not torch.equal(weight, kept[name])
    assert {part.p for part in walk.model.modules() if isinstance(part, nn.Dropout)} == {0.125}


def on_gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")


@pytest.mark.parametrize(
    "device", [lambda: CPU, pytest.param(on_gpu, marks=pytest.mark.gpu)], ids=["cpu", "cuda"]
)
def test_an_epoch_holds_crops_of_the_images_with_their_labels(
    dense: Path, tmp_path: Path, device: Callable[[], torch.device]
) -> None:
    arena = Arena(tiny_data(), device(), pad=1, flip=True)
    job = replace(JOBS[0], recipe=replace(RECIPE, shift=1))
    walk = Walk(job, arena, dense=dense, folder=tmp_path)
    walk.fill()
    # Compared on the CPU: a GPU would be asked two hundred thousand times, and waited for.
    images, labels = walk.lane.images.cpu(), walk.lane.labels.cpu()
    sources = arena.normalise(arena.padded.float()).to(images.dtype).cpu()
    drawn = set()
    for number in range(0, 256, 6):
        image = images[number]
        found = [
            (index, top, left, side)
            for index in range(256)
            for top in range(3)
            for left in range(3)
            for crop in [sources[index, top : top + 8, left : left + 8]]
            for side, seen in enumerate((crop, crop.flip(1)))
            if torch.allclose(seen, image, rtol=2**-8)
        ]
        assert len(found) == 1
        index, *corner = found[0]
        assert int(arena.data.train.labels[index]) == int(labels[number])
        drawn.add(tuple(corner))
    assert [set(kind) for kind in zip(*drawn, strict=True)] == [{0, 1, 2}, {0, 1, 2}, {0, 1}]


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_a_shift_moves_every_image_by_up_to_so_many_pixels_each_way(shift: int) -> None:
    number = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8) + 1
    images = number.expand(BATCH * 8, -1, -1, -1).contiguous()
    split = Split(images, torch.zeros(len(images), dtype=torch.long))
    data = Data("numbers", 2, split, split, split, torch.zeros(1), torch.full((1,), 1 / 255))
    arena = Arena(data, CPU, pad=3, flip=False)
    lane = lane_of(build("digit-net", classes=2, image_shape=(1, 8, 8)), arena)
    arena.fill(lane, torch.Generator().manual_seed(0), shift=shift)
    # The pixel in the middle tells how far its image was moved.
    middle = lane.images[:, 4, 4, 0].round().long() - 1
    moved = {(int(pixel) // 8 - 4, int(pixel) % 8 - 4) for pixel in middle}
    ways = range(-shift, shift + 1)
    assert moved == {(down, right) for down in ways for right in ways}


@pytest.mark.parametrize("shift", [-1, 5])
def test_a_shift_beyond_the_padding_is_refused(shift: int, tmp_path: Path) -> None:
    far = replace(START, recipe=DenseRecipe(1, 0.05, shift=shift))
    with pytest.raises(BadInput, match=f"shift is a number of pixels from 0 to 4, not {shift}"):
        train_dense([far], Arena(tiny_data(), CPU, flip=False), tmp_path)


@pytest.mark.parametrize("network", ["nin", "low-rank-cnn"])
def test_what_stands_beside_the_weights_has_their_memory_order(
    network: str, tmp_path: Path
) -> None:
    noise = torch.randint(256, (BATCH, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    split = Split(noise.to(torch.uint8), torch.arange(BATCH) % 4)
    data = Data("noise", 4, split, split, split, torch.full((3,), 0.5), torch.full((3,), 0.3))
    arena, start = Arena(data, CPU, flip=False), Reference(network, DenseRecipe(1, 0.01))
    model = fresh(network, arena, seed=0)
    write_tensors(tmp_path / f"{start.name}.safetensors", model.state_dict(), {})
    walk = Walk(Job(start, "l0", RECIPE), arena, dense=tmp_path, folder=tmp_path)
    for name, W in walk.admm.W.items():
        beside = (walk.admm.F[name], walk.admm.Gamma[name], walk.admm.U[name])
        assert [tensor.stride() for tensor in beside] == [W.stride()] * 3
        assert W.dim() < 4 or not W.is_contiguous()


def test_a_walk_has_the_images_of_its_dense_network_unless_told_otherwise(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tiny_data(), CPU, flip=False)
    seen = []
    monkeypatch.setattr(arena, "fill", lambda lane, generator, **given: seen.append(given))
    still = replace(START, recipe=replace(START.recipe, shift=2, hole=3))
    for number, (start, recipe) in enumerate(
        [(START, RECIPE), (still, RECIPE), (still, replace(RECIPE, shift=0, hole=0))]
    ):
        Walk(Job(start, "l0", recipe), arena, dense=dense, folder=tmp_path / str(number)).fill()
    assert seen == [{"shift": 4, "hole": 0}, {"shift": 2, "hole": 3}, {"shift": 0, "hole": 0}]


@pytest.mark.parametrize("hole", [1, 2, 3, 6])
def test_a_hole_is_a_square_around_any_place_of_an_image_and_nothing_else_changes(
    hole: int,
) -> None:
    data = tiny_data()
    cut = lambda split: Split(split.images[..., :6], split.labels)  # so that no side is another
    narrow = replace(data, **{name: cut(getattr(data, name)) for name in ("train", "validation")})
    arena = Arena(narrow, CPU, flip=True)
    lane = lane_of(build("digit-net", classes=4, image_shape=(1, 8, 6)), arena)

    def drawn(seed: int, side: int) -> torch.Tensor:
        arena.fill(lane, torch.Generator().manual_seed(seed), shift=1, hole=side)
        return lane.images.clone()

    blanks = set()
    for seed in range(8):
        whole, images = drawn(seed, 0), drawn(seed, hole)
        assert not (whole == 0).any()
        blank = images == 0
        assert torch.equal(images, torch.where(blank, 0.0, whole))
        blanks |= {tuple(one) for one in blank.flatten(1).tolist()}
    rows, columns = (
        [(along >= c - hole // 2) & (along < c - hole // 2 + hole) for c in range(len(along))]
        for along in (torch.arange(8), torch.arange(6))
    )
    assert blanks == {tuple((y[:, None] & x).flatten().tolist()) for y in rows for x in columns}


@pytest.mark.parametrize("hole", [-1, 9])
def test_a_hole_larger_than_an_image_is_refused(hole: int, tmp_path: Path) -> None:
    far = replace(START, recipe=DenseRecipe(1, 0.05, hole=hole))
    with pytest.raises(BadInput, match=f"hole is a number of pixels from 0 to 8, not {hole}"):
        train_dense([far], Arena(tiny_data(), CPU, flip=False), tmp_path)


def test_reproduce_without_a_gpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="no GPU"):
        reproduce("cifar10", data=tmp_path, folder=tmp_path)


def test_reproduce_names_what_it_knows_and_what_it_does_not_find(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no experiment 'mnist'; choose one of cifar10, best-mode"):
        reproduce("mnist", data=tmp_path, folder=tmp_path, device="cpu")
    with pytest.raises(BadInput, match=r"neither 'svhn' nor 'svhn.npz'.*sparsepath download svhn"):
        reproduce("svhn", data=tmp_path, folder=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("gpu", "no device 'gpu'; choose a GPU"),
        ("", "no device ''; choose a GPU"),
        ("mps", "no GPU for device 'mps'"),
        ("meta", "no GPU for device 'meta'"),
        ("cuda:2", "no device 'cuda:2'; the last is cuda:1"),
    ],
)
def test_reproduce_names_a_device_that_it_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, sentence: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BadInput, match=sentence):
        reproduce("cifar10", data=tmp_path, folder=tmp_path, device=device)


def test_reproduce_makes_the_gpu_it_is_given_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams, graphs and kernels go to the current one, wherever the tensors are."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(BadInput, match="neither"):
            reproduce("cifar10", data=tmp_path, folder=tmp_path, device=device)
    assert chosen == [torch.device("cuda:1")]


@pytest.mark.parametrize("minutes", [-1.0, math.nan])
def test_reproduce_refuses_minutes_that_are_no_time(tmp_path: Path, minutes: float) -> None:
    with pytest.raises(BadInput, match=f"minutes must be zero or more, not {minutes}"):
        reproduce("cifar10", data=tmp_path, folder=tmp_path, device="cpu", minutes=minutes)


def test_a_record_without_its_state_is_never_overwritten(dense: Path, tmp_path: Path) -> None:
    record = tmp_path / f"{JOBS[0].name}.json"
    known = {"recipe": RECIPE.plain(), "seed": 0, "data": "tiny", "training_images": 256}
    known |= {"points": [], "mus": [], "seconds": 0.0}
    record.write_text(json.dumps(known))
    with pytest.raises(BadInput, match="is of a path without its state"):
        walked(dense, tmp_path)
    record.write_text(json.dumps({**known, "data": "other"}))
    with pytest.raises(BadInput, match="was made with data other, not with tiny"):
        walked(dense, tmp_path)


def test_records_of_an_older_version_are_named_and_left(dense: Path, tmp_path: Path) -> None:
    train = partial(train_dense, [START], Arena(tiny_data(), CPU, flip=False))
    for name, work in ((JOBS[0].name, partial(walked, dense)), (START.name, train)):
        record = tmp_path / f"{name}.json"
        for content in ({}, {"recipe": {}, "seed": 0}, {"points": [], "data": "tiny", "seed": 0}):
            record.write_text(json.dumps(content))
            before = record.read_bytes()
            with pytest.raises(BadInput, match=rf"{name}.json' does not say its .*training_images"):
                work(tmp_path)
            assert record.read_bytes() == before


def test_a_dense_reference_of_another_recipe_is_refused(dense: Path) -> None:
    with pytest.raises(BadInput, match="was made with recipe"):
        train_dense([replace(START, recipe=DenseRecipe(9, 0.05))], Arena(tiny_data(), CPU), dense)


def test_a_relative_residual_without_a_dual_is_null_in_json() -> None:
    rows = plain_residuals([Residuals(1.0, 1.0, 0.5, math.inf)])
    assert rows[0]["dual_relative"] is None
    assert rows[0]["primal"] == 1.0
