"""Algorithm 1 end to end against the plain reference; resuming, schedules and the range of mu."""

import contextlib
import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparsepath import (
    ADMM,
    L0,
    L1,
    MCP,
    BadInput,
    PathPoint,
    Residuals,
    Schedule,
    Stage,
    TopK,
    outputs,
    regularisation_path,
)
from sparsepath.path import Progress, stages

from . import reference
from .quadratic import RATE, Quadratic, descend, quality, together

MUS = {"l1": [0.0, 0.05, 0.2, 0.45, 0.8], "l0": [0.0, 0.02, 0.1, 0.25, 0.6]}
PAPER = {"l1": (L1(), reference.soft), "l0": (L0(), reference.hard)}
SCHEDULE = Schedule(delta=2, nu=3, xi=6, epsilon=0.08)


def walk(model: Quadratic, kind: str = "l0", **options: object) -> list[PathPoint]:
    admm = ADMM(model, PAPER[kind][0], rho=0.7)
    options = {"mus": MUS[kind], "schedule": SCHEDULE, **options}
    return list(regularisation_path(admm, descend, evaluate=quality, **options))


@pytest.mark.parametrize("kind", PAPER)
@pytest.mark.parametrize("restart", [False, True])
def test_the_path_is_algorithm_1(kind: str, restart: bool) -> None:
    model = Quadratic()
    admm = ADMM(model, PAPER[kind][0], rho=0.7)
    expected = reference.algorithm_1(
        together(admm.W),
        model.blocks(),
        model.gradient,
        mus=MUS[kind],
        rho=0.7,
        rate=RATE,
        delta=2,
        nu=3,
        xi=6,
        epsilon=0.08,
        shrink=PAPER[kind][1],
        restart=restart,
    )
    path = regularisation_path(
        admm, descend, evaluate=quality, mus=MUS[kind], schedule=SCHEDULE, restart=restart
    )
    iterations = set()
    for point, plain in zip(path, expected, strict=True):
        iterations.add(plain.iterations)
        for mine, its in ((admm.W, plain.W), (admm.F, plain.F), (admm.Gamma, plain.Gamma)):
            np.testing.assert_allclose(together(mine), its, rtol=1e-10, atol=1e-12)
        masks = {name: point.support[name].expand(W.shape) for name, W in admm.W.items()}
        assert [bool(x) for x in together(masks)] == plain.alive
        assert len(point.residuals) == plain.iterations
        assert point.residuals[-1].primal == pytest.approx(plain.primal, abs=1e-12)
        assert point.residuals[-1].dual == pytest.approx(plain.dual, abs=1e-12)
        assert point.converged == (plain.primal <= 0.08 and plain.dual <= 0.08)
        assert point.sparsity.of_sparsified == plain.alive.count(False) / len(plain.alive)
    assert len(iterations) > 1  # stopped by epsilon in places and by xi in others
    assert 0 < plain.alive.count(True) < len(plain.alive)


def test_epochs_grow_by_delta_up_to_nu() -> None:
    asked: list[tuple[int, int | None, int]] = []

    def train(model: nn.Module, stage: Stage) -> None:
        asked.append((stage.index, stage.iteration, stage.epochs))
        descend(model, stage)

    admm = ADMM(Quadratic(), L0(), rho=1.0)
    path = regularisation_path(
        admm,
        train,
        evaluate=quality,
        mus=[0.1, 0.2, 0.3, 0.4],
        schedule=Schedule(delta=2, nu=3, xi=2, epsilon=0.0),
    )
    epochs = [point.epochs for point in path]
    per_point = [2, 4, 6, 6]  # delta * (k + 1), up to delta * nu
    assert asked == [(k, iteration, per_point[k]) for k in range(4) for iteration in (0, 1, None)]
    assert epochs == [3 * e for e in per_point]  # two iterations and the fine-tune
    assert Schedule().epochs(0) == 1
    assert Schedule().epochs(14) == Schedule().epochs(99) == 15


def test_a_fine_tune_may_have_epochs_of_its_own() -> None:
    stages_seen = []

    def train(model: nn.Module, stage: Stage) -> None:
        stages_seen.append((stage.iteration, stage.epochs))

    admm = ADMM(Quadratic(), L0(), rho=1.0)
    schedule = Schedule(delta=2, xi=2, epsilon=0.0, finetune=7)
    path = regularisation_path(
        admm, train, evaluate=lambda model: 0.0, mus=[0.1, 0.2], schedule=schedule
    )
    assert [point.epochs for point in path] == [2 + 2 + 7, 4 + 4 + 7]
    assert stages_seen == [(0, 2), (1, 2), (None, 7), (0, 4), (1, 4), (None, 7)]
    with pytest.raises(BadInput, match="finetune"):
        Schedule(finetune=-1)


def test_a_path_without_performance_steps_prunes_by_magnitude_and_only_fine_tunes() -> None:
    stages_seen = []
    model = Quadratic()
    norms = {name: W.detach().flatten(1).norm(dim=1) for name, W in model.named_parameters()}

    def train(model: nn.Module, stage: Stage) -> None:
        stages_seen.append((stage.iteration, stage.epochs))

    admm = ADMM(model, TopK(1), rho=1.0, blocks=outputs)
    path = regularisation_path(
        admm,
        train,
        evaluate=lambda model: 0.0,
        mus=[1],
        schedule=Schedule(delta=0, xi=1, epsilon=0.0, finetune=3),
        restart=True,
    )
    (point,) = path
    assert (stages_seen, point.epochs) == ([(None, 3)], 3)
    for name, norm in norms.items():
        living = point.support[name].flatten(1).any(1)
        assert living.nonzero().flatten().tolist() == [int(norm.argmax())]
    (bare,) = regularisation_path(
        ADMM(Quadratic(), TopK(1), rho=1.0, blocks=outputs),
        train,
        evaluate=lambda model: 0.0,
        mus=[1],
        schedule=Schedule(delta=0, xi=1, finetune=0),
    )
    assert bare.epochs == 0
    assert len(stages_seen) == 1, "nothing to train, nothing asked for"


def test_a_mu_ends_when_both_residuals_are_within_epsilon() -> None:
    schedule = Schedule(epsilon=0.1)
    assert schedule.converged(Residuals(0.1, 0.1, 0, 0))
    assert not schedule.converged(Residuals(0.11, 0.0, 0, 0))
    assert not schedule.converged(Residuals(0.0, 0.11, 0, 0))
    points = walk(Quadratic(), schedule=Schedule(xi=9, epsilon=1e9))
    assert [len(point.residuals) for point in points] == [1] * 5
    assert all(point.converged for point in points)
    points = walk(Quadratic(), schedule=Schedule(xi=3, epsilon=0.0))
    assert [len(point.residuals) for point in points] == [3] * 5


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"delta": -1}, "delta must be a whole number of at least 0"),
        ({"nu": 1.5}, "nu must be"),
        ({"xi": -1}, "xi must be"),
        ({"epsilon": -0.1}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
    ],
)
def test_a_schedule_of_nothing_is_refused(wrong: dict[str, float], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Schedule(**wrong)


def test_a_performance_step_is_pulled_and_free_and_a_fine_tune_held_and_free_of_pull() -> None:
    model = Quadratic()
    admm = ADMM(model, L0(), rho=0.7)
    kinds = []
    for item in stages(admm, evaluate=quality, mus=MUS["l0"], schedule=SCHEDULE):
        if isinstance(item, Stage):
            kinds.append(item.iteration)
            if item.iteration is None:
                assert item.proximity() == 0.0
                assert item.support == admm.support()
                held = {n: item.support[n].expand(W.shape) for n, W in admm.W.items()}
                assert all(bool((admm.W[n][~held[n]] == 0).all()) for n in held)
            else:
                assert len(item.support) == 0
                assert item.proximity == admm.proximity
                assert item.mu == admm.mu
            descend(model, item)
    assert None in kinds


def test_each_point_starts_from_the_one_before() -> None:
    model, seen = Quadratic(), []

    def train(model: nn.Module, stage: Stage) -> None:
        if stage.iteration == 0:
            seen.append(together(dict(model.named_parameters())))
        descend(model, stage)

    admm = ADMM(model, L0(), rho=0.7)
    points = list(regularisation_path(admm, train, evaluate=quality, mus=MUS["l0"][2:]))
    for before, start in zip(points, seen[1:], strict=False):
        weights = {name: before.weights[name] for name in admm.W}
        assert together(weights) == start


def test_break_stops_the_training_too() -> None:
    trained = []
    admm = ADMM(Quadratic(), L0(), rho=0.7)
    for point in regularisation_path(
        admm,
        lambda model, stage: trained.append(stage.index),
        evaluate=quality,
        mus=[0.1, 0.2, 0.3],
    ):
        if point.index == 1:
            break
    assert set(trained) == {0, 1}


def test_points_are_kept_and_can_be_loaded_at_any_time() -> None:
    model = Quadratic()
    points = walk(model)
    assert [point.mu for point in points] == MUS["l0"]
    for point in points:
        other = Quadratic(seed=9)
        point.load(other)
        assert quality(other) == point.accuracy
        outside = {n: ~point.support[n].expand(w.shape) for n, w in other.named_parameters()}
        assert all(not w[outside[n]].any() for n, w in other.named_parameters())
        assert point.sparsity.of_blocks == sum(point.sparsity.zero_blocks.values()) / 12
    assert [p.sparsity.of_blocks for p in points] == sorted(p.sparsity.of_blocks for p in points)
    assert points[0].sparsity.of_blocks == 0 < points[-1].sparsity.of_blocks
    assert repr(points[0]).count("tensor") == 0


def test_accuracy_f_is_that_of_f_and_the_weights_are_put_back() -> None:
    model = Quadratic()
    admm = ADMM(model, L1(), rho=0.7)
    calls: list[tuple[list[float], list[float]]] = []

    def evaluate(model: nn.Module) -> float:
        calls.append((together(admm.W), together(admm.F)))
        return float(len(calls))

    items = stages(admm, evaluate=evaluate, mus=[0.3], schedule=Schedule(xi=2, epsilon=0.0))
    for item in items:
        if isinstance(item, Stage) and item.iteration is None:
            W, F = calls[0]
            assert calls[1] == (F, F)  # W was F in the second evaluation
            assert W != F
            living = [w if f else 0.0 for w, f in zip(W, F, strict=True)]
            assert together(admm.W) == living  # put back, then masked
        if isinstance(item, Stage):
            descend(model, item)
        else:
            assert (item.accuracy_W, item.accuracy_F, item.accuracy) == (1.0, 2.0, 3.0)


def test_the_weights_are_put_back_when_the_evaluation_fails() -> None:
    model = Quadratic()
    admm = ADMM(model, L0(), rho=0.7)
    seen: list[list[float]] = []

    def evaluate(model: nn.Module) -> float:
        seen.append(together(admm.W))
        if len(seen) == 2:
            raise RuntimeError("interrupted")
        return 0.0

    with pytest.raises(RuntimeError, match="interrupted"):
        next(regularisation_path(admm, descend, evaluate=evaluate, mus=[0.6]))
    assert seen[0] != seen[1]
    assert together(admm.W) == seen[0]


class Killed(Exception):
    """Stands for a signal."""


def broken_at(last: int, options: dict[str, Any]) -> list[PathPoint]:
    """The points of a path that is killed at one of its checkpoints and resumed from there."""
    model = Quadratic()
    admm = ADMM(model, L0(), rho=0.7)
    kept: list[tuple[Progress, dict[str, Tensor], dict[str, Any]]] = []

    def keep(progress: Progress) -> None:
        kept.append((progress, copy.deepcopy(model.state_dict()), admm.state_dict()))
        if len(kept) == last:
            raise Killed

    points: list[PathPoint] = []
    with contextlib.suppress(Killed):
        for point in regularisation_path(admm, descend, checkpoint=keep, **options):
            points = [*points, point]
    assert len(kept) == last
    progress, weights, state = kept[-1]
    again = Quadratic(seed=5)
    again.load_state_dict(weights)
    resumed = ADMM(again, L0(), rho=99.0)
    resumed.load_state_dict(state)
    return points + list(regularisation_path(resumed, descend, start=progress, **options))


@pytest.mark.parametrize("restart", [False, True])
def test_killed_at_any_checkpoint_and_resumed_a_path_ends_bit_equal(restart: bool) -> None:
    options = {
        "evaluate": quality,
        "mus": MUS["l0"][1:4],
        "schedule": Schedule(nu=2, xi=3, epsilon=0.0),
        "restart": restart,
    }
    unbroken = list(regularisation_path(ADMM(Quadratic(), L0(), rho=0.7), descend, **options))
    for last in range(1, 3 * (3 + 1) + 1):  # after each iteration and each fine-tune
        resumed = broken_at(last, options)
        assert len(resumed) == len(unbroken)
        assert all(equal(mine, its) for mine, its in zip(resumed, unbroken, strict=True))


def equal(one: PathPoint, other: PathPoint) -> bool:
    figures = ("index", "mu", "residuals", "converged", "epochs", "sparsity", "support")
    accuracies = ("accuracy_W", "accuracy_F", "accuracy")
    return all(
        getattr(one, name) == getattr(other, name) for name in (*figures, *accuracies)
    ) and all(torch.equal(one.weights[name], other.weights[name]) for name in other.weights)


def test_to_go_on_without_the_mus_is_refused() -> None:
    admm = ADMM(Quadratic(), L0(), rho=0.7)
    with pytest.raises(BadInput, match="give the `mus` that the path was started with"):
        next(regularisation_path(admm, descend, evaluate=quality, start=Progress(1)))


@pytest.mark.parametrize("fit_shape", [False, True])
def test_a_path_starts_from_the_weights_as_they_are_not_as_they_were(fit_shape: bool) -> None:
    def walked(*, early: bool) -> list[PathPoint]:
        torch.manual_seed(0)
        model = Quadratic()
        before = ADMM(model, MCP(3.0) if fit_shape else L0(), rho=0.7, fit_shape=fit_shape)
        with torch.no_grad():  # trained, or loaded, after the ADMM was made
            for weight in model.parameters():
                weight.mul_(3)
        admm = before if early else ADMM(model, before.penalty, rho=0.7, fit_shape=fit_shape)
        found = regularisation_path(admm, descend, evaluate=quality, schedule=SCHEDULE)
        return list(itertools.islice(found, 3))

    for one, other in zip(walked(early=True), walked(early=False), strict=True):
        assert equal(one, other)


def test_a_path_goes_on_from_steps_that_were_made() -> None:
    model = Quadratic()
    admm = ADMM(model, L0(), rho=0.7, mu=0.1)
    descend(model, Stage(0, 0.1, 0, 3, admm.proximity))
    admm.step()
    kept = {name: Gamma.clone() for name, Gamma in admm.Gamma.items()}
    assert any(bool(Gamma.any()) for Gamma in kept.values())
    next(stages(admm, evaluate=quality, mus=[0.1]))
    assert all(torch.equal(admm.Gamma[name], Gamma) for name, Gamma in kept.items())


def test_a_compiled_model_is_walked_as_itself() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    compiled = torch.compile(model, backend="eager")
    admm = ADMM(compiled, L0(), rho=0.1, mu=1e-3, layers=nn.Conv2d)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    with admm.support().held(compiled, optimizer):
        pass
    admm.support().impose(compiled)
    seen = set[tuple[str, nn.Module, bool]]()

    def train(given: nn.Module, _: object) -> None:
        seen.add(("train", given.train(), model.training))

    def evaluate(given: nn.Module) -> float:
        seen.add(("evaluate", given, given.training or model.training))
        return 0.0

    point = next(regularisation_path(admm, train, evaluate=evaluate, mus=[1e-3]))
    # Both get what was handed over, or what was compiled would not be what runs.
    assert seen == {("train", compiled, True), ("evaluate", compiled, False)}
    assert all(not name.startswith("_orig_mod") for name in point.weights)
    with torch.no_grad():
        model[0].weight.zero_()
    point.load(compiled)
    assert model[0].weight.any()


def test_a_path_that_is_through_has_nothing_left() -> None:
    admm = ADMM(Quadratic(), L0(), rho=0.7)
    path = regularisation_path(admm, descend, evaluate=quality, mus=[0.1], start=Progress(1))
    assert not list(path)


def test_a_fine_tune_that_brings_zeros_back_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    admm = ADMM(model, L0(), rho=1.0, layers=nn.Conv2d)

    def careless(model: nn.Module, stage: Stage) -> None:
        with torch.no_grad():
            model[0].weight += 0.01  # type: ignore[index, operator]

    path = regularisation_path(admm, careless, evaluate=lambda m: 0.0, mus=[10.0])
    with pytest.raises(BadInput, match=r"changed zeros of '0.weight': train with .*held"):
        next(path)


def test_a_model_is_evaluated_in_eval_mode_without_gradients_and_gets_its_modes_back() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    model[1].eval()  # a frozen batch norm in a model that trains
    seen = []

    def evaluate(model: nn.Module) -> float:
        seen.append((model.training, torch.is_grad_enabled()))
        return 0.5

    admm = ADMM(model, L0(), rho=1.0, layers=nn.Conv2d)
    next(regularisation_path(admm, lambda model, stage: None, evaluate=evaluate, mus=[1e-9]))
    assert seen == [(False, False)] * 3
    assert model.training
    assert not model[1].training


@pytest.mark.parametrize("value", [None, "0.9", True])
def test_an_evaluate_that_returns_no_number_is_refused(value: object) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    admm = ADMM(model, L0(), rho=1.0, layers=nn.Conv2d)
    path = regularisation_path(
        admm,
        lambda model, stage: None,
        evaluate=lambda model: value,  # type: ignore[arg-type, return-value]
        mus=[1e-9],
    )
    with pytest.raises(BadInput, match="evaluate must return the accuracy as a number, not"):
        next(path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"schedule": 3}, "schedule must be of the class Schedule, not 3."),
        ({"schedule": {}}, "schedule must be of the class Schedule, not {}."),
        ({"start": 0}, "start must be of the class Progress, not 0."),
        ({"restart": "no"}, "restart must be True or False, not 'no'."),
        ({"mus": np.array(0.1)}, "mus must be a list, as in mus=[0.01, 0.02], not array(0.1)."),
        ({"start": 2}, "start must be of the class Progress, not 2."),
        (
            {"start": Progress(2)},
            "`start` is at point 2 of a path of 1: give the `mus` that the path was started with.",
        ),
        ({"evaluate": None}, "evaluate must be a function, not None."),
        ({"train": "sgd"}, "train must be a function, not 'sgd'."),
        ({"checkpoint": "here"}, "checkpoint must be a function, not 'here'."),
        ({"mus": 0.1}, "mus must be a list, as in mus=[0.01, 0.02], not 0.1."),
        (
            {"admm": nn.Sequential(nn.Conv2d(1, 4, 3))},
            "admm must be of the class ADMM, not one of Sequential.",
        ),
    ],
)
def test_what_cannot_be_walked_is_refused_before_any_training(
    given: dict[str, Any], sentence: str
) -> None:
    trained = []
    usual: dict[str, Any] = {
        "admm": ADMM(Quadratic(), L0(), rho=0.7),
        "train": lambda model, stage: trained.append(stage),
        "evaluate": quality,
        "mus": [0.1],
    }
    with pytest.raises(BadInput) as refused:
        regularisation_path(**{**usual, **given})
    assert str(refused.value) == sentence
    assert not trained


@pytest.mark.parametrize("kind", [torch.tensor, np.array, tuple])
def test_the_mus_may_come_in_any_sequence(kind: Any) -> None:
    points = walk(Quadratic(), mus=kind([0.0, 0.25]))
    assert [point.mu for point in points] == [0.0, 0.25]


def test_an_accuracy_may_be_a_tensor_of_one_number() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    admm = ADMM(model, L0(), rho=1.0, layers=nn.Conv2d)
    path = regularisation_path(
        admm, lambda model, stage: None, evaluate=lambda model: torch.tensor(0.25), mus=[1e-9]
    )
    assert next(path).accuracy == 0.25
