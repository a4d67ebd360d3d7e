"""The canonical model with uniform attention over a finite past, θ = (e, w, a), exactly.

Zero queries and keys spread the attention evenly, so the logit at position n sees the past through
m_n = (1/n) Σ_{i≤n} (x_i − ½) alone, with s = x − ½ + a·m:

    logit = e²[s + 4w|w| ReLU(s)] + b,      L = (1/N) Σ_n E cross-entropy.

The expectation is a finite sum over the law of (x_n, m_n); nothing is sampled. With
ω = weight (σ(f) − t), f the logit,

    ∂L/∂e = 2e Σ ω [s + 4w|w| ReLU(s)],        ∂L/∂w = 8|w|e² Σ ω ReLU(s),
    ∂L/∂a = e² Σ ω m [1 + 4w|w| 1{s>0}] and, for a dynamic bias, ∂L/∂b = Σ ω.

Source: LG (canonical parameters); the exact law is own derivation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.flow.rows.engine import SwitchingSolver
from flowsim.interface import accepts_theta
from flowsim.models import autograd
from flowsim.models.on_chain import AttentionPlane, OnChain, require_first_order
from flowsim.models.past_law import check_length, running_mean_law
from flowsim.models.uniform.table import LawTable, law_table
from flowsim.models.uniform.termination import compiled_model_of
from flowsim.models.uniform.values import QUANTITIES, values_of


class UniformAttentionModel(OnChain):
    """The reduced model with uniform attention, θ = (e, w, a), or (e, w, a, b) with dynamic bias.

    The loss is convex in b, so b is minimised out ("optimal") or one more coordinate ("dynamic").
    For |a| < 1 the loss is smooth but at w = 0, where only its first derivatives exist; beyond, the
    ReLU switches side inside the law and L is piecewise smooth, with ReLU'(0) = 0. No conserved
    quantity is known. ``loss`` can be differentiated twice and ``gradient`` once, by torch.autograd
    and by torch.func (grad, hessian, jacfwd, jacrev, vmap).

    Args:
        chain: the data.
        length: N ≥ 1, the number of positions averaged over.
        bias: "optimal" or "dynamic".
        compress: sum over few nodes instead of all atoms of the law, with errors below 1e-11.

    Raises:
        InputError: N not an integer, below 1 or too large for the memory; unknown bias.

    >>> import flowsim
    >>> model = flowsim.models.UniformAttentionModel(flowsim.BinaryChain(0.5, 0.8), length=4)
    >>> flowsim.Label(int(flowsim.find_limits(model, [1.2, -0.9, 0.3]).label)).name
    'GLOBAL_MINIMUM'
    """

    name = "uniform"
    heading = "uniform attention"

    coordinates: tuple[str, ...] = ("e", "w", "a")
    keeps_sign: tuple[bool, ...] = (True, True, False)
    _axes = ("w", "e")

    def __init__(
        self, chain: BinaryChain, length: int, bias: str = "optimal", compress: bool = True
    ) -> None:
        self._choose_bias(bias)
        require_first_order(chain)
        self.chain, self.length, self.compress = chain, check_length(length), compress
        running_mean_law(chain, self.length)

    @property
    def plane(self) -> AttentionPlane:
        """The plane (w, e) with a held, and the space (w, e, a)."""
        plane = AttentionPlane(self)
        plane.slow_line = True
        return plane

    def options(self) -> dict[str, Any]:
        """Return the length N and the kind of bias, by name."""
        return {"length": self.length, "bias": "dynamic" if self.dynamic_bias else "optimal"}

    loss, gradient, hessian = autograd.loss, autograd.gradient, autograd.hessian

    def excess(self, theta: Tensor) -> Tensor:
        """Return the loss above the entropy rate at θ, shape (...), without cancellation."""
        return self.by_rows(theta, "excess")

    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); a stored bias is ignored.

        If the logits of the two symbols lie so far apart that no bias changes the loss by more
        than 1e-20, it rests on the far tails of the law, which compression leaves out. Carries no
        derivative.
        """
        return self.by_rows(theta, "bias")

    @accepts_theta
    def logit_gap(self, theta: Tensor) -> Tensor:
        """E[f | x = 1] − E[f | x = 0], the mean over n, shape (...).

        It is e² C/(π₀π₁) with C = (1/N) Σ_n Cov(x_n, s_n + 4w|w| ReLU(s_n)). Near the plane e = 0
        of critical points L = h(π₁) − λ C e² + O(e⁴): a point of it is a local minimum where
        λC < 0, a maximum across the plane where λC > 0, and C = 0 is the saddle curve.
        """
        return self.by_rows(theta, "gap")

    def flow(self) -> SwitchingSolver:
        """Return the solver of the rows engine."""
        return SwitchingSolver(self, compiled_model_of(self._table()))

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor:
        """Return the quantity of that name at θ (..., k): a number, vector or matrix for each θ.

        ``quantity`` is "loss" or one of ``values.QUANTITIES``.
        """
        if quantity == "loss":
            return self.chain.entropy_rate + self.by_rows(theta, "excess")
        what, axes = QUANTITIES[quantity]
        table = self._table()

        def fill(rows: np.ndarray, found: np.ndarray) -> None:
            """Write the quantity at ``rows`` (n, k) to ``found``; add levels that are lacking."""
            while (status := values_of(what, rows, table.reals, table.ints, found)) > 0:
                table.add(status - 1)

        return autograd.evaluate_rows(theta, axes, fill)

    def _table(self) -> LawTable:
        """Return the law of the running mean as compiled functions read it."""
        return law_table(self.chain, self.length, self.dynamic_bias, self.compress)
