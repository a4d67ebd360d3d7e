"""Limits of models whose loss is no function of the gap, doubtful ones beside displaced starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import torch
from torch import Tensor

from flowsim.flow.ends import Limits
from flowsim.flow.rows.physical_orbit import Ends, PhysicalOrbit
from flowsim.flow.rows.sliding import slide
from flowsim.flow.rows.smooth_ends import smooth_ends
from flowsim.flow.rows.smooth_models import is_smooth
from flowsim.flow.rows.stepping import Stop
from flowsim.landscape.curvature import classify_critical
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel

#: Starts handled at once, times k², which bounds the memory.
_SQUARES = 2**17
#: Attempts after which a rank-one row has stalled on a kink, and the small steps it may take there
#: instead, as a multiple of the attempts that a row may make.
_STALLED, _SLIDING = 1000, 3


def limits_of_rows(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start``, part by part."""
    for part in start.split(max(1, _SQUARES // start.shape[1] ** 2)):
        limits, doubtful = _follow(model, part, rtol, atol, max_steps)
        if bool(doubtful.any()):
            _consult_shadows(model, part, limits, doubtful, rtol, atol, max_steps)
        yield limits


def _follow(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> tuple[Limits, Tensor]:
    """Limits of the rows of ``start``, and which of them came close to a saddle."""
    if is_smooth(model):
        *columns, near = smooth_ends(model, start, rtol, atol, max_steps)
        return Limits(*columns), near
    orbit = PhysicalOrbit.from_start(model, start, rtol, atol)
    finite = torch.isfinite(start).all(dim=1)
    critical = finite & orbit.at_rest(start)
    moving = finite & ~critical
    theta = start.clone()
    label = torch.full_like(finite, Label.UNRESOLVED, dtype=torch.int8)
    status = torch.where(finite, Status.CONVERGED, Status.FAILED).to(torch.int8)
    rule = torch.where(critical, Rule.CRITICAL_START, Rule.NONE).to(torch.int8)
    evaluations = finite.long()
    doubtful = torch.zeros_like(finite)
    if bool(critical.any()):
        label[critical] = classify_critical(model, start[critical])
    if bool(moving.any()):
        if isinstance(model, RankOneModel):
            ends = orbit.select(moving).follow(start[moving], min(max_steps, _STALLED))
            _slide_on(model, ends, max_steps)
        else:
            ends = orbit.select(moving).follow(start[moving], max_steps)
        theta[moving], evaluations[moving] = ends.theta, ends.evaluations
        label[moving], rule[moving], status[moving] = _judge(model, start[moving], ends)
        doubtful[moving] = (label[moving] != Label.UNRESOLVED) & (ends.nearest < 1)
    norm = model.gradient(theta).norm(dim=1)
    return Limits(theta, label, status, rule, model.loss(theta), norm, evaluations), doubtful


def _slide_on(model: RankOneModel, ends: Ends, max_steps: int) -> None:
    """Let the rows that stalled slide along their kink, as far as that leads to the minima."""
    stalled = (ends.stop == Stop.RUNNING).nonzero()[:, 0]
    if not len(stalled):
        return
    theta, reached, evaluations = slide(model, ends.theta[stalled], _SLIDING * max_steps)
    ends.evaluations[stalled] += evaluations
    arrived = stalled[reached]
    ends.theta[arrived] = theta[reached]
    ends.rule[arrived], ends.stop[arrived] = Rule.SLID, Stop.SETTLED


def _judge(model: ReducedModel, start: Tensor, ends: Ends) -> tuple[Tensor, Tensor, Tensor]:
    """Label, rule and status of rows that moved."""
    label = torch.full_like(ends.rule, Label.UNRESOLVED)
    at_minima = (ends.rule == Rule.REACHED_MINIMA) | (ends.rule == Rule.SLID)
    label[at_minima] = Label.GLOBAL_MINIMUM
    # with p + q = 1 the plane e = 0 is itself a set of global minima
    informative = model.chain.second_eigenvalue != 0
    plane = Label.LOCAL_MINIMUM if informative else Label.GLOBAL_MINIMUM
    label[ends.rule == Rule.TRAPPED_BY_PLANE] = plane
    resting = ends.rule == Rule.CAME_TO_REST
    if bool(resting.any()):
        label[resting] = classify_critical(model, ends.theta[resting], decisive=True)
    rule = torch.where(label == Label.UNRESOLVED, Rule.NONE, ends.rule).to(torch.int8)
    size, before = ends.theta.abs().amax(dim=1), start.abs().amax(dim=1)
    status = torch.where(size > 1e12 * before.clamp_min(1), Status.DIVERGED, Status.FAILED)
    status = torch.where(ends.stop == Stop.RUNNING, Status.TIMED_OUT, status)
    status = torch.where(ends.rule != Rule.NONE, Status.CONVERGED, status)
    return label, rule, status.to(torch.int8)


def _consult_shadows(
    model: ReducedModel,
    start: Tensor,
    limits: Limits,
    doubtful: Tensor,
    rtol: float,
    atol: float,
    max_steps: int,
) -> None:
    """Decide the doubtful rows again: by a finer orbit, and where that too comes near a saddle
    by its displaced shadows.
    """
    k = start.shape[1]
    centre = start[doubtful]
    size = max(rtol, 1e-11)  # ten times what rounding leaves of the finer orbit
    displaced = [centre]
    for i in range(k):
        step = torch.zeros_like(centre)
        step[:, i] = size * centre[:, i].abs() if model.keeps_sign[i] else size
        displaced += [centre + step, centre - step]
    finer = max(rtol / 10, 1e-12), max(atol / 10, 1e-13)
    found, near = _follow(model, torch.cat(displaced), *finer, max_steps)
    labels = found.label.reshape(2 * k + 1, -1)
    near = near[: len(centre)]
    agree = (labels == labels[0]).all(dim=0) | ~near
    spent = limits.evaluations[doubtful] + found.evaluations.reshape(2 * k + 1, -1).sum(dim=0)
    for field in fields(Limits):
        getattr(limits, field.name)[doubtful] = getattr(found, field.name)[: len(centre)]
    limits.label[doubtful] = torch.where(agree, labels[0], Label.UNRESOLVED).to(torch.int8)
    rule = torch.where(near, Rule.SHADOWS, found.rule[: len(centre)])
    limits.rule[doubtful] = torch.where(agree, rule, Rule.NONE).to(torch.int8)
    limits.evaluations[doubtful] = spent
