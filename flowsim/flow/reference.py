"""The reference: orbits and their ends by torchdiffeq's odeint alone, no engine of ours.

If L = ℓ(Δ), all rows together on the rescaled field (Dormand-Prince 8(7)): a positive factor on
the field changes no orbit. Elsewhere the flow is stiff, explicit methods stall, and every row runs
alone by odeint's method "scipy_solver" (LSODA).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torchdiffeq import odeint

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError
from flowsim.flow.chart import Chart
from flowsim.flow.labelling import EndStates, label_ends
from flowsim.flow.options import Limits, Steps, accepts_starts, check_times
from flowsim.flow.return_codes import CRITICAL, GOING, LOCAL, MINIMA, NOT_FINITE, SADDLE
from flowsim.flow.solver import solver_of
from flowsim.interface import Model
from flowsim.labels import Label, Rule, Status
from flowsim.landscape.critical import classify_critical
from flowsim.landscape.ends import Ends
from flowsim.running import quickly

#: Steps after which a row is given up as too stiff for an explicit method.
MAX_STEPS = 20_000
#: Rows of a model whose loss is a function of the gap that share their steps.
_TOGETHER = 1024
#: The first stretch of time, and what no stretch reaches.
_STRETCH, _HORIZON = 16.0, 1e7
#: Evaluations of the field for a row that runs alone: this many, or so many per coordinate.
EVALUATIONS, PER_COORDINATE = 1000, 200
#: Excess loss at the minima, and ‖∇L‖ at rest, in parts of the mutual information.
_AT_MINIMA, _AT_REST = 1e-6, 1e-8
#: Steps in one stretch of time, the first stretch, and what none reaches.
_GAP_STEPS, _GAP_STRETCH, _GAP_HORIZON = 1000, 4.0, 1e6
#: Sharpness of the slowdown of the rescaled field around Δ*, in units of the chart.
_SHARPNESS = 2.0
#: ‖∇Δ‖ where the curvature decides. Orbits that only pass a saddle stay far above it: what keeps
#: them from it, the rounding of their start at least, grows as fast as their distance falls.
_STEEPNESS = 1e-10
#: The reasons for which rows stop at points of the first labels.
_REASON = torch.tensor([GOING, MINIMA, LOCAL, SADDLE])
#: By how much smaller the tolerance is with which a label that differs is decided again.
_TIGHTER = 1e-3


@accepts_starts
def integrate(
    model: Model,
    theta0: Numbers,
    t: Numbers,
    rtol: float = 1e-11,
    atol: float = 1e-12,
    progress: Callable[[float], object] | None = None,
) -> Any:
    """Follow trajectories of dθ/dt = −G⁻¹∇L to the times ``t``, in physical gradient-flow time.

    Dormand-Prince 8(7) of torchdiffeq steps exactly onto every requested time (its interpolant is
    of lower order than its step). The batch shares its steps, and the error norm is the maximum
    over rows, so that no row is less accurate for being among others. Coordinates that keep their
    sign are integrated as logarithms.

    Args:
        model: any reduced model.
        theta0: starts at time t[0], shape (..., k): a tensor, an array or lists.
        t: increasing times, shape (T,), T ≥ 2.
        rtol: error allowed per step, relative for coordinates that keep their sign.
        atol: absolute error allowed per step for the other coordinates.
        progress: called with the share of the times that the rows under way have reached.

    Returns:
        θ, shape (T, ..., k), a tensor if ``theta0`` is one, else an array. A row that cannot be
        integrated (a start that is not finite, a step below rounding, more than ``MAX_STEPS``
        steps) is NaN from its second time on, with a RuntimeWarning if its start was finite; the
        other rows are not affected.

    Raises:
        InputError: wrong shapes, times that do not increase, tolerances that are not positive.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> flowsim.reference.integrate(model, [1.0, -1.2], [0.0, 1.0, 10.0]).round(4)
    array([[ 1.    , -1.2   ],
           [ 0.9614, -1.1495],
           [ 0.9462, -1.1288]])
    """
    assert isinstance(theta0, Tensor)  # by ``accepts_starts``
    starts, times = theta0.reshape(-1, theta0.shape[-1]), check_times(t).to(theta0)

    def field(t: Tensor, y: Tensor, chart: Chart, rows: Tensor) -> Tensor:
        """Return dy/dt, and report the share of the times before t."""
        if progress is not None:
            progress(float((times <= t).sum()) / len(times))
        return chart.velocity(model, y)

    finite = starts.isfinite().all(1).nonzero()[:, 0]
    path, _ = _followed(model, field, starts, finite, times, Steps(rtol, atol, MAX_STEPS))
    left = int(path[-1, finite].isnan().any(1).sum())
    if left:
        warnings.warn(
            f"{left} of {len(starts)} starts took more than {MAX_STEPS} steps, or steps below "
            "rounding, and are NaN: trajectories(model, starts, times) follows stiff flows",
            RuntimeWarning,
            stacklevel=3,
        )
    return path.reshape(len(times), *theta0.shape)


def _followed(
    model: Model,
    field: Callable[[Tensor, Tensor, Chart, Tensor], Tensor],
    theta: Tensor,
    rows: Tensor,
    times: Tensor,
    steps: Steps,
) -> tuple[Tensor, Tensor]:
    """Follow rows of θ (n, k) by torchdiffeq's Dormand-Prince 8(7).

    Returns θ at the times, (T, n, k), and the number of evaluations of each row, (n,).

    Steps end on every time, since the interpolant is of lower order than the step. The error norm
    is the largest component, so that no row is less accurate for being among others. Rows that
    cannot be followed together are tried in halves, so that a bad row costs itself only: it is NaN
    after the first time, as are all but the ``rows`` of these numbers. ``field`` gives dy/dt of
    (t, y, chart, numbers of rows).
    """
    path = theta.new_full((len(times), *theta.shape), torch.nan)
    path[0] = theta
    spent = torch.zeros_like(theta[:, 0], dtype=torch.int64)

    def follow(rows: Tensor) -> None:
        """Follow the rows of these numbers together, or, where that fails, in halves."""
        chart, calls = Chart.at(model, theta[rows]), 0

        def velocity(t: Tensor, y: Tensor) -> Tensor:
            """Return dy/dt of these rows, and count the call."""
            nonlocal calls
            calls += 1
            return field(t, y, chart, rows)

        try:
            found = odeint(
                velocity, chart.to_chart(theta[rows]), times,
                **_tolerances(chart, theta[rows], steps.rtol, steps.atol), method="dopri8",
                options={"norm": lambda error: error.abs().max(), "step_t": times[1:],
                         "max_num_steps": steps.most},
            )  # fmt: skip
            path[:, rows] = chart.to_theta(found)
        except AssertionError:  # torchdiffeq: "underflow in dt", too many steps, not finite
            if len(rows) > 1:
                for half in rows.chunk(2):
                    follow(half)
        spent[rows] += calls

    if len(rows):
        follow(rows)
    return path, spent


@accepts_starts
def reference_limits(
    model: Model,
    theta0: Numbers,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> Limits:
    """Find the ends of orbits by torchdiffeq's odeint.

    If L = ℓ(Δ), orbits are those of ±∇Δ, along which Δ never turns: an orbit that has passed Δ*
    reaches the global minima there, one whose ∇Δ vanishes ends at a critical point, and its
    curvature tells which. Elsewhere an orbit has reached the minima when its loss is within 1e-6 of
    the mutual information of the entropy rate, and a local minimum when ‖∇L‖ is below 1e-8 of it
    and the curvature says so; an orbit of the induction model has its side's end when its loss is
    within a hundredth of the drop to it from the plateau. A row that is not decided after its share
    of steps is UNRESOLVED: rank-one orbits that slide along a ReLU's kink usually are.

    Args:
        model: any reduced model.
        theta0: starts, shape (..., k): a tensor, an array or lists.
        rtol: error allowed per step, relative for coordinates that keep their sign; by default
            1e-8 where L = ℓ(Δ), else 1e-6.
        atol: absolute error allowed per step for the other coordinates.
        progress: called with the number of starts done.

    Returns:
        Limits with the leading shape of ``theta0``, of tensors if it is one, else of arrays; the
        rule is REFERENCE where there is a label.

    Raises:
        InputError: wrong number of coordinates, or tolerances that are not positive.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> limits = flowsim.reference.reference_limits(model, [1.0, -1.2])
    >>> flowsim.Label(int(limits.label)).name, flowsim.Rule(int(limits.rule)).name
    ('GLOBAL_MINIMUM', 'REFERENCE')
    """
    return _decide(model, theta0, rtol, atol, True, progress)


def default_rtol(model: Model) -> float:
    """Return 1e-8 where the logit gap is the independent variable, else 1e-6."""
    return 1e-8 if solver_of(model).variable == "logit gap" else 1e-6


@accepts_starts
def reference_labels(
    model: Model,
    theta0: Numbers,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> Any:
    """Return the labels of :func:`reference_limits`, int8, shape (...), a tensor or array as given.

    Args:
        model, theta0, rtol, atol, progress: as there.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> flowsim.reference.reference_labels(model, [[1.0, -1.2], [1.0, 1.2]])
    array([1, 2], dtype=int8)
    """
    return _decide(model, theta0, rtol, atol, False, progress).label


def _decide(
    model: Model,
    starts: Any,
    rtol: float | None,
    atol: float,
    ends: bool,
    progress: Callable[[int], object] | None,
) -> Limits:
    """Find the limits of starts (..., k); without ``ends`` only their labels are of use."""
    rtol, by_gap = rtol or default_rtol(model), solver_of(model).variable == "logit gap"
    steps, report = Steps(rtol, atol, _GAP_STEPS), progress or (lambda _: None)
    found = _unmoved(model, starts.reshape(-1, starts.shape[-1]))
    moving = found.why == GOING
    report(len(moving) - int(moving.sum()))
    for index in moving.nonzero()[:, 0].split(_TOGETHER if by_gap else 1):
        if by_gap:
            _follow_by_gap(model, found, index, steps, ends)
        elif len(index):
            _follow_in_time(model, found, index, rtol, atol)
        report(len(index))
    found.loss[:] = model.loss(found.theta)
    found.gradient_norm[:] = model.gradient(found.theta).norm(dim=1)
    limits = label_ends(model, found, Rule.REFERENCE)
    limits.status[limits.label != Label.UNRESOLVED] = Status.CONVERGED
    return Limits.joined([limits], starts.shape[:-1])


def _unmoved(model: Model, rows: Tensor) -> EndStates:
    """Return the states of starts (n, k) before anything moves: critical, not finite, or GOING."""
    finite = torch.isfinite(rows).all(dim=1)
    gradient = model.gradient(rows)
    norm = gradient.norm(dim=1)
    critical = finite & (gradient == 0).all(dim=1)  # a norm of 1e-200 squares to zero
    why = torch.where(critical, CRITICAL, torch.where(finite, GOING, NOT_FINITE))
    states = EndStates.of(rows.clone(), why, torch.zeros_like(norm), norm, finite.long())
    states.status[why == GOING] = Status.TIMED_OUT
    return states


def _tolerances(chart: Chart, theta: Tensor, rtol: float, atol: float) -> dict[str, Tensor]:
    """Return odeint's tolerances for starts θ (n, k), each (n, k), as its named arguments.

    ``atol`` is in parts of the largest |θᵢ| of a start where that is below 1.
    """
    small = torch.where(chart.logarithmic, 0.0, theta).abs().amax(1, keepdim=True)
    unit = torch.where(small > 0, small.clamp_max(1.0), 1.0)
    return {
        "rtol": torch.where(chart.logarithmic, 0.0, rtol),
        "atol": torch.where(chart.logarithmic, rtol, atol * unit),
    }


class _Spent(Exception):
    """A row has used up its evaluations of the field."""


def _follow_in_time(
    model: Model, found: EndStates, index: Tensor, rtol: float, atol: float
) -> None:
    """Follow the row ``index`` (1,) by a stiff method until it is decided; write it in ``found``.

    In stretches of time that double.

    In the chart v = −G⁻¹∇L; the field is v/(1 + ‖v‖).
    """
    theta, most = found.theta[index], max(EVALUATIONS, PER_COORDINATE * found.theta.shape[1])
    chart, calls = Chart.at(model, theta), 0

    def field(_: Tensor, y: Tensor) -> Tensor:
        """Return v/(1 + ‖v‖) at y (1, k), or raise ``_Spent`` when it was called too often."""
        nonlocal calls
        calls += 1
        if calls > most:
            raise _Spent
        v = chart.velocity(model, y)
        return v / (1 + v.norm())

    stretch = _STRETCH
    allowed = _tolerances(chart, theta, rtol, atol)
    tolerances = {name: value[0].numpy() for name, value in allowed.items()}
    why = _settled(model, theta)
    while why == GOING and stretch < _HORIZON:
        times = theta.new_tensor([0.0, stretch])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # LSODA: "excess work", seen below
                path = odeint(
                    field, chart.to_chart(theta), times,
                    **tolerances, method="scipy_solver", options={"solver": "LSODA"},
                )  # fmt: skip
        except _Spent:
            break
        if len(path) < 2 or not bool(path.isfinite().all()):  # LSODA has given up
            found.status[index] = Status.FAILED
            break
        theta = chart.to_theta(path[-1])
        why = _settled(model, theta)
        stretch *= 2
    found.theta[index], found.why[index] = theta, why
    found.evaluations[index] += calls


def _settled(model: Model, theta: Tensor) -> int:
    """Return why a row θ (1, k) may stop, by loss, or gradient and curvature; else GOING."""
    end_losses, scale = model.end_losses(), 1.0
    if end_losses is not None:
        if end_losses.label_of_point is not None:
            return int(_REASON[end_losses.label_of_point(theta).long()])
        scale = end_losses.difference
        if float(end_losses.above(model, theta)) <= (
            1e-15 if end_losses.degenerate else _AT_MINIMA * scale
        ):
            return MINIMA
    if float(model.gradient(theta).norm()) < _AT_REST * scale:
        kind = int(classify_critical(model, theta, decisive=True))
        return LOCAL if kind == Label.LOCAL_MINIMUM else GOING
    return GOING


def _follow_by_gap(model: Any, found: EndStates, index: Tensor, steps: Steps, ends: bool) -> None:
    """Follow the rows in ``index`` on the rescaled field until decided; write them in ``found``.

    In stretches of time that double.

    In the chart v = ±G⁻¹∇Δ; the field is v/(1 + ‖v‖), times σ(−2z/(1 + ‖v‖)) where z is how far Δ
    has passed Δ*, so that rows come to a stop soon after; with ``ends`` they are then taken back.
    """
    theta, target, stretch = found.theta[index], model.chain.target_logit_gap, _GAP_STRETCH
    why, metric = found.why[index], theta.new_tensor(model.metric)
    side = torch.sign(target - model.logit_gap(theta))
    steep = model.logit_gap_gradient(theta).norm(dim=1)

    def field(_: Tensor, y: Tensor, chart: Chart, rows: Tensor) -> Tensor:
        """Return the rescaled field at y of the rows of these numbers."""
        point, way = chart.to_theta(y), side[rows]
        v = way[:, None] * chart.push(point, model.logit_gap_gradient(point) / metric)
        speed = 1 + v.norm(dim=1)
        beyond = way * (model.logit_gap(point) - target)
        return v * ((-_SHARPNESS * beyond / speed).sigmoid() / speed)[:, None]

    rows = torch.arange(len(index), device=index.device)
    past = rows[:0]
    while len(rows) and stretch < _GAP_HORIZON:
        times = theta.new_tensor([0.0, stretch])
        path, spent = _followed(model, field, theta, rows, times, steps)
        found.evaluations[index] += spent
        moved = path[-1, rows].isfinite().all(1)
        found.status[index[rows[~moved]]] = Status.FAILED
        rows = rows[moved]
        theta[rows], before = path[-1, rows], steep
        steep = model.logit_gap_gradient(theta).norm(dim=1)
        reached = side[rows] * (model.logit_gap(theta[rows]) - target) >= 0
        why[rows[reached]] = MINIMA
        past, rows = torch.cat([past, rows[reached]]), rows[~reached]
        still = rows[steep[rows] < _STEEPNESS]
        if len(still):
            kind = classify_critical(model, theta[still], decisive=True)
            held = steep[still] < before[still] / 2
            why[still] = torch.where((kind != Label.SADDLE) | held, _REASON[kind.long()], GOING)
        rows = rows[why[rows] == GOING]
        stretch *= 2
    if ends:
        theta = _landed(model, theta, past, steps)
    found.theta[index], found.why[index] = theta, why


def _landed(model: Any, theta: Tensor, past: Tensor, steps: Steps) -> Tensor:
    """Return θ (n, k) with the rows in ``past``, which have passed Δ*, taken back to Δ = Δ*.

    A row stays where it is if that fails.

    Time u is the gap, Δ = Δ* + (Δ₀ − Δ*)(1 − u)⁴: dθ/du = (dΔ/du) v/⟨∇Δ, v⟩, v = G⁻¹∇Δ.
    """
    length = model.chain.target_logit_gap - model.logit_gap(theta)
    metric = theta.new_tensor(model.metric)

    def field(u: Tensor, y: Tensor, chart: Chart, rows: Tensor) -> Tensor:
        """Return dy/du of the rows of these numbers."""
        point = chart.to_theta(y)
        slope = model.logit_gap_gradient(point)
        ahead = slope / metric
        rate = 4 * (1 - u) ** 3 * length[rows] / (slope * ahead).sum(dim=1)
        return chart.push(point, rate[:, None] * ahead)

    times = theta.new_tensor([0.0, 1.0])
    path, _ = _followed(model, field, theta, past, times, steps)
    return torch.where(path[-1].isfinite().all(1, keepdim=True), path[-1], theta)


def sample_size(model: Model) -> int:
    """Return the usual number of labels to confirm: fewer where torchdiffeq takes long a start."""
    return solver_of(model).defaults.confirm


@quickly
def confirm(
    model: Model,
    theta0: Numbers,
    labels: Numbers,
    count: int,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    ends: Ends | None = None,
) -> dict[str, int]:
    """Confirm labels of a random sample by torchdiffeq.

    Rows without a label are not drawn. Where torchdiffeq differs, it decides again with tolerances
    a thousand times smaller, since close to a boundary its own error can change sides.

    Args:
        model: the reduced model.
        theta0: starts, shape (..., k).
        labels: ``Label`` values of the starts, shape (...).
        count: how many rows to draw, at most; without replacement.
        seed: of the draw.
        progress: called with the number of rows decided.
        ends: whose codes the labels are, of a model whose ends were found.

    Returns:
        confirm_cells rows drawn: confirm_agree with the same label, confirm_disagree with another,
        confirm_undecided by torchdiffeq.

    Raises:
        InputError: a negative count or seed, labels of another shape, or bad starts.

    >>> import flowsim
    >>> model, starts = flowsim.model("canonical", 0.5, 0.8), [[1.0, -1.2], [1.0, 1.2]]
    >>> flowsim.reference.confirm(model, starts, flowsim.find_limits(model, starts).label, count=2)
    {'confirm_cells': 2, 'confirm_agree': 2, 'confirm_disagree': 0, 'confirm_undecided': 0}
    """
    own, starts = to_tensor(labels, "labels").to(torch.int8), to_tensor(theta0, "starts")
    if count < 0 or seed < 0:
        raise InputError(f"count and seed must not be negative, not {count} and {seed}")
    if starts.shape[-1:] != (len(model.coordinates),):
        names = ", ".join(model.coordinates)
        shape = f"(..., {len(model.coordinates)}) = ({names})"
        raise InputError(f"starts need shape {shape}, not {tuple(starts.shape)}")
    if own.shape != starts.shape[:-1]:
        raise InputError(
            f"labels of shape {tuple(own.shape)} do not fit starts of shape {tuple(starts.shape)}"
        )
    own, rows = own.reshape(-1), starts.reshape(-1, starts.shape[-1])
    labelled = (own != Label.UNRESOLVED).nonzero()[:, 0].numpy()
    source = np.random.default_rng(seed)
    drawn = source.choice(labelled, min(count, len(labelled)), replace=False)
    own, rows = own[drawn], rows[drawn]
    found = torch.zeros_like(own)
    if len(rows):
        found = _codes(model, ends, rows, None, 1e-12, progress)
        again = ((found != own) & (found != Label.UNRESOLVED)).nonzero()[:, 0]
        if len(again):
            tight = _TIGHTER * default_rtol(model)
            found[again] = _codes(model, ends, rows[again], tight, 1e-13, None)
    end_losses = model.end_losses()
    if (
        end_losses is not None and end_losses.degenerate
    ):  # one loss: what decides by it contradicts nobody
        found[found != own] = Label.UNRESOLVED
    undecided = int((found == Label.UNRESOLVED).sum())
    agree = int((found == own).sum())
    return {
        "confirm_cells": len(rows),
        "confirm_agree": agree,
        "confirm_disagree": len(rows) - agree - undecided,
        "confirm_undecided": undecided,
    }


def _codes(
    model: Model,
    ends: Ends | None,
    rows: Tensor,
    rtol: float | None,
    atol: float,
    progress: Callable[[int], object] | None,
) -> Tensor:
    """Return labels of starts (n, k) by torchdiffeq, or, of found ends, the ends' codes, (n,)."""
    if ends is None or ends.named:
        return cast(Tensor, reference_labels(model, rows, rtol, atol, progress))
    limits = reference_limits(model, rows, rtol, atol, progress)
    return ends.identify(limits)
