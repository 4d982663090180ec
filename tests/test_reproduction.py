"""The reproduction's tables and figures are those of its records."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "reproduction"


@pytest.fixture(scope="module")
def build():
    return runpy.run_path(str(FOLDER / "build.py"))


def test_the_committed_tables_are_made_from_the_records(build):
    made = build["tables"]()
    names = {path.name for path in (FOLDER / "tables").iterdir()}
    assert names == {f"{name}.{suffix}" for name in made for suffix in ("md", "tex")}
    for name, table in made.items():
        stands = (FOLDER / "tables" / f"{name}.md").read_text(encoding="utf-8")
        assert stands == table.markdown() + "\n", f"run reproduction/build.py: {name} is old"
        stands = (FOLDER / "tables" / f"{name}.tex").read_text(encoding="utf-8")
        assert stands.endswith("\n" + table.latex() + "\n")


def test_there_is_a_table_for_each_network_on_each_data_set(build):
    assert len(build["tables"]()) == 1 + 3 * (1 + 4) + 1


def test_the_committed_figures_are_those_that_the_records_give(build):
    pytest.importorskip("matplotlib")
    names = {path.name for path in (FOLDER / "figures").iterdir()}
    assert names == {f"{name}.png" for name in build["figures"]()}
