"""Coordinates in which the flow is integrated: log|θᵢ| where θᵢ never changes sign."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flowsim.models.base import ReducedModel


@dataclass(frozen=True)
class Chart:
    """y ↔ θ for a batch of rows with fixed signs.

    A coordinate with ``model.keeps_sign`` becomes y = log|θᵢ|, so that the invariant planes e = 0
    and w = 0 are never crossed by a rounding error and a relative tolerance is an absolute one;
    a θᵢ that is exactly zero stays zero. Every other coordinate is its own chart.

    Attributes:
        signs: sign of θ per row and coordinate, shape (n, k).
        logarithmic: which coordinates are logarithms, shape (k,).
        held: whether some logarithmic coordinate of some row is held at zero.
    """

    signs: Tensor
    logarithmic: Tensor
    held: bool

    @classmethod
    def at(cls, model: ReducedModel, theta: Tensor) -> Chart:
        """The chart of the orthant in which each row of θ lies."""
        signs = torch.sign(theta)
        logarithmic = torch.tensor(model.keeps_sign, device=theta.device)
        return cls(signs, logarithmic, bool(((signs == 0) & logarithmic).any()))

    def select(self, rows: Tensor) -> Chart:
        """The chart of the chosen rows."""
        return Chart(self.signs[rows], self.logarithmic, self.held)

    def to_chart(self, theta: Tensor) -> Tensor:
        """y(θ), shape (n, k); zero for a coordinate that is held at zero, NaN for another sign."""
        logs = torch.where(self.signs == 0, 0.0, (self.signs * theta).log().clamp_min(-700.0))
        return torch.where(self.logarithmic, logs, theta)

    def to_theta(self, y: Tensor) -> Tensor:
        """θ(y), shape of y; a logarithm below −700 counts as −700, so that no θᵢ underflows."""
        size = y.clamp_min(-700.0).exp()
        if self._all_logarithmic:
            return self.signs * size
        return torch.where(self.logarithmic, self.signs * size, y)

    def push(self, theta: Tensor, vector: Tensor) -> Tensor:
        """A tangent vector in the chart: vᵢ/θᵢ for a logarithmic coordinate, vᵢ otherwise."""
        ratio = vector / theta
        if self.held:
            ratio = torch.where(self.signs == 0, 0.0, ratio)
        return ratio if self._all_logarithmic else torch.where(self.logarithmic, ratio, vector)

    def scale(self, y: Tensor, rtol: float, atol: float) -> Tensor:
        """Tolerated error: rtol for a logarithm (not below rounding), else atol + rtol·|y|."""
        size = y.abs()
        logs = rtol + 1e-15 * size
        return torch.where(self.logarithmic, logs, atol + rtol * size)

    @cached_property
    def _all_logarithmic(self) -> bool:
        return bool(self.logarithmic.all())
