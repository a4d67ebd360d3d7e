"""Sign descent in continuous time, the scalar case of Muon: no plateau."""

from torch import Tensor

import flowsim


class SignFlow(flowsim.Model):
    """θ′ = −sign ∇L on L = ½(ab − 1)².

    arXiv 2603.00742. |a| − |b| is kept, and from (ε, ε) the minima are reached at t = 1 − ε, where
    gradient flow needs a time of ln(1/ε).
    """

    coordinates = ("a", "b")

    def loss(self, theta: Tensor) -> Tensor:
        return (theta.prod(-1) - 1) ** 2 / 2

    def field(self, theta: Tensor) -> Tensor:
        return -self.gradient(theta).sign()
