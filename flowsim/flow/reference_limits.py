"""Limits by torchdiffeq's odeint alone, which no engine of this package has a part in.

Where L = ℓ(Δ), all rows together on the rescaled field (Dormand-Prince 8(7)): a positive factor on
the field changes no orbit. Elsewhere the flow is stiff, explicit methods stall, and every row runs
alone by odeint's method "scipy_solver" (LSODA).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchdiffeq import odeint

from flowsim.arrays import Numbers
from flowsim.flow.chart import Chart
from flowsim.flow.checks import check_starts, in_kind
from flowsim.flow.ends import Limits
from flowsim.flow.reference_gap import follow_by_gap
from flowsim.interface import Gap, Model
from flowsim.labels import Label, Rule, Status
from flowsim.landscape.curvature import classify_critical

#: Rows of a model whose loss is a function of the gap that share their steps.
_TOGETHER = 1024
#: The first stretch of time, and what no stretch reaches.
_STRETCH, _HORIZON = 16.0, 1e7
#: Evaluations of the field for a row that runs alone: this many, or so many per coordinate.
EVALUATIONS, PER_COORDINATE = 1000, 200
#: Excess loss at the minima, and ‖∇L‖ at rest, in parts of the mutual information.
_AT_MINIMA, _AT_REST = 1e-6, 1e-8


def reference_limits(
    model: Model,
    theta0: Numbers,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> Limits:
    """Where orbits end, as torchdiffeq's odeint finds it.

    Where L = ℓ(Δ), orbits are those of ±∇Δ, along which Δ never turns: an orbit that has passed Δ*
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
        Limits with the leading shape of ``theta0``; the rule is REFERENCE where there is a label.

    Raises:
        InputError: wrong number of coordinates, or tolerances that are not positive.
    """
    rtol = default_rtol(model) if rtol is None else rtol
    return _decide(model, check_starts(model, theta0, rtol, atol), rtol, atol, True, progress)


def default_rtol(model: Model) -> float:
    """1e-8 where L = ℓ(Δ), else 1e-6."""
    return 1e-8 if isinstance(model.flow(), Gap) else 1e-6


def reference_labels(
    model: Model,
    theta0: Numbers,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> Any:
    """The labels of :func:`reference_limits`, int8, shape (...), as tensor or array as given."""
    rtol = default_rtol(model) if rtol is None else rtol
    starts = check_starts(model, theta0, rtol, atol)
    return in_kind(_decide(model, starts, rtol, atol, False, progress).label, theta0)


def _decide(
    model: Model,
    starts: Tensor,
    rtol: float,
    atol: float,
    ends: bool,
    progress: Callable[[int], object] | None,
) -> Limits:
    """Limits of starts, (..., k); without ``ends`` only labels are of use."""
    rows = starts.reshape(-1, starts.shape[-1])
    found, report = _unmoved(model, rows), progress or (lambda _: None)
    moving = (found.status == Status.TIMED_OUT) & (found.label == Label.UNRESOLVED)
    report(len(rows) - int(moving.sum()))
    by_gap = isinstance(model.flow(), Gap)
    for index in moving.nonzero()[:, 0].split(_TOGETHER if by_gap else 1):
        if by_gap and len(index):
            follow_by_gap(model, found, index, rtol, atol, ends)  # type: ignore[arg-type]
        elif len(index):
            _follow_in_time(model, found, index, rtol, atol)
        report(len(index))
    known = found.label != Label.UNRESOLVED
    found.rule[known], found.status[known] = Rule.REFERENCE, Status.CONVERGED
    found.loss[:] = model.loss(found.theta)
    found.gradient_norm[:] = model.gradient(found.theta).norm(dim=1)
    return Limits.joined([found], starts.shape[:-1])


def _unmoved(model: Model, rows: Tensor) -> Limits:
    """Limits of starts before anything moves: those that are critical have their label."""
    finite = torch.isfinite(rows).all(dim=1)
    label = torch.full_like(finite, Label.UNRESOLVED, dtype=torch.int8)
    status = torch.where(finite, Status.TIMED_OUT, Status.FAILED).to(torch.int8)
    gradient = model.gradient(rows)
    norm = gradient.norm(dim=1)
    critical = finite & (gradient == 0).all(dim=1)  # a norm of 1e-200 squares to zero
    if bool(critical.any()):
        label[critical] = classify_critical(model, rows[critical])
    rule, zeros = torch.full_like(label, Rule.NONE), torch.zeros_like(norm)
    return Limits(rows.clone(), label, status, rule, zeros, norm, finite.long())


class _Spent(Exception):
    """A row has used up its evaluations of the field."""


def _follow_in_time(model: Model, found: Limits, index: Tensor, rtol: float, atol: float) -> None:
    """One row by a stiff method, in stretches of time that double, until it is decided.

    In the chart v = −G⁻¹∇L; the field is v/(1 + ‖v‖).
    """
    theta, most = found.theta[index], max(EVALUATIONS, PER_COORDINATE * found.theta.shape[1])
    chart, calls = Chart.at(model, theta), 0

    def field(_: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > most:
            raise _Spent
        point = chart.to_theta(y)
        v = chart.push(point, model.field(point))
        return v / (1 + v.norm())

    stretch = _STRETCH
    label = _settled(model, theta)
    while label == Label.UNRESOLVED and stretch < _HORIZON:
        times = torch.tensor([0.0, stretch], dtype=torch.float64, device=theta.device)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # LSODA: "excess work", seen below
                path = odeint(
                    field, chart.to_chart(theta), times,
                    rtol=torch.where(chart.logarithmic, 0.0, rtol).numpy(),
                    atol=torch.where(chart.logarithmic, rtol, atol).numpy(),
                    method="scipy_solver", options={"solver": "LSODA"},
                )  # fmt: skip
        except _Spent:
            break
        if len(path) < 2 or not bool(path.isfinite().all()):  # LSODA has given up
            found.status[index] = Status.FAILED
            break
        theta = chart.to_theta(path[-1])
        label = _settled(model, theta)
        stretch *= 2
    found.theta[index], found.label[index] = theta, label
    found.evaluations[index] += calls


def _settled(model: Model, theta: Tensor) -> int:
    """The label of a row, (1, k), that its loss, or its gradient and curvature, decide."""
    settled, levels = model.settled(theta), model.levels()
    if settled is not None:
        return int(settled)
    scale = 1.0
    if levels is not None:
        scale = levels.difference
        if float(model.loss(theta)) - levels.best <= _AT_MINIMA * scale + 1e-15:
            # close to p + q = 1 no loss is told from another in float64
            return Label.UNRESOLVED if 0 < scale < 1e-9 else Label.GLOBAL_MINIMUM
    if float(model.gradient(theta).norm()) < _AT_REST * scale:
        kind = int(classify_critical(model, theta, decisive=True))
        return Label.LOCAL_MINIMUM if kind == Label.LOCAL_MINIMUM else Label.UNRESOLVED
    return Label.UNRESOLVED
