"""The benchmark of whole networks: what it prints, keeps and measures again."""

import math
import sys
from pathlib import Path

import pytest

from sparsepath.storage import read_json

from .test_runtime import small

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import cpu_inference
        import machine
    finally:
        sys.path.remove(str(BENCHMARKS))
    assert Path(machine.__file__).parent == BENCHMARKS
    return cpu_inference


def spread(median):
    return {"median": median, "quartile_1": median - 0.1, "quartile_3": median + 0.1, "best": 9.0}


def row(**more):
    over = {"onnxruntime": spread(2.0), "torch": spread(3.0)}
    return {
        "network": "cnn",
        "zero": ".5",
        "pointwise too": False,
        "batch": 1,
        "threads": 1,
        "runner": "native",
        "ms an image": {"sparsepath": 0.5},
        "over": over,
        "absent": {},
        "best peer": "onnxruntime",
        "over the best peer": over["onnxruntime"],
        "over our own dense kernels": spread(1.5),
        **more,
    }


def test_the_line_says_both_factors_with_their_spread(benchmark):
    said = benchmark.spoken(benchmark.Case("cnn", ".5", pointwise=False), row())
    assert "over the best peer (onnxruntime) 2.00 (1.90-2.10, best 9.00)" in said
    assert "over our own dense kernels 1.50 (1.40-1.60, best 9.00)" in said
    assert "over torch 3.00 (2.90-3.10, best 9.00)" in said
    assert said.count("onnxruntime") == 1


@pytest.mark.parametrize(
    ("known", "asked", "measured"),
    [
        ([], ["torch"], [["torch"]]),
        ([row()], ["torch"], []),
        ([row()], ["torch", "openvino"], [["onnxruntime", "openvino", "torch"]]),
        ([row(absent={"openvino": "ImportError"})], ["openvino"], []),
    ],
)
def test_a_row_is_completed_when_more_peers_are_asked_for(
    benchmark, known, asked, measured, tmp_path, monkeypatch
):
    done = []

    def measure(case, batch, threads, *, peers, seconds):
        done.append(peers)
        return row(over=dict.fromkeys(peers, spread(2.0)))

    monkeypatch.setattr(benchmark, "row", measure)
    monkeypatch.setattr(benchmark, "spoken", lambda case, found: "")
    out = tmp_path / "out.json"
    if known:
        benchmark.write_json(out, {**benchmark.surroundings(), "rows": known})
    line = ["x", "--networks", "cnn", "--zeros", ".5", "--batches", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*line, "--peers", *asked])
    benchmark.main()
    assert done == measured
    if measured:
        content = benchmark.read_json(out)
        assert {"system", "memory GiB", "caches"} <= set(content)
        assert set(content["rows"][0]["over"]) == set(measured[0])


def test_a_row_keeps_the_peak_that_its_layers_are_compared_with(benchmark, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEPATH_CACHE", str(tmp_path))
    monkeypatch.setattr(benchmark, "sgemm", lambda: 100.0)
    monkeypatch.setattr(benchmark, "built", lambda case: small())
    case = benchmark.Case("small", "0", pointwise=False)
    found = benchmark.row(case, 1, 1, peers=["torch"], seconds=0.01)
    assert found["sgemm GFLOP/s"] == 100.0
    assert found["layers"]


def test_the_machine_is_described(benchmark, tmp_path):
    folder = tmp_path / "index0"
    folder.mkdir()
    for name, text in (("level", "1"), ("type", "Data"), ("size", "32K")):
        (folder / name).write_text(text + "\n")
    (folder / "shared_cpu_list").write_text("0-1\n")
    found = benchmark.described(tmp_path)
    assert found["caches"] == ["L1 data 32K, shared by CPUs 0-1"]
    assert found["memory GiB"] > 0
    assert found["system"]


def test_the_page_of_tables_is_made_from_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tables

    assert tables.WRITTEN.read_text(encoding="utf-8") == tables.tables(), "run benchmarks/tables.py"


def test_what_the_runtime_page_says_of_networks_of_others_is_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tables

    rows = read_json(tables.RESULTS / "zoo.json")["rows"].values()
    found = [[row[step] for step in tables.STEPS] for row in rows]
    whole = [
        not row["in torch"] and all(isinstance(x, float) for x in each)
        for row, each in zip(rows, found, strict=True)
    ]
    page = (BENCHMARKS.parent / "docs" / "runtime.md").read_text(encoding="utf-8")
    assert f"Of {len(rows)} networks of torchvision and timm" in page
    assert f"{sum(whole)} are compacted, saved, compiled and exported whole" in page
    most = max(x for each in found for x in each if isinstance(x, float))
    assert f"within {math.ceil(most * 1e6)}e-6 of the model's largest output" in page


def test_a_ratio_is_shown_with_its_quartiles_and_an_absent_peer_as_nothing(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tables

    both = row(rounds=9, zero="paper")
    alone = row(rounds=9, zero="0", over={"torch": spread(3.0)})
    page = tables.networks({"ONEDNN_MAX_CPU_ISA": "", "rows": [both, alone]}).splitlines()
    assert (
        page[2]
        == "| cnn | 0 % | 1 | 1 | 3.00 (2.90 to 3.10) |  | 1.50 (1.40 to 1.60) | 9 | native |"
    )
    assert "| paper | 1 | 1 | 3.00 (2.90 to 3.10) | 2.00 (1.90 to 2.10) |" in page[3]


def test_an_aim_that_is_missed_is_called_so(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import aims

    assert aims.aimed(3.2, 3.2) == "3.20 of 3.2"
    assert aims.aimed(3.19, 3.2) == "3.19 of 3.2 (missed)"
