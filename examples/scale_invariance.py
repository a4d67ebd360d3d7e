"""A scale-invariant loss with weight decay."""

from torch import Tensor

import flowsim


class ScaleInvariance(flowsim.Model):
    """L = x²/(x² + y²) + ½λ(x² + y²); the loss proper depends on the direction alone.

    Li, Lyu, Arora, "Reconciling Modern Deep Learning with Traditional Optimization Analyses",
    arXiv 2010.02916; Wan et al., arXiv 2006.08419. With r² = x² + y² and tan φ = x/y the flow has
    r = r₀e^{−λt} and tan φ = tan φ₀ exp(−(e^{2λt} − 1)/(λr₀²)). L is not defined at the origin.

    Args:
        decay: λ, the weight decay.
    """

    coordinates = ("x", "y")

    def __init__(self, decay: float = 0.1) -> None:
        self.decay = decay

    def loss(self, theta: Tensor) -> Tensor:
        square = theta.square().sum(-1)
        return theta[..., 0] ** 2 / square + self.decay * square / 2
