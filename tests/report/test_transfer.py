"""A download is a bar on a terminal and plain lines elsewhere."""

import io

from rich.console import Console

from sparsepath.report.transfer import transfer


def shown(*calls, terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, highlight=False)
    with transfer(console) as seen:
        for call in calls:
            seen(*call)
            seen.progress.refresh()
    return file.getvalue()


CALLS = [("a.mat", done, 8_000_000) for done in range(0, 8_000_001, 500_000)]


def test_a_terminal_shows_a_bar_with_size_and_speed_and_keeps_one_line_a_file():
    output = shown(*CALLS, terminal=True)
    assert "4.0/8.0 MB" in output
    assert "━" in output
    assert output.count("a.mat: ") == 1
    assert "a.mat: 8.0 MB of 8.0 MB (100%)" in output


def test_anything_else_gets_a_line_for_every_quarter_of_every_file():
    lines = shown(*CALLS, ("b.mat", 3_000_000, 3_000_000), terminal=False).splitlines()
    assert lines == [
        "a.mat: 0.0 MB of 8.0 MB (0%)",
        "a.mat: 2.0 MB of 8.0 MB (25%)",
        "a.mat: 4.0 MB of 8.0 MB (50%)",
        "a.mat: 6.0 MB of 8.0 MB (75%)",
        "a.mat: 8.0 MB of 8.0 MB (100%)",
        "b.mat: 3.0 MB of 3.0 MB (100%)",
    ]


def test_a_length_that_is_not_known_and_a_start_over_are_shown_as_they_are():
    calls = [("a", 0, None), ("a", 9_000_000, None)]
    assert shown(*calls, terminal=False).splitlines() == ["a: 0.0 MB"]
    again = [("a", 6_000_000, 8_000_000), ("a", 0, 8_000_000)]
    assert shown(*again, terminal=False).splitlines()[-1] == "a: 0.0 MB of 8.0 MB (0%)"
