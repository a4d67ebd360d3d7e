"""The rank-one family of weights, its coordinates, and its logits from the coordinates alone.

Unit vectors α (of the embedding space) and β (of the attention's inner space) and signs
η ∈ {±1}^r of the hidden units span the rank-one weights

    e = ε α,  p_n = ρ_n α,  W_1 = (w₁/√d) η αᵀ,  W_2 = (w₂/√d) α ηᵀ,
    W_V = v β αᵀ,  W_O = o α βᵀ,  W_Q = W_K = 0,  b,   untied: u = c α,

whose logits are, with X_i = ε x_i + ρ_i, Y_n = X_n + o v (1/n) Σ_{i≤n} X_i and φ the share of +1
in η,

    logit_n = c [Y_n + (r/d) w₂ (φ ReLU(w₁Y_n) − (1 − φ) ReLU(−w₁Y_n))] + b,   c = ε if tied.

Source: LG (canonical coordinates), AM App. D (signs of the hidden units, there φ = 5/16), the
rank-one coordinates by own derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm

from flowsim.errors import InputError


@dataclass(frozen=True)
class RankOnePoint:
    """Coordinates of rank-one weights; every tensor has shape (...), rho has shape (..., N).

    eps is ε, c the unembedding (equal to ε where tied), the rest as in the module's first lines.
    """

    eps: Tensor
    rho: Tensor
    w1: Tensor
    w2: Tensor
    o: Tensor
    v: Tensor
    b: Tensor
    c: Tensor

    def to_canonical(self) -> Tensor:
        """(e, w, a), shape (..., 3): e = ε, w = sign(w₁w₂) √|w₁w₂|, a = o v.

        w₁w₂ = w|w| is all that the logits see of w₁ and w₂ while the sign of w₁ stays that of ε.
        """
        product = self.w1 * self.w2
        return torch.stack([self.eps, product.sign() * product.abs().sqrt(), self.o * self.v], -1)


def canonical_point(theta: Tensor, length: int, bias: Tensor | float = 0.0) -> RankOnePoint:
    """The rank-one coordinates of a canonical point, tied.

    ε = e, ρ_n = −e/2, w₁ = sign(e)|w|, w₂ = sign(e) w and, for a, o = sign(a)√|a|, v = √|a|. The
    sign of e lets the symbol 1 open the ReLU for negative e too.

    Args:
        theta: (..., 2), (e, w), or (..., 3), (e, w, a).
        length: N.
        bias: b, broadcastable to (...).

    Raises:
        InputError: another number of coordinates, or one that is not finite.

    Source: LG (canonical parameters).
    """
    if theta.shape[-1] not in (2, 3):
        raise InputError(f"a canonical point is (e, w) or (e, w, a), not {theta.shape[-1]} numbers")
    e, w = theta[..., 0], theta[..., 1]
    a = theta[..., 2] if theta.shape[-1] == 3 else torch.zeros_like(e)
    opens = torch.where(e < 0, -1.0, 1.0).to(e)
    b = torch.as_tensor(bias, dtype=e.dtype, device=e.device).expand_as(e)
    rho = (-e / 2).unsqueeze(-1).expand(*e.shape, length)
    root = a.abs().sqrt()
    return RankOnePoint(e, rho, opens * w.abs(), opens * w, a.sign() * root, root, b, e)


def reduced_logits(
    point: RankOnePoint, tokens: Tensor, width_ratio: float = 4.0, open_share: float = 1.0
) -> Tensor:
    """Logits of the rank-one model from its coordinates alone, shape (..., batch, n).

    Args:
        point: coordinates with leading axes (...).
        tokens: zeros and ones, (batch, n) or (..., batch, n).
        width_ratio: r/d.
        open_share: φ, the share of hidden signs that are +1.
    """
    n = tokens.shape[-1]

    def wide(number: Tensor) -> Tensor:
        return number[..., None, None]

    x = wide(point.eps) * tokens + point.rho[..., None, :n]
    count = torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
    y = x + wide(point.o * point.v) * x.cumsum(-1) / count
    up = wide(point.w1) * y
    hidden = open_share * up.relu() - (1 - open_share) * (-up).relu()
    return wide(point.c) * (y + width_ratio * wide(point.w2) * hidden) + wide(point.b)


def unit_vector(vector: Tensor | None, d: int, like: Tensor, name: str) -> Tensor:
    if vector is None:
        return like.new_full((d,), 1 / math.sqrt(d))
    vector = vector.to(like)
    if vector.shape[-1:] != (d,) or ((vector_norm(vector, dim=-1) - 1).abs() > 1e-6).any():
        raise InputError(f"{name} must be a unit vector of {d} entries")
    return vector
