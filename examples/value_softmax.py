"""A value vector behind a softmax: every end is at infinity."""

import torch
from torch import Tensor

import flowsim


class ValueSoftmax(flowsim.Model):
    """L = log(1 + exp(−u·σ(a))), σ the softmax of two entries, δ = a₁ − a₂.

    Varre et al., "Gradient Flow Polarizes Softmax Outputs towards Low-Entropy Solutions",
    arXiv 2603.06248. Moving δ by 1 moves a₁ and a₂ by ½ each, hence the metric (1, 1, ½).
    Gradient flow conserves (u₁ − u₂)² − 2 cosh δ.
    """

    coordinates = ("u1", "u2", "delta")
    metric = (1.0, 1.0, 0.5)

    def loss(self, theta: Tensor) -> Tensor:
        u1, u2, delta = theta.unbind(-1)
        share = torch.sigmoid(delta)
        return torch.nn.functional.softplus(-u1 * share - u2 * (1 - share))

    def conserved(self, theta: Tensor) -> dict[str, Tensor]:
        u1, u2, delta = torch.as_tensor(theta).unbind(-1)
        return {"energy": (u1 - u2) ** 2 - 2 * torch.cosh(delta)}
