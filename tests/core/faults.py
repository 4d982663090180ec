"""Faults seen in public code, or near to it, each with the test that must catch it."""

from typing import NamedTuple


class Fault(NamedTuple):
    """In `file`, `right` (which stands there exactly once) becomes `wrong`, and `test` fails."""

    file: str
    right: str
    wrong: str
    test: str


FAULTS = {
    # The pull.
    "the norm is not squared": Fault(
        "admm.py",
        "(self.W[name] - U).square().sum()",
        "(self.W[name] - U).norm()",
        "test_admm.py::test_the_gradient_of_proximity_is_exactly_rho_times_w_minus_u",
    ),
    "the root of the norm": Fault(
        "admm.py",
        "(self.W[name] - U).square().sum()",
        "(self.W[name] - U).norm().sqrt()",
        "test_admm.py::test_the_gradient_of_proximity_is_exactly_rho_times_w_minus_u",
    ),
    "the pull is not halved": Fault(
        "admm.py",
        "0.5 * self._pull",
        "1.0 * self._pull",
        "test_admm.py::test_the_value_of_proximity_is_half_rho_times_the_squared_distance",
    ),
    "rho is rounded to float32": Fault(
        "admm.py",
        "U.new_empty(())",
        "U.new_empty((), dtype=torch.float32)",
        "test_admm.py::test_iterations_equal_the_plain_reference_dual_included[dtype1-l1]",
    ),
    "U is not refreshed by a step": Fault(
        "admm.py",
        "        self._aim()\n        # Read only now",
        "        # Read only now",
        "test_state.py::test_u_is_f_minus_gamma_over_rho_after_every_change",
    ),
    "U pulls to the wrong side of F": Fault(
        "admm.py",
        "torch._foreach_sub_(U, Gamma, alpha=1 / self._rho)",
        "torch._foreach_add_(U, Gamma, alpha=1 / self._rho)",
        "test_path.py::test_the_path_is_algorithm_1[False-l1]",
    ),
    # The two steps.
    "the dual step is halved": Fault(
        "admm.py",
        "torch._foreach_add_(Gamma, gap, alpha=self._rho)",
        "torch._foreach_add_(Gamma, gap, alpha=self._rho / 2)",
        "test_admm.py::test_iterations_equal_the_plain_reference_dual_included[dtype1-l0]",
    ),
    "the dual step is made without rho": Fault(
        "admm.py",
        "torch._foreach_add_(Gamma, gap, alpha=self._rho)",
        "torch._foreach_add_(Gamma, gap)",
        "test_admm.py::test_iterations_equal_the_plain_reference_dual_included[dtype1-l0]",
    ),
    "the dual is not detached": Fault(
        "admm.py",
        "torch._foreach_add_(Gamma, gap, alpha=self._rho)",
        "with torch.enable_grad():\n"
        "                for name in names:\n"
        "                    pull = self._rho * (self.W[name] - self._F[name])\n"
        "                    self._Gamma[name] = self._Gamma[name] + pull",
        "test_admm.py::test_the_pull_carries_no_graph_and_does_not_grow_with_the_iterations",
    ),
    "the prox is of W": Fault(
        "admm.py",
        "torch._foreach_add(W, Gamma, alpha=1 / self._rho)",
        "torch._foreach_add(W, Gamma, alpha=0)",
        "test_admm.py::test_iterations_equal_the_plain_reference_dual_included[dtype1-l1]",
    ),
    "the dual residual is from W": Fault(
        "admm.py",
        "torch._foreach_sub_(F, F_new)",
        "torch._foreach_sub_(F, W)",
        "test_residuals.py::test_residuals_are_the_papers_and_their_relative_forms",
    ),
    "a block that comes back is no flip": Fault(
        "admm.py",
        "(self._alive(names) != alive).sum()",
        "(alive & ~self._alive(names)).sum()",
        "test_residuals.py::test_flips_count_blocks_that_die_and_blocks_that_come_back",
    ),
    "the dual residual is multiplied by rho": Fault(
        "residuals.py",
        "            primal,\n            dual,\n",
        "            primal,\n            rho * dual,\n",
        "test_residuals.py::test_residuals_are_the_papers_and_their_relative_forms",
    ),
    "F is a new tensor after each step": Fault(
        "admm.py",
        "torch._foreach_copy_(F, F_new)",
        "self._F.update(zip(names, F := F_new))",
        "test_state.py::test_state_is_updated_in_place",
    ),
    "restart keeps Gamma": Fault(
        "admm.py",
        "self._Gamma[name].zero_()",
        "pass",
        "test_state.py::test_restart_sets_f_to_w_and_gamma_to_zero",
    ),
    "a change of rho rescales Gamma": Fault(
        "admm.py",
        "self._rho = _checked_rho(rho)\n        self._aim()",
        "before, self._rho = self._rho, _checked_rho(rho)\n"
        "        for Gamma in self._Gamma.values():\n"
        "            Gamma.mul_(self._rho / before)\n"
        "        self._aim()",
        "test_residuals.py::test_balancing_keeps_gamma_and_moves_u",
    ),
    "rho is balanced before anything is pruned": Fault(
        "residuals.py",
        "if math.isinf(residuals.dual_relative):",
        "if False:",
        "test_residuals.py::test_balancing_rests_while_nothing_is_pruned",
    ),
    "the support is W's": Fault(
        "admm.py",
        "b.mask(b.alive(self._F[n]))",
        "b.mask(b.alive(self.W[n]))",
        "test_admm.py::test_the_support_is_where_f_is_not_zero",
    ),
    # Penalties.
    "l0 thresholds at mu / rho": Fault(
        "penalties.py",
        "else math.sqrt(2 * s)",
        "else s",
        "test_penalties.py::test_l0_is_the_hard_threshold_at_the_root_of_twice_mu_over_rho",
    ),
    "l0 thresholds at the root of mu / rho": Fault(
        "penalties.py",
        "else math.sqrt(2 * s)",
        "else math.sqrt(s)",
        "test_penalties.py::test_prox_beats_a_dense_grid[kernels-L0]",
    ),
    "l1/2 thresholds as if the square were not halved": Fault(
        "penalties.py",
        "below = x <= 1.5 * s ** (2 / 3)",
        "below = x <= 54 ** (1 / 3) / 4 * s ** (2 / 3)",
        "test_penalties.py::test_prox_beats_a_dense_grid[kernels-L12]",
    ),
    "MCP at any step by its convex formula": Fault(
        "concave.py",
        "return _best(x, s, self.phi, [inner, x.clamp(min=self.theta)])",
        "return torch.where(x <= self.theta, firm, x)",
        "test_penalties.py::test_prox_beats_a_dense_grid[kernels-MCP]",
    ),
    "SCAD without its plateau's minimiser": Fault(
        "concave.py",
        "[(x - s).clamp(0, low), middle, x.clamp(min=high)]",
        "[(x - s).clamp(0, low), middle]",
        "test_penalties.py::test_prox_beats_a_dense_grid[kernels-SCAD]",
    ),
    "the log-sum at its stationary point, beaten by zero": Fault(
        "concave.py",
        "return torch.where(s <= self.theta**2, t, best)",
        "return t",
        "test_penalties.py::test_prox_beats_a_dense_grid[kernels-LogSum]",
    ),
    "the guard raises the threshold": Fault(
        "guard.py",
        "min(threshold, float(norms.double().mean()))",
        "float(norms.double().mean())",
        "test_guard.py::test_the_guard_keeps_a_threshold_under_the_mean_of_skewed_norms",
    ),
    "a tie is broken to the last index": Fault(
        "projections.py",
        "(equal.cumsum(0) <= k - above.sum())",
        "(equal.flip(0).cumsum(0).flip(0) <= k - above.sum())",
        "test_projections.py::test_equal_norms_keep_the_lowest_index",
    ),
    # Blocks.
    "a transposed convolution is read as a plain one": Fault(
        "blocks.py",
        '("in", "out") if isinstance(layer, _ConvTransposeNd) else ("out", "in")',
        '("out", "in")',
        "test_blocks.py::test_blocks_are_as_many_and_as_large_as_a_plain_loop_finds"
        "[transposed2d-outputs]",
    ),
    "N:M straddles two groups": Fault(
        "blocks.py",
        'if len(sides) == 1 and (sides == {True} or parts[-1].name != "in"):',
        "if len(sides) == 1:",
        "test_blocks.py::test_inputs_that_n_of_m_walks_along_keep_their_group",
    ),
    "norms in half precision": Fault(
        "blocks.py",
        "return torch.promote_types(dtype, torch.float32)",
        "return dtype",
        "test_blocks.py::test_norms_of_half_precision_are_float32[dtype0-kernels]",
    ),
    # The support.
    "gradients alone are masked": Fault(
        "support.py",
        "handles.append(optimizer.register_step_post_hook(lambda *_: _zero(dead)))",
        "pass",
        "test_support.py::test_zeros_hold_exactly_and_the_others_move[False-Noisy]",
    ),
    "weights alone are masked": Fault(
        "support.py",
        "for weight, mask in dead if weight.requires_grad",
        "for weight, mask in dead if False",
        "test_support.py::test_zeros_hold_exactly_and_the_others_move[False-LBFGS]",
    ),
    "momentum is not forgotten": Fault(
        "support.py",
        "        _forget(optimizer, dead)\n",
        "",
        "test_support.py::test_the_optimizer_forgets_what_it_knew_of_dead_weights",
    ),
    "curvature is not forgotten": Fault(
        "support.py",
        "optimizer.state.clear()",
        "pass",
        "test_support.py::test_zeros_hold_exactly_and_the_others_move[True-LBFGS, plain]",
    ),
    "a dead gradient is multiplied, not filled": Fault(
        "support.py",
        "lambda gradient: gradient.masked_fill(dead, 0.0)",
        "lambda gradient: gradient * ~dead",
        "test_support.py::test_an_infinite_gradient_of_a_dead_weight_is_none",
    ),
    # The path.
    "epochs start at two": Fault(
        "path.py",
        "min(index + 1, self.nu)",
        "min(index + 2, self.nu)",
        "test_path.py::test_epochs_grow_by_delta_up_to_nu",
    ),
    "the primal residual alone ends a mu": Fault(
        "path.py",
        "residuals.primal <= self.epsilon and residuals.dual <= self.epsilon",
        "residuals.primal <= self.epsilon",
        "test_path.py::test_a_mu_ends_when_both_residuals_are_within_epsilon",
    ),
    "the weights stay F after its evaluation": Fault(
        "path.py",
        "W.copy_(kept[name])",
        "pass",
        "test_path.py::test_accuracy_f_is_that_of_f_and_the_weights_are_put_back",
    ),
    "a resumed point is restarted": Fault(
        "path.py",
        "if restart and not residuals:",
        "if restart:",
        "test_path.py::test_killed_at_any_checkpoint_and_resumed_a_path_ends_bit_equal[True]",
    ),
    "Gamma is left out of the saved state": Fault(
        "admm.py",
        'self._Gamma[name].copy_(state["Gamma"][name])',
        "pass",
        "test_path.py::test_killed_at_any_checkpoint_and_resumed_a_path_ends_bit_equal[False]",
    ),
    "MACs of a transposed convolution by its output": Fault(
        "metrics.py",
        'inputs[0] if getattr(layer, "transposed", False) else output',
        "output",
        "test_metrics.py::test_dense_macs_are_half_of_torchs_flops[transposed]",
    ),
}
