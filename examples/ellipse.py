"""An ellipse of minima whose sharpness varies along it."""

from torch import Tensor

import flowsim


class Ellipse(flowsim.Model):
    """L = (1 − ax² − y²)², sharpness 8(a²x² + y²) on the ellipse: from 8 to 8a.

    The toy of the live article github.com/rfangit/edge-of-stability-browser.

    Args:
        a: the stretch of the ellipse.
    """

    coordinates = ("x", "y")

    def __init__(self, a: float = 3.0) -> None:
        self.a = a

    def loss(self, theta: Tensor) -> Tensor:
        x, y = theta.unbind(-1)
        return (1 - self.a * x**2 - y**2) ** 2
