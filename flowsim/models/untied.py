"""The reduced model with untied weights: embedding e, unembedding u."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.models.base import BinaryGapModel, of_theta
from flowsim.models.canonical import feed_forward_gain


class UntiedModel(BinaryGapModel):
    """θ = (e, u, w): Δ = e u (1 + 2w|w|), L = ℓ(Δ).

    e² − u² is conserved, and so is e² + u² − w² − sign(w) log|w|. Untying turns the bad minima
    of the tied model, the points e = u = 0, into saddles: there the Hessian in (e, u) is
    ℓ′(0)(1 + 2w|w|) [0 1; 1 0]. Source: AM Thm. 3; docs/derivations.md, 5.

    Args:
        chain: the data.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, u, w, b)).
    """

    name = "untied"

    coordinates: tuple[str, ...] = ("e", "u", "w")
    keeps_sign: tuple[bool, ...] = (False, False, True)
    conserved_names: tuple[str, ...] = ("embedding_difference", "energy")

    @of_theta
    def logit_gap(self, theta: Tensor) -> Tensor:
        e, u, w = theta[..., 0], theta[..., 1], theta[..., 2]
        return e * u * feed_forward_gain(w)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        e, u, w = theta[..., 0], theta[..., 1], theta[..., 2]
        gain = feed_forward_gain(w)
        return torch.stack([u * gain, e * gain, 4.0 * w.abs() * e * u], dim=-1)

    def offset(self, theta: Tensor) -> Tensor:
        return -theta[..., 0] * theta[..., 1] / 2

    def offset_gradient(self, theta: Tensor) -> Tensor:
        e, u = theta[..., 0], theta[..., 1]
        return torch.stack([-u / 2, -e / 2, torch.zeros_like(e)], dim=-1)

    def _conserved(self, theta: Tensor) -> Tensor:
        e2, u2, w = theta[..., 0].square(), theta[..., 1].square(), theta[..., 2]
        potential = torch.where(w == 0, torch.nan, w.square() + torch.sign(w) * w.abs().log())
        return torch.stack([e2 - u2, e2 + u2 - potential], dim=-1)
