"""The over-pruning guard: what keeps one mu from emptying a layer."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from sparsepath.blocks import Blocks
from sparsepath.errors import BadInput, checked_number
from sparsepath.penalties import Penalty, Radial

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


def check_guarded(penalty: Penalty, blocks: Mapping[str, Blocks]) -> None:
    """Refuse what has no threshold to guard."""
    if not isinstance(penalty, Radial):
        raise BadInput(
            f"{penalty!r} counts its blocks and has no threshold to guard: leave the guard out."
        )
    for name, own in blocks.items():
        if isinstance(own.cost, Tensor):
            raise BadInput(
                f"The blocks of {name!r} have a cost each and so no common threshold to guard: "
                f"leave the guard out or give one cost per layer."
            )


def guarded_steps(
    guard: Guard,
    penalties: Mapping[str, Penalty],
    blocks: Mapping[str, Blocks],
    norms: Iterable[tuple[str, Tensor]],
    step: float,
) -> dict[str, float]:
    """The steps of the weights where the guard lowers the threshold that mu / rho means."""
    lowered = {}
    for name, norm in norms:
        penalty, cost = penalties[name], blocks[name].cost
        assert isinstance(penalty, Radial)
        assert not isinstance(cost, Tensor)
        threshold = penalty.threshold(step * cost)
        allowed = guard(norm, threshold)
        if not 0 <= allowed <= threshold:
            raise BadInput(
                f"{guard!r} made {allowed!r} of the threshold {threshold:g} of {name!r}; "
                f"a guard may only lower it, to zero at the least."
            )
        if allowed != threshold:
            lowered[name] = penalty.step_at(allowed) / cost
    return lowered
