"""Orbits of models whose loss is a function of the logit gap, in rescaled time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from flowsim.flow.chart import Chart
from flowsim.flow.rows.stepping import LANDING, Stop, run_rows
from flowsim.landscape.labels import Rule
from flowsim.models.base import GapModel, ReducedModel
from flowsim.models.gap_loss import gap_slope

#: A row is trapped by the plane e = 0 once the others are slower than this times (e's rate)².
_TRAPPED = 1e-13
#: An orbit this slow in rescaled time has come so close to a saddle that its label is in doubt.
DOUBTFUL_SPEED = 2e-3
#: An orbit this slow in rescaled time is within rounding of a saddle.
_LOST_SPEED = 3e-8


@dataclass
class Ends:
    """Where orbits stopped: θ (n, k), the rule that applies, ``Stop``, field evaluations.

    ``nearest`` is how slow the row was at its passage of a saddle, in units of the speed below
    which its label is in doubt.
    """

    theta: Tensor
    rule: Tensor
    stop: Tensor
    evaluations: Tensor
    nearest: Tensor


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

    def field(self, y: Tensor, hint: Tensor | None = None) -> tuple[Tensor, Tensor]:
        theta, nothing = self.theta(y), y[:, :0]
        rising = self.chart.push(theta, self.model.logit_gap_gradient(theta))
        velocity = self.heading.unsqueeze(1) * rising
        if not self.clock:
            return velocity, nothing
        slope = gap_slope(self.model.chain, self.model.logit_gap(theta))
        return torch.cat([velocity, slope.abs().reciprocal().unsqueeze(1)], dim=1), nothing

    def scale(self, y: Tensor) -> Tensor:
        if not self.clock:
            return self.chart.scale(y, self.rtol, self.atol)
        time = self.rtol * y[:, -1:].abs() + 1e-300
        return torch.cat([self.chart.scale(y[:, :-1], self.rtol, self.atol), time], dim=1)

    def event(self, y: Tensor) -> tuple[Tensor, Tensor]:
        theta = self.theta(y)
        value = self.heading * (self.model.logit_gap(theta) - self.target)
        return value, self.model.logit_gap_gradient(theta).square().sum(dim=1)

    def follow(self, theta: Tensor, max_steps: int) -> Ends:
        """Run every row to its end."""
        rows = run_rows(self, self.y(theta), max_steps, _LOST_SPEED)
        landed, trapped = rows.stop == Stop.LANDED, rows.stop == Stop.SETTLED
        resting = (rows.stop == Stop.RUNNING) & (rows.slowest < _LOST_SPEED)
        rule = torch.where(landed, Rule.REACHED_MINIMA, Rule.NONE)
        rule = torch.where(trapped, Rule.TRAPPED_BY_PLANE, rule)
        rule = torch.where(resting, Rule.CAME_TO_REST, rule).to(torch.int8)
        nearest = torch.where(resting, torch.inf, rows.slowest / DOUBTFUL_SPEED)
        return Ends(snap(self.theta(rows.y), trapped), rule, rows.stop, rows.evaluations, nearest)

    def at_rest(self, theta: Tensor) -> Tensor:
        """True for rows on a critical set: ∇Δ = 0, or on Δ = target within rounding."""
        gradient = self.model.logit_gap_gradient(theta)
        missing = self.target - self.model.logit_gap(theta)
        movement = gradient * (missing / gradient.square().sum(dim=1)).unsqueeze(1)
        absolute = torch.where(self.chart.logarithmic, 0.0, self.atol)
        allowed = LANDING * (absolute + self.rtol * theta.abs())
        return (gradient == 0).all(dim=1) | (movement.abs() <= allowed).all(dim=1)

    def settled(self, y: Tensor, field: Tensor) -> Tensor:
        if self.clock:
            return torch.zeros_like(y[:, 0], dtype=torch.bool)
        # Δ falls to 0 with e only if the target does not come first
        return (self.heading * self.target >= 0) & falls_to_plane(self.model, field)


def falls_to_plane(model: ReducedModel, field: Tensor) -> Tensor:
    """True for rows whose log e falls while nothing else moves any more, shape (n,)."""
    if not model.keeps_sign[0]:
        return torch.zeros_like(field[:, 0], dtype=torch.bool)
    others = field[:, 1:].abs().amax(dim=1)
    return (field[:, 0] < 0) & (others <= _TRAPPED * field[:, 0].square())


def snap(theta: Tensor, trapped: Tensor) -> Tensor:
    """θ with e = 0 in the trapped rows: the limit of e where all else has stopped already."""
    theta[trapped, 0] = 0.0
    return theta
