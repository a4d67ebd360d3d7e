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
from flowsim.flow.labelling import EndStates
from flowsim.flow.near_saddles import resolve_near_saddles
from flowsim.flow.options import Limits, Steps
from flowsim.flow.rows import hooks, loop
from flowsim.flow.rows.loop import ATTEMPTS, KINKS, TrajectoryBuffers
from flowsim.flow.rows.workspace import allocate_workspace
from flowsim.flow.tableau import STAGES
from flowsim.interface import CompiledModel, EndLosses, Model
from flowsim.labels import Status
from flowsim.landscape.critical import curvatures

#: log|θᵢ| of a coordinate that is smaller still.
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
_STATUS = {
    return_codes.OUT_OF_STEPS: Status.TIMED_OUT,
    return_codes.STUCK: Status.TIMED_OUT,
    return_codes.NOT_FINITE: Status.FAILED,
    return_codes.DIVERGED: Status.DIVERGED,
    return_codes.BELOW_PLATEAU: Status.TIMED_OUT,
}

_engines: dict[str, Any] = {}


def engine_of(compiled: CompiledModel) -> Any:
    """The copy of the engine that calls the model's functions, made once."""
    if compiled.tag not in _engines:
        _engines[compiled.tag] = specialise((hooks, loop), compiled.tag, **compiled.hooks)
    return _engines[compiled.tag]


class RowChart:
    """The rows' coordinates: log|θᵢ| for coordinates that keep their sign, else θᵢ − ``origin``.

    A zero stays zero; its logarithm is not used. ``at_zero`` says where θ₀ is such a zero.
    """

    def __init__(self, start: np.ndarray, model: Model, origin: tuple[float, ...] = ()) -> None:
        self.logarithmic, self.signs = np.array(model.keeps_sign), np.sign(start)
        self.origin = np.array(origin or np.zeros(start.shape[1]))
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(np.abs(start)), _SMALLEST)
        self.y = np.where(self.logarithmic, logs, start - self.origin)
        self.at_zero = (start[:, 0] == 0) & model.keeps_sign[0]

    def theta(self, y: np.ndarray) -> np.ndarray:
        """θ(y) for y of shape (n, ..., k)."""
        signs = self.signs.reshape(len(y), *[1] * (y.ndim - 2), y.shape[-1])
        size = np.exp(np.clip(np.where(self.logarithmic, y, 0.0), _SMALLEST, -_SMALLEST))
        return np.where(self.logarithmic, signs * size, y + self.origin)

    def derivative(self, y: np.ndarray) -> np.ndarray:
        """∂θᵢ/∂yᵢ, (n, k)."""
        return np.where(self.logarithmic, self.theta(y), 1.0)


@dataclass
class Followed:
    """Results of the compiled loop, one entry per row.

    Attributes:
        theta: where the rows stopped, (n, k).
        why: a value of ``models.return_codes``, (n,).
        attempts, crossings: attempted steps, and surfaces met, (n,).
        time, sliding: when, and how long on surfaces, (n,).
        slowest, passed: the smallest speed met, and the smallest that was followed by one three
            times as large (the passage of a saddle), infinite without one; in the row's chart.
        loss: of what was followed at the end, in nats, (n,).
        speed: ‖G dθ/dt‖ = ‖∇L‖ there, (n,).
        path: θ at the requested times, (n, T, k).
        near: what the model says of its passage of saddles, (n, 2).
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
    """Follow every row to its end, to the last of the times, or to a loss.

    Args:
        model: the model.
        compiled: its compiled functions and constants.
        theta: starts, (n, k).
        steps: error allowed per step: rtol in logarithms, else atol + rtol·(|yᵢ| + |origin|) with
            y = θ − ``origin`` of the chart, unless the model measures errors by itself.
        times: positive and increasing, the start being at 0, (n, T).
        wanted: losses at which the rows stop, (n,).
    """
    start = theta.detach().cpu().numpy().astype(np.float64)
    n, k = start.shape
    chart, engine = RowChart(start, model, compiled.origin), engine_of(compiled)
    absolute = np.where(chart.logarithmic, steps.rtol, steps.atol + steps.rtol * abs(chart.origin))
    relative = np.where(chart.logarithmic, 1e-15, steps.rtol)
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
            begun = _workspace(compiled, k), rows, chart.y, chart.at_zero, chart.signs
            engine.follow_all(*begun, absolute, relative, at, goal, steps.most, found)
            missing = found.why[rows] >= return_codes.NEEDS_TABLE_LEVEL
            if missing.any() and compiled.extend is not None:
                compiled.extend(int(found.why[rows].max()) - return_codes.NEEDS_TABLE_LEVEL)
            rows = rows[missing]
    speed = found.velocities * chart.derivative(found.ends) * np.asarray(model.metric)
    columns = (
        chart.theta(found.ends), found.why, found.counts[:, ATTEMPTS], found.counts[:, KINKS],
        *found.numbers.T, np.linalg.norm(speed, axis=1), chart.theta(found.paths), found.near,
    )  # fmt: skip
    return Followed(
        *(torch.as_tensor(np.ascontiguousarray(c), device=theta.device) for c in columns)
    )


def _workspace(compiled: CompiledModel, k: int) -> Any:
    return allocate_workspace(*compiled.constants(), k, STAGES, compiled.own_steps)


class SwitchingSolver:
    """Follows models with compiled functions in time, across and along their switching surfaces."""

    batched = False
    variable: Literal["time"] = "time"

    def __init__(self, model: Model, compiled: CompiledModel) -> None:
        self.model, self.compiled, self.defaults = model, compiled, compiled

    def ends(self, start: Tensor, steps: Steps, once: bool = False) -> Iterator[EndStates]:
        """The end states of starts (n, k), part by part."""
        compiled = self.compiled
        again = steps.finer(compiled.finer, compiled.finest, compiled.more)
        for part in start.split(max(1, min(8 * compiled.at_once, _SQUARES // start.shape[1] ** 2))):
            yield resolve_near_saddles(self.follow, self.model, part, steps, again, once)

    def follow(self, start: Tensor, steps: Steps) -> EndStates:
        """The end states of rows (n, k), of one integration at these tolerances."""
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
        status = torch.full_like(why, Status.CONVERGED, dtype=torch.int8)
        for code, value in _STATUS.items():
            status[why == code] = value
        states = EndStates.of(
            found.theta,
            why,
            status,
            found.loss,
            found.speed,
            1 + _EVALUATIONS * found.attempts,
            _near_saddles(model, compiled, found, steps.rtol),
        )
        states.near[critical] = return_codes.FAR
        states.crossings, states.sliding_time = found.crossings.to(torch.int32), found.sliding
        return states

    def paths(self, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
        """θ (T, n, k) at the times (T, n), from ``start`` at times[0]; NaN if not known."""
        found = follow_rows(self.model, self.compiled, start, steps, (times[1:] - times[0]).T)
        critical = found.why == return_codes.CRITICAL
        found.theta[critical] = start[critical]
        rests = critical | (found.why == return_codes.MINIMA) | (found.why == return_codes.REST)
        unwritten = found.path.isnan() & rests[:, None, None]
        path = torch.where(unwritten, found.theta.unsqueeze(1), found.path)
        return torch.cat([start.unsqueeze(1), path], dim=1).transpose(0, 1)

    def times(self, start: Tensor, ends: Limits, fraction: float, steps: Steps) -> Tensor:
        """The times (n,) when ``fraction`` of the excess loss is left; NaN if never."""

        def until(rows: Tensor, wanted: Tensor) -> Tensor:
            found = follow_rows(self.model, self.compiled, rows, steps, wanted=wanted)
            return torch.where(found.why == return_codes.ARRIVED, found.time, torch.nan)

        # the loss whose gradient moves the rows, which may be the model's with its kinks rounded
        begun = follow_rows(self.model, self.compiled, start, steps._replace(most=0)).loss
        return times_to_fraction(until, start, begun, ends.loss, fraction)


def _rest(model: Model, end_losses: EndLosses, found: Followed, why: Tensor) -> None:
    """Put the rows in a plane that attracts on it, and find which others are at rest, in place."""
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
    """Codes of the distance to the nearest saddle, (n,): see ``return_codes``."""
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
