"""What the ends of rows in smooth fields are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.flow.induction_labels import name_ends
from flowsim.flow.rows.codes import (
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
from flowsim.flow.rows.smooth.smooth_models import Followed, follow_smooth
from flowsim.landscape.curvature import classify_critical, curvatures, is_blurred
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import ReducedModel
from flowsim.models.in_context.induction import InductionModel
from flowsim.models.rank_one import RankOneModel

#: A row that was as slow as this times π₀π₁|λ| when it passed a saddle is in doubt: in log|e| and
#: log|w|, whose rates stay large beside a plane, or in plain coordinates.
_DOUBTFUL_LOGARITHMS, _DOUBTFUL = 2e-3, 1e-4
#: A row is at rest only where its gradient would vanish within this distance, by its curvature.
_NEAR = 1e-8
#: Evaluations of the field in a step.
_EVALUATIONS = 8
_STATUS = {
    OUT_OF_STEPS: Status.TIMED_OUT,
    NOT_FINITE: Status.FAILED,
    DIVERGED: Status.DIVERGED,
}


class SmoothEnds(NamedTuple):
    """Columns of ``Limits``, and which rows came so close to a saddle that they are in doubt."""

    theta: Tensor
    label: Tensor
    status: Tensor
    rule: Tensor
    loss: Tensor
    gradient_norm: Tensor
    evaluations: Tensor
    doubtful: Tensor


def smooth_ends(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> SmoothEnds:
    """Follow the rows of ``start`` (n, k) to their ends and label them."""
    found = follow_smooth(model, start, rtol, atol, max_steps)
    if isinstance(model, InductionModel):
        return _induction_ends(model, start, found)
    label = torch.full_like(found.why, Label.UNRESOLVED)
    status = _statuses(found)
    trapped, drifts = found.why == TRAPPED, found.why == DRIFTS
    if not is_blurred(model.chain):
        label[found.why == MINIMA] = Label.GLOBAL_MINIMUM
    # with p + q = 1 the plane e = 0 is itself a set of global minima
    informative = model.chain.second_eigenvalue != 0
    label[trapped] = Label.LOCAL_MINIMUM if informative else Label.GLOBAL_MINIMUM
    label[drifts] = Label.LOCAL_MINIMUM
    critical, resting = found.why == CRITICAL, found.why == REST
    if bool(critical.any()):
        found.theta[critical] = start[critical]
        label[critical] = classify_critical(model, start[critical]).long()
    if bool(resting.any()):
        label[resting] = _kind_of_rest(model, found.theta[resting], found.speed[resting]).long()
    found.theta[trapped, 0] = 0.0
    found.loss[trapped] = model.chain.stationary_entropy
    found.speed[trapped] = 0.0
    rule = torch.where(label == Label.UNRESOLVED, Rule.NONE, found.why)
    law = model.chain.stationary
    scale = law[0] * law[-1] * abs(model.chain.second_eigenvalue)
    if not isinstance(model, RankOneModel):
        nearest = torch.where(trapped, found.slowest, found.dip)
        doubtful = nearest < _DOUBTFUL_LOGARITHMS * scale
    else:
        doubtful = found.dip < _DOUBTFUL * scale
    doubtful &= (label != Label.UNRESOLVED) & ~critical
    return _columns(found, label, status, rule, doubtful)


def _induction_ends(model: InductionModel, start: Tensor, found: Followed) -> SmoothEnds:
    """Rows that fell below the plateau have the end of their side."""
    label, status = torch.full_like(found.why, Label.UNRESOLVED), _statuses(found)
    critical, fell = found.why == CRITICAL, found.why == FELL
    rule = name_ends(model, fell, found.theta, label, found.loss)
    if bool(critical.any()):
        found.theta[critical] = start[critical]
        label[critical] = classify_critical(model, start[critical]).long()
        rule[critical & (label != Label.UNRESOLVED)] = Rule.CRITICAL_START
    known = label != Label.UNRESOLVED
    status[~known & fell] = Status.TIMED_OUT
    found.speed[known] = 0.0
    drop = model.plateau - found.loss  # from the plateau to the end: the scale of slopes too
    doubtful = known & ~critical & (found.dip < _DOUBTFUL * drop)
    return _columns(found, label, status, rule, doubtful)


def _statuses(found: Followed) -> Tensor:
    """``Status`` values of rows, (n,)."""
    status = torch.full_like(found.why, Status.CONVERGED)
    for code, value in _STATUS.items():
        status[found.why == code] = value
    return status


def _columns(
    found: Followed, label: Tensor, status: Tensor, rule: Tensor, doubtful: Tensor
) -> SmoothEnds:
    return SmoothEnds(
        found.theta,
        label.to(torch.int8),
        status.to(torch.int8),
        rule.to(torch.int8),
        found.loss,
        found.speed,
        1 + _EVALUATIONS * found.attempts,
        doubtful,
    )


def _kind_of_rest(model: ReducedModel, theta: Tensor, speed: Tensor) -> Tensor:
    """What points (n, k) are where the flow is slow; unresolved where it is slow everywhere.

    Close to p + q = 1 all gradients are small, also those of points that are not critical.
    """
    kind = classify_critical(model, theta, decisive=True)
    largest = curvatures(model, theta).abs().amax(dim=-1)
    return torch.where(speed <= _NEAR * largest, kind, Label.UNRESOLVED)
