"""Text from the user: nothing in it stays unseen, and nothing that can be seen is changed."""

import pytest

from sparsepath.report.visible import all_visible


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("plain <b>", "plain <b>"),
        ("a\x1b[31m\nb\x7f", "a\\x1b[31m\\nb\\x7f"),
        ("\u202etxt.exe\u2066", "\\u202etxt.exe\\u2066"),
        ("\u2028\ufeff\u200b\udc80", "\\u2028\\ufeff\\u200b\\udc80"),
        ("\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd"),  # Hebrew is no mark of direction
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),  # Persian is spelled with joiners
    ],
)
def test_what_cannot_be_seen_is_escaped(raw, seen):
    assert all_visible(raw) == seen
    assert all_visible({raw: [raw, 1, None, (raw,)]}) == {seen: [seen, 1, None, [seen]]}
