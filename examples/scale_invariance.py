"""A scale-invariant loss with weight decay."""

import torch
from torch import Tensor

import flowsim


class ScaleInvariance(flowsim.Model):
    """L = x²/(x² + y²) + ½λ(x² + y²) in the direction φ, tan φ = x/y, and the log of the norm r.

    Li, Lyu, Arora, "Reconciling Modern Deep Learning with Traditional Optimization Analyses",
    arXiv 2010.02916; Wan et al., arXiv 2006.08419. The flow of (x, y) turns at a rate of 1/r²:
    dr²/dt = −2λr², dφ/dt = −sin 2φ/r². In the time τ, dτ = dt/r² = −dr²/(2λr⁴), it is the gradient
    flow of L in (φ, ln r). So r = r₀e^{−λt} and tan φ = tan φ₀ e^{−2τ}, τ = (e^{2λt} − 1)/(2λr₀²).
    It leads to (0, 0), where L has no value: ln r → −∞. ``step`` is gradient descent on (x, y).

    Args:
        decay: λ, the weight decay.
        rate: η, of gradient descent.
    """

    coordinates = ("phi", "ln_r")

    def __init__(self, decay: float = 0.1, rate: float = 0.1) -> None:
        self.decay, self.rate = decay, rate

    def loss(self, theta: Tensor) -> Tensor:
        return theta[..., 0].sin() ** 2 + self.decay / 2 * (2 * theta[..., 1]).exp()

    def step(self, theta: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        phi, ln_r = theta.unbind(-1)
        along = torch.full_like(phi, 1 - self.rate * self.decay)
        across = self.rate * (2 * phi).sin() * (-2 * ln_r).exp()
        theta = torch.stack([phi - across.atan2(along), ln_r + along.hypot(across).log()], -1)
        return theta, memory
