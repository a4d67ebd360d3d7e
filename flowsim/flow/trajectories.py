"""Many gradient-flow trajectories at many physical times."""

from __future__ import annotations

from typing import Any

from flowsim.arrays import Numbers
from flowsim.flow.any_loss import any_paths
from flowsim.flow.checks import check_starts, check_times, in_kind
from flowsim.flow.gap.engine import gap_paths
from flowsim.flow.rows.engine import row_paths
from flowsim.interface import Gap, Model


def trajectories(
    model: Model, theta0: Numbers, t: Numbers, rtol: float = 1e-10, atol: float = 1e-12
) -> Any:
    """Trajectories of dθ/dt = −G⁻¹∇L at the times ``t``, in physical gradient-flow time.

    The same as ``integrate``, and much faster for many rows: every row has steps of its own, which
    need not end on the requested times. Where L = ℓ(Δ) the logit gap Δ is the independent variable,
    dt = dΔ/(−ℓ′(Δ) ‖∇Δ‖²), and physical time is inverted for each of ``t`` (``flow.gap.dense``);
    the steps of other models are linearly implicit in physical time (``flow.rows``).

    Args:
        model: any reduced model.
        theta0: starts at time t[0], shape (..., k): a tensor, an array or lists.
        t: increasing times, shape (T,), T ≥ 2.
        rtol: error allowed per step, relative for coordinates that keep their sign. Errors at the
            times are found to be about ten times as large.
        atol: absolute error allowed per step for the other coordinates.

    Returns:
        θ, shape (T, ..., k), a tensor if ``theta0`` is one, else an array. No row depends on the
        others, nor on the choice of times beyond the tolerance. A row that cannot be followed is
        NaN from the first time that is not known.

    Raises:
        InputError: wrong shapes, times that do not increase, tolerances that are not positive.
    """
    starts, times = check_starts(model, theta0, rtol, atol), check_times(t)
    rows = starts.reshape(-1, starts.shape[-1])
    half = model.flow()
    if half is None:
        path = any_paths(model, rows, times, rtol, atol)
    elif isinstance(half, Gap):
        path = gap_paths(half, rows, times, rtol, atol)
    else:
        path = row_paths(model, half, rows, times, rtol, atol)
    return in_kind(path.reshape(len(times), *starts.shape), theta0)
