"""The reduced model with linear rank-one attention: closed form in three dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from flowsim.models.canonical.basins import SADDLE_ENERGY, energy, feed_forward_gain
from flowsim.models.gap_family.base import BinaryGapModel
from flowsim.models.on_chain import AttentionPlane


class LinearPlane(AttentionPlane):
    """(w, e) with a held."""

    def separatrix(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of the basins' boundary above each w, NaN where none is.

        An orbit changes side where e² passes 2(1 + a)², or the level of the saddle's energy.
        """
        if self.model.dynamic_bias:
            return super().separatrix(x, fixed)
        share = 1 + fixed.get("a", 0.0)
        level = x.square() - x.abs().log() + SADDLE_ENERGY
        level = torch.where(x < 0, level.clamp_min(0), torch.inf).clamp_max(2 * share**2)
        trapping = share * feed_forward_gain(x) * self.model.chain.second_eigenvalue < 0
        return torch.where(trapping, level.sqrt(), torch.nan)

    def minima(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of minima above each w: e² = Δ*/((1 + a)(1 + 2w|w|)); else NaN."""
        if "b" in fixed:
            return torch.full_like(x, torch.nan)
        gain = (1 + fixed.get("a", 0.0)) * feed_forward_gain(x)
        squared = self.model.chain.target_logit_gap / gain
        return torch.where(squared > 0, squared.sqrt(), torch.nan)


class LinearAttentionModel(BinaryGapModel):
    """θ = (e, w, a) with scores that are products of rank-one queries and keys, without softmax.

    Since (xᵢ − ½)² = ¼, the attention output is proportional to the current symbol for every
    position: s = (1 + a)(x − ½), Δ = e²(1 + a)(1 + 2w|w|), L = ℓ(Δ). Every orbit conserves
    e² − w² − sign(w) log|w| and e² − 2(1 + a)², which makes the model the exact oracle of the
    tests in three dimensions. Source: docs/derivations/04.md.

    Args:
        chain: the data.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, w, a, b)).

    >>> import flowsim
    >>> model = flowsim.models.LinearAttentionModel(flowsim.BinaryChain(0.5, 0.8))
    >>> float(model.logit_gap([1.0, -0.5, 1.0]))
    1.0
    """

    name = "linear"
    heading = "linear attention"

    coordinates = ("e", "w", "a")
    keeps_sign = (True, True, False)

    def _remark(self) -> str:
        """Return no remark: the title says all."""
        return ""

    def logit_gap(self, theta: Tensor) -> Tensor:
        """Return Δ = e²(1 + a)(1 + 2w|w|), shape (...)."""
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        return e * e * (1.0 + a) * feed_forward_gain(w)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇Δ by (e, w, a), shape (..., 3)."""
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        gain, share, squared = feed_forward_gain(w), 1.0 + a, e * e
        along_w = 4.0 * w.abs() * squared * share
        return torch.stack([2.0 * e * share * gain, along_w, squared * gain], dim=-1)

    def offset(self, theta: Tensor) -> Tensor:
        """Return c(θ), the logit after a zero without the bias, shape (...).

        For a < −1 it is the zero that opens the ReLU.
        """
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        return -e.square() * (1 + a) / 2 * self._opened(w, a)

    def offset_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇c by (e, w, a), shape (..., 3)."""
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        opened, squared = self._opened(w, a), e.square()
        along_w = torch.where(a < -1, -squared * (1 + a) * 4 * w.abs(), 0.0)
        return torch.stack([-e * (1 + a) * opened, along_w, -squared / 2 * opened], dim=-1)

    @staticmethod
    def _opened(w: Tensor, a: Tensor) -> Tensor:
        """Return 1 + 4w|w| where a zero opens the ReLU, 1 elsewhere."""
        return torch.where(a < -1, 1 + 4 * w * w.abs(), 1.0)

    def flow(self) -> Any:
        """Return the solver in the logit gap; None if the bias is a coordinate."""
        from flowsim.models.linear.compiled import HOOKS

        return self._solver(LinearAttentionModel, HOOKS)

    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Return both conserved energies by name, each (...); none if the bias is a coordinate."""
        if self.dynamic_bias:
            return {}
        attention = theta[..., 0].square() - 2 * (1 + theta[..., 2]).square()
        return {"energy": energy(theta), "attention_energy": attention}

    @property
    def plane(self) -> LinearPlane:
        """The plane (w, e) with a held, and the space (w, e, a)."""
        return LinearPlane(self)

    def basin(self, theta: Tensor) -> Tensor | None:
        """Return whether starts reach the global minima, bool (...); None with a dynamic bias.

        Write c = 1 + a and g = 1 + 2w|w|. Where cgΔ* > 0 an orbit is on the side of Δ*, which it
        reaches. Elsewhere e falls, and the orbit changes side iff it meets c = 0 or g = 0 before
        e = 0: at e² = E₂ = e² − 2c² if that is positive, or at e² = E − E_s if w < 0 and that is
        positive (w = 0 is invariant). The plane e = 0 never moves and counts only for p + q = 1.
        Source: own derivation from the two conserved quantities.
        """
        if self.dynamic_bias:
            return None
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        if self.chain.second_eigenvalue == 0:
            return torch.ones_like(e, dtype=torch.bool)
        side = (1 + a) * feed_forward_gain(w) * self.chain.second_eigenvalue > 0
        through_attention = e.square() > 2 * (1 + a).square()
        through_feed_forward = (w < 0) & (energy(theta) > SADDLE_ENERGY)
        return (e != 0) & (side | through_attention | through_feed_forward)
