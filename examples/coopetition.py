"""Two ways to solve one task that share factors, and compete for the rest."""

import torch
from torch import Tensor

import flowsim


class Coopetition(flowsim.Model):
    """L = (½(abc − 1)² + μ₁)(½(dbc − 1)² + μ₂) + ½α(ad)², with one number for each factor.

    Singh et al., "Strategy Coopetition Explains the Emergence and Transience of In-Context
    Learning", arXiv 2503.05631. The strategies a and d share b and c. Both at once cost α.
    Gradient flow conserves b² − c².

    Args:
        mu1, mu2: what is left of the losses of a and d where they are learned perfectly.
        alpha: how strongly a and d exclude one another.
    """

    coordinates = ("a", "d", "b", "c")

    def __init__(self, mu1: float = 0.1, mu2: float = 0.2, alpha: float = 1.0) -> None:
        self.mu1, self.mu2, self.alpha = mu1, mu2, alpha

    def loss(self, theta: Tensor) -> Tensor:
        a, d, b, c = theta.unbind(-1)
        one, other = (a * b * c - 1) ** 2 / 2, (d * b * c - 1) ** 2 / 2
        return (one + self.mu1) * (other + self.mu2) + self.alpha * (a * d) ** 2 / 2

    def conserved(self, theta: Tensor) -> dict[str, Tensor]:
        b, c = torch.as_tensor(theta)[..., 2:].unbind(-1)
        return {"difference": b**2 - c**2}
