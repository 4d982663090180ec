"""Each fault of the table, put into a copy of the package, makes its named test fail."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from forked import forked

from .faults import FAULTS, Fault

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "sparsepath"
ANOTHER_PACKAGE = 90


def run(tests: list[str], folder: Path) -> tuple[int, str]:
    """Pytest's exit code and output for some tests against the package in `folder`."""
    return forked(_run, [str(HERE / test) for test in tests], folder, log=folder / "log")


def _run(tests: list[str], folder: Path) -> int:
    sys.path.insert(0, str(folder))
    import sparsepath  # before the tests do: theirs is then this one

    if Path(sparsepath.__file__).parent != folder / "sparsepath":
        return ANOTHER_PACKAGE
    # Hypothesis is there before pytest could rewrite its assertions, which matters to none.
    quiet = ["-q", "--tb=short", "-Wignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*quiet, "-p", "no:cacheprovider", *tests]))


def copied(folder: Path) -> Path:
    shutil.copytree(PACKAGE, folder / "sparsepath", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "sparsepath"


def test_the_named_tests_pass_without_a_fault(tmp_path: Path) -> None:
    copied(tmp_path)
    code, log = run(sorted({fault.test for fault in FAULTS.values()}), tmp_path)
    assert code == 0, log


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_caught_by_its_test(fault: Fault, tmp_path: Path) -> None:
    file = copied(tmp_path) / fault.file
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.right) == 1, f"{fault.right!r} must stand in {fault.file} just once"
    file.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    code, log = run([fault.test], tmp_path)
    assert code == 1, log
    # The test's own assertion failed, and nothing else went wrong.
    assert re.search(r"^E +(assert |AssertionError|Failed: DID NOT RAISE)", log, re.MULTILINE), log
