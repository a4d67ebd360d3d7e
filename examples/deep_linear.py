"""Three linear layers with weight decay: learning starts with a jump."""

from torch import Tensor

import flowsim


class DeepLinear(flowsim.Model):
    """L = ½(1 − w₁w₂w₃)² + ½λ(w₁² + w₂² + w₃²).

    Ziyin, Li, Meng, "Exact Solutions of a Deep Linear Network", arXiv 2205.12510: with three layers
    or more the origin is a minimum, and the other one is lower below λ = 2^(−4/3) (equal losses
    at w³ = ½); it is gone above λ = 0.4724703937, a fold at w³ = ¼.

    Args:
        decay: λ, the weight decay.
    """

    coordinates = ("w1", "w2", "w3")

    def __init__(self, decay: float = 0.3) -> None:
        self.decay = decay

    def loss(self, theta: Tensor) -> Tensor:
        return (1 - theta.prod(-1)) ** 2 / 2 + self.decay * theta.square().sum(-1) / 2
