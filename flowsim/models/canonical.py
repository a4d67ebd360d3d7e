"""The canonical model without attention: embedding e and feed-forward weight w."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.models.base import BinaryGapModel, of_theta


class CanonicalModel(BinaryGapModel):
    """The canonical model without attention, θ = (e, w).

    Δ = e²(1 + 2w|w|), L = ℓ(Δ), ∇L = ℓ′(Δ) (2e(1 + 2w|w|), 4|w|e²); every orbit conserves the
    energy E = e² − w² − sign(w) log|w|. Source: LG (canonical parameters, energy).

    Args:
        chain: the data.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, w, b)).
    """

    name = "canonical"

    coordinates: tuple[str, ...] = ("e", "w")
    keeps_sign: tuple[bool, ...] = (True, True)
    conserved_names: tuple[str, ...] = ("energy",)

    @of_theta
    def logit_gap(self, theta: Tensor) -> Tensor:
        e, w = theta[..., 0], theta[..., 1]
        return e * e * feed_forward_gain(w)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        e, w = theta[..., 0], theta[..., 1]
        return torch.stack([2.0 * e * feed_forward_gain(w), 4.0 * w.abs() * e * e], dim=-1)

    def offset(self, theta: Tensor) -> Tensor:
        return -theta[..., 0].square() / 2

    def offset_gradient(self, theta: Tensor) -> Tensor:
        e = theta[..., 0]
        return torch.stack([-e, torch.zeros_like(e)], dim=-1)

    def _conserved(self, theta: Tensor) -> Tensor:
        return energy(theta).unsqueeze(-1)


def feed_forward_gain(w: Tensor) -> Tensor:
    """g = 1 + 2w|w|: how the feed-forward layer multiplies the logit gap; zero at w = −1/√2."""
    return 1.0 + 2.0 * w * w.abs()


@accepts_arrays
def energy(theta: Tensor) -> Tensor:
    """E(e, w) = e² − w² − sign(w) log|w|, conserved by the canonical flow for every p and q.

    Args:
        theta: shape (..., k) with e and w in the first two columns.

    Returns:
        E, shape (...); NaN at w = 0, which is invariant and carries no energy. Source: LG.
    """
    e, w = theta[..., 0], theta[..., 1]
    value = e.square() - w.square() - torch.sign(w) * torch.log(w.abs())
    return torch.where(w == 0, torch.nan, value)
