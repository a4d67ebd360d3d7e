"""The rank-one flow without attention, from tensors to compiled loops and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.ends import Limits
from flowsim.flow.rows.codes import (
    ARRIVED,
    CRITICAL,
    DIVERGED,
    GOING,
    MINIMA,
    NOT_FINITE,
    OUT_OF_STEPS,
    REST,
    TRAPPED,
)
from flowsim.flow.rows.kinked.kinked_orbit import follow_all
from flowsim.flow.rows.kinked.row import Found, Row
from flowsim.landscape.curvature import is_blurred
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel

#: Rows between two reports of progress.
_CHUNK = 2048
#: A row that passed a saddle within the root of this many tolerances, or a central one within this
#: part of its start, is followed again, this much more finely.
_NARROW, _CENTRAL, _FINER, _FINEST = 1e3, 1e-2, 1e-4, 1e-13
#: Evaluations of the field in a step, counting its derivative as one.
_EVALUATIONS = 9
_STAGES, _MODES, _MEMORY, _MARGINS = 8, 6, 5, 6
_STATUS = {
    OUT_OF_STEPS: Status.TIMED_OUT,
    NOT_FINITE: Status.FAILED,
    DIVERGED: Status.DIVERGED,
}


def in_modes(model: ReducedModel) -> TypeGuard[RankOneModel]:
    """Whether the model's rows are followed here, mode by mode: rank-one without attention."""
    return isinstance(model, RankOneModel) and not model.attention


def rank_one_limits(
    model: RankOneModel, start: Tensor, rtol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start`` (n, k), part by part."""
    for part in start.split(_CHUNK):
        rows = part.detach().cpu().numpy().astype(np.float64)
        found = follow_rows(model, rows, rtol, max_steps)
        doubtful = _doubtful(model, found, rtol)
        finer = max(rtol * _FINER, _FINEST)
        if doubtful.any() and finer < rtol:
            again = follow_rows(model, rows[doubtful], finer, 5 * max_steps)
            again.counts[:, 0] += found.counts[doubtful, 0]
            lost = _narrow(again, finer) | (again.why != found.why[doubtful]) & _central(again)
            for column, values in zip(found, again, strict=True):
                column[doubtful] = values
            found.why[doubtful.nonzero()[0][lost]] = GOING
        yield _limits(model, found, part)


def rank_one_paths(model: RankOneModel, start: Tensor, times: Tensor, rtol: float) -> Tensor:
    """θ at ``times``, shape (T, n, k), from the rows of ``start`` at times[0].

    NaN from the first time on that is not known.
    """
    rows, at = start.detach().cpu().numpy(), (times - times[0]).cpu().numpy()
    found = follow_rows(model, rows, rtol, 100_000, at[1:])
    ended = np.isin(found.why, (CRITICAL, MINIMA, REST))[:, None, None]
    rest = np.isnan(found.paths) & ended
    paths = np.where(rest, found.ends[:, None], found.paths)
    paths = np.concatenate([rows[:, None], paths], axis=1)
    return torch.as_tensor(paths, device=start.device).transpose(0, 1)


def rank_one_times(model: RankOneModel, start: Tensor, wanted: Tensor, rtol: float) -> Tensor:
    """Physical time until the loss is ``wanted`` (n,), shape (n,); NaN if it never is."""
    rows = start.detach().cpu().numpy()
    found = follow_rows(model, rows, rtol, 100_000, wanted=wanted.detach().cpu().numpy())
    times = np.where(found.why == ARRIVED, found.clocks[:, 0], np.nan)
    return torch.as_tensor(times, device=start.device)


def room_for_row(model: RankOneModel, rtol: float) -> Row:
    """The model's constants, and room for one row."""
    chain, k = model.chain, len(model.coordinates)
    p, q, (pi0, pi1) = chain.p, chain.q, chain.stationary
    reals = [p, 1 - q, 1 - p, q, pi0, pi1, model.length, math.log(pi1 / pi0)]
    reals += [chain.entropy_rate, chain.stationary_entropy, chain.second_eigenvalue, rtol]

    def vector(size: int = k) -> np.ndarray:
        return np.zeros(size)

    def matrix(rows: int = k) -> np.ndarray:
        return np.zeros((rows, k))

    return Row(
        reals=np.array(reals, dtype=np.float64),
        y=vector(),
        velocity=vector(),
        derivative=matrix(),
        field=vector(),
        jacobian=matrix(),
        mode=np.zeros(_MODES, dtype=np.int64),
        memory=vector(_MEMORY),
        new=vector(),
        error=vector(),
        slope=vector(),
        margins=vector(_MARGINS),
        stages=matrix(_STAGES),
        matrix=matrix(),
        inverse=matrix(),
        point=vector(),
        origin=vector(),
    )


def follow_rows(
    model: RankOneModel,
    rows: np.ndarray,
    rtol: float,
    most: int,
    times: np.ndarray | None = None,
    wanted: np.ndarray | None = None,
) -> Found:
    """Follow rows (n, k) to their ends, to the last of the times, or to the wanted losses (n,)."""
    n, k = rows.shape
    times = np.zeros(0) if times is None else times
    wanted = np.full(n, -np.inf) if wanted is None else wanted
    found = Found(
        ends=np.zeros((n, k)),
        velocities=np.zeros((n, k)),
        paths=np.full((n, len(times), k), np.nan),
        why=np.zeros(n, dtype=np.int64),
        counts=np.zeros((n, 3), dtype=np.int64),
        clocks=np.zeros((n, 4)),
    )
    follow_all(room_for_row(model, rtol), rows, times, wanted, most, found)
    return found


def _narrow(found: Found, rtol: float) -> np.ndarray:
    """Which rows passed a saddle e = 0 = slope so narrowly that errors could change their label."""
    return found.clocks[:, 2] ** 2 < _NARROW * rtol


def _central(found: Found) -> np.ndarray:
    """Which rows passed e = ρ = 0, where it is a saddle, within this part of their start."""
    return found.clocks[:, 3] < _CENTRAL


def _doubtful(model: RankOneModel, found: Found, rtol: float) -> np.ndarray:
    """Which decided rows are to be followed again.

    Untied rows have no choice: their bad minima are saddles.
    """
    decided = np.isin(found.why, (MINIMA, TRAPPED)) & (model.chain.mutual_information > 0)
    return decided & model.tied & (_narrow(found, rtol) | _central(found))


def _limits(model: RankOneModel, found: Found, start: Tensor) -> Limits:
    """Labels, status and the rest."""
    why, device = found.why, start.device
    theta = torch.as_tensor(found.ends, device=device)
    still = np.isin(why, (CRITICAL, REST))
    label = np.full(len(why), Label.UNRESOLVED)
    label[why == MINIMA] = Label.UNRESOLVED if is_blurred(model.chain) else Label.GLOBAL_MINIMUM
    label[why == TRAPPED] = Label.LOCAL_MINIMUM
    if still.any():
        label[still] = _critical_labels(model, found.ends[still])
    status = np.full(len(why), Status.CONVERGED)
    for code, value in _STATUS.items():
        status[why == code] = value
    status[why == GOING] = Status.CONVERGED
    rule = np.where(label == Label.UNRESOLVED, Rule.NONE, why)
    norm = np.linalg.norm(found.velocities * np.asarray(model.metric), axis=1)
    return Limits(
        theta,
        torch.as_tensor(label, dtype=torch.int8, device=device),
        torch.as_tensor(status, dtype=torch.int8, device=device),
        torch.as_tensor(rule, dtype=torch.int8, device=device),
        model.loss(theta),
        torch.as_tensor(norm, device=device),
        torch.as_tensor(1 + _EVALUATIONS * found.counts[:, 0], device=device),
        torch.as_tensor(found.counts[:, 1], dtype=torch.int32, device=device),
        torch.as_tensor(found.clocks[:, 1], device=device),
    )


def _critical_labels(model: RankOneModel, theta: np.ndarray) -> np.ndarray:
    """Labels of critical points, (n, k), by their loss and by what is around them.

    Where the loss is h(π₁), it is h(π₁) + π₀π₁(p + q − 1)·slope·e² next to a tied point, slope
    being that of the units there: 1 if closed, 1 + 4w₁w₂ if open, both next to ρ = 0. Untied points
    are saddles, since the sign of e c is free. (docs/derivations.md)
    """
    chain = model.chain
    excess = model.loss(torch.from_numpy(theta)).numpy() - chain.entropy_rate
    lowest = excess <= 1e-9 * chain.mutual_information + 1e-15
    rho, product = theta[:, 1], 4 * theta[:, 2] * theta[:, 3]
    gain = 1 + product
    gain = np.where(np.abs(gain) <= 1e-9 * (1 + np.abs(product)), 0.0, gain)
    opened = theta[:, 2] * rho > 0
    sign = -np.sign(chain.second_eigenvalue)
    traps = np.where(opened, sign * gain > 0, sign > 0)
    traps = np.where(rho == 0, (sign > 0) & (sign * gain > 0), traps) & model.tied
    label = np.where(traps, Label.LOCAL_MINIMUM, Label.SADDLE)
    return np.where(lowest, Label.UNRESOLVED if is_blurred(chain) else Label.GLOBAL_MINIMUM, label)
