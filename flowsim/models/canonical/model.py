"""The canonical model without attention: embedding e and feed-forward weight w."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from flowsim.interface import EndLosses, Integral, accepts_theta
from flowsim.labels import Label
from flowsim.models.canonical.basins import (
    SADDLE_ENERGY,
    energy,
    feed_forward_gain,
    reaches_global_minimum,
    separatrix,
)
from flowsim.models.gap_family.base import BinaryGapModel
from flowsim.models.on_chain import ChainPlane, canonical_integral


class CanonicalPlane(ChainPlane):
    """(w, e); the separatrix is known unless the bias is a coordinate."""

    def separatrix(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of the basins' boundary above each w; NaN where none is known."""
        if self.model.dynamic_bias:
            return super().separatrix(x, fixed)
        return separatrix(self.model.chain, x)


class CanonicalModel(BinaryGapModel):
    """The canonical model without attention, θ = (e, w).

    Δ = e²(1 + 2w|w|), L = ℓ(Δ), ∇L = ℓ′(Δ) (2e(1 + 2w|w|), 4|w|e²); every orbit conserves the
    energy E = e² − w² − sign(w) log|w|. Source: LG (canonical parameters, energy).

    Args:
        chain: the data.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, w, b)).

    >>> import flowsim
    >>> model = flowsim.models.CanonicalModel(flowsim.BinaryChain(0.5, 0.8))
    >>> round(float(model.loss([1.0, -1.2])), 4), model.coordinates
    (0.6241, ('e', 'w'))
    """

    name = "canonical"
    heading = "canonical model"

    coordinates = ("e", "w")
    keeps_sign = (True, True)

    def _remark(self) -> str:
        """Return the remark on tied models, with that lifted starts of the full model learn."""
        remark = super()._remark()
        return remark and f"{remark[:-1]}, and lifted starts learn)"

    def logit_gap(self, theta: Tensor) -> Tensor:
        """Return Δ = e²(1 + 2w|w|), shape (...)."""
        e, w = theta[..., 0], theta[..., 1]
        return e * e * feed_forward_gain(w)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇Δ by (e, w), shape (..., 2)."""
        e, w = theta[..., 0], theta[..., 1]
        return torch.stack([2.0 * e * feed_forward_gain(w), 4.0 * w.abs() * e * e], dim=-1)

    def offset(self, theta: Tensor) -> Tensor:
        """Return c(θ), the logit after a zero without the bias, −e²/2, shape (...)."""
        return -theta[..., 0].square() / 2

    def offset_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇c by (e, w), shape (..., 2)."""
        e = theta[..., 0]
        return torch.stack([-e, torch.zeros_like(e)], dim=-1)

    def flow(self) -> Any:
        """Return the solver in the logit gap; None if the bias is a coordinate."""
        from flowsim.models.canonical.compiled import HOOKS

        return self._solver(CanonicalModel, HOOKS)

    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Return the energy of θ by name, (...); nothing if the bias is a coordinate."""
        return {} if self.dynamic_bias else {"energy": energy(theta)}

    @property
    def plane(self) -> CanonicalPlane:
        """The plane (w, e)."""
        return CanonicalPlane(self)

    def basin(self, theta: Tensor) -> Tensor | None:
        """Return whether starts reach the global minima, bool (...); None with a dynamic bias."""
        return None if self.dynamic_bias else reaches_global_minimum(self.chain, theta)

    def end_losses(self) -> EndLosses:
        """Return the end losses, with the labels that are known from the start alone."""
        return replace(super().end_losses(), decided=self.decided)

    @accepts_theta
    def decided(self, theta: Tensor) -> Tensor:
        """Label starts with e ≠ 0 and w ≥ 0, others UNRESOLVED, int8 (...); for either bias.

        w stays ≥ 0, and there the critical points with e ≠ 0 are the global minima. Let g be
        1 + 2w² and A = π₁ (σ(f₁) − (1 − q)); where e = 0 and b is optimal A has the sign of
        p + q − 1. If p + q > 1, L ≥ ℓ(0) + ℓ′(0) Δ with ℓ′(0) Δ ≥ 0: it stays above the best. If
        p + q < 1, log|e|, plus b if it is a coordinate, has the rate −2gA, positive beside every
        critical point with e = 0, so that none of these is the end.
        """
        e, w, rank = theta[..., 0], theta[..., 1], self.chain.p + self.chain.q
        label = Label.GLOBAL_MINIMUM if rank < 1 else Label.LOCAL_MINIMUM
        known = (e != 0) & (w >= 0) & (rank != 1)
        return torch.where(known, int(label), int(Label.UNRESOLVED)).to(torch.int8)

    def integral(self) -> Integral:
        """Return the basin's integral over Gaussian starts, and the energy that decides it."""
        return canonical_integral(self.chain)._replace(energy=energy, saddle_energy=SADDLE_ENERGY)
