"""Runge-Kutta steps for a batch in which every row has its own step, stop and error.

torchdiffeq gives a whole batch one step, so the stiffest row sets the step and the slowest the
horizon. Here each row advances by itself with the tableau of torchdiffeq's Dormand-Prince 8(7)
solver; rows that stop leave the batch, and no row's result depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor
from torchdiffeq._impl.odeint import SOLVERS

_SOLVER = SOLVERS["dopri8"]
#: The tableau; its last row of weights is the solution: first same as last.
STAGE_WEIGHTS: list[Tensor] = _SOLVER.tableau.beta
ERROR_WEIGHTS: Tensor = _SOLVER.tableau.c_error
ORDER: int = _SOLVER.order
_STAGES = len(STAGE_WEIGHTS)

#: Rows advanced at once: few enough to stay in the processor's cache, many enough per call.
POOL = 8192
#: A row has landed when its remaining Newton step is this small a part of the tolerated error.
LANDING = 1e-2


class Stop(IntEnum):
    """Why a row stopped."""

    RUNNING = 0  # given up: the step budget ran out, or the row became too slow
    LANDED = 1  # on the event surface
    SETTLED = 2  # the problem says that nothing more will happen
    FAILED = 3  # a value that is not finite, or a step below rounding


class RowProblem(Protocol):
    """An autonomous system whose rows y have shape (n, k), with constants of their own.

    A hint, shape (n, h), is whatever an evaluation at one point can tell the next one nearby to
    make it cheaper (h may be 0); it must not change the result beyond rounding.
    """

    def select(self, rows: Tensor) -> Self:
        """The problem of the chosen rows (boolean mask or index)."""
        ...

    def field(self, y: Tensor, hint: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """dy/dτ, shape (n, k), and the hint for the next evaluation."""
        ...

    def scale(self, y: Tensor) -> Tensor:
        """Tolerated local error per coordinate, broadcastable to (n, k)."""
        ...

    def event(self, y: Tensor) -> tuple[Tensor, Tensor] | None:
        """(value, rate) of a function that rises through zero at the end, each (n,), or None."""
        ...

    def settled(self, y: Tensor, field: Tensor) -> Tensor:
        """True for rows whose limit is already decided, shape (n,)."""
        ...


class Method(NamedTuple):
    """A one-step method.

    ``begin``: (problem, y) ↦ (dy/dτ, memory), where memory, shape (n, ·), is what the method keeps
    of a point beside its field. ``attempt``: (problem, y, dy/dτ, memory, step) ↦ (y, dy/dτ, memory,
    error estimate) at the step's end.
    """

    begin: Callable[[Any, Tensor], tuple[Tensor, Tensor]]
    attempt: Callable[[Any, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]
    order: int
    evaluations: int


@dataclass
class Rows:
    """Where the rows stopped: end point, reason (``Stop``), field evaluations, speeds met.

    ``slowest`` is the smallest max|dy/dτ| met at an accepted step; ``dip`` the smallest that was
    followed by one at least three times as large (the passage of a saddle), infinite without one.
    """

    y: Tensor
    stop: Tensor
    evaluations: Tensor
    slowest: Tensor
    dip: Tensor


def run_rows(
    problem: RowProblem,
    y0: Tensor,
    max_steps: int,
    min_speed: float = 0.0,
    method: Method | None = None,
    pool: int = POOL,
) -> Rows:
    """Advance every row until it lands, settles, fails, or has made ``max_steps`` attempts.

    Args:
        problem: the system; its scale sets the error allowed in one step.
        y0: starts, shape (n, k), float64.
        max_steps: attempted steps per row.
        min_speed: a row slower than this is given up: rounding would decide where it goes.
        method: ``DORMAND_PRINCE`` unless another is given.
        pool: rows advanced at once; a row that stops makes room for the next.

    Returns:
        Rows, in the order of ``y0``. Rows that were given up are ``Stop.RUNNING``.
    """
    method = method or DORMAND_PRINCE
    n = len(y0)
    out = Rows(
        y0.clone(),
        torch.zeros(n, dtype=torch.int8, device=y0.device),
        torch.zeros(n, dtype=torch.int64, device=y0.device),
        torch.full_like(y0[:, 0], torch.inf),
        torch.full_like(y0[:, 0], torch.inf),
    )
    active = _Active.start(problem, method, y0, torch.arange(min(n, pool), device=y0.device))
    waiting = pool
    while len(active.index):
        done, reason = active.advance(method, max_steps, min_speed)
        if not bool(done.any()):
            continue
        rows = active.index[done]
        out.stop[rows] = reason[done]
        out.evaluations[rows] = 1 + method.evaluations * active.attempts[done]
        out.y[rows] = active.y[done]
        out.slowest[rows], out.dip[rows] = active.slowest[done], active.dip[done]
        active = active.select(~done)
        if waiting < n and len(active.index) < 0.8 * pool:
            room = pool - len(active.index)
            fresh = torch.arange(waiting, min(n, waiting + room), device=y0.device)
            active = active.join(_Active.start(problem, method, y0, fresh), problem)
            waiting += room
    return out


@dataclass
class _Active:
    """The rows being advanced: their problem, state, and next step, one entry per row."""

    problem: RowProblem
    index: Tensor
    y: Tensor
    field: Tensor
    memory: Tensor
    step: Tensor
    slowest: Tensor
    dip: Tensor
    attempts: Tensor

    @classmethod
    def start(cls, problem: RowProblem, method: Method, y0: Tensor, index: Tensor) -> Self:
        mine = problem.select(index)
        y = y0[index]
        field, memory = method.begin(mine, y)
        speed = field.abs().amax(dim=1)
        step = torch.where(torch.isfinite(speed), 0.1 / speed, torch.nan)
        never = torch.full_like(speed, torch.inf)
        attempts = torch.zeros_like(index)
        return cls(mine, index, y, field, memory, step, speed, never, attempts)

    def select(self, rows: Tensor) -> Self:
        return replace(
            self,
            problem=self.problem.select(rows),
            **{name: getattr(self, name)[rows] for name in _COLUMNS},
        )

    def join(self, fresh: Self, problem: RowProblem) -> Self:
        columns = {
            name: torch.cat([getattr(self, name), getattr(fresh, name)]) for name in _COLUMNS
        }
        return replace(self, problem=problem.select(columns["index"]), **columns)

    def advance(self, method: Method, max_steps: int, min_speed: float) -> tuple[Tensor, Tensor]:
        """Attempt one step in every row; which rows are done, and why (``Stop``)."""
        problem, step = self.problem, self.step
        state = self.y, self.field, self.memory
        y_new, field_new, memory_new, error = method.attempt(problem, *state, step)
        scale = problem.scale(y_new)
        ratio = (error.abs() / scale).amax(dim=1)
        usable = torch.isfinite(ratio) & torch.isfinite(y_new).all(dim=1)
        accepted = usable & (ratio <= 1)
        growth = (0.9 * ratio.clamp_min(1e-30) ** (-1 / method.order)).clamp(0.2, 10.0)
        next_step = step * torch.where(usable, growth, 0.2)

        landed = torch.zeros_like(accepted)
        event = problem.event(y_new)
        if event is not None:
            value, rate = event
            remaining = -value / rate
            movement = (remaining.unsqueeze(1) * field_new).abs() / scale
            landed = accepted & (movement.amax(dim=1) <= LANDING)
            overshot = accepted & ~landed & (value > 0)
            accepted = accepted & ~overshot
            newton = step + remaining
            inside = (newton > 0) & (newton < step)
            next_step = torch.where(overshot, torch.where(inside, newton, step / 2), next_step)
            next_step = torch.where(accepted, torch.minimum(next_step, remaining), next_step)

        moved = accepted.unsqueeze(1)
        self.y = torch.where(moved, y_new, self.y)
        self.field = torch.where(moved, field_new, self.field)
        self.memory = torch.where(moved, memory_new, self.memory)
        self.step = next_step
        self.attempts = self.attempts + 1
        speed = self.field.abs().amax(dim=1)
        self.dip = torch.where(
            speed > 3 * self.slowest, torch.minimum(self.dip, self.slowest), self.dip
        )
        self.slowest = torch.minimum(self.slowest, speed)

        settled = accepted & ~landed & problem.settled(self.y, self.field)
        # not finite from the start, or a step that no longer moves the row
        failed = ~torch.isfinite(next_step) | (~accepted & ~landed & (next_step * speed < 1e-15))
        given_up = (self.attempts >= max_steps) | (speed < min_speed)
        done = landed | settled | failed | given_up
        reason = torch.where(failed, Stop.FAILED, Stop.RUNNING)
        reason = torch.where(landed, Stop.LANDED, torch.where(settled, Stop.SETTLED, reason))
        return done, reason.to(torch.int8)


_COLUMNS = [f.name for f in fields(_Active) if f.name != "problem"]


def _begin(problem: RowProblem, y: Tensor) -> tuple[Tensor, Tensor]:
    return problem.field(y)


def _dormand_prince(
    problem: RowProblem, y: Tensor, field: Tensor, hint: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One explicit Runge-Kutta step of every row."""
    h = step.unsqueeze(1)
    stages = torch.empty(_STAGES + 1, *y.shape, dtype=y.dtype, device=y.device)
    stages[0] = field
    flat = stages.view(_STAGES + 1, -1)
    for i, weights in enumerate(STAGE_WEIGHTS):
        y_new = torch.addcmul(y, h, (weights.to(y) @ flat[: i + 1]).view_as(y))
        stages[i + 1], hint = problem.field(y_new, hint)
    return y_new, stages[-1], hint, h * (ERROR_WEIGHTS.to(y) @ flat).view_as(y)


DORMAND_PRINCE = Method(_begin, _dormand_prince, ORDER, _STAGES)
