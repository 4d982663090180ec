"""Deploying a point of a run: written, loaded again, measured beside the dense network, noted."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sparsepath.deploy.files.artifact import save
from sparsepath.deploy.files.opened import of_model
from sparsepath.deploy.measuring.runtimes import NAMES, eager
from sparsepath.deploy.measuring.sides import Effort, Side, Subject, sides
from sparsepath.deploy.ship import Form, Shipped, difference, ship
from sparsepath.errors import BadInput
from sparsepath.lab.deploy_record import MANY, ONE, figures_of, keep, latency, side_figures
from sparsepath.lab.deploy_target import target
from sparsepath.lab.deployment import Deployable, Wish, deployable, finished_run, picked


@dataclass(frozen=True)
class Deployed:
    """What the file holds and how it compares with the dense network."""

    path: Path
    run: str
    point: int
    """from 1"""
    dense: Side
    deployed: Side
    difference: float
    """max |difference| between the file and the sparse network, of max |output|"""
    dense_test: float
    test: float
    """of the loaded file, measured again"""
    notes: tuple[str, ...]


def deploy(
    folder: Path,
    *,
    wish: Wish | None = None,
    form: Form | None = None,
    out: Path | None = None,
    force: bool = False,
    effort: Effort | None = None,
) -> Deployed:
    """Deploy a point; its file lies in the run's folder unless told otherwise."""
    form, effort, wish = form or Form(), effort or Effort(), wish or Wish()
    record = finished_run(folder)
    try:
        point = picked(record, wish)
        number = point["index"] + 1
        path = target(out or folder / f"point-{number:02d}{form.ending}", form, force=force)
        found = deployable(folder, record, point)
        dense_test = float(record["dense"]["test"])
        tolerance = float(record["settings"]["tolerance"])
        # Else another point was wished for, or it is the file's form that lost more.
        chosen = wish == Wish() and dense_test - float(point["test"]) > tolerance + 1e-12
        judges = int(record["dense"]["images"]["validation"]) if chosen else 0
    except (KeyError, TypeError) as error:
        raise BadInput(
            f"The figures of the run in {str(folder)!r} are damaged ({type(error).__name__}: "
            f"{error}); restore them."
        ) from error
    images = found.images(MANY)
    made = ship(
        found.sparse,
        images,
        path,
        form=form,
        calibration=found.calibration(),
        train=found.train,
        figures=found.figures,
        force=force,
    )
    (own,) = made.opened.runs(images, names=NAMES[:1], tune=False).values()
    assert not isinstance(own, str), "a file's own runtime takes it"
    with tempfile.TemporaryDirectory() as scratch:
        both = _subjects(folder, found, made, form=form, scratch=Path(scratch))
        measured = sides(both, images, (ONE, MANY), effort)
    dense, deployed = measured["dense"], measured["deployed"]
    test, far = found.test(own), difference(eager(found.sparse), own, images)
    notes = (*made.notes, *_loss(dense_test - test, tolerance, judges))
    figures = figures_of(
        point=number,
        form=form,
        threads=effort.threads,
        difference=far,
        dense=side_figures(dense, dense_test),
        file=side_figures(deployed, test),
    )
    try:
        keep(folder, path, figures, latency(dense, deployed, effort, path.name))
    except (BadInput, OSError) as error:  # the file is there, and worth more than the note of it
        notes = (*notes, f"The run's figures stay without what was measured: {error}")
    return Deployed(
        path, str(record["name"]), number, dense, deployed, far, dense_test, test, notes
    )


def _loss(lost: float, tolerance: float, judges: int) -> tuple[str, ...]:
    """A warning where the file itself loses more than the run's points were allowed to.

    Where the run chose a point that does, by so many images, it says what is to be expected.
    """
    if lost <= tolerance + 1e-12:
        return ()
    careful = (
        f" The sparsest point that {judges:,} validation images allow is at the edge of it, so "
        f"that other images are as likely to put it beyond: --max-drop {tolerance / 2:g} is more "
        "careful."
    )
    return (
        f"Warning: the file's test accuracy is {100 * lost:.2f} points below the dense network's, "
        f"more than the run's tolerance of {100 * tolerance:.2f}."
        f"{careful if judges and tolerance else ''}",
    )


def _subjects(
    folder: Path, found: Deployable, made: Shipped, *, form: Form, scratch: Path
) -> dict[str, Subject]:
    """Both networks; for a file without an architecture a fresh process gets an artifact."""
    dense, sparse = scratch / "dense", made.path
    save(found.dense, dense)
    if form.format == "state-dict":
        sparse = scratch / "sparse"
        save(found.sparse, sparse)
    size = (folder / "dense.safetensors").stat().st_size
    return {
        "dense": Subject(of_model(found.dense), size, dense),
        "deployed": Subject(made.opened, made.path.stat().st_size, sparse),
    }
