"""The reduced model with linear rank-one attention: closed form in three dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.models.base import BinaryGapModel, of_theta
from flowsim.models.canonical import energy, feed_forward_gain


class LinearAttentionModel(BinaryGapModel):
    """θ = (e, w, a) with scores that are products of rank-one queries and keys, without softmax.

    Since (xᵢ − ½)² = ¼, the attention output is proportional to the current symbol for every
    position: s = (1 + a)(x − ½), Δ = e²(1 + a)(1 + 2w|w|), L = ℓ(Δ). Every orbit conserves
    e² − w² − sign(w) log|w| and e² − 2(1 + a)², which makes the model the exact oracle of the
    tests in three dimensions. Source: docs/derivations.md, 4.

    Args:
        chain: the data.
        bias: "optimal" (minimised out) or "dynamic" (θ = (e, w, a, b)).
    """

    name = "linear"

    coordinates: tuple[str, ...] = ("e", "w", "a")
    keeps_sign: tuple[bool, ...] = (True, True, False)
    conserved_names: tuple[str, ...] = ("energy", "attention_energy")

    @of_theta
    def logit_gap(self, theta: Tensor) -> Tensor:
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        return e * e * (1.0 + a) * feed_forward_gain(w)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        gain, share, squared = feed_forward_gain(w), 1.0 + a, e * e
        along_w = 4.0 * w.abs() * squared * share
        return torch.stack([2.0 * e * share * gain, along_w, squared * gain], dim=-1)

    def offset(self, theta: Tensor) -> Tensor:
        """The logit after a zero: for a < −1 it is the zero that opens the ReLU."""
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        return -e.square() * (1 + a) / 2 * self._opened(w, a)

    def offset_gradient(self, theta: Tensor) -> Tensor:
        e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
        opened, squared = self._opened(w, a), e.square()
        along_w = torch.where(a < -1, -squared * (1 + a) * 4 * w.abs(), 0.0)
        return torch.stack([-e * (1 + a) * opened, along_w, -squared / 2 * opened], dim=-1)

    @staticmethod
    def _opened(w: Tensor, a: Tensor) -> Tensor:
        """1 + 4w|w| where a zero opens the ReLU, 1 elsewhere."""
        return torch.where(a < -1, 1 + 4 * w * w.abs(), 1.0)

    def _conserved(self, theta: Tensor) -> Tensor:
        attention = theta[..., 0].square() - 2 * (1 + theta[..., 2]).square()
        return torch.stack([energy(theta), attention], dim=-1)
