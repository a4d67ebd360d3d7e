"""Grokking as slow drift along the minima under a small weight decay."""

import torch
from torch import Tensor

import flowsim


class SlowDrift(flowsim.Model):
    """L = ½(1 − ab)² + ½λ(a² + b²), λ → 0: the fit takes a time of 1, the norm falls in 1/λ.

    arXiv 2505.20172. The difference a² − b² decays exactly as
    exp(−2λt), along ab ≈ 1.

    Args:
        decay: λ, the weight decay.
    """

    coordinates = ("a", "b")

    def __init__(self, decay: float = 0.01) -> None:
        self.decay = decay

    def loss(self, theta: Tensor) -> Tensor:
        return (1 - theta.prod(-1)) ** 2 / 2 + self.decay * theta.square().sum(-1) / 2

    def difference(self, theta: Tensor) -> Tensor:
        a, b = torch.as_tensor(theta).unbind(-1)
        return a**2 - b**2
