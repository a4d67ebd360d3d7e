"""The smallest loss on which gradient descent settles at the edge of stability."""

from torch import Tensor

import flowsim


class EdgeOfStability(flowsim.Model):
    """L = ¼(1 − x²y²)².

    Zhu, Wang, Wang, Zhou, Ge, "Understanding Edge-of-Stability Training Dynamics with a
    Minimalist Example", arXiv 2210.03294: gradient descent with step η ends at a minimum of
    sharpness a little below 2/η, near x² + y² = 1/η.
    """

    coordinates = ("x", "y")

    def loss(self, theta: Tensor) -> Tensor:
        return (1 - theta.prod(-1) ** 2) ** 2 / 4
