"""One mode of a linear network of two layers."""

import torch
from torch import Tensor

import flowsim


class LinearNetwork(flowsim.Model):
    """L = ½(s − ab)², one singular mode of strength s.

    Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep
    linear neural networks", arXiv 1312.6120. From a = b the product u = ab follows
    u(t) = s e^{2st}/(e^{2st} − 1 + s/u₀).

    Args:
        strength: s, the singular value of the input-output correlation.
    """

    coordinates = ("a", "b")

    def __init__(self, strength: float = 2.0) -> None:
        self.strength = strength

    def loss(self, theta: Tensor) -> Tensor:
        return (self.strength - theta.prod(-1)) ** 2 / 2

    def conserved(self, theta: Tensor) -> dict[str, Tensor]:
        a, b = torch.as_tensor(theta).unbind(-1)
        return {"difference": a**2 - b**2}
