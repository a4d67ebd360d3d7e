"""What the ends of rows are, and which rows came so close to a saddle that they are in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from flowsim.flow.doubt import beyond_doubt
from flowsim.flow.how import Limits
from flowsim.flow.rows.engine import Followed, follow_rows
from flowsim.interface import Levels, Model, Rows
from flowsim.labels import Label, Rule, Status
from flowsim.landscape.critical import classify_critical, curvatures
from flowsim.models.codes import (
    CRITICAL,
    DIVERGED,
    DRIFTS,
    FELL,
    MINIMA,
    NOT_FINITE,
    OUT_OF_STEPS,
    REST,
    TRAPPED,
)

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
    OUT_OF_STEPS: Status.TIMED_OUT,
    NOT_FINITE: Status.FAILED,
    DIVERGED: Status.DIVERGED,
}


def row_limits(
    model: Model, half: Rows, start: Tensor, rtol: float, atol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start`` (n, k), part by part."""
    follow = partial(_limits_and_doubt, model, half)
    for part in start.split(max(1, min(8 * half.at_once, _SQUARES // start.shape[1] ** 2))):
        yield beyond_doubt(
            follow, model, part, rtol, atol, max_steps, half.finer, half.finest, half.more
        )


def _limits_and_doubt(
    model: Model,
    half: Rows,
    start: Tensor,
    rtol: float,
    atol: float,
    max_steps: int,
    before: Tensor | None = None,
) -> tuple[Limits, Tensor]:
    """Limits of the rows of ``start``, and which of them came close to a saddle.

    ``before``: their labels as found with a larger tolerance.
    """
    found, levels = follow_rows(model, half, start, rtol, atol, max_steps), model.levels()
    label = torch.full_like(found.why, Label.UNRESOLVED)
    rule = torch.full_like(found.why, Rule.NONE)
    critical, fell = found.why == CRITICAL, found.why == FELL
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
    doubtful = _doubtful(model, half, found, known, rtol, label, before)
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
    trapped, resting = found.why == TRAPPED, found.why == REST
    label[found.why == MINIMA] = Label.GLOBAL_MINIMUM
    # where both losses are one, what attracts is itself a set of global minima
    label[trapped] = Label.GLOBAL_MINIMUM if levels.flat else Label.LOCAL_MINIMUM
    label[found.why == DRIFTS] = Label.LOCAL_MINIMUM
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
    half: Rows,
    found: Followed,
    known: Tensor,
    rtol: float,
    label: Tensor,
    before: Tensor | None,
) -> Tensor:
    """Which of the rows with a label are to be decided again."""
    if half.doubtful is not None:
        changed = None if before is None else (label != before).numpy()
        near = half.doubtful(found.near.numpy(), known.numpy(), rtol, changed)
        return torch.from_numpy(near)
    levels = model.levels()
    if half.scale is not None or levels is None:
        scale = half.scale(found.loss) if half.scale is not None else 0.0
        return known & (found.passed < _DOUBTFUL * scale)
    if any(model.keeps_sign):
        nearest = torch.where(found.why == TRAPPED, found.slowest, found.passed)
        return known & (nearest < _DOUBTFUL_LOGARITHMS * levels.speed)
    return known & (found.passed < _DOUBTFUL * levels.speed)
