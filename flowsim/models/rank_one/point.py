"""A point of the rank-one family of weights: its coordinates, their signs, and (e, w, a).

Unit vectors α (of the embedding space) and β (of the attention's inner space) and signs
η ∈ {±1}^r of the hidden units span the rank-one weights

    e = ε α,  p_n = ρ_n α,  W_1 = (w₁/√d) η αᵀ,  W_2 = (w₂/√d) α ηᵀ,
    W_V = v β αᵀ,  W_O = o α βᵀ,  W_Q = W_K = 0,  b,   untied: u = c α,

whose logits are, with X_i = ε x_i + ρ_i, Y_n = X_n + o v (1/n) Σ_{i≤n} X_i and φ the share of +1
in η,

    logit_n = c [Y_n + (r/d) w₂ (φ ReLU(w₁Y_n) − (1 − φ) ReLU(−w₁Y_n))] + b,   c = ε if tied.

The weights stay the same if β and with it (o, v) change sign, or α and with it all coordinates but
b. The signs are therefore a convention, stated once: β's in ``RankOnePoint.standard``, α's in
``full_model.project``.

Source: LG (canonical coordinates), AM App. D (signs of the hidden units, there φ = 5/16), the
rank-one coordinates by own derivation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flowsim.errors import InputError

#: A coordinate below this share of those it is compared with counts as zero, and so has no sign.
NEGLIGIBLE = 1e-12

#: r/d, hidden units per embedding dimension, as in AM.
WIDTH_RATIO = 4.0


@dataclass(frozen=True)
class RankOnePoint:
    """Coordinates of rank-one weights; every tensor has shape (...), rho has shape (..., N).

    eps is ε, c the unembedding (equal to ε where tied), the rest as in the module's first lines.

    >>> import full_model, torch
    >>> point = full_model.RankOnePoint.from_canonical(torch.tensor([1.0, -0.5]), length=3)
    >>> point.rho, point.to_canonical()
    (tensor([-0.5000, -0.5000, -0.5000]), tensor([ 1.0000, -0.5000,  0.0000]))
    """

    eps: Tensor
    rho: Tensor
    w1: Tensor
    w2: Tensor
    o: Tensor
    v: Tensor
    b: Tensor
    c: Tensor

    @classmethod
    def from_canonical(cls, theta: Tensor, length: int, bias: Tensor | float = 0.0) -> RankOnePoint:
        """The rank-one coordinates of a canonical point, tied.

        ε = e, ρ_n = −e/2, w₁ = sign(e)|w|, w₂ = sign(e) w and, for a, o = sign(a)√|a|, v = √|a|.
        The sign of e lets the symbol 1 open the ReLU for negative e too.

        Args:
            theta: (..., 2), (e, w), or (..., 3), (e, w, a).
            length: N.
            bias: b, broadcastable to (...).

        Raises:
            InputError: another number of coordinates.

        Source: LG (canonical parameters).
        """
        if theta.shape[-1] not in (2, 3):
            raise InputError(
                f"a canonical point is (e, w) or (e, w, a), not {theta.shape[-1]} numbers"
            )
        e, w = theta[..., 0], theta[..., 1]
        a = theta[..., 2] if theta.shape[-1] == 3 else torch.zeros_like(e)
        opens = torch.where(e < 0, -1.0, 1.0).to(e)
        b = torch.as_tensor(bias, dtype=e.dtype, device=e.device).expand_as(e)
        rho = (-e / 2).unsqueeze(-1).expand(*e.shape, length)
        root = a.abs().sqrt()
        return cls(e, rho, opens * w.abs(), opens * w, a.sign() * root, root, b, e)

    def to_canonical(self) -> Tensor:
        """Return (e, w, a), shape (..., 3): e = ε, w = sign(w₁w₂) √|w₁w₂|, a = o v.

        w₁w₂ = w|w| is all that the logits see of w₁ and w₂ while the sign of w₁ stays that of ε.
        """
        product = self.w1 * self.w2
        return torch.stack([self.eps, product.sign() * product.abs().sqrt(), self.o * self.v], -1)

    @classmethod
    def from_coordinates(
        cls, theta: Tensor, length: int, attention: bool, tied: bool
    ) -> RankOnePoint:
        """Return the point at coordinates θ (..., k) of a ``RankOneModel``.

        They are (e, ρ …, w₁, w₂[, o, v], b[, c]). Without attention there is one ρ, which all N
        positions share.
        """
        count = length if attention else 1
        rho = theta[..., 1 : 1 + count].expand(*theta.shape[:-1], length)
        eps, (w1, w2, *rest) = theta[..., 0], theta[..., 1 + count :].unbind(-1)
        zero = torch.zeros_like(eps)
        o, v = rest[:2] if attention else (zero, zero)
        b = rest[2 if attention else 0]
        return cls(eps, rho, w1, w2, o, v, b, eps if tied else rest[-1])

    def to_coordinates(self, attention: bool, tied: bool) -> Tensor:
        """Return θ (..., k) of a ``RankOneModel``, the inverse of ``from_coordinates``.

        Without attention ρ is the mean of the positions.
        """
        rho = self.rho if attention else self.rho.mean(-1, keepdim=True)
        layer = [self.o, self.v] if attention else []
        tail = [self.w1, self.w2, *layer, self.b, *([] if tied else [self.c])]
        return torch.cat([self.eps.unsqueeze(-1), rho, torch.stack(tail, -1)], dim=-1)

    def standard(self) -> RankOnePoint:
        """Return the same weights with the sign of β fixed: v ≥ 0, so that o carries the sign of a.

        For |v| ≤ 1e-12 |o|, v counts as zero and o ≥ 0.
        """
        leads = torch.where(self.v.abs() <= NEGLIGIBLE * self.o.abs(), self.o, self.v)
        sign = torch.where(leads < 0, -1.0, 1.0).to(leads)
        return replace(self, o=sign * self.o, v=sign * self.v)
