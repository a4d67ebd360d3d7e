"""The rank-one manifold: coordinates in which the full transformer's gradient flow is exact.

Embedding e·α, positions ρ_n·α, W_1 = (w₁/√d) 1 αᵀ, W_2 = (w₂/√d) α 1ᵀ with r/d = 4 hidden units per
dimension, W_V = v β αᵀ, W_O = o α βᵀ, zero queries and keys, a bias b and, untied, an unembedding
c·α: gradient flow never leaves this set. With X_i = e x_i + ρ_i, Y_n = X_n + o v (1/n) Σ_{i≤n} X_i,

    logit_n = u [Y_n + 4 w₂ ReLU(w₁ Y_n)] + b,      u = e (tied) or c (untied).

Source: docs/derivations/07.md; LG for the rank-one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.flow.rows.engine import SwitchingSolver
from flowsim.inheritance import keeps_formulas_of
from flowsim.interface import accepts_theta
from flowsim.labels import Label
from flowsim.models import autograd
from flowsim.models.bias import best_shifts
from flowsim.models.on_chain import OnChain, require_first_order
from flowsim.models.past_law import check_length
from flowsim.models.rank_one import rows
from flowsim.models.rank_one.attention import termination as attention_rows
from flowsim.models.rank_one.attention.field import RELU_WIDTH, WEIGHTS
from flowsim.models.rank_one.attention.field import constants as attention_constants
from flowsim.models.rank_one.plane import RankOnePlane
from flowsim.models.rank_one.point import WIDTH_RATIO, RankOnePoint
from flowsim.models.rank_one.rows import constants as plain_constants
from flowsim.models.rank_one.values import (
    EXCESS,
    GRADIENT,
    HESSIAN,
    LOGITS,
    STIFFNESS,
    attention_values,
    plain_values,
)

#: Logits held at once.
_ROOM = 2**20
#: Peak bytes per unit of N(N + 1) with attention: the law, then a row's values.
_BYTES = 270


class RankOneModel(OnChain):
    """The reduced model on the rank-one manifold; its flow is −G⁻¹∇L with the induced metric G.

    Coordinates without attention: (e, rho, w1, w2, b) with metric (1, N, 4, 4, 1), all positions
    being equal; with attention: (e, rho1, …, rhoN, w1, w2, o, v, b) with metric 1 except 4 for w1
    and w2. Untied, c comes last. The ReLU makes the loss piecewise smooth; ReLU'(0) = 0, as in
    torch. The gradient is discontinuous where w₁Y_n = 0, and orbits may slide along that set.

    Conserved are w₁² − w₂² ("feed_forward_balance"), o² − v² ("attention_balance") and, untied,
    e² + Σ_n ρ_n² − c² ("embedding_balance"): the logit without b is homogeneous in (e, ρ) and c.

    Args:
        chain: the data.
        length: N ≥ 1.
        attention: whether the attention layer is there; its cost is about N² per row.
        tied: whether the unembedding is the embedding.

    Raises:
        InputError: N is not an integer, below 1 or too large for the memory.

    >>> import flowsim
    >>> model = flowsim.models.RankOneModel(flowsim.BinaryChain(0.5, 0.8), length=8)
    >>> start = model.from_canonical([1.0, -1.2])
    >>> flowsim.Label(int(flowsim.find_limits(model, start).label)).name
    'GLOBAL_MINIMUM'
    """

    name = "rank-one"
    heading = "rank-one model"

    def __init__(
        self, chain: BinaryChain, length: int, attention: bool = False, tied: bool = True
    ) -> None:
        if attention:
            require_first_order(chain)
        self.chain, self.attention, self.tied = chain, attention, tied
        self.length = check_length(length, _BYTES if attention else 0)
        count = self.length if attention else 1
        rho = [f"rho{n}" for n in range(1, count + 1)] if attention else ["rho"]
        layer = ["o", "v"] if attention else []
        self.coordinates = ("e", *rho, "w1", "w2", *layer, "b", *([] if tied else ["c"]))
        position = 1.0 if attention else float(self.length)
        ones = [1.0] * (len(layer) + 1 + (not tied))
        self.metric = (1.0, *[position] * count, WIDTH_RATIO, WIDTH_RATIO, *ones)

    @property
    def plane(self) -> RankOnePlane:
        """The plane (w, e) of canonical coordinates."""
        return RankOnePlane(self)

    def options(self) -> dict[str, Any]:
        """Return N and whether there is attention and weights are tied, by name."""
        return {"length": self.length, "attention": self.attention, "tied": self.tied}

    def attributes(self) -> dict[str, Any]:
        """Return attributes of a record; with attention also the width of the rounded ReLU."""
        rounded = {"relu_width": RELU_WIDTH} if self.attention else {}
        return {**super().attributes(), **rounded}

    loss, gradient = autograd.loss, autograd.gradient

    def excess(self, theta: Tensor) -> Tensor:
        """Return the loss above the entropy rate at θ, shape (...), without cancellation."""
        return self.by_rows(theta, "excess")

    def hessian(self, theta: Tensor) -> Tensor:
        """Return ∂²L at θ, shape (..., k, k), without the jumps at ReLU kinks.

        With attention, at e = ρ = 0, where all kinks meet: of the side with all units open or, for
        p + q < 1, closed. Where the loss falls to neither of these sides, it falls nowhere.
        """
        if self.attention:
            meet = (theta[..., : self.length + 1] == 0.0).all(-1, keepdim=True)
            side = theta[..., self.length + 1, None].sign() * (-self.chain.second_eigenvalue)
            beside = torch.zeros_like(theta)
            beside[..., 1 : self.length + 1] = 1e-100 * side
            theta = theta + torch.where(meet, beside, 0.0)
        return autograd.hessian(self, theta)

    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); the stored bias is ignored."""
        return self.by_rows(theta, "bias")

    @accepts_theta
    def logit_gap(self, theta: Tensor) -> Tensor:
        """E[logit_n | x_n = 1] − E[logit_n | x_n = 0], the mean over n, shape (...)."""
        return self.by_rows(theta, "gap")

    def stiffness(self, theta: Tensor) -> Tensor:
        """Trace of G⁻¹ Σ law·s·∇f ∇fᵀ with s = max(σ′(f), t(1 − t)), shape (...).

        Near the target it bounds the largest curvature of the loss in the metric, so that a step
        well below its inverse is stable (own derivation; the Gauss-Newton matrix). The positions
        count as one that moves N times slower.
        """
        return self.by_rows(theta, "stiffness")

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor:
        """Return the quantity of that name at θ (..., k): a number, vector or matrix for each θ.

        ``quantity`` is "loss", "excess", "bias", "gap", "gradient", "hessian" or "stiffness".
        """
        if quantity == "loss":
            return self.chain.entropy_rate + self.by_rows(theta, "excess")
        if quantity in ("bias", "gap"):
            if self.attention:  # the symbol x of every value (n, x, S), and the values' weights
                sizes = range(1, self.length + 1)
                symbol = np.concatenate([np.repeat([0, 1], n) for n in sizes])
                law = self._exact[0][WEIGHTS : WEIGHTS + len(symbol)]
                weights = np.stack([law[symbol == x] for x in (0, 1)])
            else:
                symbol, weights = np.array([0, 1]), np.array(self.chain.stationary)[:, None]

            def combine(rows: np.ndarray, found: np.ndarray) -> None:
                """Write the optimal bias or the gap of ``rows`` (n, k) to ``found`` (n, 1)."""
                part, logits = rows.copy(), np.empty((len(rows), len(symbol)))
                part[:, self.coordinates.index("b")] = 0.0
                self._fill(LOGITS, part, logits)
                both = np.stack([logits[:, symbol == x] for x in (0, 1)], axis=1)
                if quantity == "bias":
                    best_shifts(both, weights, self.chain.p, self.chain.q, found[:, 0])
                else:
                    zeros, ones = ((both[:, x] @ weights[x]) / weights[x].sum() for x in (0, 1))
                    found[:, 0] = ones - zeros

            return autograd.evaluate_rows(theta, 0, combine, max(1, _ROOM // len(symbol)))
        what, axes = {"excess": (EXCESS, 0), "gradient": (GRADIENT, 1), "hessian": (HESSIAN, 2),
                      "stiffness": (STIFFNESS, 0)}[quantity]  # fmt: skip
        return autograd.evaluate_rows(theta, axes, partial(self._fill, what))

    def _fill(self, what: int, rows: np.ndarray, found: np.ndarray) -> None:
        """Write a compiled quantity of rows (n, k) to ``found``, (n, width)."""
        metric, (reals, ints, room) = np.array(self.metric), self._exact
        if self.attention:
            attention_values(what, rows, reals, ints, room, found)
        else:
            plain_values(what, rows, metric, reals, found)
        if what in (GRADIENT, HESSIAN):
            found *= -np.repeat(metric, found.shape[1] // len(metric))

    @cached_property
    def _exact(self) -> tuple[np.ndarray, np.ndarray, int]:
        """The arrays ``reals``, ``ints`` and the length of memory for the exact ReLU."""
        if self.attention:
            return attention_constants(self.chain, self.length, self.tied, width=0.0)
        return plain_constants(self)

    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Return what the flow conserves at θ by name, each of shape (...)."""
        part = self.point(theta)
        found = {"feed_forward_balance": part.w1.square() - part.w2.square()}
        if self.attention:
            found["attention_balance"] = part.o.square() - part.v.square()
        if not self.tied:
            positions = part.rho.square().sum(-1)
            found["embedding_balance"] = part.eps.square() + positions - part.c.square()
        return found

    @accepts_arrays
    def from_canonical(self, theta: Tensor) -> Tensor:
        """The lift of canonical coordinates: a point of this model with the same logits.

        As ``RankOnePoint.from_canonical``, with c = e and b, if not given, at its optimum.

        Args:
            theta: (e, w) or, with attention, (e, w, a), optionally followed by b; shape (..., k).

        Returns:
            Shape (..., len(coordinates)).

        Raises:
            InputError: ``theta`` has another number of columns.
        """
        given = theta.shape[-1] - 2 - self.attention
        if given not in (0, 1):
            names = "(e, w, a)" if self.attention else "(e, w)"
            raise InputError(
                f"canonical coordinates are {names}, optionally with b, "
                f"not {theta.shape[-1]} columns"
            )
        canonical = theta[..., : 2 + self.attention]
        count = self.length if self.attention else 1
        bias = theta[..., -1] if given else 0.0
        point = RankOnePoint.from_canonical(canonical, count, bias)
        lifted = point.to_coordinates(self.attention, self.tied)
        if not given:
            lifted[..., self.coordinates.index("b")] = self.optimal_bias(lifted)
        return lifted

    def point(self, theta: Tensor) -> RankOnePoint:
        """Return the point at θ (..., k), with coordinates by name and all N positions."""
        return RankOnePoint.from_coordinates(theta, self.length, self.attention, self.tied)

    @accepts_theta
    def to_canonical(self, theta: Tensor) -> Tensor:
        """Return (e, w) or (e, w, a) with w|w| = w₁w₂ and a = o v, shape (..., 2 or 3).

        Inverts :meth:`from_canonical` on its image, up to b; elsewhere it is a projection.
        """
        return self.point(theta).to_canonical()[..., : 2 + self.attention]

    def classify(self, theta: Tensor, decisive: bool = False) -> Tensor | None:
        """Label critical points (n, k), int8 (n,), by their loss and by what is around them.

        A tied point at h(π₁) has h(π₁) + π₀π₁(p + q − 1)·slope·e² next to it, slope
        being that of the units there: 1 if closed, 1 + 4w₁w₂ if open, both next to ρ = 0. Untied
        points are saddles, since the sign of e c is free. None with attention.
        """
        if self.attention:
            return None
        chain = self.chain
        lowest = self.end_losses().reached(self.excess(theta))
        rho, w1 = theta[:, 1], theta[:, 2]
        product = 4 * w1 * theta[:, 3]
        gain = 1 + product
        gain = torch.where(gain.abs() <= 1e-9 * (1 + product.abs()), 0.0, gain)
        sign = -1.0 if chain.second_eigenvalue > 0 else float(chain.second_eigenvalue < 0)
        opened, closed = sign * gain > 0, torch.full_like(lowest, sign > 0)
        traps = torch.where(w1 * rho > 0, opened, closed)
        traps = torch.where(rho == 0, opened & closed, traps) & self.tied
        label = torch.where(traps, Label.LOCAL_MINIMUM, Label.SADDLE)
        return torch.where(lowest, Label.GLOBAL_MINIMUM, label).to(torch.int8)

    def training_rule(self) -> Any:
        """Return the class that trains this model; None if a derived class changed the loss.

        It takes the steps of the full transformer from lifted weights; see ``training.rule``.
        """
        from flowsim.models.rank_one.training.reduced import ReducedTraining

        return ReducedTraining if keeps_formulas_of(type(self), RankOneModel) else None

    def flow(self) -> SwitchingSolver:
        """Return the solver of the rows engine."""
        build = attention_rows.compiled_model_of if self.attention else rows.compiled_model_of
        return SwitchingSolver(self, build(self))
