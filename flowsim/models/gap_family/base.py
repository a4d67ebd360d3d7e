"""The models whose loss is a function of the logit gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.inheritance import unwritten
from flowsim.interface import EndLosses, accepts_theta, differentiate
from flowsim.markov import GapChain
from flowsim.models.gap_family.loss import (
    cross_entropy,
    excess,
    gap_loss,
    gap_slope,
    optimal_logit,
    residual0,
    residual1,
)
from flowsim.models.on_chain import OnChain


class GapModel(OnChain):
    """Models whose prediction is one logit gap: L = ℓ(Δ(θ)), ∇L = ℓ′(Δ) ∇Δ.

    Subclasses give Δ and its gradient, ℓ and ℓ′, and what is conserved. ℓ is convex and smallest at
    the chain's target gap.
    """

    chain: GapChain
    _axes = ("w", "e")

    @accepts_theta
    @unwritten
    def logit_gap(self, theta: Tensor) -> Tensor:
        """Δ, shape (...)."""
        raise NotImplementedError

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """∇Δ over the coordinates without the bias, shape (..., k); differentiated of Δ."""
        return self._without_bias(differentiate(self.logit_gap, theta))

    @unwritten
    def loss_at(self, gap: Tensor) -> Tensor:
        """ℓ(Δ) in nats, shape of Δ."""
        raise NotImplementedError

    def slope_at(self, gap: Tensor) -> Tensor:
        """ℓ′(Δ), of the sign of Δ − Δ*; by automatic differentiation."""
        return differentiate(self.loss_at, gap)

    def end_losses(self) -> EndLosses:
        return replace(super().end_losses(), floor=self.tangent)

    @accepts_theta
    def tangent(self, theta: Tensor) -> Tensor:
        """ℓ(0) + ℓ′(0) Δ, nowhere above the loss, (...)."""
        slope = float(self.slope_at(torch.zeros(1, dtype=torch.float64)))
        return self.chain.stationary_entropy + slope * self.logit_gap(theta)

    def _without_bias(self, gradient: Tensor) -> Tensor:
        return gradient[..., :-1] if self.dynamic_bias else gradient

    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Conserved quantities by name, each (...): they need the bias at its optimum."""
        return {} if self.dynamic_bias else self._conserved(theta)

    def _conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        raise NotImplementedError

    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...)."""
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
        if bias not in ("optimal", "dynamic"):
            raise InputError(f'bias must be "optimal" or "dynamic", not {bias!r}')
        self.dynamic_bias = bias == "dynamic"
        if self.dynamic_bias:
            self.keeps_sign = (*self.keeps_sign, False)
            self.coordinates = (*self.coordinates, "b")

    @property
    def params(self) -> tuple[float, ...]:
        """Arguments of ℓ(Δ) besides Δ, as compiled functions take them."""
        from flowsim.models.gap_family.compiled import loss_parameters

        return loss_parameters(self.chain)

    def options(self) -> dict[str, Any]:
        return {"bias": "dynamic" if self.dynamic_bias else "optimal"}

    @unwritten
    def offset(self, theta: Tensor) -> Tensor:
        """c, the logit after a zero minus the bias; shape (...)."""
        raise NotImplementedError

    def offset_gradient(self, theta: Tensor) -> Tensor:
        """∇c over the coordinates without the bias, shape (..., k); differentiated of c."""
        return self._without_bias(differentiate(self.offset, theta))

    def loss_at(self, gap: Tensor) -> Tensor:
        return gap_loss(self.chain, gap)

    def slope_at(self, gap: Tensor) -> Tensor:
        return gap_slope(self.chain, gap)

    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); a stored bias is ignored."""
        return optimal_logit(self.chain, self.logit_gap(theta)) - self.offset(theta)

    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...)."""
        if not self.dynamic_bias:
            return super().loss(theta)
        logit0 = theta[..., -1] + self.offset(theta)
        return cross_entropy(self.chain, logit0, logit0 + self.logit_gap(theta))

    def excess(self, theta: Tensor) -> Tensor:
        """The loss above the entropy rate, (...), from the logits: right relative to itself."""
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
        logit0 = theta[..., -1] + self.offset(theta)
        after_one = residual1(self.chain, logit0 + self.logit_gap(theta)).unsqueeze(-1)
        both = residual0(self.chain, logit0).unsqueeze(-1) + after_one
        weights = both * self.offset_gradient(theta) + after_one * self.logit_gap_gradient(theta)
        return torch.cat([weights, both], dim=-1)
