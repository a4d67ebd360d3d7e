"""The models whose loss is a function of one number, the logit gap Δ, with the bias minimised out.

Without attention, with linear attention and with untied weights the predicted logits are f₀ after a
zero and f₁ = f₀ + Δ after a one, so the expected loss is ℓ(Δ). Its formulas are compiled; here they
are functions of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from flowsim.chain import BinaryChain
from flowsim.elementary import excess_entropies
from flowsim.inheritance import unwritten
from flowsim.interface import LogitGapSystem, accepts_theta, differentiate
from flowsim.markov import GapChain
from flowsim.models import autograd
from flowsim.models.gap_family.compiled import derivatives, loss_parameters, optimal_logits
from flowsim.models.on_chain import OnChain


class _Loss:
    """ℓ of rows that hold Δ alone, (..., 1), as ``models.autograd`` takes it."""

    def __init__(self, chain: BinaryChain) -> None:
        self.params = loss_parameters(chain)

    def by_rows(self, gap: Tensor, quantity: str) -> Tensor:
        """Return ℓ (...), ℓ′ (..., 1) or ℓ″ (..., 1, 1) at ``gap`` (..., 1), by its name."""
        order = autograd.QUANTITIES.index(quantity)
        return autograd.evaluate_rows(
            gap, order, lambda x, out: derivatives(order, self.params, x[:, 0], out[:, 0])
        ).to(gap)


def _each(values: Tensor, function: Callable[[np.ndarray, np.ndarray], None]) -> Tensor:
    """Apply a compiled function of two arrays (n,), read and filled, to every number."""
    return autograd.evaluate_rows(
        values.unsqueeze(-1), 0, lambda x, out: function(x[:, 0], out[:, 0])
    ).to(values)


def optimal_logit(chain: BinaryChain, gap: Tensor) -> Tensor:
    """Return the logit f₀ after a zero that minimises the loss at logit gap Δ; no derivative."""
    _, _, _, pi0, pi1, difference, _, _ = loss_parameters(chain)
    return _each(gap, lambda x, out: optimal_logits(pi0, pi1, difference, x, out))


def cross_entropy(chain: BinaryChain, logit0: Tensor, logit1: Tensor) -> Tensor:
    """Return the expected next-symbol loss when the logit is f₀ after a zero and f₁ after a one.

    L = Σₓ πₓ [−t(x) log σ(fₓ) − (1 − t(x)) log σ(−fₓ)], t(0) = p, t(1) = 1 − q, in nats; a sum of
    positive terms. f₀ and f₁ have any broadcastable shapes. Source: AM Sec. 2.
    """
    pi0, pi1 = chain.stationary
    after_zero = chain.p * logsigmoid(logit0) + (1 - chain.p) * logsigmoid(-logit0)
    after_one = (1 - chain.q) * logsigmoid(logit1) + chain.q * logsigmoid(-logit1)
    return -pi0 * after_zero - pi1 * after_one


def relative_entropy(beyond: Tensor, target: float, other: float) -> Tensor:
    """Return the divergence from t to σ(logit t + ``beyond``) in nats, shape of ``beyond``.

    ``target`` is t and ``other`` 1 − t; no derivative.
    """
    return _each(beyond, lambda x, out: excess_entropies(x, target, other, out))


def excess(chain: BinaryChain, logit0: Tensor, logit1: Tensor) -> Tensor:
    """Return ``cross_entropy`` minus the entropy rate, by how far logits are beyond targets'."""
    pi0, pi1 = chain.stationary
    p, q = chain.p, chain.q
    after_zero = relative_entropy(logit0 - math.log(p) + math.log1p(-p), p, 1 - p)
    after_one = relative_entropy(logit1 - math.log1p(-q) + math.log(q), 1 - q, q)
    return pi0 * after_zero + pi1 * after_one


def residual(logit: Tensor, target: float, other: float) -> Tensor:
    """Return σ(f) − t with ``other`` = 1 − t, from the side on which it does not cancel."""
    low, high = torch.sigmoid(logit) - target, other - torch.sigmoid(-logit)
    return torch.where(logit > 0, high, low)


class GapModel(OnChain):
    """Models whose prediction is one logit gap: L = ℓ(Δ(θ)), ∇L = ℓ′(Δ) ∇Δ.

    Subclasses give Δ and its gradient, ℓ and ℓ′, and what is conserved. ℓ is convex and smallest at
    the chain's target gap.
    """

    chain: GapChain
    _axes = ("w", "e")

    @property
    def params(self) -> tuple[float, ...]:
        """Arguments of ℓ(Δ) besides Δ, as compiled functions take them."""
        raise NotImplementedError

    @accepts_theta
    @unwritten
    def logit_gap(self, theta: Tensor) -> Tensor:
        """Δ, shape (...)."""
        raise NotImplementedError

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """∇Δ over the coordinates without the bias, (..., k); a formula is four times as fast."""
        return self._without_bias(differentiate(self.logit_gap, theta))

    @unwritten
    def loss_at(self, gap: Tensor) -> Tensor:
        """ℓ(Δ) in nats, shape of Δ."""
        raise NotImplementedError

    def slope_at(self, gap: Tensor) -> Tensor:
        """ℓ′(Δ), of the sign of Δ − Δ*; by automatic differentiation."""
        return differentiate(self.loss_at, gap)

    def _solver(self, of: type, hooks: tuple[Any, ...], **more: Any) -> Any:
        """Return the solver in the logit gap; None if the bias is a coordinate.

        ``of`` is the class whose compiled ``hooks`` these are; ``more`` as of ``LogitGapSystem``.
        """
        from flowsim.flow.gap.engine import LogitGapSolver

        if self.dynamic_bias:
            return None
        return LogitGapSolver(self, LogitGapSystem(of, hooks, self.params, **more))

    def _without_bias(self, gradient: Tensor) -> Tensor:
        """Return a gradient (..., k) without the column of the bias, if that is a coordinate."""
        return gradient[..., :-1] if self.dynamic_bias else gradient

    def loss(self, theta: Tensor) -> Tensor:
        """Return L = ℓ(Δ(θ)) in nats, shape (...)."""
        return self.loss_at(self.logit_gap(theta))

    def gradient(self, theta: Tensor) -> Tensor:
        """∇L = ℓ′(Δ) ∇Δ, shape of ``theta``."""
        slope = self.slope_at(self.logit_gap(theta))
        return slope.unsqueeze(-1) * self.logit_gap_gradient(theta)


class BinaryGapModel(GapModel):
    """Models with logit f₀ = b + c(θ) after a zero and f₁ = f₀ + Δ(θ) after a one.

    With ``bias="optimal"`` the bias is minimised out and L = ℓ(Δ(θ)); with ``bias="dynamic"`` it
    is one more coordinate, the last, as in the authors' own three-parameter code. Subclasses give
    Δ, the offset c and their gradients.

    Raises:
        InputError: ``bias`` is neither "optimal" nor "dynamic".
    """

    chain: BinaryChain

    def __init__(self, chain: BinaryChain, bias: str = "optimal") -> None:
        self.chain = chain
        self._choose_bias(bias)

    @property
    def params(self) -> tuple[float, ...]:
        """Arguments of the compiled ℓ besides Δ."""
        return loss_parameters(self.chain)

    def options(self) -> dict[str, Any]:
        """Return the kind of bias, "optimal" or "dynamic", by name."""
        return {"bias": "dynamic" if self.dynamic_bias else "optimal"}

    @unwritten
    def offset(self, theta: Tensor) -> Tensor:
        """c, the logit after a zero minus the bias; shape (...)."""
        raise NotImplementedError

    def offset_gradient(self, theta: Tensor) -> Tensor:
        """∇c over the coordinates without the bias, (..., k); likewise."""
        return self._without_bias(differentiate(self.offset, theta))

    def loss_at(self, gap: Tensor) -> Tensor:
        """ℓ(Δ) in nats: convex, ℓ(0) = h(π₁), smallest at Δ* where it is the entropy rate."""
        return autograd.loss(_Loss(self.chain), gap.unsqueeze(-1))

    def slope_at(self, gap: Tensor) -> Tensor:
        """Return ℓ′(Δ), shape of Δ, of the sign of Δ − Δ*."""
        return autograd.gradient(_Loss(self.chain), gap.unsqueeze(-1)).squeeze(-1)

    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); a stored bias is ignored."""
        return optimal_logit(self.chain, self.logit_gap(theta)) - self.offset(theta)

    def loss(self, theta: Tensor) -> Tensor:
        """Return the expected cross-entropy in nats at θ, shape (...)."""
        if not self.dynamic_bias:
            return super().loss(theta)
        logit0 = theta[..., -1] + self.offset(theta)
        return cross_entropy(self.chain, logit0, logit0 + self.logit_gap(theta))

    def excess(self, theta: Tensor) -> Tensor:
        """Return the loss above the entropy rate at θ, shape (...), without cancellation."""
        gap = self.logit_gap(theta)
        if self.dynamic_bias:
            logit0 = theta[..., -1] + self.offset(theta)
        else:
            logit0 = optimal_logit(self.chain, gap)
        return excess(self.chain, logit0, logit0 + gap)

    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of ``theta``: ℓ′(Δ) ∇Δ, or its three terms when the bias is a coordinate."""
        if not self.dynamic_bias:
            return super().gradient(theta)
        logit0, (p, q) = theta[..., -1] + self.offset(theta), (self.chain.p, self.chain.q)
        pi0, pi1 = self.chain.stationary
        after_one = pi1 * residual(logit0 + self.logit_gap(theta), 1 - q, q).unsqueeze(-1)
        both = pi0 * residual(logit0, p, 1 - p).unsqueeze(-1) + after_one
        weights = both * self.offset_gradient(theta) + after_one * self.logit_gap_gradient(theta)
        return torch.cat([weights, both], dim=-1)
