"""The over-pruning guard: what keeps one mu from emptying a layer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from sparsepath.errors import BadInput, checked_number

Guard = Callable[[Tensor, float], float]


@dataclass(frozen=True)
class mean_norm_guard:
    """The paper's guard: past a share `limit` of zero blocks, the mean norm caps the threshold."""

    limit: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a limit that is no share."""
        if checked_number("The guard's limit", self.limit, zero=True) > 1:
            raise BadInput(f"The guard's limit is a share from 0 to 1, not {self.limit!r}.")

    def __call__(self, norms: Tensor, threshold: float) -> float:
        """A threshold that is never higher than the one given."""
        pruned = int((norms <= threshold).count_nonzero()) / norms.numel()
        return min(threshold, float(norms.double().mean())) if pruned > self.limit else threshold
