"""Coordinates in which the flow is integrated: log|θᵢ| where θᵢ never changes sign."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flowsim.interface import Model

#: Next to a plane, at this part of a coordinate, the field that keeps it is this part of itself.
_CLOSE, _FADES = 1e-30, 1e-20


@dataclass(frozen=True)
class Chart:
    """y ↔ θ for a batch of rows with fixed signs.

    A coordinate with ``model.keeps_sign`` becomes y = log|θᵢ|, so that the invariant planes e = 0
    and w = 0 are never crossed by a rounding error and a relative tolerance is an absolute one;
    a θᵢ that is exactly zero stays zero. So does a coordinate of a field that is no gradient
    whose plane θᵢ = 0 is seen to be invariant: populations stay positive, or absent. Every other
    coordinate is its own chart.

    Attributes:
        signs: sign of θ per row and coordinate, shape (n, k).
        logarithmic: which coordinates are logarithms, shape (n, k).
        seen: which of them are not among ``model.keeps_sign``, shape (n, k), and None for none.
        at_zero: whether some logarithmic coordinate of some row is held at zero.
        zero: from where the size of other coordinates is counted, (n, k); from 0 if None.
    """

    signs: Tensor
    logarithmic: Tensor
    at_zero: bool
    seen: Tensor | None = None
    zero: Tensor | None = None

    @classmethod
    def at(cls, model: Model, theta: Tensor, zero: Tensor | None = None) -> Chart:
        """Return the chart of the orthants in which the rows of θ (n, k) lie."""
        signs = torch.sign(theta)
        logarithmic = torch.tensor(model.keeps_sign, device=theta.device).expand(theta.shape)
        at_zero, seen = bool(((signs == 0) & logarithmic).any()), None
        if type(model).field is not Model.field:
            seen = _invariant_planes(model, theta) & ~logarithmic
            at_zero |= bool((seen & (signs == 0)).any())
            logarithmic, seen = logarithmic | seen, seen if bool(seen.any()) else None
        zero = None if zero is None else torch.where(logarithmic, 0.0, zero)
        return cls(signs, logarithmic, at_zero, seen, zero)

    def to_chart(self, theta: Tensor) -> Tensor:
        """Return y of θ (n, k): 0 of a coordinate that is held at zero, NaN of another sign."""
        if not self.any_logarithmic:
            return theta
        logs = torch.where(self.signs == 0, 0.0, (self.signs * theta).log().clamp_min(-700.0))
        return torch.where(self.logarithmic, logs, theta)

    def to_theta(self, y: Tensor) -> Tensor:
        """Return θ of y (..., n, k); logarithms count as −700 at least: no θᵢ underflows."""
        if not self.any_logarithmic:
            return y
        size = y.clamp_min(-700.0).exp()
        if self.all_logarithmic:
            return self.signs * size
        return torch.where(self.logarithmic, self.signs * size, y)

    def push(self, theta: Tensor, vector: Tensor) -> Tensor:
        """Return a tangent vector at θ in the chart: vᵢ/θᵢ for a logarithm, otherwise vᵢ."""
        if not self.any_logarithmic:
            return vector
        ratio = vector / theta
        if self.at_zero:
            ratio = torch.where(self.signs == 0, 0.0, ratio)
        return ratio if self.all_logarithmic else torch.where(self.logarithmic, ratio, vector)

    def velocity(self, model: Model, y: Tensor) -> Tensor:
        """Return dy/dt of the model's flow at y (n, k), of the same shape."""
        theta = self.to_theta(y)
        return self.push(theta, model.field(theta))

    def push_jacobian(self, theta: Tensor, rates: Tensor, jacobian: Tensor) -> Tensor:
        """Return ∂(dy/dt)/∂y, (n, k, k), given ∂(dθ/dt)/∂θ at θ, and ``rates``, which is dy/dt."""
        if not self.any_logarithmic:
            return jacobian
        scale = torch.where(self.logarithmic, theta, 1.0)
        pushed = jacobian * scale.unsqueeze(-2) / scale.unsqueeze(-1)
        if self.at_zero:
            pushed = torch.where((scale == 0).unsqueeze(-1), 0.0, pushed)
        return pushed - torch.diag_embed(torch.where(self.logarithmic, rates, 0.0))

    def rows(self, which: Tensor | slice) -> Chart:
        """Return the chart of some of the rows, by a mask or by their numbers."""
        seen, zero = (None if x is None else x[which] for x in (self.seen, self.zero))
        return Chart(self.signs[which], self.logarithmic[which], self.at_zero, seen, zero)

    @classmethod
    def joined(cls, parts: list[Chart]) -> Chart:
        """Join the charts of several batches into one of all their rows."""
        signs = torch.cat([part.signs for part in parts])
        logarithmic = torch.cat([part.logarithmic for part in parts])
        at_zero = any(part.at_zero for part in parts)
        if all(part.seen is None for part in parts):
            return cls(signs, logarithmic, at_zero)
        none = torch.zeros_like
        seen = [none(p.logarithmic) if p.seen is None else p.seen for p in parts]
        return cls(signs, logarithmic, at_zero, torch.cat(seen))

    @cached_property
    def all_logarithmic(self) -> bool:
        """True if all coordinates of all rows are logarithms."""
        return bool(self.logarithmic.all())

    @cached_property
    def any_logarithmic(self) -> bool:
        """True if some coordinate of some row is a logarithm."""
        return bool(self.logarithmic.any())


def _invariant_planes(model: Model, theta: Tensor) -> Tensor:
    """Mask of coordinates whose plane θᵢ = 0 the field keeps, for rows (n, k), shape (n, k).

    It is kept if dθᵢ/dt and its derivatives by the others are exactly zero there, below a row
    and at a neighbouring point in no special place, none of whose coordinates is zero; and if
    dθᵢ/dt falls to zero next to it, as that of −sign θᵢ does not.
    """
    n, k = theta.shape
    size = theta.abs().amax(1, keepdim=True).clamp_min(1e-300)
    factors = 1.0 + 0.25 * torch.arange(1, k + 1, dtype=theta.dtype, device=theta.device).sin()
    beside = torch.where(theta == 0, size, theta) * factors
    own = torch.eye(k, dtype=torch.bool, device=theta.device)
    points = torch.stack([theta, beside])[:, :, None].repeat(1, 1, k, 1)
    close = torch.where(own, _CLOSE * points, points).reshape(-1, k)
    points = torch.where(own, 0.0, points).reshape(-1, k)
    field, near = (
        model.field(x).reshape(2, n, k, k).diagonal(dim1=2, dim2=3) for x in (points, close)
    )
    usual = model.field(torch.cat([theta, beside])).reshape(2, n, k).abs().amax(0)
    fades = near.abs() <= _FADES * usual
    slopes = model.jacobian(points).reshape(2, n, k, k, k).diagonal(dim1=2, dim2=3)
    slopes = torch.where(own, 0.0, slopes.movedim(-1, 2))  # (2, n, i, j)
    return ((field == 0) & fades & (slopes == 0).all(3)).all(0)
