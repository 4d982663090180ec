"""A captured graph that gives what the model gives on an example, or else the model as a whole."""

import math
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture.capture import capture, whole
from sparsepath.deploy.capture.dice import Dice
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.copies import copied
from sparsepath.deploy.graph.graph import Graph
from sparsepath.deploy.graph.state import PLAIN
from sparsepath.deploy.running.rehearsal import Rehearsal

# So many of the numbers that count or choose may be others: rounding may turn a comparison.
TURNED = 1e-3


@torch.no_grad()
def verified(model: nn.Module, example: Sequence[Tensor], *, told: bool = False) -> Graph:
    """The model as a graph; of a single node where a trace of it shows something else.

    Where it is `told`, the example's number of axes is that of every later input.

    A trace sees neither what code asks of its input nor what it remembers where nobody looks. Two
    runs show both: what a graph keeps as it was is another in the second, if not in the first.
    """
    graph = capture(model, inputs=len(example), example=example if told else None)
    own = copied(model)
    if own is model or _is_whole(graph, model):
        return graph
    rehearsed, given = Rehearsal.of(graph).graph, None
    for _ in range(2):
        wanted = _tried(own, example)
        if given is None or rehearsed is not graph:  # no graph of functions alone has a memory
            given = _tried(lambda *inputs: reference.run(rehearsed, *inputs), example)
        if isinstance(wanted, Exception) and isinstance(given, Exception):
            break  # whoever runs it next says what it has against the example
        why = _other(wanted, given)
        if why is not None and (_other(wanted, given, values=False) or not _draws(graph, example)):
            return whole(model, graph.inputs, f"what a trace of it recorded {why}")
    return graph


def _is_whole(graph: Graph, model: nn.Module) -> bool:
    calls = [node.call for node in graph]
    return len(calls) == 1 and calls[0] is not None and type(calls[0].function) is type(model)


def _tried(run: Callable[..., Any], example: Sequence[Tensor]) -> Any:
    try:
        return run(*(x.clone() for x in example))  # it may change them
    except Exception as error:  # whatever a user's code may raise
        return error


def _draws(graph: Graph, example: Sequence[Tensor]) -> bool:
    with Dice() as dice:
        reference.run(Rehearsal.of(graph).graph, *(x.clone() for x in example))
    return bool(dice.drawn)


def _other(wanted: Any, given: Any, *, values: bool = True) -> str | None:
    """What is another in what was given than in what was wanted, or None."""
    if isinstance(given, Exception):
        lines = str(given).strip().splitlines() or [type(given).__name__]
        return f"fails: {lines[0]}"
    if isinstance(wanted, Exception):
        return f"runs where the model itself raises a {type(wanted).__name__}"
    if _kind(wanted) is not _kind(given):
        return f"gives a {_kind(given).__name__}, not a {_kind(wanted).__name__}"
    if isinstance(wanted, Tensor):
        return _other_tensor(wanted, given, values=values)
    if is_dataclass(wanted):
        wanted, given = vars(wanted), vars(given)
    if isinstance(wanted, dict):
        if list(wanted) != list(given):
            return f"gives {list(given)}, not {list(wanted)}"
        wanted, given = list(wanted.values()), list(given.values())
    if isinstance(wanted, (tuple, list)):
        if len(wanted) != len(given):
            return f"gives {len(given)} results, not {len(wanted)}"
        parts = (
            _other(ours, theirs, values=values) for ours, theirs in zip(wanted, given, strict=True)
        )
        return next((why for why in parts if why is not None), None)
    if values and isinstance(wanted, PLAIN) and not _close(wanted, given):
        return f"gives {given!r}, not {wanted!r}"
    return None


def _kind(x: Any) -> type:
    return Tensor if isinstance(x, nn.Parameter) else type(x)


def _close(wanted: Any, given: Any) -> bool:
    if not isinstance(wanted, float):
        return bool(wanted == given)
    return math.isclose(wanted, given, rel_tol=1e-6) or (wanted != wanted and given != given)


def _other_tensor(wanted: Tensor, given: Tensor, *, values: bool) -> str | None:
    for name in ("layout", "dtype", "shape"):
        ours, theirs = getattr(wanted, name), getattr(given, name)
        if ours != theirs:
            return f"gives a tensor of {name} {_spoken(theirs)}, not {_spoken(ours)}"
    if not values or wanted.layout != torch.strided or wanted.numel() == 0:
        return None
    if not (wanted.is_floating_point() or wanted.is_complex()):
        share = float((wanted != given).double().mean())
        return f"gives other numbers in {share:.0%} of the places" if share > TURNED else None
    exact = torch.complex128 if wanted.is_complex() else torch.float64
    ours, theirs = wanted.to(exact), given.to(exact)
    alike = (ours == theirs) | (ours.isnan() & theirs.isnan())
    apart = (ours - theirs).abs().masked_fill(alike, 0.0).nan_to_num(nan=math.inf)
    largest = float(ours.abs().nan_to_num(0.0, 0.0).max())
    furthest = float(apart.max())
    # Rounding takes the last digits; that it took the half of them is hard to believe.
    if furthest > math.sqrt(torch.finfo(wanted.dtype).eps) * largest:
        return f"gives numbers that differ by {furthest:.1e} (max |output| {largest:.1e})"
    return None


def _spoken(x: Any) -> str:
    return str(tuple(x)) if isinstance(x, torch.Size) else str(x)
