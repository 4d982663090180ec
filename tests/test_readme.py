"""The README's code runs as it stands, and its table is that of the committed run."""

import json
import re
from pathlib import Path

import pytest
import torch

from sparsepath.deploy import load
from sparsepath.report.tables import as_markdown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readmes_python_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # it writes a file
    torch.manual_seed(0)
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
    assert "regularisation_path" in code
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    point = names["point"]
    weights = dict(names["model"].named_parameters())  # type: ignore[attr-defined]
    for name, mask in point.support.items():  # type: ignore[attr-defined]
        assert not weights[name][(~mask).expand_as(weights[name])].any()


def test_the_digits_table_is_the_committed_runs() -> None:
    record = json.loads((ROOT / "docs" / "digits" / "results.json").read_text())
    page = (ROOT / "docs" / "digits" / "README.md").read_text(encoding="utf-8")
    assert as_markdown(record) in page


def test_what_a_choice_loses_is_what_was_measured() -> None:
    page = " ".join((ROOT / "docs" / "digits" / "README.md").read_text(encoding="utf-8").split())
    record = json.loads((ROOT / "benchmarks" / "results" / "choice.json").read_text())
    train, validation, test = (record["images"][split] for split in ("train", "validation", "test"))
    assert f"each on {train:,} digits, chosen by {validation} and judged by {test} others" in page
    words = {4: "four", 5: "five", 6: "six"}
    for tolerance, said in (
        (
            "0.01",
            "a tolerance of 1 point they lose {:.2f} points on average ({:.2f} to {:.2f}), {} of "
            "them more than",
        ),
        ("0.005", "with 0.5 points {:.2f} ({:.2f} to {:.2f}), {} more than 0.5"),
    ):
        found = record["tolerances"][tolerance]
        assert found["runs with a choice"] == record["seeds"] == 10
        lost = [choice["lost"] for choice in found["choices"]]
        figures = (found["lost on average"], min(lost), max(lost))
        assert said.format(*figures, words[found["that lose more"]]) in page
        assert f"at {found['zero kernels']:.0%}".replace("%", " %") in page


def test_the_table_of_shipping_is_the_committed_record() -> None:
    page = (ROOT / "docs" / "shipping.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "benchmarks" / "results" / "shipping.json").read_text())
    table = page.partition("| test accuracy |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == len(record["rows"])
    for line, row in zip(rows, record["rows"].values(), strict=True):
        share = row["bytes"] / record["dense bytes"]
        assert f"| {100 * row['accuracy']:.2f} | {row['bytes']:,} | {share:.4f} |" in line
        for batch in ("batch 1", "batch 64"):
            gain = row[batch]["dense over it"]
            quartiles = f"{gain['quartile_1']:.2f} to {gain['quartile_3']:.2f}"
            assert f"{gain['median']:.2f} ({quartiles})" in line


def test_the_candidates_of_shipping_are_the_committed_records() -> None:
    page = (ROOT / "docs" / "shipping.md").read_text(encoding="utf-8")
    results = ROOT / "benchmarks" / "results"
    dense = json.loads((results / "shipping.json").read_text())["dense bytes"]
    records = [json.loads(file.read_text()) for file in results.glob("shipping-choice/*bits*.json")]
    known = {
        f"| {record['rate']:g} | {100 * row['accuracy']:.2f} | {row['bytes'] / dense:.4f} |"
        for record in records
        for row in [record["rows"]["shared"]]
    }
    table = page.partition("| conv2 to conv4 |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == len(records) == len(known)
    assert all(any(line.endswith(figures) for figures in known) for line in rows)


def test_the_recipe_of_the_shipping_table_was_the_best_on_validation_images() -> None:
    results = ROOT / "benchmarks" / "results"
    table = json.loads((results / "shipping.json").read_text())
    records = [json.loads(file.read_text()) for file in results.glob("shipping-choice/*bits*.json")]
    small = [x for x in records if x["rows"]["shared"]["bytes"] <= 0.0285 * table["dense bytes"]]
    best = max(small, key=lambda record: record["rows"]["shared"]["accuracy"])
    chosen = ("zero", "plan", "steps", "thinning rate", "rate")
    assert [table[key] for key in chosen] == [best[key] for key in chosen]


def test_the_smallest_file_of_the_table_is_committed() -> None:
    results = ROOT / "benchmarks" / "results"
    *_, smallest = json.loads((results / "shipping.json").read_text())["rows"].values()
    (file,) = results.glob("*.sparsepath")
    assert file.stat().st_size == smallest["bytes"]
    with torch.no_grad():
        assert load(file).model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize("network", ["CNN", "NIN"])
def test_the_speeds_of_the_readme_are_those_of_the_measured_tables(network: str) -> None:
    tables = (ROOT / "benchmarks" / "results" / "tables.md").read_text(encoding="utf-8")
    epyc = tables.partition("\n## epyc")[2].partition("\n## ")[0]
    _, shown = README.split(f"\n  | {network} |")
    cells = [cell.strip() for cell in shown.partition("\n")[0].strip(" |").split("|")]
    zeros = ("0 %", "50 %", "90 %", "paper")
    for share, cell in zip(zeros, cells, strict=True):
        for batch, gain in zip((64, 1), cell.split(" / "), strict=True):
            assert f"| {network.lower()} | {share} | {batch} | 1 | {gain} (" in epyc


def test_the_two_commands_stand_on_the_first_screen() -> None:
    first_screen = README.split("\n## ")[0].splitlines()[:40]
    assert any("sparsepath run" in line for line in first_screen)
    assert any("./check" in line for line in first_screen)
