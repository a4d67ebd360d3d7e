"""Two heads that compete for the two positions that predict the next symbol."""

import torch
from torch import Tensor

import flowsim


class CompetingHeads(flowsim.Model):
    """P = v₁s₁ᵀ + v₂s₂ᵀ learns G = diag(m, 1); head k attends to the positions with s_k.

    Yüksel, Alvarez Lucendo, Flammarion, arXiv 2602.19143, with two positions:
    dv_k/dt = (G − P)s_k and ds_k/dt = (diag s_k − s_k s_kᵀ)(G − P)ᵀv_k. This is no gradient
    flow in these coordinates, s₁ and s₂ being attention to position 1, but L = ½‖G − P‖² falls.

    Args:
        ratio: m, by how much position 1 matters more than position 2.
    """

    coordinates = ("s1", "s2", "v11", "v12", "v21", "v22")

    def __init__(self, ratio: float = 1.7) -> None:
        self.ratio = ratio

    def parts(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Attention and values, (..., head, position), and G − P, (..., 2, 2)."""
        s = torch.stack([theta[..., :2], 1 - theta[..., :2]], -1)
        v = theta[..., 2:].unflatten(-1, (2, 2))
        return s, v, torch.diag(theta.new_tensor([self.ratio, 1.0])) - v.mT @ s

    def loss(self, theta: Tensor) -> Tensor:
        return self.parts(theta)[2].square().sum((-2, -1)) / 2

    def field(self, theta: Tensor) -> Tensor:
        s, v, rest = self.parts(theta)
        pull = v @ rest
        attention = s * (pull - (s * pull).sum(-1, keepdim=True))
        return torch.cat([attention[..., 0], (s @ rest.mT).flatten(-2)], -1)
