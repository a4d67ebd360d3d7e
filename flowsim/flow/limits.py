"""Where gradient-flow trajectories end: every row with its own step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.gap.clock import Stopped, follow_by_gap
from flowsim.flow.gap.orbits import Ends, GapOrbit
from flowsim.flow.rows.physical_orbit import PhysicalOrbit
from flowsim.flow.rows.sliding import slide
from flowsim.flow.rows.stepping import Stop
from flowsim.landscape.curvature import classify_critical
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import ReducedModel, loss_of_gap
from flowsim.models.rank_one import RankOneModel

#: Starts handled at once, which bounds the memory: where L = ℓ(Δ), and divided by k² elsewhere.
CHUNK = 262_144
_SQUARES = 2**17
#: Attempts after which a rank-one row has stalled on a kink, and the small steps it may take there
#: instead, as a multiple of the attempts that a row may make.
_STALLED, _SLIDING = 1000, 3
#: The largest rtol with which an orbit of the gap is followed past a saddle.
_CAREFUL = 1e-11


@dataclass
class Limits:
    """Ends of trajectories, one entry per leading index of the starts.

    Attributes:
        theta: end points, shape (..., k).
        label: ``Label`` values, int8; UNRESOLVED unless the flow itself decided.
        status: ``Status`` values, int8.
        rule: ``Rule`` values, int8.
        loss: loss at the end point, in nats.
        gradient_norm: ‖∇L‖ at the end point.
        evaluations: evaluations of the field, int64.
    """

    theta: Tensor
    label: Tensor
    status: Tensor
    rule: Tensor
    loss: Tensor
    gradient_norm: Tensor
    evaluations: Tensor


def find_limits(
    model: ReducedModel,
    theta0: Tensor,
    rtol: float | None = None,
    atol: float = 1e-12,
    max_steps: int = 3000,
    progress: Callable[[int], object] | None = None,
    compile: bool = False,
) -> Limits:
    """The end of the gradient-flow trajectory of every start.

    Each row advances with its own step (Dormand-Prince 8(7), the tableau of torchdiffeq, and a
    exponential method for rows that take long) and is labelled by what it did: it met the
    global minima, or e fell to zero where the plane e = 0 attracts, or it came to rest at a point
    whose loss and curvature tell what it is, or it started critical. Where the loss is a function
    of the logit gap, the gap is the clock (``gap_clock``). An orbit that came close to a saddle
    is computed again at a tenth of the tolerance, beside shadows displaced by ``rtol`` along
    every coordinate; where they disagree the label is unresolved. Rank-one orbits that slide along
    a ReLU's kink to the global minima are followed by small steps of descent: their limits are
    right to first order in the step only. No conserved quantity is consulted.

    Args:
        model: any reduced model.
        theta0: starts, float64, shape (..., k).
        rtol: error allowed per step, relative for coordinates that keep their sign; by default
            1e-10 where the loss is a function of the logit gap, so that energies drift by less
            than 1e-8; else 1e-6 (with |a| > 1 the field jumps wherever an atom of the law crosses
            the ReLU's kink).
        atol: absolute error allowed per step for the other coordinates.
        max_steps: attempted steps per row before it has timed out.
        progress: called with the number of starts done, after each chunk.
        compile: compile the steps of models whose loss is a function of the gap (some twenty
            seconds when first used, then a few; needs a C++ compiler). Labels do not change.

    Returns:
        Limits with the leading shape of ``theta0``. A start that is not finite has failed.

    Raises:
        InputError: wrong number of coordinates, tolerances that are not positive, or ``compile``
            for a model that has nothing to compile.
    """
    by_gap = loss_of_gap(model)
    rtol = rtol if rtol is not None else 1e-10 if by_gap else 1e-6
    starts = check_starts(model, theta0, rtol, atol)
    if compile and not by_gap:
        raise InputError("only models whose loss is a function of the logit gap can be compiled")
    parts = []
    quick = None
    if loss_of_gap(model):
        quick = partial(follow_by_gap, model, max_steps=max_steps, compiled=compile)
    for part in starts.split(CHUNK if by_gap else max(1, _SQUARES // starts.shape[1] ** 2)):
        limits, doubtful = _follow(model, part, rtol, atol, max_steps, quick)
        if bool(doubtful.any()):
            careful = min(rtol, _CAREFUL) if by_gap else rtol
            _consult_shadows(model, part, limits, doubtful, careful, atol, max_steps)
        parts.append(limits)
        if progress is not None:
            progress(len(part))
    columns = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Limits)}
    lead = theta0.shape[:-1]
    return Limits(**{name: c.reshape(lead + c.shape[1:]) for name, c in columns.items()})


def check_starts(model: ReducedModel, theta0: Tensor, rtol: float, atol: float) -> Tensor:
    """``theta0`` as rows (n, k) of float64; InputError for a wrong shape or bad tolerances."""
    k = len(model.coordinates)
    if theta0.ndim == 0 or theta0.shape[-1] != k or theta0.numel() == 0:
        names = ", ".join(model.coordinates)
        raise InputError(f"starts need shape (..., {k}) = ({names}), not {tuple(theta0.shape)}")
    if not (0 < rtol < math.inf):
        raise InputError(f"rtol must be a positive number, not {rtol}")
    if not (0 <= atol < math.inf):
        raise InputError(f"atol must be a number that is not negative, not {atol}")
    return theta0.to(torch.float64).reshape(-1, k)


def _follow(
    model: ReducedModel,
    start: Tensor,
    rtol: float,
    atol: float,
    max_steps: int,
    quick: Callable[..., Stopped] | None = None,
) -> tuple[Limits, Tensor]:
    """Limits of the rows of ``start``, and which of them came close to a saddle.

    With ``quick``, rows that it does not decide are in doubt, whatever the reason.
    """
    orbit: GapOrbit | PhysicalOrbit
    if loss_of_gap(model):
        target = torch.full_like(start[:, 0], model.chain.target_logit_gap)
        orbit = GapOrbit.from_start(model, start, target, rtol, atol)
    else:
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
        if quick is not None:
            ends = _ends(quick(theta=start[moving], rtol=rtol, atol=atol))
        elif isinstance(model, RankOneModel):
            ends = orbit.select(moving).follow(start[moving], min(max_steps, _STALLED))
            _slide_on(model, ends, max_steps)
        else:
            ends = orbit.select(moving).follow(start[moving], max_steps)
        theta[moving], evaluations[moving] = ends.theta, ends.evaluations
        label[moving], rule[moving], status[moving] = _judge(model, start[moving], ends)
        known = (label[moving] != Label.UNRESOLVED) | (quick is not None)
        doubtful[moving] = known & (ends.nearest < 1)
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


def _ends(met: Stopped) -> Ends:
    """What the clock Δ decided; the rest is RUNNING and next to a saddle, as far as it knows."""
    rule = torch.where(met.at_minima, Rule.REACHED_MINIMA, Rule.NONE)
    rule = torch.where(met.at_plane, Rule.TRAPPED_BY_PLANE, rule).to(torch.int8)
    decided = met.at_minima | met.at_plane
    stop = torch.where(decided, Stop.LANDED, Stop.RUNNING).to(torch.int8)
    nearest = torch.where(decided, torch.inf, 0.0)
    return Ends(met.theta, rule, stop, met.evaluations, nearest)


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
