"""The rows engine: models with compiled functions, from tensors to compiled loops and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flowsim.compiled import specialise
from flowsim.flow import return_codes
from flowsim.flow.batch import times_to_fraction
from flowsim.flow.chart import Chart
from flowsim.flow.labelling import EndStates
from flowsim.flow.near_saddles import resolve_near_saddles
from flowsim.flow.options import Limits, Steps
from flowsim.flow.rows import hooks, loop
from flowsim.flow.rows.loop import ATTEMPTS, KINKS, TrajectoryBuffers
from flowsim.flow.rows.workspace import allocate_workspace
from flowsim.interface import CompiledModel, EndLosses, Model
from flowsim.landscape.critical import curvatures

#: Stands for log|θᵢ| where θᵢ stays 0.
_SMALLEST = -700.0
#: Starts handled at once, times k², which bounds the memory.
_SQUARES = 2**17
#: A row that was as slow as this times the model's slowest rate when it passed a saddle is in
#: doubt: in logarithms, whose rates stay large beside a plane, or in plain coordinates.
_DOUBTFUL_LOGARITHMS, _DOUBTFUL = 2e-3, 1e-4
#: A row is at rest only where its gradient would vanish within this distance, by its curvature.
_NEAR = 1e-8
#: Evaluations of the field in a step, counting its derivative as one.
_EVALUATIONS = 9

_engines: dict[str, Any] = {}


def engine_of(compiled: CompiledModel) -> Any:
    """Return the copy of the loop's functions that calls the model's hooks, made once."""
    if compiled.tag not in _engines:
        _engines[compiled.tag] = specialise((hooks, loop), compiled.tag, **compiled.hooks)
    return _engines[compiled.tag]


@dataclass
class Followed:
    """The ends of n followed rows: ``TrajectoryBuffers`` as tensors, in θ.

    Their paths have shape (T, n, k), ``speed`` is ‖G dθ/dt‖ = ‖∇L‖ at the end, (n,), and ``loss``
    that of what was followed, in nats. ``passed`` is the smallest speed that was followed by one
    three times as large, the passage of a saddle; speeds are in the row's chart.
    """

    theta: Tensor
    why: Tensor
    attempts: Tensor
    crossings: Tensor
    time: Tensor
    sliding: Tensor
    slowest: Tensor
    passed: Tensor
    loss: Tensor
    speed: Tensor
    path: Tensor
    near: Tensor


def follow_rows(
    model: Model,
    compiled: CompiledModel,
    theta: Tensor,
    steps: Steps,
    times: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Followed:
    """Follow every row of θ (n, k) to its end, to the last of ``times`` (n, T), or to a loss (n,).

    Times increase and are positive; the start is at 0. The error allowed per step is rtol in
    logarithms, else atol + rtol·(|yᵢ| + |origin|), unless the model measures errors by itself.
    """
    (n, k), engine, keeps = theta.shape, engine_of(compiled), np.array(model.keeps_sign)
    chart, y, at_zero = initial_rows(model, compiled, theta.detach().cpu().contiguous())
    signs, origin = chart.signs.numpy(), np.where(keeps, 0.0, compiled.origin or 0.0)
    absolute = np.where(keeps, steps.rtol, steps.atol + steps.rtol * abs(origin))
    relative = np.where(keeps, 1e-15, steps.rtol)
    at = np.empty((n, 0)) if times is None else times.detach().cpu().numpy().astype(np.float64)
    goal = np.full(n, -np.inf) if wanted is None else wanted.detach().cpu().numpy()
    found = TrajectoryBuffers(
        ends=np.zeros((n, k)), velocities=np.zeros((n, k)), paths=np.empty((n, at.shape[1], k)),
        why=np.empty(n, dtype=np.int64), counts=np.empty((n, 3), dtype=np.int64),
        numbers=np.empty((n, 5)), near=np.zeros((n, 2)),
    )  # fmt: skip
    for rows in np.split(np.arange(n), range(compiled.at_once, n, compiled.at_once)):
        while len(rows):
            found.paths[rows], found.counts[rows], found.numbers[rows] = np.nan, 0, 0.0
            row = allocate_workspace(*compiled.constants(), k, compiled.own_steps)
            begun = row, rows, y, at_zero, signs
            engine.follow_all(*begun, absolute, relative, at, goal, steps.most, found)
            missing = found.why[rows] >= return_codes.NEEDS_TABLE_LEVEL
            if missing.any() and compiled.extend is not None:
                compiled.extend(int(found.why[rows].max()) - return_codes.NEEDS_TABLE_LEVEL)
            rows = rows[missing]
    ends, path = (
        chart.to_theta(torch.from_numpy(x + origin))
        for x in (found.ends, found.paths.transpose(1, 0, 2))
    )
    per_y = torch.where(chart.logarithmic, ends, 1.0) * ends.new_tensor(model.metric)
    speed = (torch.from_numpy(found.velocities) * per_y).norm(dim=1)
    counts, numbers = (torch.from_numpy(x).T for x in (found.counts, found.numbers))
    columns = (
        ends, torch.from_numpy(found.why), counts[ATTEMPTS], counts[KINKS], *numbers, speed, path,
        torch.from_numpy(found.near),
    )  # fmt: skip
    return Followed(*(column.to(theta.device) for column in columns))


def initial_rows(
    model: Model, compiled: CompiledModel, start: Tensor
) -> tuple[Chart, np.ndarray, np.ndarray]:
    """Put starts θ (n, k) into the coordinates that the engine follows.

    Returns their chart, their coordinates y (n, k), and whether their first θ stays 0, (n,).

    y is log|θᵢ| where θᵢ keeps its sign, and else counted from ``origin``. That of a θᵢ which stays
    0 is not used.
    """
    chart = Chart.at(model, start)
    held = (chart.signs == 0) & chart.logarithmic
    moved = torch.where(chart.logarithmic, 0.0, start.new_tensor(compiled.origin or (0.0,)))
    y = torch.where(held, _SMALLEST, chart.to_chart(start) - moved)
    return chart, y.numpy(), held[:, 0].contiguous().numpy()


class SwitchingSolver:
    """Follows models with compiled functions in time, across and along their switching surfaces."""

    batched = False
    variable: Literal["time"] = "time"

    def __init__(self, model: Model, compiled: CompiledModel) -> None:
        self.model, self.compiled, self.defaults = model, compiled, compiled

    def ends(self, start: Tensor, steps: Steps, once: bool = False) -> Iterator[EndStates]:
        """Follow starts (n, k) to their ends; yield their end states part by part."""
        compiled = self.compiled
        again = steps.finer(compiled.finer, compiled.finest, compiled.more)
        for part in start.split(max(1, min(8 * compiled.at_once, _SQUARES // start.shape[1] ** 2))):
            yield resolve_near_saddles(self.follow, self.model, part, steps, again, once)

    def follow(self, start: Tensor, steps: Steps) -> EndStates:
        """Follow starts (n, k) once, at these tolerances; return their end states."""
        model, compiled = self.model, self.compiled
        found = follow_rows(model, compiled, start, steps)
        why, end_losses = found.why.clone(), model.end_losses()
        if compiled.place_ends is not None:
            known = compiled.place_ends(why == return_codes.BELOW_PLATEAU, found.theta, found.loss)
            why[known], found.speed[known] = return_codes.KNOWN_END, 0.0
        elif end_losses is not None:
            _rest(model, end_losses, found, why)
        critical = why == return_codes.CRITICAL
        found.theta[critical] = start[critical]
        states = EndStates.of(
            found.theta,
            why,
            found.loss,
            found.speed,
            1 + _EVALUATIONS * found.attempts,
            _near_saddles(model, compiled, found, steps.rtol),
        )
        states.near[critical] = return_codes.FAR
        states.crossings, states.sliding_time = found.crossings.to(torch.int32), found.sliding
        return states

    def paths(self, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
        """Return θ (T, n, k) at the times (T, n), from ``start`` at times[0]; NaN if not known."""
        found = follow_rows(self.model, self.compiled, start, steps, (times[1:] - times[0]).T)
        critical = found.why == return_codes.CRITICAL
        found.theta[critical] = start[critical]
        rests = critical | (found.why == return_codes.MINIMA) | (found.why == return_codes.REST)
        unwritten = found.path.isnan() & rests[:, None]
        return torch.cat([start[None], torch.where(unwritten, found.theta, found.path)])

    def times(self, start: Tensor, ends: Limits, fraction: float, steps: Steps) -> Tensor:
        """Return the times (n,) when ``fraction`` of the excess loss is left; NaN if never."""

        def until(rows: Tensor, wanted: Tensor) -> Tensor:
            """Return the times (n,) at which rows (n, k) have the losses ``wanted``; else NaN."""
            found = follow_rows(self.model, self.compiled, rows, steps, wanted=wanted)
            return torch.where(found.why == return_codes.ARRIVED, found.time, torch.nan)

        # the loss whose gradient moves the rows, which may be the model's with its kinks rounded
        begun = follow_rows(self.model, self.compiled, start, steps._replace(most=0)).loss
        return times_to_fraction(until, start, begun, ends.loss, fraction)


def _rest(model: Model, end_losses: EndLosses, found: Followed, why: Tensor) -> None:
    """Finish, in place, what was found of rows that are trapped or said to be at rest.

    Trapped rows are put on the plane that attracts them. Rows at rest keep that code in ``why``
    (n,) where their gradient is small for their curvature; the others become GOING.
    """
    trapped = why == return_codes.TRAPPED
    found.theta[trapped, 0] = 0.0
    found.loss[trapped] = end_losses.trap
    found.speed[trapped] = 0.0
    resting = why == return_codes.REST
    if bool(resting.any()):
        # close to p + q = 1 all gradients are small, also those of points that are not critical
        largest = curvatures(model, found.theta[resting]).abs().amax(dim=-1)
        rests = found.speed[resting] <= _NEAR * largest
        why[resting] = torch.where(rests, return_codes.REST, return_codes.GOING)


def _near_saddles(model: Model, compiled: CompiledModel, found: Followed, rtol: float) -> Tensor:
    """Return whether rows passed near a saddle, as codes NEAR, FAR … of ``return_codes``, (n,)."""
    end_losses, stuck = model.end_losses(), found.why == return_codes.STUCK
    if compiled.near_saddles is not None:
        passed = torch.from_numpy(compiled.near_saddles(found.near.numpy(), rtol))
        return torch.where(stuck, return_codes.FAR, passed)
    if compiled.scale is not None or end_losses is None:
        scale = compiled.scale(found.loss) if compiled.scale is not None else 0.0
        near = (found.passed < _DOUBTFUL * scale) & ~stuck
    elif any(model.keeps_sign):
        nearest = torch.where(found.why == return_codes.TRAPPED, found.slowest, found.passed)
        near = (nearest < _DOUBTFUL_LOGARITHMS * end_losses.speed) & ~stuck
    else:  # a row that is stuck is tried once more
        near = (found.passed < _DOUBTFUL * end_losses.speed) | stuck
    return torch.where(near, return_codes.NEAR, return_codes.FAR)
