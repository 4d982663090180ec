"""Answers questions of settings on validation images, before any final run looks at test images.

    python reproduction/explore.py QUESTION ... --data FOLDER --out FOLDER [--minutes M]

5,000 training images are held out and judge; nothing looks at the test images. All candidates of a
data set train side by side on a GPU; a call that is killed is continued by the same call. The
records (JSON) that led to a choice lie in `<data>/exploration/`; what is asked, in `questions/`.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from questions import QUESTIONS, Question, together

from sparsepath.errors import as_script
from sparsepath.lab.arena import Arena
from sparsepath.lab.data import load
from sparsepath.lab.dense import train_dense
from sparsepath.lab.experiments import FLIPPED
from sparsepath.lab.records import check_same
from sparsepath.lab.reproduce import checked_minutes, device_named, place_of
from sparsepath.lab.walks import check_starts, unfinished, walk_paths
from sparsepath.storage import read_json

HELD_OUT = 5000


def main() -> None:
    """Answer the questions that were asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    listed = f"of {', '.join(QUESTIONS)}"
    parser.add_argument("questions", nargs="+", choices=QUESTIONS, metavar="QUESTION", help=listed)
    parser.add_argument("--data", type=Path, required=True, help="where cifar10 or cifar10.npz is")
    parser.add_argument("--out", type=Path, required=True, help="where records and weights go")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop then")
    parser.add_argument("--device", default="cuda", help="a GPU, or cpu")
    asked = parser.parse_args()
    checked_minutes(asked.minutes)
    until = time.monotonic() + 60 * asked.minutes
    questions = [QUESTIONS[name]() for name in asked.questions]
    sets = dict.fromkeys(question.data for question in questions)
    for data in sets:
        place_of(asked.data, data)  # all are there before the first takes its time
    for data in sets:
        # Few networks would leave a GPU idle: all that one data set answers is asked at once.
        question = together(*(each for each in questions if each.data == data))
        answer(question, asked.data, asked.out, device=asked.device, until=until)


def answer(
    question: Question,
    data: Path,
    out: Path,
    *,
    device: str,
    until: float,
    held_out: int = HELD_OUT,
) -> None:
    """Train every candidate as far as time allows, and print how it was judged."""
    loaded = load(place_of(data, question.data), validation=held_out)
    arena = Arena(
        replace(loaded, name=question.data), device_named(device), flip=FLIPPED[question.data]
    )
    place = out / question.data / "exploration"
    asked = dict.fromkeys([*question.dense, *(job.start for job in question.walks)])
    dense = {each: place / "dense" / f"{each.name}.json" for each in asked}
    answered = {each: written for each, written in dense.items() if written.exists()}
    for each, written in answered.items():
        check_same(read_json(written), written, recipe=each.recipe, seed=each.seed, arena=arena)
    # What has been answered stands: records are kept without the weights.
    left = unfinished(question.walks, arena, place)
    lacking = [each for each in question.dense if each not in answered]
    starts = dict.fromkeys([*lacking, *(job.start for job in left)])
    beside = [job for job in question.walks if job.start in starts]
    check_starts(beside, dense=place / "dense", folder=place)
    if train_dense(starts, arena, place / "dense", until=until):
        walk_paths(left, arena, dense=place / "dense", folder=place, until=until)
    for start, written in dense.items():
        if written.exists():
            print(f"{start.name}: {read_json(written)['validation']:.4f}")
    for job in question.walks:
        written = place / f"{job.name}.json"
        points = read_json(written)["points"] if written.exists() else []
        figures = (f"{p['sparsity']['of_blocks']:.3f} {p['validation']:.4f}" for p in points)
        print(f"{job.name}: {', '.join(figures)}", flush=True)


if __name__ == "__main__":
    as_script(main)
