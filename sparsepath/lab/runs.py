"""A run from its settings to its results; killed at any moment, it goes on where it was."""

import time
from dataclasses import asdict
from pathlib import Path

from torch import nn

from sparsepath.lab.bench import Bench, Watch, stage_name
from sparsepath.lab.choices import mus_of
from sparsepath.lab.folders import RESULTS, Record, check_owner, circumstances, claimed, gather
from sparsepath.lab.reference import dense_reference
from sparsepath.lab.settings import Settings
from sparsepath.lab.state import plain_residuals, read_state, write_state
from sparsepath.lab.training import Diverged, Momenta, train
from sparsepath.path import PathPoint, Progress, Stage, regularisation_path
from sparsepath.storage import read_json, write_json, write_tensors


def execute(
    settings: Settings, folder: Path, *, watch: Watch | None = None, dense_only: bool = False
) -> Record:
    """Do what is not yet done of a run (of its dense reference alone, if so asked); its figures."""
    check_owner(folder, settings)
    if not (folder / RESULTS).exists():
        bench = Bench(settings, folder, watch or Watch(), dense_only=dense_only)
        with claimed(folder, settings):
            bench.watch.begin(folder)
            dense_reference(bench)
            if not dense_only:
                walk(bench)
                write_json(folder / RESULTS, _results(bench))
    return gather(folder)


def walk(bench: Bench) -> None:
    """The path, from where it was left; every point is written before the state moves on."""
    progress, mus, before = _resume(bench)
    began = time.monotonic() - before
    for index in range(progress.index):
        bench.watch.point(read_json(_point_file(bench, index, "json")))

    def train_stage(model: nn.Module, stage: Stage) -> None:
        _train_stage(bench, stage)

    def keep(progress: Progress) -> None:
        about = {"mus": mus, "seconds": time.monotonic() - began}
        write_state(_state_file(bench), bench.admm, progress=progress, about=about)
        if progress.residuals:
            bench.watch.iteration(progress.index, progress.residuals)

    for point in regularisation_path(
        bench.admm,
        train_stage,
        evaluate=lambda model: bench.validation(),
        mus=mus,
        schedule=bench.schedule,
        restart=bench.settings.restart,
        start=progress,
        checkpoint=keep,
    ):
        record = _record(bench, point, seconds=time.monotonic() - began)
        weights = _point_file(bench, point.index, "safetensors")
        write_tensors(weights, point.weights, bench.header())
        write_json(_point_file(bench, point.index, "json"), record)
        bench.watch.point(record)


def _point_file(bench: Bench, index: int, ending: str) -> Path:
    # Files count from 1, as the tables do.
    return bench.folder / "points" / f"{index + 1:02d}.{ending}"


def _state_file(bench: Bench) -> Path:
    return bench.folder / "path.safetensors"


def _train_stage(bench: Bench, stage: Stage) -> None:
    settings, name = bench.settings, stage_name(stage.index, stage.iteration)
    if stage.iteration is None:
        steps_before = bench.schedule.xi
        recipe = bench.recipe(settings.finetune_rate, final=0.0)
    else:
        steps_before = stage.iteration
        recipe = bench.recipe(settings.path_rate)
    before = bench.planned(stage.index) + stage.epochs * steps_before

    def on_epoch(momenta: Momenta) -> None:
        done = before + momenta.epoch
        bench.watch.epoch(name, done=done, planned=bench.planned(), loss=momenta.loss)

    try:
        train(
            bench.model,
            bench.data,
            recipe,
            epochs=stage.epochs,
            key=(settings.seed, stage.index, stage.iteration),
            proximity=stage.proximity,
            support=stage.support,
            on_epoch=on_epoch,
        )
    except Diverged as error:
        raise Diverged(
            f"At mu = {stage.mu:g} ({name}) the {error}; the points "
            f"before it are kept in {str(bench.folder)!r}; start anew with a lower path_rate = "
            f"{settings.path_rate:g}, finetune_rate = {settings.finetune_rate:g} or rho = "
            f"{settings.rho:g}."
        ) from error


def _resume(bench: Bench) -> tuple[Progress, list[float], float]:
    """Where the path stands, its mus, and the seconds spent on it."""
    path = _state_file(bench)
    if not path.exists():
        return Progress(), mus_of(bench.settings, bench.admm), 0.0
    progress, about = read_state(path, bench.admm)
    return progress, about["mus"], about["seconds"]


def _record(bench: Bench, point: PathPoint, *, seconds: float) -> Record:
    return {
        "index": point.index,
        "mu": point.mu,
        "rho": bench.admm.rho,
        "validation_W": point.accuracy_W,
        "validation_F": point.accuracy_F,
        "validation": point.accuracy,
        "test": bench.test(),
        "sparsity": asdict(point.sparsity),
        "macs": bench.macs(),
        "epochs": point.epochs,
        "iterations": len(point.residuals),
        "converged": point.converged,
        "residuals": plain_residuals(point.residuals),
        "seconds": seconds,
    }


def _results(bench: Bench) -> Record:
    """Every figure of the finished run."""
    record = {**gather(bench.folder), "finished": True}
    seconds = {"dense": record["dense"]["seconds"], "path": record["points"][-1]["seconds"]}
    return {**record, **circumstances(bench.device), "seconds": seconds}
