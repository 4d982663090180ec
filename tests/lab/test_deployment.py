"""Which point of a run is deployed, and a sentence where there is none."""

import pytest

from sparsepath.errors import BadInput
from sparsepath.lab.deployment import Wish, picked


def run(*points):
    """Points of (zero blocks, validation) on a dense network of 0.9, with a tolerance of 0.01."""
    return {
        "name": "my-run",
        "settings": {"tolerance": 0.01},
        "dense": {"validation": 0.9},
        "points": [
            {"index": n, "validation": y, "sparsity": {"of_blocks": x}}
            for n, (x, y) in enumerate(points)
        ],
    }


RUN = run((0.2, 0.93), (0.5, 0.89), (0.8, 0.80), (0.7, 0.85))


@pytest.mark.parametrize(
    ("wish", "number"),
    [
        (Wish(), 2),
        (Wish(point=1), 1),
        (Wish(point=4), 4),
        (Wish(min_accuracy=0.9), 1),
        (Wish(min_accuracy=0.85), 4),
        (Wish(min_accuracy=0.0), 3),
        (Wish(max_drop=0.0), 1),
        (Wish(max_drop=0.05), 4),
        (Wish(max_drop=0.1), 3),  # 0.9 - 0.1 is a little above 0.8
    ],
)
def test_the_sparsest_point_that_is_good_enough_is_picked(wish, number):
    assert picked(RUN, wish)["index"] + 1 == number


@pytest.mark.parametrize(
    ("record", "wish", "says"),
    [
        (RUN, Wish(point=5), "There is no point 5: 'my-run' has the points 1 to 4"),
        (RUN, Wish(point=0), "There is no point 0"),
        (RUN, Wish(point=-1), "There is no point -1"),
        (
            RUN,
            Wish(min_accuracy=0.95),
            r"has 95\.00 % in validation; the nearest is point 1 with 93\.00 %: .* --point 1",
        ),
        (run((0.5, 0.5), (0.6, 0.7)), Wish(), r"has 89\.00 % .* point 2 with 70\.00 %"),
        # Of equals the sparsest.
        (run((0.5, 0.7), (0.9, 0.7), (0.6, 0.7)), Wish(), r"point 2 with 70\.00 %"),
    ],
)
def test_where_there_is_no_such_point_the_nearest_is_named(record, wish, says):
    with pytest.raises(BadInput, match=says):
        picked(record, wish)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"point": 1, "max_drop": 0.1}, "--point and --max-drop each choose a point"),
        ({"point": 1, "min_accuracy": 0.1}, "--point and --min-accuracy each"),
        ({"min_accuracy": 0.0, "max_drop": 0.0}, "--min-accuracy and --max-drop each"),
        ({"min_accuracy": 97.0}, "--min-accuracy is a share from 0 to 1, not 97"),
        ({"max_drop": -0.1}, "--max-drop must be a finite number zero or more, not -0.1"),
        ({"max_drop": float("nan")}, "--max-drop must be"),
    ],
)
def test_wishes_that_are_none_are_refused(wish, says):
    with pytest.raises(BadInput, match=says):
        Wish(**wish)
