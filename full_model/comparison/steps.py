"""Explicit steps along −G⁻¹∇L for many rows at once, each row with its own step.

Gradient descent (Euler) or the flow (Runge-Kutta of order 4), with the same rule for the step: a
fixed share of the inverse of a bound on the largest curvature, at the row's own weights. No step is
rejected and no row depends on another, so that rows may be split, dropped or resumed at will, and
two fields that agree to rounding take the same steps: the full models' and the reduced model's. On
a ReLU's kink, where the field jumps, the steps chatter about the sliding orbit instead of stalling,
within one step's length.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel

METHODS = ("descent", "flow")
#: Steps between two calls of ``pause``.
_PAUSE_EVERY = 200


class Field(Protocol):
    """Gradient (M, K) and stiffness (M,) of states (M, K), which move by −gradient/metric."""

    metric: Tensor

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]: ...


class ReducedField:
    """The field of a reduced model: rank-one, or canonical coordinates (e, w) or (e, w, a)."""

    def __init__(self, model: ReducedModel) -> None:
        self.model = model
        self.metric = torch.tensor(model.metric, dtype=torch.float64)

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        model = self.model
        if isinstance(model, RankOneModel):
            return model.gradient(state), model.stiffness(state)
        return model.gradient(state), _canonical_stiffness(state)


def _canonical_stiffness(theta: Tensor) -> Tensor:
    """¼‖∇f‖² at its largest, f = e²[s + 4w|w| ReLU(s)] and |s| ≤ (1 + |a|)/2; shape (...)."""
    e, w = theta[..., 0], theta[..., 1]
    reach = (1 + theta[..., 2].abs()) / 2 if theta.shape[-1] > 2 else torch.full_like(e, 0.5)
    gain = 1 + 4 * w.square()
    squares = (2 * e * reach * gain).square() + (8 * w * e.square() * reach).square()
    if theta.shape[-1] > 2:
        squares = squares + (e.square() * gain / 2).square()
    return (squares + 1) / 4


def step_until(
    field: Field,
    state: Tensor,
    time: Tensor,
    steps: Tensor,
    until: float,
    active: Tensor,
    method: str = "descent",
    share: float = 0.8,
    pause: Callable[[], object] | None = None,
    most: int = sys.maxsize,
) -> None:
    """Move the active rows to time ``until``, in place.

    θ ← θ − η G⁻¹∇L(θ) with η = share/stiffness(θ), shortened to land on ``until``; "flow" takes the
    classical Runge-Kutta step of the same length. What a row does depends on its own state and
    time alone.

    Args:
        field: what moves the rows.
        state: (M, K), changed.
        time: (M,) physical time of each row, changed.
        steps: (M,) int64, steps taken, changed.
        until: the time at which all stop.
        active: (M,) bool, the rows to move.
        method: "descent" or "flow".
        share: in (0, 2); below 1 descent does not oscillate.
        pause: called every few hundred steps, when state, time and steps are consistent.
        most: a row that has taken so many steps moves no more.

    Raises:
        InputError: an unknown method, or a share out of range.
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    if not 0 < share < 2:
        raise InputError(f"share must lie strictly between 0 and 2, not {share!r}")
    taken = 0
    while True:
        rows = (active & (time < until) & (steps < most)).nonzero()[:, 0]
        if not len(rows):
            return
        start = state[rows]
        gradient, stiffness = field(start)
        left = until - time[rows]
        step = torch.minimum(share / stiffness, left)
        wide = step.unsqueeze(-1)
        slope = -gradient / field.metric
        if method == "flow":
            slope = _runge_kutta(field, start, wide, slope)
        state[rows] = start + wide * slope
        # a row whose weights are not finite has ended; it must not run for ever
        ended = (step == left) | ~step.isfinite()
        time[rows] = torch.where(ended, until, time[rows] + step)
        steps[rows] += 1
        taken += 1
        if pause is not None and taken % _PAUSE_EVERY == 0:
            pause()


def _runge_kutta(field: Field, start: Tensor, step: Tensor, first: Tensor) -> Tensor:
    """The classical method's mean slope."""
    second = -field(start + step / 2 * first)[0] / field.metric
    third = -field(start + step / 2 * second)[0] / field.metric
    fourth = -field(start + step * third)[0] / field.metric
    return (first + 2 * second + 2 * third + fourth) / 6
