"""The policy gradient on two arms: it ends at infinity, as slowly as 1/t."""

import torch
from torch import Tensor

import flowsim


class PolicyGradient(flowsim.Model):
    """L = Δ(1 − π), the regret of two arms; π = σ(x − y) is the probability of the better one.

    Mei, Xiao, Szepesvari, Schuurmans, "On the Global Convergence Rates of Softmax Policy Gradient
    Methods", arXiv 2005.06392. With θ = x − y, which starts at 0, t = (2θ + e^θ − e^{−θ})/(2Δ).

    Args:
        gap: Δ, the difference of the mean rewards.
    """

    coordinates = ("x", "y")

    def __init__(self, gap: float = 1.0) -> None:
        self.gap = gap

    def loss(self, theta: Tensor) -> Tensor:
        return self.gap * torch.sigmoid(theta[..., 1] - theta[..., 0])
