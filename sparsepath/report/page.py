"""The report as one page that needs nothing but a browser: script, style and figures inside."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sparsepath import __version__
from sparsepath.errors import BadInput
from sparsepath.lab.bench import Watch
from sparsepath.lab.folders import Record
from sparsepath.report.losses import read_losses
from sparsepath.report.maps import block_maps, pack_all
from sparsepath.report.overview import overview
from sparsepath.report.reading import read_run
from sparsepath.report.tables import full_table
from sparsepath.report.view import Source, view
from sparsepath.report.visible import all_visible
from sparsepath.report.waiting import waiting
from sparsepath.storage import write_text

NAME = "report.html"
LIMIT = 6_000_000
"""Most bytes of a page: what a browser opens at once and a mail still carries."""
SCRIPTS = (
    *("start", "draw", "axes", "curve", "card", "layers", "convergence", "compare"),
    *("pick", "follow", "begin"),
)
NEEDS = "The page needs plotly and jinja2: pip install 'sparsepath[report]'."


def write_page(folders: Sequence[Path], place: Path) -> None:
    """Write the page of one run, or of several side by side."""
    sources = [Source(folder, read_run(folder), read_losses(folder)) for folder in folders]
    # Only the page in its own folder is rewritten by a run that goes on.
    own = len(folders) == 1 and place.resolve() == (folders[0] / NAME).resolve()
    try:
        text = page(sources, waiting(folders[0], sources[0].record) if own else {})
    except BadInput:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise BadInput(
            f"The figures in {', '.join(repr(str(folder)) for folder in folders)} are damaged "
            f"({type(error).__name__}: {error}); restore them, or run it again."
        ) from error
    write_text(place, text)


def page(sources: Sequence[Source], live: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The page itself, which looks for more of its run where it can be rewritten."""
    shown = {**view(sources), "live": dict(live)}
    maps = [block_maps(source.folder, source.record) for source in sources]
    fill = _template()
    records = [all_visible(source.record) for source in sources]
    bare = fill(records, shown)
    # A tenth is left for what JSON adds to the maps themselves.
    packed, fit = pack_all(maps, room=int(0.9 * (LIMIT - _size(bare))))
    for run, its_maps in zip(shown["runs"], packed, strict=True):
        run["maps"] = {all_visible(layer): each for layer, each in its_maps.items()}
    shown["maps_fit"] = fit
    text = fill(records, shown)
    if _size(text) > LIMIT:
        much = f"would have {_size(text) / 1e6:.1f} MB, more than {LIMIT / 1e6:g}"
        if len(sources) > 1:
            raise BadInput(f"The page of {len(sources)} runs {much}: give fewer runs.")
        raise BadInput(
            f"The page of {records[0]['name']!r} {much}: it has too many points, iterations or "
            "layers; `sparsepath report --format csv` has all of them."
        )
    return text


def _size(text: str) -> int:
    """Bytes, as the page is written."""
    return len(text.encode())


def _template() -> Callable[[Sequence[Record], Mapping[str, Any]], str]:
    """What fills the page with the figures of runs."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise BadInput(NEEDS) from error
    environment = Environment(
        loader=PackageLoader("sparsepath.report", "page_parts"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html")
    parts = resources.files("sparsepath.report") / "page_parts"
    script = "\n".join((parts / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    style = (parts / "page.css").read_text(encoding="utf-8")

    def fill(records: Sequence[Record], shown: Mapping[str, Any]) -> str:
        return template.render(
            title=records[0]["name"] if len(records) == 1 else f"{len(records)} runs compared",
            runs=shown["runs"],
            tables=[full_table(record) for record in records],
            overview=overview(records),
            live=shown["live"],
            settings=[record["settings"] for record in records],
            data=in_script(shown),
            plotly=get_plotlyjs(),
            script=script,
            style=style,
            version=__version__,
        )

    return fill


def in_script(content: object) -> str:
    """JSON that may stand inside a script element: nothing in it ends the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class PageWatch(Watch):
    """Rewrites the page whenever a run has something new to show."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Say once why there is no page, if there can be none; the run goes on without it."""
        self._say = say
        self._folder = Path()
        self._possible = True

    def begin(self, folder: Path) -> None:
        """The page lies in the run's folder."""
        self._folder = folder

    def dense(self, record: Record) -> None:
        """Show the dense reference."""
        self.write(self._folder)

    def point(self, record: Record) -> None:
        """Show a new point; what an earlier process did is told again, and is there already."""
        after = self._folder / "points" / f"{record['index'] + 2:02d}.json"
        if not after.exists():
            self.write(self._folder)

    def write(self, folder: Path) -> None:
        """Write the page of the run in this folder as things stand."""
        if not self._possible:
            return
        try:
            write_page([folder], folder / NAME)
        except Exception as error:  # no page is worth a run
            self._possible = False
            self._say(f"No {NAME}: {error}")
