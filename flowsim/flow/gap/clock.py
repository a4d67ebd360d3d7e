"""Orbits of models with L = ℓ(Δ), followed with the logit gap Δ itself as the clock.

Along the gradient flow Δ is monotone, so an orbit may be written y(Δ) with dy/dΔ = ∇Δ/‖∇Δ‖². The
ends are then known beforehand: the minima lie at Δ = Δ*, and an orbit that meets Δ = 0 either has
e = 0 there (the plane traps it) or goes on to Δ*. No end has to be searched for, and in the chart
of ``Chart`` the field stays smooth up to the plane. Only near a saddle, where ∇Δ = 0, is this a bad
clock: such rows are left to ``orbits``. Source: own derivation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.flow.gap.attempt import compiled_attempt, eager_attempt
from flowsim.flow.rows.stepping import ORDER, STAGE_WEIGHTS
from flowsim.models.base import GapModel

#: Rows advanced at once: few enough to stay in the processor's cache, many enough per call.
POOL = 8192
#: The same where the step is compiled: its loop needs no cache.
_COMPILED_POOL = 65536
#: Part of the pool that may have stopped before it is cleared and filled again.
IDLE = 0.2
#: ‖∇Δ‖² (as ``clock_rates`` gives it) below which a row is too near a saddle for this clock, by
#: number of coordinates: with three, the saddles are lines, and errors grow along their passage.
_NEAR_SADDLE = {2: 1e-5, 3: 2e-3}
#: Attempted steps after which a row is left to the other method.
ATTEMPTS = 300
#: At Δ = 0 one of e = 0 and "another factor = 0" must hold; this is how clearly.
_CLEAR = 1e-4


class Stopped(NamedTuple):
    """Where rows stopped: θ (n, k); whether Δ = Δ* or e = 0 was met (neither: not decided)."""

    theta: Tensor
    at_minima: Tensor
    at_plane: Tensor
    evaluations: Tensor


def to_clock_chart(model: GapModel, theta: Tensor) -> tuple[Tensor, Tensor]:
    """y (k, n) and the signs of θ (k, n): θᵢ², log θᵢ² or θᵢ, by ``model.clock_chart``."""
    columns = theta.T
    y = torch.empty_like(columns, memory_format=torch.contiguous_format)
    for row, kind, values in zip(y, model.clock_chart, columns, strict=True):
        if kind == "square":
            torch.square(values, out=row)
        elif kind == "log":  # −700 stands for log 0; the sign, 0, keeps it there
            torch.log(values.abs(), out=row).clamp_min_(-350.0).mul_(2.0)
        else:
            row.copy_(values)
    return y, torch.sign(columns).contiguous()


def from_clock_chart(model: GapModel, y: Tensor, signs: Tensor) -> Tensor:
    """θ, shape (n, k)."""
    columns = []
    for kind, values, sign in zip(model.clock_chart, y, signs, strict=True):
        if kind == "square":
            columns.append(sign * values.clamp_min(0.0).sqrt())
        elif kind == "log":
            columns.append(sign * (0.5 * values).exp())
        else:
            columns.append(values)
    return torch.stack(columns, dim=-1)


def legs(model: GapModel, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y and signs, shape (k, n), Δ, and where its first leg ends: Δ*, or 0 on the way there."""
    clock = model.logit_gap(theta)
    end = torch.full_like(clock, model.chain.target_logit_gap)
    if "square" in model.clock_chart:
        end[clock * end < 0] = 0.0
    return *to_clock_chart(model, theta), clock, end


class Rows:
    """Rows being advanced, as the columns of one table, so that they are moved all at once.

    ``clock`` is Δ now and ``end`` where this leg ends; ``last_step`` is the length of the latest
    accepted step and ``last_order`` the logarithm of the growth its error asked for; ``near``
    marks rows that came near a saddle, ``done`` those that wait to be judged.
    """

    def __init__(self, k: int, table: Tensor, index: Tensor) -> None:
        self.k, self.table, self.index = k, table, index
        self.y, self.rates, self.signs = table[:k], table[k : 2 * k], table[2 * k : 3 * k]
        self.clock, self.end, self.step, self.last_step, self.last_order = table[3 * k : 3 * k + 5]
        self.attempts = table[-1]
        self.near = torch.zeros_like(index, dtype=torch.bool)
        self.done = self.near.clone()

    @classmethod
    def start(
        cls, model: GapModel, y: Tensor, signs: Tensor, clock: Tensor, end: Tensor, first: int
    ) -> Rows:
        """Rows at their start, numbered from ``first``."""
        numerators, size = model.clock_rates(y, signs)
        rates = torch.stack(numerators) / size
        speed = (rates / torch.where(y == 0, 1.0, y)).abs().amax(dim=0)
        remaining = end - clock
        step = torch.copysign(torch.minimum(remaining.abs(), 0.5 / speed), remaining)
        columns = [y, rates, signs, torch.stack([clock, end, step]), y.new_zeros(3, y.shape[1])]
        index = torch.arange(first, first + y.shape[1], device=y.device)
        return cls(len(y), torch.cat(columns), index)

    def keep(self, rows: Tensor) -> Rows:
        """The chosen rows (index), none of which is near a saddle or done."""
        return Rows(self.k, self.table[:, rows], self.index[rows])

    def put(self, rows: Tensor, fresh: Rows) -> None:
        """Let others take the place of the given rows (index)."""
        self.table[:, rows], self.index[rows] = fresh.table, fresh.index
        self.near[rows] = self.done[rows] = False


def follow_by_gap(
    model: GapModel,
    theta: Tensor,
    rtol: float,
    atol: float,
    max_steps: int = 1000,
    pool: int | None = None,
    compiled: bool = False,
) -> Stopped:
    """Follow every row until it meets the minima or the plane e = 0, or comes near a saddle.

    Every row has a step of its own (Dormand-Prince 8(7), torchdiffeq's tableau), predicted from
    its last two errors (Gustafsson's controller), so no row depends on another.

    Args:
        model: its loss is a function of the logit gap.
        theta: starts that are finite and not critical, shape (n, k).
        rtol, atol: error allowed per step: rtol·|θᵢ²| and rtol in log θᵢ², and
            atol + rtol·|θᵢ| for coordinates that change sign.
        max_steps: attempted steps per row; a row that needs many is left undecided anyway.
        pool: rows advanced at once; by default as many as are quickest.
        compiled: compile the step (some twenty seconds, once per machine).
    """
    n, budget = len(theta), min(max_steps, ATTEMPTS)
    pool = pool or (_COMPILED_POOL if compiled else POOL)
    target = model.chain.target_logit_gap
    y0, signs, clock, end = legs(model, theta)
    allowed = tolerances(model, rtol, atol, y0)
    attempt = compiled_attempt(model) if compiled else eager_attempt(model, y0[:, :pool])

    stopped_y, evaluations = y0.clone(), torch.zeros(n, dtype=torch.int64, device=theta.device)
    at_minima = torch.zeros(n, dtype=torch.bool, device=theta.device)
    at_plane = at_minima.clone()

    def fresh(start: int, stop: int) -> Rows:
        mine = slice(start, stop)
        return Rows.start(model, y0[:, mine], signs[:, mine], clock[mine], end[mine], start)

    rows, waiting = fresh(0, min(n, pool)), pool
    while len(rows.index):
        tried = attempt(rows.y, rows.rates, rows.signs, rows.step, *allowed)
        advance(rows, *tried, budget)
        if int(rows.done.sum()) < IDLE * len(rows.done):
            continue
        _judge(model, rows, at_minima, at_plane)
        gone = rows.done.nonzero()[:, 0]
        stopped_y[:, rows.index[gone]] = rows.y[:, gone]
        evaluations[rows.index[gone]] = 1 + len(STAGE_WEIGHTS) * rows.attempts[gone].long()
        if waiting < n and len(gone):
            upto = min(n, waiting + len(gone))
            rows.put(gone[: upto - waiting], fresh(waiting, upto))
            waiting = upto
        if bool(rows.done.any()):
            rows = rows.keep((~rows.done).nonzero()[:, 0])
    # a last Newton step along the orbit makes up for the error that the clock does not see
    missing = target - model.logit_gap(from_clock_chart(model, stopped_y, signs))
    numerators, size = model.clock_rates(stopped_y, signs)
    last = torch.stack(numerators).mul_(missing / size)
    stopped_y = torch.where(at_minima, stopped_y + last, stopped_y)
    theta = from_clock_chart(model, stopped_y, signs)
    theta[at_plane, 0] = 0.0
    return Stopped(theta, at_minima, at_plane, evaluations)


def advance(
    rows: Rows, y_new: Tensor, rates_new: Tensor, ratio: Tensor, size: Tensor, budget: int
) -> Tensor:
    """Accept or reject the attempted step of every row; which were accepted, shape (n,).

    A row at its end waits there.
    """
    accepted = (ratio <= 1) & ~rows.done  # false for NaN
    rows.attempts += ~rows.done
    rows.near |= accepted & (size < _NEAR_SADDLE[rows.k])
    arriving = rows.step == rows.end - rows.clock
    moved = torch.where(arriving, rows.end, rows.clock + rows.step)
    torch.where(accepted, moved, rows.clock, out=rows.clock)
    torch.where(accepted, y_new, rows.y, out=rows.y)
    torch.where(accepted, rates_new, rows.rates, out=rows.rates)
    # the next step: what this error asks for, or less if the errors are growing (Gustafsson)
    length = rows.step.abs()
    order = ratio.clamp_(1e-30, 1e30).log_().mul_(-1 / ORDER)
    predicted = (2 * order).sub_(rows.last_order).exp_().mul_(length).div_(rows.last_step)
    growth = order.exp()
    growth = torch.where(accepted, torch.minimum(growth, predicted), growth)
    growth = growth.mul_(0.9).nan_to_num_(0.1).clamp_(0.1, 10.0)
    torch.where(accepted, length, rows.last_step, out=rows.last_step)
    torch.where(accepted, order, rows.last_order, out=rows.last_order)
    remaining = rows.end - rows.clock
    length = torch.minimum(remaining.abs(), length.mul_(growth))
    torch.copysign(length, remaining, out=rows.step)
    rows.done |= (remaining == 0) | rows.near | (rows.attempts >= budget)
    return accepted


def _judge(model: GapModel, rows: Rows, at_minima: Tensor, at_plane: Tensor) -> None:
    """Decide the rows that came to their end, or send them on from Δ = 0 to Δ*."""
    target = model.chain.target_logit_gap
    there = ((rows.clock == rows.end) & ~rows.near).nonzero()[:, 0]
    final = rows.end[there] == target
    crossing = final
    if "square" in model.clock_chart:
        on_plane, elsewhere = meets_plane(model, rows.y[:, there], rows.signs[:, there])
        at_zero = rows.end[there] == 0
        crossing = torch.where(at_zero, elsewhere, final)
        at_plane[rows.index[there]] = at_zero & on_plane
        send_on(rows, there[crossing & ~final], target)
    at_minima[rows.index[there]] = crossing & final


def meets_plane(model: GapModel, y: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """What vanishes where an orbit meets Δ = 0: e, or another factor; neither if it is unclear."""
    size = model.clock_rates(y, signs)[1]
    without = model.clock_rates(torch.cat([torch.zeros_like(y[:1]), y[1:]]), signs)[1]
    return (size - without).abs() <= _CLEAR * size, without <= _CLEAR * size


def send_on(rows: Rows, which: Tensor, target: float) -> None:
    """Begin the leg from Δ = 0 to Δ* of the given rows (index)."""
    rows.end[which] = target
    length = torch.minimum(rows.last_step[which], (target - rows.clock[which]).abs())
    rows.step[which] = math.copysign(1.0, target) * length
    rows.done[which] = False


def tolerances(model: GapModel, rtol: float, atol: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Absolute and relative parts of the error allowed in each coordinate, shape (k, 1) each."""
    allowed = {"square": (1e-300, rtol), "log": (rtol, 1e-15), "plain": (atol, rtol)}
    pairs = like.new_tensor([allowed[kind] for kind in model.clock_chart])
    return pairs[:, :1], pairs[:, 1:]
