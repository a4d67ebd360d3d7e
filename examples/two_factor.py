"""Two factors of one number, the smallest model that learns as a deep linear network does."""

import torch
from torch import Tensor

import flowsim


class TwoFactor(flowsim.Model):
    """L = ½(ab − 1)², the loss of a linear transformer of two factors.

    Balasubramanian, "Large-Step Training Dynamics of a Two-Factor Linear Transformer Model",
    arXiv 2605.21292. Gradient flow conserves a² − b².
    """

    coordinates = ("a", "b")

    def loss(self, theta: Tensor) -> Tensor:
        a, b = theta.unbind(-1)
        return (a * b - 1) ** 2 / 2

    def conserved(self, theta: Tensor) -> dict[str, Tensor]:
        a, b = torch.as_tensor(theta).unbind(-1)
        return {"difference": a**2 - b**2}
