"""What a run's record keeps of a deployment is JSON, and lacks no figure."""

import json

import pytest

from sparsepath.deploy.measuring.sides import Side
from sparsepath.deploy.measuring.timing import Speed
from sparsepath.deploy.ship import Form
from sparsepath.lab.deploy_record import figures_of, side_figures

SIDE = Side(5, None, 70, {1: {"torch": Speed(1, 0.5, 0.6), "onnxruntime": "not here"}}, {1: 900})


def test_every_figure_of_a_side_is_kept():
    assert side_figures(SIDE, 0.75) == {
        "test": 0.75,
        "weights": 5,
        "macs": None,
        "bytes": 70,
        "peak": {"1": 900},
        "speeds": {
            "1": {"torch": {"p50": 0.5, "p95": 0.6, "throughput": 2}, "onnxruntime": "not here"}
        },
    }


@pytest.mark.parametrize(("far", "kept"), [(0.25, 0.25), (float("nan"), None)])
def test_a_difference_that_is_no_number_is_no_obstacle(far, kept):
    side = side_figures(SIDE, 0.75)
    found = figures_of(
        point=2, form=Form(share=3), threads=1, difference=far, dense=side, file=side
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["point"], found["share"], found["difference"]) == (2, 3, kept)
