"""A diagonal linear network: the size of the start chooses between two interpolators."""

import torch
from torch import Tensor

import flowsim


class DiagonalNet(flowsim.Model):
    """L = ½(x·β − y)² with β = u² − v² and x = (1, 2), y = 1.

    Woodworth et al., "Kernel and Rich Regimes in Overparametrized Models", arXiv 2002.09277. From
    u = v = α the limit is βᵢ = 2α² sinh(c xᵢ) with x·β = y; uᵢvᵢ is kept.
    """

    coordinates = ("u1", "u2", "v1", "v2")

    def beta(self, theta: Tensor) -> Tensor:
        theta = torch.as_tensor(theta)
        return theta[..., :2] ** 2 - theta[..., 2:] ** 2

    def loss(self, theta: Tensor) -> Tensor:
        return (self.beta(theta) @ theta.new_tensor([1.0, 2.0]) - 1) ** 2 / 2

    def conserved(self, theta: Tensor) -> dict[str, Tensor]:
        theta = torch.as_tensor(theta)
        return {"first": theta[..., 0] * theta[..., 2], "second": theta[..., 1] * theta[..., 3]}
