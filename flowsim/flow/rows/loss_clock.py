"""Physical time until a given loss, for models whose loss is no function of the gap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from flowsim.flow.rows.exponential import EXPONENTIAL
from flowsim.flow.rows.physical_orbit import PhysicalOrbit
from flowsim.flow.rows.stepping import Method, Stop, run_rows
from flowsim.models.base import ReducedModel

#: Attempted steps per row, explicit ones and, where those are not enough, exponential ones.
_EXPLICIT_STEPS, _EXPONENTIAL_STEPS = 300, 2000


def times_of_rows(model: ReducedModel, start: Tensor, wanted: Tensor, rtol: float) -> Tensor:
    """The time until the loss is as wanted, shape (n,); NaN where it was not reached."""
    problem = _LossClock(PhysicalOrbit.from_start(model, start, rtol, 1e-2 * rtol), wanted)
    found = run_rows(problem, problem.y(start), _EXPLICIT_STEPS)
    stiff = (found.stop == Stop.RUNNING).nonzero()[:, 0]
    if len(stiff):
        later = run_rows(
            problem.select(stiff), found.y[stiff], _EXPONENTIAL_STEPS, method=_EXPONENTIAL
        )
        found.y[stiff], found.stop[stiff] = later.y, later.stop
    return torch.where(found.stop == Stop.LANDED, found.y[:, -1], torch.nan)


@dataclass(frozen=True)
class _LossClock:
    """The gradient flow with physical time as its last column; a row lands on L(θ) = wanted."""

    orbit: PhysicalOrbit
    wanted: Tensor

    def select(self, rows: Tensor) -> Self:
        return replace(self, orbit=self.orbit.select(rows), wanted=self.wanted[rows])

    def y(self, theta: Tensor) -> Tensor:
        return pad(self.orbit.y(theta), (0, 1))

    def field(self, y: Tensor, hint: Tensor | None = None) -> tuple[Tensor, Tensor]:
        field, hint = self.orbit.field(y[:, :-1], hint)
        return pad(field, (0, 1), value=1.0), hint

    def scale(self, y: Tensor) -> Tensor:
        time = self.orbit.rtol * y[:, -1:].abs() + 1e-300
        return torch.cat([self.orbit.scale(y[:, :-1]), time], dim=1)

    def event(self, y: Tensor) -> tuple[Tensor, Tensor]:
        model, theta = self.orbit.model, self.orbit.theta(y[:, :-1])
        gradient = model.gradient(theta)
        rate = (gradient.square() / gradient.new_tensor(model.metric)).sum(dim=1)
        return self.wanted - model.loss(theta), rate

    def settled(self, y: Tensor, field: Tensor) -> Tensor:
        return torch.zeros_like(y[:, 0], dtype=torch.bool)


def _begin(problem: _LossClock, y: Tensor) -> tuple[Tensor, Tensor]:
    field, memory = EXPONENTIAL.begin(problem.orbit, y[:, :-1])
    return pad(field, (0, 1), value=1.0), memory


def _attempt(
    problem: _LossClock, y: Tensor, field: Tensor, memory: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A step of the flow, in which time has no error."""
    y_new, field_new, memory_new, error = EXPONENTIAL.attempt(
        problem.orbit, y[:, :-1], field[:, :-1], memory, step
    )
    time = y[:, -1:] + step.unsqueeze(1)
    field_new, error = pad(field_new, (0, 1), value=1.0), pad(error, (0, 1))
    return torch.cat([y_new, time], dim=1), field_new, memory_new, error


_EXPONENTIAL = Method(_begin, _attempt, EXPONENTIAL.order, EXPONENTIAL.evaluations)
