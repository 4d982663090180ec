"""ADMM beside a live model: F and Gamma for its weights W, and the pull between them."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.blocks import Blocks, Partition, kernels, spoken
from sparsepath.errors import BadInput, check_kinds, checked_number
from sparsepath.guard import Guard, check_guarded, guarded_steps
from sparsepath.layers import Layers, targets
from sparsepath.modules import uncompiled
from sparsepath.penalties import Penalty, Radial
from sparsepath.projections import Projection
from sparsepath.residuals import ResidualBalancing, Residuals
from sparsepath.state import checked_state
from sparsepath.support import Support
from sparsepath.together import lengths, numbers, together


class ADMM:
    """Minimise L(W) + mu f(F) subject to W = F, where the user's own training loop moves W.

    Add `proximity()` to the loss; after some epochs call `step()`; at the end take `support()`.
    The model is never changed: F, Gamma and U live here, by parameter name.
    """

    def __init__(
        self,
        model: nn.Module,
        penalty: Penalty,
        *,
        rho: float,
        mu: float = 0.0,
        blocks: Partition = kernels,
        layers: Layers = None,
        guard: Guard | None = None,
        balancing: ResidualBalancing | None = None,
        fit_shape: bool = False,
    ) -> None:
        """Set F = W and Gamma = 0 for every chosen layer of the model.

        With `balancing`, rho follows the relative residuals; with `fit_shape`, the penalty's shape
        parameters count in units of each layer's median block norm, here and at each restart.
        """
        if not isinstance(penalty, Penalty):
            raise BadInput(f"A penalty such as L0() is needed, not {penalty!r}.")
        for what, given in (("blocks", blocks), ("guard", guard), ("balancing", balancing)):
            if given is not None and (isinstance(given, type) or not callable(given)):
                usual = {"blocks": "kernels", "guard": "mean_norm_guard()"}
                example = usual.get(what, "ResidualBalancing()")
                raise BadInput(f"{what} must be a function such as {example}, not {given!r}.")
        check_kinds(model=(model, nn.Module))
        self.given = model
        self.model = uncompiled(model)
        chosen = targets(self.model, blocks, layers)
        self.partition = blocks
        self.guard = guard
        self.balancing = balancing
        self.W: Mapping[str, nn.Parameter] = {t.name: t.weight for t in chosen}
        self.blocks: Mapping[str, Blocks] = {t.name: t.blocks for t in chosen}
        self._penalty = penalty
        penalty.check(self.blocks)
        if guard is not None:
            check_guarded(penalty, self.blocks)
        self._mu = checked_number("mu", mu, zero=True)
        self._rho = _checked_rho(rho)
        self._F = {name: _companion(W) for name, W in self.W.items()}
        self._Gamma = {name: _companion(W) for name, W in self.W.items()}
        # U = F - Gamma / rho and rho itself are kept as tensors and updated in place, so that a
        # captured or compiled training step sees every new value.
        self._U = {name: _companion(W) for name, W in self.W.items()}
        self._pull = {(U.device, U.dtype): U.new_empty(()) for U in self._U.values()}
        self.fit_shape = fit_shape
        self._units = dict.fromkeys(self.W, 1.0)
        self.restart()

    @property
    def F(self) -> Mapping[str, Tensor]:
        """The sparse copy of each weight."""
        return MappingProxyType(self._F)

    @property
    def Gamma(self) -> Mapping[str, Tensor]:
        """The dual variable of each weight."""
        return MappingProxyType(self._Gamma)

    @property
    def U(self) -> Mapping[str, Tensor]:
        """Where the proximity pulls each weight: U = F - Gamma / rho."""
        return MappingProxyType(self._U)

    @property
    def penalty(self) -> Penalty:
        """The penalty f."""
        return self._penalty

    @property
    def mu(self) -> float:
        """The weight of the penalty."""
        return self._mu

    @mu.setter
    def mu(self, mu: float) -> None:
        self._mu = checked_number("mu", mu, zero=True)

    @property
    def rho(self) -> float:
        """The strength of the pull between W and F."""
        return self._rho

    @rho.setter
    def rho(self, rho: float) -> None:
        self._rho = _checked_rho(rho)
        self._aim()

    @property
    def position(self) -> float:
        """Where on its path this is: mu, or the count of a projection."""
        return self._penalty.count if isinstance(self._penalty, Projection) else self._mu

    @position.setter
    def position(self, position: float) -> None:
        if isinstance(self._penalty, Projection):
            moved = self._penalty.at(position)
            moved.check(self.blocks)
            self._penalty = moved
        else:
            self.mu = position

    @torch.no_grad()
    def _aim(self) -> None:
        """Set U = F - Gamma / rho, in place."""
        for pull in self._pull.values():
            pull.fill_(self._rho)
        for names in together(self._U):
            U, F, Gamma = ([own[n] for n in names] for own in (self._U, self._F, self._Gamma))
            torch._foreach_copy_(U, F)
            torch._foreach_sub_(U, Gamma, alpha=1 / self._rho)

    def proximity(self) -> Tensor:
        """rho/2 ||W - U||^2, to add to the loss (equation 7); its gradient is rho (W - U)."""
        terms = [
            0.5 * self._pull[U.device, U.dtype] * (self.W[name] - U).square().sum()
            for name, U in self._U.items()
        ]
        return torch.stack([term.to(terms[0].device) for term in terms]).sum()

    @torch.no_grad()
    def step(self) -> Residuals:
        """The sparsity step F = prox(W + Gamma / rho), then the dual step Gamma += rho (W - F)."""
        norms: defaultdict[str, list[Tensor]] = defaultdict(list)
        norms["W"] = self._finite_norms()
        penalties = self.penalties
        step = self._mu / self._rho
        lowered: dict[str, float] = {}
        if self.guard is not None and step:
            # Asked of all before anything changes: a guard that raises a threshold is refused.
            lowered = guarded_steps(self.guard, penalties, self.blocks, self._norms(), step)
        flips = []
        for names in together(self._F):
            W, F, Gamma = ([own[n] for n in names] for own in (self.W, self._F, self._Gamma))
            alive = self._alive(names)
            F_new = [
                penalties[name].prox(V, self.blocks[name], lowered.get(name, step), out=V)
                for name, V in zip(names, self._V(names), strict=True)
            ]
            torch._foreach_sub_(F, F_new)
            norms["F - F_previous"] += lengths(F)
            torch._foreach_copy_(F, F_new)
            flips.append((self._alive(names) != alive).sum())
            gap = list(torch._foreach_sub(W, F))
            torch._foreach_add_(Gamma, gap, alpha=self._rho)
            norms["W - F"] += lengths(gap)
            norms["F"] += lengths(F)
            norms["Gamma"] += lengths(Gamma)
        self._aim()
        # Read only now, and at once: on a GPU each reading waits for all work before it.
        read = iter(numbers([*itertools.chain(*norms.values()), *flips]))
        whole = {what: math.hypot(*itertools.islice(read, len(self.W))) for what in norms}
        residuals = Residuals.of(whole, self._rho, flipped=int(sum(read)), guarded=tuple(lowered))
        if self.balancing is not None:
            self.rho = self.balancing(self._rho, residuals)
        return residuals

    def _alive(self, names: Sequence[str]) -> Tensor:
        """Which blocks of F live, those of all these weights in one row."""
        return torch.cat([self.blocks[name].alive(self._F[name]).flatten() for name in names])

    def _V(self, names: Sequence[str]) -> list[Tensor]:
        """W + Gamma / rho of each of these weights."""
        W, Gamma = ([own[n] for n in names] for own in (self.W, self._Gamma))
        return list(torch._foreach_add(W, Gamma, alpha=1 / self._rho))

    def _norms(self) -> Iterator[tuple[str, Tensor]]:
        """What the prox will compare with its threshold: the norms of the blocks of each V."""
        for names in together(self._Gamma):
            for name, V in zip(names, self._V(names), strict=True):
                yield name, self.blocks[name].norms(V)

    def _finite_norms(self) -> list[Tensor]:
        """||W||, checked before anything changes: no threshold tells what a NaN would be.

        Nor what a block would be whose squares overflow where its norm is taken.
        """
        norms = {
            name: norm
            for names in together(self.W)
            for name, norm in zip(names, lengths([self.W[n] for n in names]), strict=True)
        }
        for name, norm in zip(norms, numbers(list(norms.values())), strict=True):
            if self.model.get_parameter(name) is not self.W[name]:
                raise BadInput(
                    f"The model's {name!r} was replaced by another parameter: build a new ADMM."
                )
            if not norm < math.sqrt(torch.finfo(self._F[name].dtype).max):
                raise BadInput(
                    f"{name!r} is no longer finite, or too large to square: lower the learning "
                    f"rate or rho = {self._rho:g} and go back to an earlier state."
                )
        return list(norms.values())

    @property
    def penalties(self) -> Mapping[str, Penalty]:
        """The penalty of each weight: in its own units, or with its share of a common count."""
        if isinstance(self._penalty, Radial):
            return {name: self._penalty.scaled(unit) for name, unit in self._units.items()}
        norms = dict(self._norms())
        return self._penalty.per_layer({name: norms[name] for name in self.W})

    def support(self) -> Support:
        """The blocks of F that are not zero."""
        return Support({n: b.mask(b.alive(self._F[n])) for n, b in self.blocks.items()})

    @torch.no_grad()
    def restart(self) -> None:
        """Start anew from the weights as they are: F = W, Gamma = 0."""
        for name, W in self.W.items():
            self._F[name].copy_(W)
            self._Gamma[name].zero_()
            if self.fit_shape:
                norm = self.blocks[name].norms(W)
                living = norm[norm > 0]
                # A layer that is empty keeps its unit: there is nothing to measure, or to shrink.
                self._units[name] = float(living.median()) if len(living) else self._units[name]
        self._aim()

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on: copies of F and Gamma, and plain numbers."""
        return {
            "F": {name: F.clone() for name, F in self._F.items()},
            "Gamma": {name: Gamma.clone() for name, Gamma in self._Gamma.items()},
            "rho": self._rho,
            "units": dict(self._units),
            "penalty": self._penalty.identity,
            "position": self.position,
            "blocks": spoken(self.partition),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of an ADMM of the same model, blocks and penalty; check it first."""
        state = checked_state(state, own=self.state_dict())
        self.position = state["position"]
        for name in self.W:
            self._F[name].copy_(state["F"][name])
            self._Gamma[name].copy_(state["Gamma"][name])
        self._units = dict(state["units"])
        self.rho = state["rho"]


def _checked_rho(rho: object) -> float:
    """A rho that float32 can multiply and divide by."""
    number = checked_number("rho", rho)
    if not 1e-38 <= number <= 1e38:
        raise BadInput(f"rho must be from 1e-38 to 1e38, not {rho!r}.")
    return number


def _companion(W: Tensor) -> Tensor:
    """Room for a tensor beside W: on its device, in its memory order, in float32 or better."""
    return torch.zeros_like(
        W, dtype=torch.promote_types(W.dtype, torch.float32), requires_grad=False
    )
