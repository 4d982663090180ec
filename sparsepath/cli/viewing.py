"""The commands that show what there is: report, show and runs."""

from pathlib import Path
from typing import Annotated

import typer

from sparsepath.cli.speech import Debug, aside, console, room, say, sentences
from sparsepath.errors import BadInput


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, or JSON records of reproduced paths."
        ),
    ],
    layout: Annotated[
        str,
        typer.Option("--format", help="text, markdown, latex, csv, json (every figure) or html."),
    ] = "text",
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", help="Also draw the curve, or of several runs all, into this PNG or SVG."
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", help="Also draw every view into this folder, as PNG and SVG."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where html goes (default, of one run: report.html in it)."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show runs, finished or not, as tables or as a page that compares them."""
    with sentences(debug):
        from sparsepath.report.formats import FORMATS, several_as_text
        from sparsepath.report.page import NAME, write_page
        from sparsepath.report.reading import read_run
        from sparsepath.report.safe import visible

        if layout not in (*FORMATS, "html"):
            known = ", ".join((*FORMATS, "html"))
            raise BadInput(f"There is no format {layout!r}; choose one of {known}.")
        if out is not None and layout != "html":
            raise BadInput(f"--out {visible(str(out))} says where a page goes: add --format html.")
        records = [read_run(folder) for folder in folders]
        if layout == "html":
            first = folders[0]
            if len(folders) > 1 and out is None:
                raise BadInput(
                    f"A page of {len(folders)} runs belongs to none of them: "
                    "say where it goes with --out."
                )
            place = out or (first.with_suffix(".html") if first.is_file() else first / NAME)
            write_page(folders, place)
            say(f"Written to {visible(str(place))}.")
        elif layout == "text":
            say(several_as_text(records, width=room()))
        else:
            say(FORMATS[layout](records))
        if figure or figures:
            _draw(folders, figure, figures)


def _draw(folders: list[Path], figure: Path | None, figures: Path | None) -> None:
    """The curve of one run or the comparison of several into a file, every view into a folder."""
    from sparsepath.report.comparison import comparison_figure
    from sparsepath.report.figures import curve_figure, write_figure
    from sparsepath.report.losses import read_losses
    from sparsepath.report.pictures import pictures, write_pictures
    from sparsepath.report.reading import read_run
    from sparsepath.report.safe import visible
    from sparsepath.report.view import Source

    sources = [Source(folder, read_run(folder), read_losses(folder)) for folder in folders]
    records = [source.record for source in sources]
    several = len(records) > 1
    written = []
    if figure:
        write_figure(comparison_figure(records) if several else curve_figure(records[0]), figure)
        written.append(figure)
    if figures:
        found = {"comparison": comparison_figure(records)} if several else pictures(sources[0])
        written += write_pictures(found, figures)
    # What is printed may be read by a program.
    aside(f"Drawn: {', '.join(visible(str(path)) for path in written)}.")


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    debug: Debug = False,
) -> None:
    """Show one run in the terminal: its table and its curve."""
    with sentences(debug):
        from sparsepath.report.reading import read_run
        from sparsepath.report.terminal import marks_for
        from sparsepath.report.terminal import show as shown

        marks = marks_for(console.encoding)
        say(shown(read_run(folder), marks=marks, width=room()))


def runs(
    folder: Annotated[Path, typer.Argument(help="Where the runs are.")] = Path("runs"),
    debug: Debug = False,
) -> None:
    """List the runs in a folder with their best figures and how far each has come."""
    with sentences(debug):
        from sparsepath.lab.folders import sorted_runs
        from sparsepath.report.overview import overview
        from sparsepath.report.reading import read_run
        from sparsepath.report.safe import filled, visible

        found = sorted_runs(folder)
        if not found:
            raise BadInput(
                f"There are no runs in {str(folder)!r}: give the folder that holds their folders."
            )
        records, damaged = [], []
        for run_folder in found:
            try:
                records.append(read_run(run_folder))
            except BadInput as error:  # one damaged run must not hide the others
                damaged.append(f"{visible(run_folder.name)}: {error}")
        table, width = overview(records), room()
        parts = [table.text(width), filled(table.note, width)] if records else []
        say("\n\n".join([*parts, *damaged]))
