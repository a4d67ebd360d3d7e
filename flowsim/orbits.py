"""The systems that ``stepping`` advances: orbits of a reduced model, in its chart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

import torch
from torch import Tensor

from flowsim.chart import Chart
from flowsim.gap import gap_slope
from flowsim.implicit import EXTRAPOLATED_EULER
from flowsim.landscape import hessian, plane_curvature
from flowsim.models import GapModel, ReducedModel, loss_of_gap, velocity
from flowsim.stepping import LANDING, Stop, run_rows

#: A row is trapped by the plane e = 0 once the others are slower than this times (e's rate)².
_TRAPPED = 1e-13
#: An orbit this slow in rescaled time has come so close to a saddle that its label is in doubt.
_DOUBTFUL_SPEED = 2e-3
#: An orbit this slow in rescaled time is within rounding of a saddle.
_LOST_SPEED = 3e-8
#: Explicit steps after which a row that is still moving is taken to be stiff.
_EXPLICIT_STEPS = 60
#: A row is stationary once no coordinate of its chart moves faster than this in physical time.
_STATIONARY = 1e-12


class Rule(IntEnum):
    """What decided a label."""

    NONE = 0  # nothing: unresolved
    CRITICAL_START = 1  # loss and curvature of a start that never moves
    TRAPPED_BY_PLANE = 2  # e falls to zero and nothing else moves any more
    REACHED_MINIMA = 3  # the orbit met the set of global minima
    CAME_TO_REST = 4  # loss and curvature where the orbit stopped moving
    SHADOWS = 5  # it passed a saddle or took long, and displaced starts end alike


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

    def follow(self, theta: Tensor, max_steps: int) -> Ends:
        """Run every row to its end."""
        rows = run_rows(self, self.y(theta), max_steps, _LOST_SPEED)
        landed, trapped = rows.stop == Stop.LANDED, rows.stop == Stop.SETTLED
        resting = (rows.stop == Stop.RUNNING) & (rows.slowest < _LOST_SPEED)
        rule = torch.where(landed, Rule.REACHED_MINIMA, Rule.NONE)
        rule = torch.where(trapped, Rule.TRAPPED_BY_PLANE, rule)
        rule = torch.where(resting, Rule.CAME_TO_REST, rule).to(torch.int8)
        nearest = torch.where(resting, torch.inf, rows.slowest / _DOUBTFUL_SPEED)
        return Ends(_snap(self.theta(rows.y), trapped), rule, rows.stop, rows.evaluations, nearest)

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
        return (self.heading * self.target >= 0) & _falls_to_plane(self.model, field)


@dataclass(frozen=True)
class PhysicalOrbit:
    """The gradient flow dθ/dt = −G⁻¹∇L of any reduced model, in physical time and in its chart.

    Attributes:
        model: any reduced model.
        chart: of the n rows.
        rtol, atol: error tolerated per step.
    """

    model: ReducedModel
    chart: Chart
    rtol: float
    atol: float

    @classmethod
    def from_start(cls, model: ReducedModel, theta: Tensor, rtol: float, atol: float) -> Self:
        """The orbit through each row of θ, shape (n, k)."""
        return cls(model, Chart.at(model, theta), rtol, atol)

    def select(self, rows: Tensor) -> Self:
        return replace(self, chart=self.chart.select(rows))

    def y(self, theta: Tensor) -> Tensor:
        """The chart's coordinates of θ."""
        return self.chart.to_chart(theta)

    def theta(self, y: Tensor) -> Tensor:
        """θ(y), shape (n, k)."""
        return self.chart.to_theta(y)

    def field(self, y: Tensor) -> Tensor:
        theta = self.theta(y)
        return self.chart.push(theta, velocity(self.model, theta))

    def jacobian(self, y: Tensor) -> Tensor:
        theta = self.theta(y)
        metric = theta.new_tensor(self.model.metric)
        size = torch.where(self.chart.logarithmic & (theta != 0), theta, 1.0)
        curved = -hessian(self.model, theta) * size.unsqueeze(1) / (metric * size).unsqueeze(2)
        own = torch.where(self.chart.logarithmic, self.field(y), 0.0)
        return curved - torch.diag_embed(own)

    def scale(self, y: Tensor) -> Tensor:
        return self.chart.scale(y, self.rtol, self.atol)

    def event(self, y: Tensor) -> None:
        return None

    def follow(self, theta: Tensor, max_steps: int) -> Ends:
        """Run every row to its end, explicitly first, implicitly where that is not enough."""
        rows = run_rows(self, self.y(theta), min(_EXPLICIT_STEPS, max_steps))
        stiff = (rows.stop == Stop.RUNNING).nonzero()[:, 0]
        if len(stiff) and max_steps > _EXPLICIT_STEPS:
            orbit = self.select(stiff)
            later = run_rows(orbit, rows.y[stiff], max_steps, method=EXTRAPOLATED_EULER)
            rows.y[stiff], rows.stop[stiff] = later.y, later.stop
            rows.evaluations[stiff] += later.evaluations
            # a passage of a saddle may have begun explicitly and ended implicitly
            passed = torch.where(later.dip < torch.inf, rows.slowest[stiff], torch.inf)
            rows.dip[stiff] = torch.minimum(rows.dip[stiff], torch.minimum(later.dip, passed))
            rows.slowest[stiff] = torch.minimum(rows.slowest[stiff], later.slowest)
        settled = rows.stop == Stop.SETTLED
        trapped = settled & self.trapped(rows.y, self.field(rows.y))
        rule = torch.where(settled, Rule.CAME_TO_REST, Rule.NONE)
        rule = torch.where(trapped, Rule.TRAPPED_BY_PLANE, rule).to(torch.int8)
        pi0, pi1 = self.model.chain.stationary
        doubtful = _DOUBTFUL_SPEED * pi0 * pi1 * abs(self.model.chain.second_eigenvalue)
        nearest = torch.where(trapped, rows.slowest, rows.dip) / doubtful
        return Ends(_snap(self.theta(rows.y), trapped), rule, rows.stop, rows.evaluations, nearest)

    def at_rest(self, theta: Tensor) -> Tensor:
        """True for rows with no velocity at all."""
        return (self.field(self.y(theta)) == 0).all(dim=1)

    def trapped(self, y: Tensor, field: Tensor) -> Tensor:
        """True for rows that fall into an attracting part of e = 0 while nothing else moves."""
        found = _falls_to_plane(self.model, field)
        if bool(found.any()):
            found[found.clone()] = plane_curvature(self.model, self.theta(y)[found]) > 0
        return found

    def settled(self, y: Tensor, field: Tensor) -> Tensor:
        # a small w may still move by much of itself, within the gradient's rounding; e may not,
        # since its plane can repel
        size = self.theta(y)[:, 1:].abs().clamp_max(1.0)
        moving = torch.where(self.chart.logarithmic[1:], field[:, 1:] * size, field[:, 1:])
        still = torch.cat([field[:, :1], moving], dim=1).abs().amax(dim=1) <= _STATIONARY
        if self.model.chain.second_eigenvalue == 0:  # e = 0 attracts ever more slowly there
            excess = self.model.loss(self.theta(y)) - self.model.chain.entropy_rate
            still = still | (excess <= 1e-15)
        return self.trapped(y, field) | still


def orbit_through(
    model: ReducedModel, theta: Tensor, rtol: float, atol: float
) -> GapOrbit | PhysicalOrbit:
    """The system whose orbits are the model's: the gap's flow where L = ℓ(Δ), else the gradient's.

    Args:
        model: any reduced model.
        theta: starts, shape (n, k).
        rtol, atol: error tolerated per step.
    """
    if loss_of_gap(model):
        target = torch.full_like(theta[:, 0], model.chain.target_logit_gap)
        return GapOrbit.from_start(model, theta, target, rtol, atol)
    return PhysicalOrbit.from_start(model, theta, rtol, atol)


def _falls_to_plane(model: ReducedModel, field: Tensor) -> Tensor:
    """True for rows whose log e falls while nothing else moves any more, shape (n,)."""
    if not model.keeps_sign[0]:
        return torch.zeros_like(field[:, 0], dtype=torch.bool)
    others = field[:, 1:].abs().amax(dim=1)
    return (field[:, 0] < 0) & (others <= _TRAPPED * field[:, 0].square())


def _snap(theta: Tensor, trapped: Tensor) -> Tensor:
    """θ with e = 0 in the trapped rows: the limit of e where all else has stopped already."""
    theta[trapped, 0] = 0.0
    return theta
