"""What label noise does along a curve of minima: it drifts to the flattest point."""

from torch import Tensor

import flowsim


class LabelNoise(flowsim.Model):
    """L = 2c cosh 2s, the sharpness at the minimum (a, b) = (e^s, e^{−s}) of ½(ab − 1)².

    Li, Wang, Arora, "What Happens after SGD Reaches Zero Loss?", arXiv 2110.06914. The drift is the
    gradient flow in the curve's own metric 2 cosh 2s: s′ = −2c tanh 2s, so that
    sinh 2s decays as e^{−4ct}.

    Args:
        strength: c, of the noise.
    """

    coordinates = ("s",)

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def loss(self, theta: Tensor) -> Tensor:
        return 2 * self.strength * (2 * theta[..., 0]).cosh()

    def field(self, theta: Tensor) -> Tensor:
        return -self.gradient(theta) / (2 * (2 * theta).cosh())
