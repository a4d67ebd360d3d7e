"""A wide linear network at large steps: the catapult."""

import torch
from torch import Tensor

import flowsim


class Catapult(flowsim.Model):
    """f⁺ = (1 − ηλ + η²f²/n)f and λ⁺ = λ + (ηf²/n)(ηλ − 4): output f, curvature λ (lam), loss ½f².

    Lewkowycz, Bahri, Dyer, Sohl-Dickstein, Gur-Ari, "The large learning rate phase of deep
    learning: the catapult mechanism", arXiv 2003.02218. Below ηλ = 2 training is lazy; up to 4 the
    loss grows first, and ends where ηλ < 2; above 4 it diverges.

    Args:
        rate: η, the learning rate.
        width: n.
    """

    coordinates = ("f", "lam")

    def __init__(self, rate: float = 1.0, width: float = 100.0) -> None:
        self.rate, self.width = rate, width

    def loss(self, theta: Tensor) -> Tensor:
        return theta[..., 0] ** 2 / 2

    def step(self, theta: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        f, lam = theta.unbind(-1)
        push, rate = self.rate * f**2 / self.width, self.rate
        new = (1 - rate * lam + rate * push) * f
        return torch.stack([new, lam + push * (rate * lam - 4)], -1), memory
