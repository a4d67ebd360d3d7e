"""Self-stabilization at the edge of stability: closed orbits about a centre."""

import torch
from torch import Tensor

import flowsim


class SelfStabilization(flowsim.Model):
    """x′ = xy, y′ = 1 − x²: x is the oscillation, y the sharpness above 2/η, rescaled.

    Damian, Nichani, Lee, "Self-Stabilization: The Implicit Bias of Gradient Descent at the Edge of
    Stability", arXiv 2209.15594. E = ½(x² − 1) − log|x| + ½y² is kept, and stands for the loss;
    near (1, 0) the period is 2π/√2.
    """

    coordinates = ("x", "y")
    keeps_sign = (True, False)

    def loss(self, theta: Tensor) -> Tensor:
        x, y = theta.unbind(-1)
        return (x**2 - 1) / 2 - x.abs().log() + y**2 / 2

    def field(self, theta: Tensor) -> Tensor:
        x, y = theta.unbind(-1)
        return torch.stack([x * y, 1 - x**2], -1)
