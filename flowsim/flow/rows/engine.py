"""The rows engine: rows of models with compiled halves, from tensors to compiled loops and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flowsim.compiled import specialise
from flowsim.flow import return_codes
from flowsim.flow.batch import times_to_fraction
from flowsim.flow.near_saddles import resolve_near_saddles
from flowsim.flow.options import Limits, Steps
from flowsim.flow.rows import hooks, loop
from flowsim.flow.rows.loop import ATTEMPTS, KINKS, TrajectoryBuffers
from flowsim.flow.rows.workspace import allocate_workspace
from flowsim.flow.tableau import STAGES
from flowsim.interface import CompiledModel, Levels, Model
from flowsim.labels import Label, Rule, Status
from flowsim.landscape.critical import classify_critical, curvatures

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
}

_engines: dict[str, Any] = {}


def engine_of(half: CompiledModel) -> Any:
    """The copy of the engine that calls the half's functions, made once."""
    if half.tag not in _engines:
        _engines[half.tag] = specialise((hooks, loop), half.tag, **half.hooks)
    return _engines[half.tag]


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
        attempts, kinks: attempted steps, and surfaces met, (n,).
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
    kinks: Tensor
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
    half: CompiledModel,
    theta: Tensor,
    steps: Steps,
    times: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Followed:
    """Follow every row to its end, to the last of the times, or to a loss.

    Args:
        model: the model, and its compiled ``half``.
        theta: starts, (n, k).
        steps: error allowed per step: rtol in logarithms, else atol + rtol·(|yᵢ| + |origin|) with
            y = θ − ``origin`` of the chart, unless the half measures errors by itself.
        times: positive and increasing, the start being at 0, (n, T).
        wanted: losses at which the rows stop, (n,).
    """
    start = theta.detach().cpu().numpy().astype(np.float64)
    n, k = start.shape
    chart, engine = RowChart(start, model, half.origin), engine_of(half)
    absolute = np.where(chart.logarithmic, steps.rtol, steps.atol + steps.rtol * abs(chart.origin))
    relative = np.where(chart.logarithmic, 1e-15, steps.rtol)
    at = np.empty((n, 0)) if times is None else times.detach().cpu().numpy().astype(np.float64)
    goal = np.full(n, -np.inf) if wanted is None else wanted.detach().cpu().numpy()
    found = TrajectoryBuffers(
        ends=np.zeros((n, k)), velocities=np.zeros((n, k)), paths=np.empty((n, at.shape[1], k)),
        why=np.empty(n, dtype=np.int64), counts=np.empty((n, 3), dtype=np.int64),
        numbers=np.empty((n, 5)), near=np.zeros((n, 2)),
    )  # fmt: skip
    for rows in np.split(np.arange(n), range(half.at_once, n, half.at_once)):
        while len(rows):
            found.paths[rows], found.counts[rows], found.numbers[rows] = np.nan, 0, 0.0
            begun = _workspace(half, k), rows, chart.y, chart.at_zero, chart.signs
            engine.follow_all(*begun, absolute, relative, at, goal, steps.most, found)
            missing = found.why[rows] >= return_codes.NEEDS_TABLE_LEVEL
            if missing.any() and half.extend is not None:
                half.extend(int(found.why[rows].max()) - return_codes.NEEDS_TABLE_LEVEL)
            rows = rows[missing]
    speed = found.velocities * chart.derivative(found.ends) * np.asarray(model.metric)
    columns = (
        chart.theta(found.ends), found.why, found.counts[:, ATTEMPTS], found.counts[:, KINKS],
        *found.numbers.T, np.linalg.norm(speed, axis=1), chart.theta(found.paths), found.near,
    )  # fmt: skip
    return Followed(
        *(torch.as_tensor(np.ascontiguousarray(c), device=theta.device) for c in columns)
    )


def loss_followed(model: Model, half: CompiledModel, theta: Tensor) -> Tensor:
    """The loss whose gradient moves the rows, (n,), which may be the model's, its kinks rounded."""
    start = theta.detach().cpu().numpy().astype(np.float64)
    chart, engine = RowChart(start, model, half.origin), engine_of(half)
    row = _workspace(half, start.shape[1])
    values = [
        engine.loss_of_row(row, *given)
        for given in zip(chart.y, chart.at_zero.astype(float), chart.signs, strict=True)
    ]
    return torch.tensor(values, dtype=torch.float64, device=theta.device)


def _workspace(half: CompiledModel, k: int) -> Any:
    return allocate_workspace(*half.constants(), k, STAGES, half.own_steps)


class SwitchingSolver:
    """Follows models with compiled functions in time, across and along their switching surfaces."""

    batched = False
    variable: Literal["time"] = "time"

    def __init__(self, model: Model, half: CompiledModel) -> None:
        self.model, self.half, self.defaults = model, half, half

    def ends(self, start: Tensor, steps: Steps) -> Iterator[Limits]:
        """The ends of starts (n, k), part by part."""
        half = self.half
        follow = partial(_limits_and_doubt, self.model, half)
        again = steps.finer(half.finer, half.finest, half.more)
        for part in start.split(max(1, min(8 * half.at_once, _SQUARES // start.shape[1] ** 2))):
            yield resolve_near_saddles(follow, self.model, part, steps, again)

    def paths(self, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
        """θ (T, n, k) at the times (T, n), from ``start`` at times[0]; NaN if not known."""
        found = follow_rows(self.model, self.half, start, steps, (times[1:] - times[0]).T)
        critical = found.why == return_codes.CRITICAL
        found.theta[critical] = start[critical]
        rests = critical | (found.why == return_codes.MINIMA) | (found.why == return_codes.REST)
        unwritten = found.path.isnan() & rests[:, None, None]
        path = torch.where(unwritten, found.theta.unsqueeze(1), found.path)
        return torch.cat([start.unsqueeze(1), path], dim=1).transpose(0, 1)

    def times(self, start: Tensor, ends: Limits, fraction: float, steps: Steps) -> Tensor:
        """The times (n,) when ``fraction`` of the excess loss is left; NaN if never."""

        def until(rows: Tensor, wanted: Tensor) -> Tensor:
            found = follow_rows(self.model, self.half, rows, steps, wanted=wanted)
            return torch.where(found.why == return_codes.ARRIVED, found.time, torch.nan)

        begun = loss_followed(self.model, self.half, start)
        return times_to_fraction(until, start, begun, ends.loss, fraction)


def _limits_and_doubt(
    model: Model, half: CompiledModel, start: Tensor, steps: Steps, before: Tensor | None = None
) -> tuple[Limits, Tensor]:
    """Limits of the rows of ``start``, and which of them came close to a saddle.

    ``before``: their labels as found with a larger tolerance.
    """
    found, levels = follow_rows(model, half, start, steps), model.levels()
    label = torch.full_like(found.why, Label.UNRESOLVED)
    rule = torch.full_like(found.why, Rule.NONE)
    critical, fell = found.why == return_codes.CRITICAL, found.why == return_codes.BELOW_PLATEAU
    if half.name is not None:
        rule = half.name(fell, found.theta, label, found.loss).long()
        found.speed[fell & (label != Label.UNRESOLVED)] = 0.0
    elif levels is not None:
        _name_by_levels(model, levels, found, label)
        rule = torch.where(label == Label.UNRESOLVED, rule, found.why)
    if bool(critical.any()):
        found.theta[critical] = start[critical]
        label[critical] = classify_critical(model, start[critical]).long()
        rule[critical & (label != Label.UNRESOLVED)] = Rule.CRITICAL_START
    status = torch.full_like(found.why, Status.CONVERGED)
    for code, value in _STATUS.items():
        status[found.why == code] = value
    known = (label != Label.UNRESOLVED) & ~critical
    status[fell & ~known] = Status.TIMED_OUT
    doubtful = _doubtful(model, half, found, known, steps.rtol, label, before)
    limits = Limits(
        found.theta,
        label.to(torch.int8),
        status.to(torch.int8),
        rule.to(torch.int8),
        found.loss,
        found.speed,
        1 + _EVALUATIONS * found.attempts,
        found.kinks.to(torch.int32),
        found.sliding,
    )
    return limits, doubtful


def _name_by_levels(model: Model, levels: Levels, found: Followed, label: Tensor) -> None:
    """Label the rows that ended at one of the model's losses, in place."""
    trapped, resting = found.why == return_codes.TRAPPED, found.why == return_codes.REST
    label[found.why == return_codes.MINIMA] = Label.GLOBAL_MINIMUM
    # where both losses are one, what attracts is itself a set of global minima
    label[trapped] = Label.GLOBAL_MINIMUM if levels.degenerate else Label.LOCAL_MINIMUM
    label[found.why == return_codes.DRIFTS] = Label.LOCAL_MINIMUM
    if bool(resting.any()):
        theta = found.theta[resting]
        kind = classify_critical(model, theta, decisive=True)
        # close to p + q = 1 all gradients are small, also those of points that are not critical
        largest = curvatures(model, theta).abs().amax(dim=-1)
        rests = found.speed[resting] <= _NEAR * largest
        label[resting] = torch.where(rests, kind, Label.UNRESOLVED).long()
    found.theta[trapped, 0] = 0.0
    found.loss[trapped] = levels.trap
    found.speed[trapped] = 0.0


def _doubtful(
    model: Model,
    half: CompiledModel,
    found: Followed,
    known: Tensor,
    rtol: float,
    label: Tensor,
    before: Tensor | None,
) -> Tensor:
    """Mask of labelled rows that are to be decided again."""
    if half.doubtful is not None:
        changed = None if before is None else (label != before).numpy()
        near = half.doubtful(found.near.numpy(), known.numpy(), rtol, changed)
        return torch.from_numpy(near)
    levels = model.levels()
    if half.scale is not None or levels is None:
        scale = half.scale(found.loss) if half.scale is not None else 0.0
        return known & (found.passed < _DOUBTFUL * scale)
    if any(model.keeps_sign):
        nearest = torch.where(found.why == return_codes.TRAPPED, found.slowest, found.passed)
        return known & (nearest < _DOUBTFUL_LOGARITHMS * levels.speed)
    near = known & (found.passed < _DOUBTFUL * levels.speed)
    return near if before is not None else near | (found.why == return_codes.STUCK)
