"""Logistic regression on separable data: the weights go to infinity along the margin."""

from torch import Tensor
from torch.nn.functional import softplus

import flowsim


class SeparableLogistic(flowsim.Model):
    """L = Σ log(1 + exp(−w·xᵢ)) over two points of one class, (1, 2) and (1, −½).

    Soudry, Hoffer, Nacson, Gunasekar, Srebro, "The Implicit Bias of Gradient Descent on Separable
    Data", arXiv 1710.10345: w ~ ŵ log t with the maximal margin ŵ = (1, 0); the rest of w tends to
    a limit, here w₂ → ln 4/2.5.
    """

    coordinates = ("w1", "w2")

    def loss(self, theta: Tensor) -> Tensor:
        return softplus(-theta @ theta.new_tensor([[1.0, 1.0], [2.0, -0.5]])).sum(-1)
