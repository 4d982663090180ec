"""Records of reproduced paths in the shape of a run's."""

import json

import pytest
from records import walked

from sparsepath.errors import BadInput
from sparsepath.report.formats import FORMATS
from sparsepath.report.reading import read_run
from sparsepath.report.view import Source, view


def walk(**changes):
    points = [
        {
            **{k: v for k, v in point.items() if not k.startswith("validation")},
            "accuracy_W": 0.5,
            "accuracy_F": 0.25,
        }
        for point in walked(3)["points"]
    ]
    recipe = {"rho": 0.1, "points": 20, "last": 2, "schedule": {"xi": 10, "epsilon": 0.01}}
    whole = {"network": "nin", "penalty": "l0", "variant": "", "seed": 0, "data": "cifar10"}
    return {
        **whole,
        "recipe": recipe,
        "dense": {"test": 0.9},
        "mus": [],
        "points": points,
        **changes,
    }


def read(tmp_path, content):
    file = tmp_path / "nin-l0.json"
    file.write_text(json.dumps(content))
    return file, read_run(file)


def test_a_walk_is_read_like_a_run(tmp_path):
    file, record = read(tmp_path, walk())
    assert record["name"] == "nin-l0"
    assert record["finished"]
    assert record["settings"]["epsilon"] == 0.01
    assert record["dense"]["blocks"] == {"a.weight": 10, "b.weight": 90}
    (shown,) = view([Source(file, record, {})])["runs"]
    assert [point["test"] for point in shown["points"]] == [p["test"] for p in walk()["points"]]
    assert shown["judged_by"] == "test"
    assert shown["commands"] == {}
    assert "validation_W" not in shown["points"][0]  # it was judged in the test


def test_a_walk_with_a_validation_split_has_a_choice(tmp_path):
    points = [{**p, "validation": 0.9 - 0.006 * n} for n, p in enumerate(walk()["points"])]
    _, record = read(tmp_path, walk(points=points, dense={"test": 0.9, "validation": 0.9}))
    assert record["chosen"] == 1
    assert record["points"][0]["validation_W"] == 0.5


def test_an_unfinished_walk_says_so(tmp_path):
    _, record = read(tmp_path, walk(points=walk()["points"][:1]))
    assert "unfinished: 1 of 3 points" in FORMATS["text"]([record])


def test_any_other_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"is not the record of a path"):
        read(tmp_path, {"a": 1})


@pytest.mark.parametrize(
    ("variant", "arm", "rest"),
    [
        ("40-3", None, "40"),
        ("gradual-late-5-3", "gradual-late", "5"),
        ("one-shot-0.2-40-3", "one-shot", "40"),
        ("best-3", None, "best"),
        ("5-2", None, "5-2"),
        ("short", None, "short"),
    ],
    ids=["seed", "arm", "one-shot", "best mode", "another seed", "variant"],
)
def test_the_seeds_of_a_walk_are_of_one_arm(tmp_path, variant, arm, rest):
    settings = read(tmp_path, walk(variant=variant, seed=3))[1]["settings"]
    assert (settings["arm"], settings["variant"]) == (arm, rest)


def test_what_the_recipe_says_stands_in_the_settings(tmp_path):
    recipe = walk()["recipe"] | {"keep": [0.5, 0.2], "rho": 0.25}
    points = [{k: v for k, v in point.items() if k != "rho"} for point in walk()["points"]]
    _, record = read(tmp_path, walk(recipe=recipe, points=points))
    assert record["settings"]["points"] == 2, "as many as it keeps"
    assert record["finished"]
    assert {point["rho"] for point in record["points"]} == {0.25}
    assert "schedule" not in record["settings"]
    assert record["dense"]["sparsity"] == {"of_blocks": 0, "of_sparsified": 0, "of_model": 0}
    dense = record["dense"]["macs"]
    assert dense["sparse"] == dense["dense"] > 0
    assert dense["speedup"] == 1


def test_points_that_were_not_all_judged_in_validation_have_no_choice(tmp_path):
    points = [{**p, "validation": 0.9} for p in walk()["points"]]
    del points[1]["validation"]
    _, record = read(tmp_path, walk(points=points, dense={"test": 0.9, "validation": 0.9}))
    assert record["chosen"] is None
