"""A low-rank adapter whose second factor starts at zero."""

from torch import Tensor

import flowsim


class LoRA(flowsim.Model):
    """L = ½(s − ab)² from b = 0, where λ = a² − b² is kept and u = ab obeys
    u′ = √(λ² + 4u²)(s − u).

    Dominé et al., "From Lazy to Rich: Exact Learning Dynamics in Deep Linear Networks",
    arXiv 2409.14623. With another learning rate for b it is LoRA+ (arXiv 2402.12354), a metric.

    Args:
        strength: s, what the adapter has to learn.
        ratio: the learning rate of b over that of a.
    """

    coordinates = ("a", "b")

    def __init__(self, strength: float = 1.7, ratio: float = 1.0) -> None:
        self.strength = strength
        self.metric = (1.0, 1 / ratio)

    def loss(self, theta: Tensor) -> Tensor:
        return (self.strength - theta.prod(-1)) ** 2 / 2
