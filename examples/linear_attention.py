"""One head of linear attention that learns regression in context, in one eigendirection."""

import torch
from torch import Tensor

import flowsim


class LinearAttention(flowsim.Model):
    """L = ½TrΛ − λ²vkq + ½λ²(vkq)² [λ(1 + 1/N) + TrΛ/N], with key and query of rank one.

    Zhang, Singh, Latham, Saxe, "Training Dynamics of In-Context Learning in Linear Attention",
    arXiv 2501.16265. Gradient flow conserves v² − k² and v² − q².

    Args:
        eigenvalue: λ, the variance of the inputs in the direction that is learned.
        trace: TrΛ, their variance in all directions.
        length: N, how many examples a sequence has.
    """

    coordinates = ("v", "k", "q")

    def __init__(self, eigenvalue: float = 1.0, trace: float = 1.0, length: int = 8) -> None:
        self.eigenvalue, self.trace, self.length = eigenvalue, trace, length

    def loss(self, theta: Tensor) -> Tensor:
        product, square = theta.prod(-1), self.eigenvalue**2
        spread = self.eigenvalue * (1 + 1 / self.length) + self.trace / self.length
        return self.trace / 2 - square * product + square * product**2 * spread / 2

    def conserved(self, theta: Tensor) -> dict[str, Tensor]:
        v, k, q = torch.as_tensor(theta).unbind(-1)
        return {"value_key": v**2 - k**2, "value_query": v**2 - q**2}
