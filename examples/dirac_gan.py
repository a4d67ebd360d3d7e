"""The Dirac GAN: it circles unless the discriminator's gradient is penalized."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

import flowsim


class DiracGAN(flowsim.Model):
    """θ′ = −ψ f′(θψ), ψ′ = θ f′(θψ) − γψ with f(t) = −log(1 + e^{−t}).

    Mescheder, Geiger, Nowozin, "Which Training Methods for GANs do actually Converge?",
    arXiv 1801.04406. Without penalty (γ = 0) orbits are circles; with it the rates at the
    equilibrium are −γ/2 ± √(γ²/4 − f′(0)²), f′(0) = ½.

    Args:
        penalty: γ, of the discriminator's gradient.
    """

    coordinates = ("theta", "psi")

    def __init__(self, penalty: float = 0.0) -> None:
        self.penalty = penalty

    def loss(self, theta: Tensor) -> Tensor:
        return softplus(-theta.prod(-1))

    def field(self, theta: Tensor) -> Tensor:
        generator, critic = theta.unbind(-1)
        slope = torch.sigmoid(-generator * critic)
        return torch.stack([-critic * slope, generator * slope - self.penalty * critic], -1)
