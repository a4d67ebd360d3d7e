"""Self-supervised learning without negative pairs: when it collapses."""

import torch
from torch import Tensor

import flowsim


class SimSiam(flowsim.Model):
    """p′ = s(τ − (1 + σ²)p) − ηp and s′ = 2ps(τ − (1 + σ²)p) − 2ηs, in one eigenmode.

    Tian, Chen, Ganguli, "Understanding self-supervised Learning Dynamics without Contrastive
    Pairs", arXiv 2102.06810. p is the predictor, s the feature's variance; s − p² decays as
    e^{−2ηt}. On s = p² the mode collapses below p₋ = (τ − √(τ² − 4η(1 + σ²)))/(2(1 + σ²)).

    Args:
        variance: σ², of the augmentation.
        decay: η, the weight decay.
        tau: how much of the online weights the target keeps.
    """

    coordinates = ("p", "s")

    def __init__(self, variance: float = 0.5, decay: float = 0.05, tau: float = 1.0) -> None:
        self.variance, self.decay, self.tau = variance, decay, tau

    def loss(self, theta: Tensor) -> Tensor:
        p, s = theta.unbind(-1)
        wide = 1 + self.variance
        return s * (wide * p**2 - 2 * self.tau * p + wide) / 2

    def field(self, theta: Tensor) -> Tensor:
        p, s = theta.unbind(-1)
        pull = s * (self.tau - (1 + self.variance) * p)
        return torch.stack([pull - self.decay * p, 2 * p * pull - 2 * self.decay * s], -1)
