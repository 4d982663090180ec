"""Where a run stands, in one line that is as long as there is room for it."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from sparsepath.lab.bench import stage_place
from sparsepath.residuals import Residuals


@dataclass(frozen=True)
class Standing:
    """The last epoch of a run: its stage, its loss, and what is left at most."""

    stage: str
    points: int
    done: int
    planned: int
    """epochs of the whole run, at most"""
    loss: float
    residuals: Residuals | None
    """of this mu, as far as it has any"""
    left: float
    """seconds, at most"""

    def said(self, room: int | None = None) -> str:
        """The longest form that fits; less than that, and the time left stays to the last."""
        fits = (form for form in self._forms() if room is None or len(form) <= room)
        return next(fits, "")

    def _forms(self) -> Iterator[str]:
        place, left = stage_place(self.stage), clock(self.left)
        k = None if place is None else place[0] + 1
        iteration = None if place is None or place[1] is None else place[1] + 1

        def stage(mu: str, nth: str, tune: str, dense: str) -> list[str]:
            if k is None:
                return [dense]
            return [mu, tune if iteration is None else nth]

        def pull(primal: str, dual: str) -> list[str]:
            both = self.residuals
            return [] if both is None else [primal.format(both.primal), dual.format(both.dual)]

        n, done, planned, loss = self.points, self.done, self.planned, self.loss
        words = stage(f"mu {k} of {n}", f"iteration {iteration}", "fine-tune", self.stage)
        words += [f"epoch {done} of at most {planned} of the run", f"loss {loss:.4g}"]
        yield ", ".join(
            [*words, *pull("primal {:.3g}", "dual {:.3g}"), f"at most {left} left"],
        )
        words = stage(f"mu {k}/{n}", f"iteration {iteration}", "fine-tune", self.stage)
        words += [f"run's epoch {done}/{planned}", f"loss {loss:.4g}"]
        yield ", ".join([*words, *pull("primal {:.3g}", "dual {:.3g}"), f"{left} left"])
        words = stage(f"mu {k}/{n}", f"iter {iteration}", "tune", "dense")
        words += [f"epoch {done}/{planned}", f"loss {loss:.3g}"]
        yield " ".join([*words, *pull("primal {:.2g}", "dual {:.2g}"), f"{left} left"])
        tiny = stage(f"mu {k}/{n}", f"i{iteration}", "tune", "dense")
        residuals = "/".join(map(_bare, pull("{:.2g}", "{:.2g}")))
        parts = [*tiny, f"e{done}/{planned}", f"l{_bare(f'{loss:.2g}')}"]
        parts += [f"r{residuals}"] if residuals else []
        while parts:
            yield " ".join([*parts, left])
            parts.pop()
        yield left


def _bare(number: str) -> str:
    """A number without the zero before its point."""
    return number.removeprefix("0") if number.startswith("0.") else number


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours and days where there are any."""
    whole = datetime.timedelta(seconds=round(seconds))
    text = str(whole).replace(" days, ", "d").replace(" day, ", "d")
    return text.removeprefix("0:").removeprefix("0") if seconds < 3599.5 else text
