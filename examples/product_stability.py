"""The cross-entropy of a product: its flattest minimum decides which steps are stable."""

from torch import Tensor
from torch.nn.functional import softplus

import flowsim


class ProductStability(flowsim.Model):
    """L = log(1 + e^z) − pz with z = xy and a label that is 1 with probability p.

    arXiv 2604.02653 (product stability): minima are z = z* = log(p/(1 − p)); the flattest has the
    sharpness 2|z*|p(1 − p), so that steps above 2/0.4436142 = 4.5084 (p = 0.8) rest nowhere.

    Args:
        p: the probability of the label 1.
    """

    coordinates = ("x", "y")

    def __init__(self, p: float = 0.8) -> None:
        self.p = p

    def loss(self, theta: Tensor) -> Tensor:
        z = theta.prod(-1)
        return softplus(z) - self.p * z
