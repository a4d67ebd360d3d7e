"""The reduced model with untied weights: embedding e, unembedding u."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from flowsim.models.canonical.basins import feed_forward_gain
from flowsim.models.gap_family.base import BinaryGapModel
from flowsim.models.on_chain import ChainPlane


class UntiedPlane(ChainPlane):
    """(w, e); the points e = 0 move unless u = 0."""

    def mirrored(self, fixed: Mapping[str, float]) -> bool:
        """Return whether −e mirrors e: unless u is fixed."""
        return "u" not in fixed

    def minima(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e of the minima above each w, Δ*/(u (1 + 2w|w|)) if u alone is fixed."""
        if "u" not in fixed or "b" in fixed:
            return super().minima(x, fixed)
        return self.model.chain.target_logit_gap / (fixed["u"] * feed_forward_gain(x))

    def axis_kinds(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor | None:
        """Return None: the points e = 0 are not critical unless u = 0."""
        return None


class UntiedModel(BinaryGapModel):
    """θ = (e, u, w): Δ = e u (1 + 2w|w|), L = ℓ(Δ).

    e² − u² is conserved, and so is e² + u² − w² − sign(w) log|w|. Untying turns the bad minima
    of the tied model, the points e = u = 0, into saddles: there the Hessian in (e, u) is
    ℓ′(0)(1 + 2w|w|) [0 1; 1 0]. Source: AM Thm. 3; docs/derivations/05.md.

    Args:
        chain: the data.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, u, w, b)).

    >>> import flowsim
    >>> model = flowsim.models.UntiedModel(flowsim.BinaryChain(0.5, 0.8))
    >>> float(model.logit_gap([1.0, 2.0, -1.0]))
    -2.0
    """

    name = "untied"
    tied = False
    heading = "untied weights"

    coordinates = ("e", "u", "w")
    keeps_sign = (False, False, True)

    def logit_gap(self, theta: Tensor) -> Tensor:
        """Return Δ = e u (1 + 2w|w|), shape (...)."""
        e, u, w = theta[..., 0], theta[..., 1], theta[..., 2]
        return e * u * feed_forward_gain(w)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇Δ by (e, u, w), shape (..., 3)."""
        e, u, w = theta[..., 0], theta[..., 1], theta[..., 2]
        gain = feed_forward_gain(w)
        return torch.stack([u * gain, e * gain, 4.0 * w.abs() * e * u], dim=-1)

    def offset(self, theta: Tensor) -> Tensor:
        """Return c(θ), the logit after a zero without the bias, −e u/2, shape (...)."""
        return -theta[..., 0] * theta[..., 1] / 2

    def offset_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇c by (e, u, w), shape (..., 3)."""
        e, u = theta[..., 0], theta[..., 1]
        return torch.stack([-u / 2, -e / 2, torch.zeros_like(e)], dim=-1)

    def flow(self) -> Any:
        """Return the solver in the logit gap; None if the bias is a coordinate."""
        from flowsim.models.untied.compiled import HOOKS

        return self._solver(UntiedModel, HOOKS, plane_attracts=False)

    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Return e² − u² and the energy by name, each (...); none if the bias is a coordinate."""
        if self.dynamic_bias:
            return {}
        e2, u2, w = theta[..., 0].square(), theta[..., 1].square(), theta[..., 2]
        potential = torch.where(w == 0, torch.nan, w.square() + torch.sign(w) * w.abs().log())
        return {"embedding_difference": e2 - u2, "energy": e2 + u2 - potential}

    @property
    def plane(self) -> UntiedPlane:
        """The plane (w, e)."""
        return UntiedPlane(self)
