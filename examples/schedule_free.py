"""Schedule-free gradient descent on a quadratic."""

import torch
from torch import Tensor

import flowsim


class ScheduleFree(flowsim.Model):
    """y = (1 − β)z + βx, z⁺ = z − η∇L(y), x⁺ = (1 − c)x + cz⁺, c = 1/(t + 1); L = ½(hx₁² + x₂²).

    Defazio et al., "The Road Less Scheduled", arXiv 2405.15682; its edge of stability in
    arXiv 2507.09846. With the average x at rest it is stable for h below 2/((1 − β)η). The
    memory is z − x and the number t of steps.

    Args:
        curvature: h.
        rate, beta: η and β.
    """

    coordinates = ("x1", "x2")
    memory = ("d1", "d2", "t")

    def __init__(self, curvature: float = 10.0, rate: float = 0.1, beta: float = 0.9) -> None:
        self.curvature, self.rate, self.beta = curvature, rate, beta

    def loss(self, theta: Tensor) -> Tensor:
        return (self.curvature * theta[..., 0] ** 2 + theta[..., 1] ** 2) / 2

    def step(self, theta: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        ahead, t = memory[..., :2], memory[..., 2:] + 1
        ahead = ahead - self.rate * self.gradient(theta + (1 - self.beta) * ahead)
        return theta + ahead / t, torch.cat([ahead * (1 - 1 / t), t], -1)
