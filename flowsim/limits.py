"""Where gradient-flow trajectories end, and how long they take: every row with its own step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.gap import gap_loss
from flowsim.landscape import Label, classify_critical
from flowsim.models import GapModel, ReducedModel
from flowsim.orbits import GapOrbit
from flowsim.stepping import Stop, run_rows

#: Starts handled at once, which bounds the memory.
CHUNK = 65_536
#: An orbit this slow in rescaled time has come close to a saddle.
_DOUBTFUL_SPEED = 2e-3
#: An orbit this slow is within rounding of the separatrix.
_LOST_SPEED = 3e-8


class Status(IntEnum):
    """How the integration of a trajectory ended."""

    CONVERGED = 0
    TIMED_OUT = 1
    DIVERGED = 2
    FAILED = 3


class Rule(IntEnum):
    """What decided a label."""

    NONE = 0  # nothing: unresolved
    CRITICAL_START = 1  # loss and curvature of a start that never moves
    TRAPPED_BY_PLANE = 2  # e falls to zero and nothing else moves any more
    REACHED_MINIMA = 3  # the orbit met the curve of global minima
    SHADOWS = 4  # it passed a saddle, and displaced starts end alike


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
    model: GapModel,
    theta0: Tensor,
    rtol: float = 1e-11,
    atol: float = 1e-12,
    max_steps: int = 1000,
    progress: Callable[[int], object] | None = None,
) -> Limits:
    """The end of the gradient-flow trajectory of every start.

    Each row advances with its own step (Dormand-Prince 8(7), the tableau of torchdiffeq) and is
    labelled by what it did: it met the curve of global minima, or e fell to zero where the plane
    e = 0 attracts, or it started critical. An orbit that came close to a saddle is computed again
    at a tenth of the tolerance, beside shadows displaced by ``rtol`` along every coordinate;
    where they disagree the label is unresolved. No conserved quantity is consulted.

    Args:
        model: a reduced model whose loss is a function of the logit gap.
        theta0: starts, float64, shape (..., k).
        rtol: error allowed per step, relative for coordinates that keep their sign.
        atol: absolute error allowed per step for the other coordinates.
        max_steps: attempted steps per row before it has timed out.
        progress: called with the number of starts done, after each chunk.

    Returns:
        Limits with the leading shape of ``theta0``. A start that is not finite has failed.

    Raises:
        InputError: wrong number of coordinates, or tolerances that are not positive.
    """
    starts = check_starts(model, theta0, rtol, atol)
    parts = []
    for part in starts.split(CHUNK):
        limits, doubtful = _follow(model, part, rtol, atol, max_steps)
        if bool(doubtful.any()):
            _consult_shadows(model, part, limits, doubtful, rtol, atol, max_steps)
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
    model: GapModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> tuple[Limits, Tensor]:
    """Limits of the rows of ``start``, and which of them came close to a saddle."""
    n = len(start)
    target = torch.full_like(start[:, 0], model.chain.target_logit_gap)
    orbit = GapOrbit.from_start(model, start, target, rtol, atol)
    finite = torch.isfinite(start).all(dim=1)
    critical = finite & orbit.at_rest(orbit.y(start))
    moving = finite & ~critical
    theta = start.clone()
    label = torch.full((n,), Label.UNRESOLVED, dtype=torch.int8, device=start.device)
    status = torch.where(finite, Status.CONVERGED, Status.FAILED).to(torch.int8)
    rule = torch.where(critical, Rule.CRITICAL_START, Rule.NONE).to(torch.int8)
    evaluations = finite.long()
    doubtful = torch.zeros_like(finite)
    if bool(critical.any()):
        label[critical] = classify_critical(model, start[critical])
    if bool(moving.any()):
        orbit = orbit.select(moving)
        rows = run_rows(orbit, orbit.y(start[moving]), max_steps, _LOST_SPEED)
        theta[moving] = orbit.theta(rows.y)
        landed, settled = rows.stop == Stop.LANDED, rows.stop == Stop.SETTLED
        trapped = moving.clone()
        trapped[moving] = settled
        theta[trapped, 0] = 0.0  # the limit of e; every other coordinate has stopped already
        # with p + q = 1 the plane e = 0 is itself a set of global minima
        plane = Label.LOCAL_MINIMUM if model.chain.second_eigenvalue else Label.GLOBAL_MINIMUM
        label[moving] = (landed * Label.GLOBAL_MINIMUM + settled * plane).to(torch.int8)
        rule[moving] = (landed * Rule.REACHED_MINIMA + settled * Rule.TRAPPED_BY_PLANE).to(
            torch.int8
        )
        far = theta[moving].abs().amax(dim=1) > 1e12 * start[moving].abs().amax(dim=1).clamp_min(1)
        ended = torch.where(far, Status.DIVERGED, Status.FAILED)
        ended = torch.where(rows.stop == Stop.RUNNING, Status.TIMED_OUT, ended)
        status[moving] = torch.where(landed | settled, Status.CONVERGED, ended).to(torch.int8)
        evaluations[moving] = rows.evaluations
        doubtful[moving] = (landed | settled) & (rows.slowest < _DOUBTFUL_SPEED)
    norm = model.gradient(theta).norm(dim=1)
    return Limits(theta, label, status, rule, model.loss(theta), norm, evaluations), doubtful


def _consult_shadows(
    model: GapModel,
    start: Tensor,
    limits: Limits,
    doubtful: Tensor,
    rtol: float,
    atol: float,
    max_steps: int,
) -> None:
    """Decide the doubtful rows again, by a finer orbit and by its displaced shadows."""
    k = start.shape[1]
    centre = start[doubtful]
    size = max(rtol, 1e-11)  # ten times what rounding leaves of the finer orbit
    displaced = [centre]
    for i in range(k):
        step = torch.zeros_like(centre)
        step[:, i] = size * centre[:, i].abs() if model.keeps_sign[i] else size
        displaced += [centre + step, centre - step]
    finer = max(rtol / 10, 1e-12), max(atol / 10, 1e-13)
    found, _ = _follow(model, torch.cat(displaced), *finer, max_steps)
    labels = found.label.reshape(2 * k + 1, -1)
    agree = (labels == labels[0]).all(dim=0)
    spent = limits.evaluations[doubtful] + found.evaluations.reshape(2 * k + 1, -1).sum(dim=0)
    for field in fields(Limits):
        getattr(limits, field.name)[doubtful] = getattr(found, field.name)[: len(centre)]
    limits.label[doubtful] = torch.where(agree, labels[0], Label.UNRESOLVED).to(torch.int8)
    limits.rule[doubtful] = torch.where(agree, Rule.SHADOWS, Rule.NONE).to(torch.int8)
    limits.evaluations[doubtful] = spent


def hitting_times(
    model: GapModel, theta0: Tensor, fraction: float = 1e-3, rtol: float = 1e-11
) -> Tensor:
    """Physical time until the excess loss has fallen to ``fraction`` of its start.

    The excess is L(θ(t)) − L(θ(∞)), with the limit found by ``find_limits``. Time is one more
    coordinate of the orbit, dt = dτ/|ℓ′(Δ)|, and the row lands where ℓ(Δ) has the wanted value.

    Args:
        model: a reduced model whose loss is a function of the logit gap.
        theta0: starts, shape (..., k).
        fraction: in (0, 1).
        rtol: relative error allowed per step, in time too.

    Returns:
        Times, shape (...); NaN for starts that never move or whose limit is unresolved.

    Raises:
        InputError: ``fraction`` outside (0, 1), or what ``find_limits`` raises.
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie strictly between 0 and 1, not {fraction}")
    limits = find_limits(model, theta0, rtol)
    rows = theta0.to(torch.float64).reshape(-1, theta0.shape[-1])
    start_loss, end_loss = model.loss(rows), limits.loss.reshape(-1)
    moves = (limits.label != Label.UNRESOLVED) & (limits.rule != Rule.CRITICAL_START)
    moves = moves.reshape(-1)
    times = torch.full_like(start_loss, torch.nan)
    if bool(moves.any()):
        start, end = rows[moves], limits.theta.reshape(rows.shape)[moves]
        wanted = end_loss + fraction * (start_loss - end_loss)
        target = _gap_at_loss(model, model.logit_gap(start), model.logit_gap(end), wanted[moves])
        orbit = GapOrbit.from_start(model, start, target, rtol, rtol, clock=True)
        found = run_rows(orbit, orbit.y(start), max_steps=2000)
        times[moves] = torch.where(found.stop == Stop.LANDED, found.y[:, -1], torch.nan)
    return times.reshape(theta0.shape[:-1])


def _gap_at_loss(model: GapModel, start: Tensor, end: Tensor, loss: Tensor) -> Tensor:
    """The logit gap between ``start`` and ``end`` (where ℓ is monotone) with ℓ(Δ) = loss."""

    from scipy.optimize.elementwise import find_root  # costs a third of a second to import

    def excess(gap: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return gap_loss(model.chain, torch.from_numpy(gap)).numpy() - wanted

    bracket = (start.cpu().numpy(), end.cpu().numpy())
    root = find_root(excess, bracket, args=(loss.cpu().numpy(),)).x
    return torch.from_numpy(root).to(start)
