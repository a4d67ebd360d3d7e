"""Two features in one dimension: an antipodal pair, or one arc of compromises."""

from torch import Tensor

import flowsim


class Superposition(flowsim.Model):
    """L = ⅓[(1 − a²)² + (1 − b²)² + 2 max(ab, 0)²].

    Elhage et al., "Toy Models of Superposition", arXiv 2209.10652, two sparse features through one
    hidden number and ReLU; k-gons in arXiv 2310.06301. From ab < 0 it ends at ±(1, −1) with loss 0,
    from ab > 0 on the quarter circle a² + b² = 1 with loss ⅓, and b/a is kept.
    """

    coordinates = ("a", "b")

    def loss(self, theta: Tensor) -> Tensor:
        a, b = theta.unbind(-1)
        return ((1 - a**2) ** 2 + (1 - b**2) ** 2 + 2 * (a * b).clamp_min(0) ** 2) / 3
