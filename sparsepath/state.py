"""What the saved state of an ADMM must hold before another may go on from it."""

import itertools
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sparsepath.errors import BadInput, checked_number


def checked_state(state: object, *, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state, once it is known to fit an ADMM whose own state is `own`."""
    if not isinstance(state, Mapping) or (missing := own.keys() - state.keys()):
        lacks = f"it lacks {sorted(missing)}" if isinstance(state, Mapping) else f"{state!r}"
        raise BadInput(f"This is no state of an ADMM: {lacks}.")
    for what in ("penalty", "blocks"):
        if state[what] != own[what]:
            raise BadInput(f"This state was made with {what} {state[what]}, not with {own[what]}.")
    for kind in ("F", "Gamma", "units"):
        held = sorted(state[kind]) if isinstance(state[kind], Mapping) else state[kind]
        if held != sorted(own[kind]):
            raise BadInput(
                f"This state belongs to another model or choice of layers: it has {kind} for "
                f"{held}, not for {sorted(own[kind])}."
            )
    for kind, name in itertools.product(("F", "Gamma"), own["F"]):
        tensor, wanted = state[kind][name], own[kind][name].shape
        if not isinstance(tensor, Tensor) or tensor.shape != wanted:
            raise BadInput(
                f"This state belongs to another model: its {kind} of {name!r} has shape "
                f"{tuple(getattr(tensor, 'shape', ()))}, not {tuple(wanted)}."
            )
        if not bool(tensor.isfinite().all()):
            raise BadInput(f"This state is damaged: its {kind} of {name!r} is not finite.")
    checked_number("rho", state["rho"])
    for name, unit in state["units"].items():
        checked_number(f"The unit of {name!r}", unit)
    return state
