"""Orbits of many starts: where they end, where they are at given times, and how long they take.

Every row has its own steps. The engine is the one that the model names, or the any-loss engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.errors import InputError
from flowsim.flow.labelling import label_ends
from flowsim.flow.options import Limits, SolverOptions, Steps, accepts_starts, check_times
from flowsim.flow.solver import Solver, solver_of
from flowsim.interface import Model
from flowsim.labels import Label, Rule
from flowsim.running import expect


@accepts_starts
def find_limits(
    model: Model,
    theta0: Numbers,
    rtol: float | None = None,
    atol: float = 1e-12,
    max_steps: int | None = None,
    progress: Callable[[int], object] | None = None,
    solver: Solver | None = None,
    once: bool = False,
) -> Limits:
    """Find the end of the gradient-flow trajectory of every start.

    The label says what the orbit did: it met the global minima; or e fell to zero where the plane
    e = 0 attracts; or it came to rest at a point that loss and curvature identify; or it
    started at a critical point. What is not decided is UNRESOLVED. No label depends on other rows.

    Args:
        model: any reduced model.
        theta0: starts, shape (..., k): a tensor, an array or lists.
        rtol: error allowed per step, relative for coordinates that keep their sign; by default
            1e-10 where the loss is a function of the logit gap, so that energies drift by less
            than 1e-8; 1e-8 for the rank-one model without attention, whose limits are then right
            to about 1e-7, and for the induction model; else 1e-6 (with |a| > 1 the field jumps
            wherever an atom of the law crosses the ReLU's kink).
        atol: absolute error allowed per step for the other coordinates; for a loss of your own in
            parts of how far a row has moved, as ``rtol`` is where that is less than |θᵢ|; not used
            by the rank-one model without attention.
        max_steps: attempted steps per orbit before it has timed out; by default 30 000 for the
            rank-one model, else 3000; a row of a loss of your own that has left a saddle 1e20
            times faster than it began may take twice as many.
        progress: called with the number of starts done, after each part; True shows a bar on
            stderr.
        solver: follows them in place of the model's own, ``flow.solver.solver_of``.
        once: whether orbits that came close to a saddle keep their label without being computed
            again: of starts on both sides of a boundary, whose place is right within their error.

    Returns:
        Limits with the leading shape of ``theta0``: tensors if it is one, else numpy
        arrays. A start that is not finite has failed.

    Raises:
        InputError: wrong number of coordinates, or tolerances that are not positive.

    Every row has steps of its own. If the loss is a function of the logit gap, the gap is
    the independent variable (``flow.gap``), and both ends are met exactly. An orbit that came close
    to a saddle is computed again at a finer tolerance, beside starts that are displaced to both
    sides along every coordinate (by 1e-11 where the gap is the independent variable, else by
    ``rtol``, in parts of each coordinate for a loss of your own); where they disagree the label is
    unresolved. Steps along a loss of your own are at most 1/(the fastest rate of growth), so that
    what is close to a saddle leaves it. Rank-one orbits without attention are followed from kink
    to kink of the ReLU, across and along them; since their critical points have
    one of two losses, an orbit that falls below the higher one ends in the global minima
    (``flow.rows``). Orbits of the induction model end on the side of β = 0 on which they fall below
    its plateau (``models.induction.ends``). No conserved quantity is consulted.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> limits = flowsim.find_limits(model, [[1.0, -1.2], [1.0, 1.2]])
    >>> [flowsim.Label(label).name for label in limits.label]
    ['GLOBAL_MINIMUM', 'LOCAL_MINIMUM']
    """
    assert isinstance(theta0, Tensor)  # by ``accepts_starts``
    solver, rows = solver or solver_of(model), theta0.reshape(-1, theta0.shape[-1])
    usual = solver.defaults
    steps = Steps(rtol or usual.rtol, atol, max_steps or usual.max_steps)
    expect(progress, len(rows))
    parts = []
    for ends in solver.ends(rows, steps, once):
        parts.append(label_ends(model, ends))
        if progress is not None:
            progress(len(ends.why))
    return Limits.joined(parts, theta0.shape[:-1])


def limits_by(model: Model, theta: Tensor, options: SolverOptions) -> Limits:
    """Find the limits of starts θ (..., k) with the solver and tolerances in ``options``.

    As ``find_limits``; they are returned on the CPU wherever they were found.

    Raises:
        InputError: CUDA for a model whose engine is compiled for the CPU.
    """
    solver = options.solver or solver_of(model)
    if options.device != "cpu" and not solver.batched:
        raise InputError(f"the {model.name} model's engine is for the CPU: omit the device")
    there = theta.to(options.device)
    return find_limits(
        model,
        there,
        options.rtol,
        options.atol,
        options.max_steps,
        options.progress,
        solver,
        options.once,
    ).on("cpu")


@accepts_starts
def trajectories(
    model: Model, theta0: Numbers, t: Numbers, rtol: float = 1e-10, atol: float = 1e-12
) -> Any:
    """Follow trajectories of dθ/dt = −G⁻¹∇L to the times ``t``, in physical gradient-flow time.

    The same as ``integrate``, and much faster for many rows: every row has steps of its own, which
    need not end on the requested times. Where L = ℓ(Δ) the steps are explicit (``flow.gap.timed``);
    the steps of other models are linearly implicit in physical time (``flow.rows``).

    Args:
        model: any reduced model.
        theta0: starts at time t[0], shape (..., k): a tensor, an array or lists.
        t: increasing times, shape (T,), T ≥ 2, or (T, ...) of each start its own.
        rtol: error allowed per step, relative for coordinates that keep their sign. Errors at the
            times are found to be about ten times as large.
        atol: absolute error allowed per step for the other coordinates.

    Returns:
        θ, shape (T, ..., k), a tensor if ``theta0`` is one, else an array. No row depends on the
        others, nor on the choice of times beyond the tolerance. A row that cannot be followed is
        NaN from the first time that is not known.

    Raises:
        InputError: wrong shapes, times that do not increase, tolerances that are not positive.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> flowsim.trajectories(model, [1.0, -1.2], [0.0, 1.0, 10.0]).round(4)
    array([[ 1.    , -1.2   ],
           [ 0.9614, -1.1495],
           [ 0.9462, -1.1288]])
    """
    assert isinstance(theta0, Tensor)  # by ``accepts_starts``
    rows, times = theta0.reshape(-1, theta0.shape[-1]), check_times(t, theta0.shape[:-1])
    times = times.reshape(len(times), -1).expand(-1, len(rows))
    solver = solver_of(model)
    path = solver.paths(rows, times, Steps(rtol, atol, solver.defaults.long))
    return path.reshape(len(times), *theta0.shape)


#: Drawn orbits: the part of the excess loss at their last time; number of
#: times; and, where the loss is followed in torch, how many, and the error allowed per step.
_LEFT, _TIMES, _FEWER, _COARSER = 1e-4, 160, 64, 1e-6


def drawn_orbits(
    model: Model, start: Tensor, limits: Limits, rtol: float | None = None, left: float = _LEFT
) -> tuple[Tensor, Tensor]:
    """Follow orbits until the part ``left`` of their excess loss is left, at times of their own.

    Half of the times are evenly spaced, half in their logarithm. An orbit whose loss never settles
    is shown for twenty times the inverse of the rate of its end losses. An orbit that comes back is
    shown for two of its periods, at even times.

    Returns:
        (times, path): shapes (T, n) and (T, n, k), for starts (n, k) and their limits.
    """
    batched = solver_of(model).batched
    returns = limits.period.isfinite()
    few, rtol = batched and not bool(returns.any()), rtol or (_COARSER if batched else 1e-10)
    count = _FEWER if few else _TIMES
    horizon = 1.15 * settling_times(model, start, left, rtol, limits)
    rate = 1.0 if (end_losses := model.end_losses()) is None else end_losses.rate
    horizon = torch.where(horizon.isfinite() & (horizon > 0), horizon, 20 / rate)
    early = torch.logspace(-5, 0, count // 2, dtype=torch.float64)
    even = torch.linspace(0, 1, count // 2, dtype=torch.float64)
    times = torch.outer(torch.cat([early, even]).unique(), horizon)
    turns = torch.outer(torch.linspace(0, 2, len(times), dtype=torch.float64), limits.period)
    times = torch.where(returns, turns, times)
    return times, trajectories(model, start, times, rtol)


@accepts_starts
def hitting_times(
    model: Model,
    theta0: Numbers,
    fraction: float = 1e-3,
    rtol: float | None = None,
    limits: Limits | None = None,
) -> Any:
    """Find the times until it is learned: ``settling_times`` of starts that reach global minima.

    A model that names no end losses counts starts that reach any minimum, or infinity.

    Args:
        model, theta0, fraction, rtol, limits: as of ``settling_times``.

    Returns:
        Times, shape (...), in units of physical gradient-flow time; NaN for starts that end
        elsewhere, which never learn, and where ``settling_times`` gives none.

    Raises:
        InputError: as ``settling_times``.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> flowsim.hitting_times(model, [[1.0, -1.2], [1.0, 1.2]], fraction=0.01).round(2)
    array([1.86,  nan])
    """
    return _times(model, theta0, fraction, rtol, limits, learned_labels(model))


def learned_labels(model: Model) -> tuple[Label, ...]:
    """Return the labels of limits at which it is learned.

    The global minima; any minimum, or infinity, for a model that names no end losses.
    """
    if model.end_losses() is not None:
        return (Label.GLOBAL_MINIMUM,)
    return (Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM, Label.INFINITY)


@accepts_starts
def settling_times(
    model: Model,
    theta0: Numbers,
    fraction: float = 1e-3,
    rtol: float | None = None,
    limits: Limits | None = None,
) -> Any:
    """Find the physical time until the excess loss has fallen to ``fraction`` of its start.

    The excess is L(θ(t)) − L(θ(∞)), with the limit found by ``find_limits``, whatever it is; it
    falls all the time, so the moment is unique; along a field that is no gradient it is the first
    such moment, between steps too. Where L = ℓ(Δ) the orbit is followed to the gap Δ
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

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> flowsim.flow.settling_times(model, [[1.0, -1.2], [1.0, 1.2]], fraction=0.01).round(2)
    array([1.86, 2.86])
    """
    return _times(model, theta0, fraction, rtol, limits, tuple(Label))


def _times(
    model: Model,
    theta0: Any,
    fraction: float,
    rtol: float | None,
    limits: Limits | None,
    labels: tuple[Label, ...],
) -> Tensor:
    """Return ``settling_times`` (...) of the starts that move and end with one of ``labels``.

    NaN of the other starts (..., k); the limits are found where None are given.
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie strictly between 0 and 1, not {fraction}")
    limits = find_limits(model, theta0) if limits is None else limits.tensors()
    rows, label = theta0.reshape(-1, theta0.shape[-1]), limits.label.reshape(-1)
    wanted = torch.isin(label, torch.tensor(labels, dtype=label.dtype, device=label.device))
    moves = wanted & (label != Label.UNRESOLVED) & (limits.rule.reshape(-1) != Rule.CRITICAL_START)
    times = torch.full_like(rows[:, 0], torch.nan)
    if bool(moves.any()):
        solver, at = solver_of(model), moves.reshape(limits.label.shape)
        rtol = rtol or solver.defaults.time_rtol
        steps = Steps(rtol, 1e-2 * rtol, solver.defaults.long)
        times[moves] = solver.times(rows[moves], limits.at(at), fraction, steps)
    return times.reshape(theta0.shape[:-1])
