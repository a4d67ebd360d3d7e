"""How long gradient flow takes: physical time until a stated part of the excess loss is left."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.flow.any_loss import any_times
from flowsim.flow.checks import check_fraction, check_starts, in_kind
from flowsim.flow.ends import Limits
from flowsim.flow.gap.engine import gap_times
from flowsim.flow.limits import find_limits
from flowsim.flow.rows.engine import loss_followed, row_times
from flowsim.interface import Gap, Model
from flowsim.labels import Label, Rule


def hitting_times(
    model: Model,
    theta0: Numbers,
    fraction: float = 1e-3,
    rtol: float | None = None,
    limits: Limits | None = None,
) -> Any:
    """Physical time until it is learned: ``settling_times`` of starts that reach the global minima.

    Of a model that names no levels they are those of starts that reach any minimum, or infinity.
    Arguments, result and errors are those of ``settling_times``; NaN also for starts that end
    elsewhere, which never learn.
    """
    return _times(model, theta0, fraction, rtol, limits, learned_labels(model))


def learned_labels(model: Model) -> tuple[Label, ...]:
    """The labels of limits at which it is learned."""
    if model.levels() is not None:
        return (Label.GLOBAL_MINIMUM,)
    return (Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM, Label.INFINITY)


def settling_times(
    model: Model,
    theta0: Numbers,
    fraction: float = 1e-3,
    rtol: float | None = None,
    limits: Limits | None = None,
) -> Any:
    """Physical time until the excess loss has fallen to ``fraction`` of its start.

    The excess is L(θ(t)) − L(θ(∞)), with the limit found by ``find_limits``, whatever it is; it
    falls all the time, so the moment is unique. Where L = ℓ(Δ) the orbit is followed to the gap Δ
    with the wanted loss; other models are followed in physical time and land on the loss itself.

    Args:
        model: any reduced model.
        theta0: starts, shape (..., k): a tensor, an array or lists.
        fraction: in (0, 1).
        rtol: relative error allowed per step, in time too; by default 1e-12 where the loss is a
            function of the gap, else 1e-8.
        limits: of ``theta0``, if they are known already.

    Returns:
        Times, shape (...), a tensor if ``theta0`` is one, else an array; NaN for starts that never
        move or whose limit is unresolved, and where the excess at the start is lost in rounding.

    Raises:
        InputError: ``fraction`` outside (0, 1), or what ``find_limits`` raises.
    """
    return _times(model, theta0, fraction, rtol, limits, tuple(Label))


def _times(
    model: Model,
    theta0: Numbers,
    fraction: float,
    rtol: float | None,
    limits: Limits | None,
    labels: tuple[Label, ...],
) -> Any:
    """The times of rows that move and end with one of the labels."""
    check_fraction(fraction)
    starts = check_starts(model, theta0, 1.0 if rtol is None else rtol, 0.0)
    limits = find_limits(model, starts) if limits is None else limits
    rows, label = starts.reshape(-1, starts.shape[-1]), limits.label.reshape(-1)
    wanted = torch.isin(label, torch.tensor(labels, dtype=label.dtype, device=label.device))
    moves = wanted & (label != Label.UNRESOLVED) & (limits.rule.reshape(-1) != Rule.CRITICAL_START)
    times = torch.full_like(rows[:, 0], torch.nan)
    if bool(moves.any()):
        losses = limits.loss.reshape(-1)[moves]
        times[moves] = _until(model, rows[moves], losses, label[moves], fraction, rtol)
    return in_kind(times.reshape(starts.shape[:-1]), theta0)


def _until(
    model: Model,
    start: Tensor,
    end_loss: Tensor,
    label: Tensor,
    fraction: float,
    rtol: float | None,
) -> Tensor:
    """The times of rows that move, shape (n,)."""
    half = model.flow()
    if isinstance(half, Gap):
        return gap_times(half, start, label == Label.GLOBAL_MINIMUM, fraction, rtol or 1e-12)
    start_loss = model.loss(start) if half is None else loss_followed(model, half, start)
    wanted = end_loss + fraction * (start_loss - end_loss)
    times = torch.full_like(wanted, torch.nan)
    falls = start_loss > end_loss
    if half is None:
        times[falls] = any_times(model, start[falls], wanted[falls], rtol or 1e-8)
    else:
        times[falls] = row_times(model, half, start[falls], wanted[falls], rtol or half.time_rtol)
    return times
