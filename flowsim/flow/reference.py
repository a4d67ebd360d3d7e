"""Gradient-flow trajectories in physical time, through torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.flow.chart import Chart
from flowsim.flow.checks import check_starts, check_times, in_kind
from flowsim.interface import Model

#: Steps after which a row is given up as too stiff for an explicit method.
MAX_STEPS = 20_000


def integrate(
    model: Model,
    theta0: Numbers,
    t: Numbers,
    rtol: float = 1e-11,
    atol: float = 1e-12,
    progress: Callable[[float], object] | None = None,
) -> Any:
    """Trajectories of dθ/dt = −G⁻¹∇L at the times ``t``, in physical gradient-flow time.

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
        steps) is NaN from its second time on; the other rows are not affected.

    Raises:
        InputError: wrong shapes, times that do not increase, tolerances that are not positive.
    """
    given = check_starts(model, theta0, rtol, atol)
    starts, times = given.reshape(-1, given.shape[-1]), check_times(t).to(given)
    path = torch.full((len(times), *starts.shape), torch.nan, dtype=starts.dtype).to(starts.device)
    path[0] = starts
    finite = torch.isfinite(starts).all(dim=1)
    pending = [torch.nonzero(finite).flatten()]
    while pending:
        rows = pending.pop()
        if len(rows) == 0:
            continue
        try:
            path[:, rows] = _integrate_rows(model, starts[rows], times, rtol, atol, progress)
        except AssertionError:  # torchdiffeq: "underflow in dt", too many steps, not finite
            if len(rows) > 1:
                pending += rows.chunk(2)
    return in_kind(path.reshape(len(times), *given.shape), theta0)


def _integrate_rows(
    model: Model,
    start: Tensor,
    times: Tensor,
    rtol: float,
    atol: float,
    progress: Callable[[float], object] | None,
) -> Tensor:
    chart = Chart.at(model, start)

    def field(t: Tensor, y: Tensor) -> Tensor:
        if progress is not None:
            progress(float((times <= t).sum()) / len(times))
        theta = chart.to_theta(y)
        return chart.push(theta, model.field(theta))

    return chart.odeint(field, start, times, rtol, atol, MAX_STEPS)
