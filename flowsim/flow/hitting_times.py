"""How long gradient flow takes: physical time until a stated part of the excess loss is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from flowsim.errors import InputError
from flowsim.flow.gap.orbits import GapOrbit
from flowsim.flow.limits import Limits, find_limits
from flowsim.flow.rows.exponential import EXPONENTIAL
from flowsim.flow.rows.physical_orbit import PhysicalOrbit
from flowsim.flow.rows.stepping import Method, Stop, run_rows
from flowsim.landscape.labels import Label, Rule
from flowsim.models.base import GapModel, ReducedModel, loss_of_gap
from flowsim.models.gap_loss import gap_loss

#: Attempted steps per row, explicit ones and, where those are not enough, exponential ones.
_EXPLICIT_STEPS, _EXPONENTIAL_STEPS = 300, 2000


def hitting_times(
    model: ReducedModel,
    theta0: Tensor,
    fraction: float = 1e-3,
    rtol: float | None = None,
    limits: Limits | None = None,
) -> Tensor:
    """Physical time until the excess loss has fallen to ``fraction`` of its start.

    The excess is L(θ(t)) − L(θ(∞)), with the limit found by ``find_limits``; it falls all the
    time, so the moment is unique. Time is one more coordinate of the orbit. Where L = ℓ(Δ) the
    orbit is followed in rescaled time, dt = dτ/|ℓ′(Δ)|, and lands on the gap Δ with the wanted
    loss; other models are followed in physical time and land on the loss itself.

    Args:
        model: any reduced model.
        theta0: starts, shape (..., k).
        fraction: in (0, 1).
        rtol: relative error allowed per step, in time too; by default 1e-11 where the loss is a
            function of the gap, else 1e-8.
        limits: of ``theta0``, if they are known already.

    Returns:
        Times, shape (...); NaN for starts that never move or whose limit is unresolved, and where
        the excess at the start is lost in rounding.

    Raises:
        InputError: ``fraction`` outside (0, 1), or what ``find_limits`` raises.
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie strictly between 0 and 1, not {fraction}")
    limits = find_limits(model, theta0) if limits is None else limits
    rows = theta0.to(torch.float64).reshape(-1, theta0.shape[-1])
    ends, end_loss = limits.theta.reshape(rows.shape), limits.loss.reshape(-1)
    start_loss = model.loss(rows)
    moves = (limits.label != Label.UNRESOLVED) & (limits.rule != Rule.CRITICAL_START)
    moves = moves.reshape(-1) & (start_loss > end_loss)
    times = torch.full_like(start_loss, torch.nan)
    if bool(moves.any()):
        wanted = (end_loss + fraction * (start_loss - end_loss))[moves]
        if loss_of_gap(model):
            times[moves] = _by_gap(model, rows[moves], ends[moves], wanted, rtol or 1e-11)
        else:
            times[moves] = _by_loss(model, rows[moves], wanted, rtol or 1e-8)
    return times.reshape(theta0.shape[:-1])


def _by_gap(model: GapModel, start: Tensor, end: Tensor, wanted: Tensor, rtol: float) -> Tensor:
    target = _gap_at_loss(model, model.logit_gap(start), model.logit_gap(end), wanted)
    orbit = GapOrbit.from_start(model, start, target, rtol, rtol, clock=True)
    found = run_rows(orbit, orbit.y(start), max_steps=2000)
    return torch.where(found.stop == Stop.LANDED, found.y[:, -1], torch.nan)


def _gap_at_loss(model: GapModel, start: Tensor, end: Tensor, loss: Tensor) -> Tensor:
    """The logit gap between ``start`` and ``end`` (where ℓ is monotone) with ℓ(Δ) = loss."""

    from scipy.optimize.elementwise import find_root  # costs a third of a second to import

    def excess(gap: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return gap_loss(model.chain, torch.from_numpy(gap)).numpy() - wanted

    bracket = (start.cpu().numpy(), end.cpu().numpy())
    root = find_root(excess, bracket, args=(loss.cpu().numpy(),)).x
    return torch.from_numpy(root).to(start)


def _by_loss(model: ReducedModel, start: Tensor, wanted: Tensor, rtol: float) -> Tensor:
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
