"""The systems that ``stepping`` advances: orbits of a reduced model, in its chart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from flowsim.chart import Chart
from flowsim.gap import gap_slope
from flowsim.models import GapModel
from flowsim.stepping import LANDING

#: A row is trapped by the plane e = 0 once the others are slower than this times (e's rate)².
_TRAPPED = 1e-13


@dataclass(frozen=True)
class GapOrbit:
    """Orbits of a model with L = ℓ(Δ(θ)): the flow of ±∇Δ, without the factor |ℓ′(Δ)|.

    The factor is positive off Δ = Δ*, so orbits and limits are those of the gradient flow (spec
    3.1). Δ is monotone; an orbit lands where Δ = target or is trapped by the plane e = 0. With
    ``clock`` the last column of y is physical time, dt = dτ/|ℓ′(Δ)|.

    Attributes:
        model: bias minimised out.
        chart: of the n rows.
        target: the logit gap at which each row lands, shape (n,).
        heading: sign of target − Δ at the start, shape (n,).
        rtol, atol: error tolerated per step.
        clock: whether physical time is carried along.
    """

    model: GapModel
    chart: Chart
    target: Tensor
    heading: Tensor
    rtol: float
    atol: float
    clock: bool = False

    @classmethod
    def from_start(
        cls,
        model: GapModel,
        theta: Tensor,
        target: Tensor,
        rtol: float,
        atol: float,
        clock: bool = False,
    ) -> Self:
        """The orbit through each row of θ, shape (n, k), towards the gap ``target``."""
        heading = torch.sign(target - model.logit_gap(theta))
        return cls(model, Chart.at(model, theta), target, heading, rtol, atol, clock)

    def select(self, rows: Tensor) -> Self:
        return replace(
            self,
            chart=self.chart.select(rows),
            target=self.target[rows],
            heading=self.heading[rows],
        )

    def y(self, theta: Tensor) -> Tensor:
        """The chart's coordinates of θ, and a clock at zero if there is one."""
        y = self.chart.to_chart(theta)
        return torch.cat([y, y.new_zeros(len(y), 1)], dim=1) if self.clock else y

    def theta(self, y: Tensor) -> Tensor:
        """θ(y), shape (n, k)."""
        return self.chart.to_theta(y[:, :-1] if self.clock else y)

    def field(self, y: Tensor) -> Tensor:
        theta = self.theta(y)
        rising = self.chart.push(theta, self.model.logit_gap_gradient(theta))
        velocity = self.heading.unsqueeze(1) * rising
        if not self.clock:
            return velocity
        slope = gap_slope(self.model.chain, self.model.logit_gap(theta))
        return torch.cat([velocity, slope.abs().reciprocal().unsqueeze(1)], dim=1)

    def scale(self, y: Tensor) -> Tensor:
        if not self.clock:
            return self.chart.scale(y, self.rtol, self.atol)
        time = self.rtol * y[:, -1:].abs() + 1e-300
        return torch.cat([self.chart.scale(y[:, :-1], self.rtol, self.atol), time], dim=1)

    def event(self, y: Tensor) -> tuple[Tensor, Tensor]:
        theta = self.theta(y)
        value = self.heading * (self.model.logit_gap(theta) - self.target)
        return value, self.model.logit_gap_gradient(theta).square().sum(dim=1)

    def at_rest(self, y: Tensor) -> Tensor:
        """True for rows on a critical set: no velocity, or on Δ = target within rounding."""
        field = self.field(y)
        value, rate = self.event(y)
        movement = ((value / rate).unsqueeze(1) * field).abs() / self.scale(y)
        return (field == 0).all(dim=1) | (movement.amax(dim=1) <= LANDING)

    def settled(self, y: Tensor, field: Tensor) -> Tensor:
        if self.clock or not self.model.keeps_sign[0]:
            return torch.zeros_like(y[:, 0], dtype=torch.bool)
        others = field[:, 1:].abs().amax(dim=1)
        return (field[:, 0] < 0) & (others <= _TRAPPED * field[:, 0].square())
