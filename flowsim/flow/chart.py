"""Coordinates in which the flow is integrated: log|θᵢ| where θᵢ never changes sign."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flowsim.interface import Model


@dataclass(frozen=True)
class Chart:
    """y ↔ θ for a batch of rows with fixed signs.

    A coordinate with ``model.keeps_sign`` becomes y = log|θᵢ|, so that the invariant planes e = 0
    and w = 0 are never crossed by a rounding error and a relative tolerance is an absolute one;
    a θᵢ that is exactly zero stays zero. Every other coordinate is its own chart.

    Attributes:
        signs: sign of θ per row and coordinate, shape (n, k).
        logarithmic: which coordinates are logarithms, shape (n, k).
        held: whether some logarithmic coordinate of some row is held at zero.
    """

    signs: Tensor
    logarithmic: Tensor
    held: bool

    @classmethod
    def at(cls, model: Model, theta: Tensor) -> Chart:
        """The chart of the orthant in which each row of θ lies."""
        signs = torch.sign(theta)
        logarithmic = torch.tensor(model.keeps_sign, device=theta.device).expand(theta.shape)
        return cls(signs, logarithmic, bool(((signs == 0) & logarithmic).any()))

    def to_chart(self, theta: Tensor) -> Tensor:
        """y(θ), shape (n, k); zero for a coordinate that is held at zero, NaN for another sign."""
        if not self._any_logarithmic:
            return theta
        logs = torch.where(self.signs == 0, 0.0, (self.signs * theta).log().clamp_min(-700.0))
        return torch.where(self.logarithmic, logs, theta)

    def to_theta(self, y: Tensor) -> Tensor:
        """θ(y), shape of y; a logarithm below −700 counts as −700, so that no θᵢ underflows."""
        if not self._any_logarithmic:
            return y
        size = y.clamp_min(-700.0).exp()
        if self._all_logarithmic:
            return self.signs * size
        return torch.where(self.logarithmic, self.signs * size, y)

    def push(self, theta: Tensor, vector: Tensor) -> Tensor:
        """A tangent vector in the chart: vᵢ/θᵢ for a logarithmic coordinate, vᵢ otherwise."""
        if not self._any_logarithmic:
            return vector
        ratio = vector / theta
        if self.held:
            ratio = torch.where(self.signs == 0, 0.0, ratio)
        return ratio if self._all_logarithmic else torch.where(self.logarithmic, ratio, vector)

    def velocity(self, model: Model, y: Tensor) -> Tensor:
        """dy/dt of the model's flow at y, shape of y."""
        theta = self.to_theta(y)
        return self.push(theta, model.field(theta))

    def push_jacobian(self, theta: Tensor, rates: Tensor, jacobian: Tensor) -> Tensor:
        """∂(dy/dt)/∂y, shape (n, k, k), from ∂(dθ/dt)/∂θ there and ``rates`` = dy/dt."""
        if not self._any_logarithmic:
            return jacobian
        scale = torch.where(self.logarithmic, theta, 1.0)
        pushed = jacobian * scale.unsqueeze(-2) / scale.unsqueeze(-1)
        if self.held:
            pushed = torch.where((scale == 0).unsqueeze(-1), 0.0, pushed)
        return pushed - torch.diag_embed(torch.where(self.logarithmic, rates, 0.0))

    def rows(self, which: Tensor | slice) -> Chart:
        """The chart of some of the rows, by a mask or by their numbers."""
        return Chart(self.signs[which], self.logarithmic[which], self.held)

    @classmethod
    def joined(cls, parts: list[Chart]) -> Chart:
        """The chart of the rows of all parts."""
        signs, logarithmic = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("signs", "logarithmic")
        )
        return cls(signs, logarithmic, any(part.held for part in parts))

    @cached_property
    def _all_logarithmic(self) -> bool:
        return bool(self.logarithmic.all())

    @cached_property
    def _any_logarithmic(self) -> bool:
        return bool(self.logarithmic.any())
