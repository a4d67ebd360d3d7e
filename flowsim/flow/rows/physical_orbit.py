"""The gradient flow itself, in physical time, for models whose loss is no function of the gap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from flowsim.flow.chart import Chart
from flowsim.flow.rows.exponential import EXPONENTIAL
from flowsim.flow.rows.stepping import Stop, run_rows
from flowsim.landscape.curvature import hessian, plane_curvature
from flowsim.landscape.labels import Rule
from flowsim.models.base import ReducedModel, velocity

#: Explicit steps after which a row that is still moving is taken to be stiff.
_EXPLICIT_STEPS = 16
#: A row is stationary once no coordinate of its chart moves faster than this in physical time.
_STATIONARY = 1e-12
#: A row is trapped by the plane e = 0 once the others are slower than this times (e's rate)².
_TRAPPED = 1e-13
#: An orbit this slow in rescaled time has come so close to a saddle that its label is in doubt.
DOUBTFUL_SPEED = 2e-3


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

    def field(self, y: Tensor, hint: Tensor | None = None) -> tuple[Tensor, Tensor]:
        theta = self.theta(y)
        moving, hint = self.velocity(theta, hint)
        return self.chart.push(theta, moving), hint

    def velocity(self, theta: Tensor, hint: Tensor | None) -> tuple[Tensor, Tensor]:
        """dθ/dt, shape (n, k), and the hint for the next evaluation."""
        return velocity(self.model, theta), theta[:, :0]

    def linearise(self, theta: Tensor, hint: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """dθ/dt, ∂²L of shape (n, k, k), and the hint for the next evaluation."""
        return velocity(self.model, theta), hessian(self.model, theta), theta[:, :0]

    @property
    def root(self) -> Tensor:
        """√Gᵢᵢ, shape (k,)."""
        return self.chart.signs.new_tensor(self.model.metric).sqrt()

    def push(self, theta: Tensor, vector: Tensor) -> Tensor:
        """A tangent vector at θ in the chart, shape (n, k)."""
        return self.chart.push(theta, vector)

    def scale(self, y: Tensor) -> Tensor:
        return self.chart.scale(y, self.rtol, self.atol)

    def event(self, y: Tensor) -> None:
        return None

    def follow(self, theta: Tensor, max_steps: int) -> Ends:
        """Run every row to its end, explicitly first, by exponentials where that is not enough."""
        rows = run_rows(self, self.y(theta), min(_EXPLICIT_STEPS, max_steps))
        stiff = (rows.stop == Stop.RUNNING).nonzero()[:, 0]
        if len(stiff) and max_steps > _EXPLICIT_STEPS:
            orbit = self.select(stiff)
            later = run_rows(orbit, rows.y[stiff], max_steps, method=EXPONENTIAL)
            rows.y[stiff], rows.stop[stiff] = later.y, later.stop
            rows.evaluations[stiff] += later.evaluations
            # a passage of a saddle may have begun explicitly and ended otherwise
            passed = torch.where(later.dip < torch.inf, rows.slowest[stiff], torch.inf)
            rows.dip[stiff] = torch.minimum(rows.dip[stiff], torch.minimum(later.dip, passed))
            rows.slowest[stiff] = torch.minimum(rows.slowest[stiff], later.slowest)
        settled = rows.stop == Stop.SETTLED
        trapped = settled & self.trapped(rows.y, self.field(rows.y)[0])
        rule = torch.where(settled, Rule.CAME_TO_REST, Rule.NONE)
        rule = torch.where(trapped, Rule.TRAPPED_BY_PLANE, rule).to(torch.int8)
        pi0, pi1 = self.model.chain.stationary
        doubtful = DOUBTFUL_SPEED * pi0 * pi1 * abs(self.model.chain.second_eigenvalue)
        nearest = torch.where(trapped, rows.slowest, rows.dip) / doubtful
        return Ends(snap(self.theta(rows.y), trapped), rule, rows.stop, rows.evaluations, nearest)

    def at_rest(self, theta: Tensor) -> Tensor:
        """True for rows with no velocity at all."""
        return (self.field(self.y(theta))[0] == 0).all(dim=1)

    def trapped(self, y: Tensor, field: Tensor) -> Tensor:
        """True for rows that fall into an attracting part of e = 0 while nothing else moves."""
        found = falls_to_plane(self.model, field)
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
