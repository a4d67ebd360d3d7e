"""Where gradient-flow trajectories end: every row with its own step."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.errors import InputError
from flowsim.flow.any_loss import any_limits
from flowsim.flow.checks import check_starts
from flowsim.flow.ends import Limits
from flowsim.flow.gap.engine import gap_limits
from flowsim.flow.how import How
from flowsim.flow.rows.ends import row_limits
from flowsim.interface import Gap, Model


def find_limits(
    model: Model,
    theta0: Numbers,
    rtol: float | None = None,
    atol: float = 1e-12,
    max_steps: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Limits:
    """The end of the gradient-flow trajectory of every start.

    Each row advances with its own step and is labelled by what it did: it met the global minima,
    or e fell to zero where the plane e = 0 attracts, or it came to rest at a point whose loss and
    curvature tell what it is, or it started critical. Where the loss is a function of the logit
    gap, the gap is the independent variable (``flow.gap``), and both ends are met exactly. An
    orbit that came close to a saddle is computed again at a finer tolerance, beside starts that
    are displaced to both sides along every coordinate (by 1e-11 where the gap is the independent
    variable, else by ``rtol``); where they disagree the label is unresolved. Rank-one orbits
    without attention are followed from kink to kink of the ReLU, across and along them; since their
    critical points have one of two losses, an orbit that falls below the higher one ends in the
    global minima (``flow.rows``). Orbits of the induction model end on the side of β = 0 on
    which they fall below its plateau (``models.induction.labels``). No conserved quantity is
    consulted.

    Args:
        model: any reduced model.
        theta0: starts, shape (..., k): a tensor, an array or lists.
        rtol: error allowed per step, relative for coordinates that keep their sign; by default
            1e-10 where the loss is a function of the logit gap, so that energies drift by less
            than 1e-8; 1e-8 for the rank-one model without attention, whose limits are then right
            to about 1e-7, and for the induction model; else 1e-6 (with |a| > 1 the field jumps
            wherever an atom of the law crosses the ReLU's kink).
        atol: absolute error allowed per step for the other coordinates; not used by the rank-one
            model without attention.
        max_steps: attempted steps per orbit before it has timed out; by default 30 000 for the
            rank-one model without attention, else 3000.
        progress: called with the number of starts done, after each part.

    Returns:
        Limits, tensors with the leading shape of ``theta0``. A start that is not finite has failed.

    Raises:
        InputError: wrong number of coordinates, or tolerances that are not positive.
    """
    half = model.flow()
    if rtol is None:
        rtol = 1e-6 if half is None else half.rtol
    starts = check_starts(model, theta0, rtol, atol)
    rows = starts.reshape(-1, starts.shape[-1])
    if half is None:
        found = any_limits(model, rows, rtol, atol, max_steps or 3000)
    elif isinstance(half, Gap):
        found = gap_limits(model, half, rows, rtol, atol, max_steps or 3000)
    else:
        found = row_limits(model, half, rows, rtol, atol, max_steps or half.max_steps)
    parts = []
    for limits in found:
        parts.append(limits)
        if progress is not None:
            progress(len(limits.label))
    return Limits.joined(parts, starts.shape[:-1])


def limits_by(model: Model, theta: Tensor, how: How) -> Limits:
    """``find_limits`` as ``how`` says; the limits are on the CPU wherever they were found.

    Raises:
        InputError: CUDA for a model whose engine is compiled for the CPU.
    """
    if how.device != "cpu" and model.flow() is not None:
        raise InputError(f"the {model.name} model's engine is for the CPU: omit the device")
    there = theta.to(how.device)
    return find_limits(model, there, how.rtol, how.atol, how.max_steps, how.progress).on("cpu")
