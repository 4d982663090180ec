"""The reproduction's page says what its records say."""

import runpy
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "reproduction"


def test_the_pages_table_is_made_from_the_records() -> None:
    table = runpy.run_path(str(FOLDER / "table.py"))["table"]()
    assert len(table.splitlines()) > 20
    assert table in (FOLDER / "README.md").read_text(encoding="utf-8")
