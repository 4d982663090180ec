"""Jobs: which path to walk, from which dense network, by which method."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.choices import PENALTIES
from sparsepath.lab.recipes import PathRecipe
from sparsepath.lab.records import check_same
from sparsepath.lab.starts import Reference
from sparsepath.penalties import Penalty
from sparsepath.projections import TopK

METHODS: Mapping[str, Penalty] = {
    **PENALTIES,
    "magnitude": TopK(1.0, together=True),
    "ssl": TopK(1.0, together=True),
    "fine-tuning": PENALTIES["l0"],
}
"""What a job's sparsity step is. Magnitude pruning and SSL keep the largest blocks of all layers,
SSL after descending the group lasso; standard fine-tuning goes through l0's stages without a pull.
"""


@dataclass(frozen=True)
class Job:
    """One path to walk from a dense reference."""

    start: Reference
    method: str
    recipe: PathRecipe
    seed: int = 0
    """of the order of images and of dropout's masks, and of nothing else"""
    variant: str = ""
    keep_all: bool = False
    """whether the weights of every point are kept, and not of the last alone"""

    @property
    def name(self) -> str:
        """What its files are called."""
        return "-".join(part for part in (self.start.network, self.method, self.variant) if part)

    def shared(self, setting: str) -> Any:
        """A setting that the path has from its dense network, unless its recipe says otherwise."""
        own = getattr(self.recipe, setting)
        return getattr(self.start.recipe, setting) if own is None else own

    def check(self, record: Mapping[str, Any], path: Path, arena: Arena) -> None:
        """Refuse a record of another job."""
        more = ("points", "mus", "seconds")
        check_same(record, path, recipe=self.recipe, seed=self.seed, arena=arena, more=more)
        start = record.get("start", {}).get("name", self.start.name)
        if start != self.start.name:
            raise BadInput(
                f"{str(path)!r} started from {start}, not from {self.start.name}: "
                "move it away, or choose another folder."
            )
