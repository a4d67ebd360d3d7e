"""Adam on the loss |x|ᵏ/k, without corrections of the first steps."""

import torch
from torch import Tensor

import flowsim


class AdamPower(flowsim.Model):
    """m⁺ = β₁m + (1 − β₁)g, v⁺ = β₂v + (1 − β₂)g², x⁺ = x − ηm⁺/(√v⁺ + ε), with memory (m, v).

    Adam on xᵏ: arXiv 2603.09581; loss spikes: arXiv 2506.04805. With v at rest x is stable while
    the preconditioned curvature stays below 2(1 + β₁)/((1 − β₁)η) = 38/η for β₁ = 0.9; β₂ = 1
    holds v at 0, and 1/ε is the preconditioner.

    Args:
        power: k.
        rate, beta1, beta2, epsilon: Adam's numbers.
    """

    coordinates = ("x", "y")
    memory = ("mx", "my", "vx", "vy")

    def __init__(self, power: int = 2, rate: float = 0.1, beta1: float = 0.9,
                 beta2: float = 0.99, epsilon: float = 1e-8) -> None:  # fmt: skip
        self.power, self.rate, self.epsilon = power, rate, epsilon
        self.beta1, self.beta2 = beta1, beta2

    def loss(self, theta: Tensor) -> Tensor:
        return (theta.abs() ** self.power).sum(-1) / self.power

    def step(self, theta: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        slope, (m, v) = self.gradient(theta), memory.chunk(2, -1)
        m = self.beta1 * m + (1 - self.beta1) * slope
        v = self.beta2 * v + (1 - self.beta2) * slope**2
        return theta - self.rate * m / (v.sqrt() + self.epsilon), torch.cat([m, v], -1)
