"""Basins of attraction: the limit of every start of a scan, as one labelled record in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from flowsim.interface import Model
from flowsim.scan.follow import follow, shaped, to_model
from flowsim.scan.plan import Scan
from flowsim.scan.record import scan_record
from flowsim.scan.starts import Grid, Starts
from flowsim.training.optimizer_choice import OptimizerChoice


def scan_basins(
    model: Model,
    starts: Starts | dict[str, np.ndarray],
    fixed: dict[str, float] | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    fraction: float | None = None,
    integrator: str = "flowsim",
    optimizer: OptimizerChoice | None = None,
    device: str = "cpu",
) -> xr.Dataset:
    """The limit of every start of a scan, in memory; ``write_scan`` is for scans to disk.

    Args:
        model: the reduced model.
        starts: a ``Grid``, ``Points`` or ``Cloud``; or the axes of a grid: values of each varied
            coordinate, in the order of the record's dimensions.
        fixed: with axes, the value of every other coordinate.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done.
        fraction: also find the physical time until the excess loss has fallen to this part of its
            start; by default not, since it costs several times as much as the limits.
        integrator: "torchdiffeq" decides every start by its odeint alone (``reference_limits``).
        optimizer: train from every start instead of following the flow; for the rank-one model.
            Progress then counts steps.
        device: "cuda" follows the starts of a model without a compiled engine on the GPU; "auto"
            does where there is one.

    Returns:
        Dataset over the dimensions of the starts: label, status and rule (flags);
        limit_<coordinate>; limit_loss (nats); gradient_norm; if asked for, hitting_time (NaN of
        starts that do not end in the global minima) and settling_time (of all that end);
        evaluations of the field; drift_<conserved> = |Q(end) − Q(start)|, NaN where the quantity
        is not defined; start_<coordinate> of starts that are not a grid. Over the basins, by name,
        and over sigma where it varies: count and share and, of a ``Cloud``, the share's 95 %
        Wilson interval share_low, share_high. Attributes as of a stored scan: model, chain,
        settings, points by label, largest drifts and provenance.

        With an optimizer: label, status and rule, on_plateau_at_end, loss, open_share,
        learned_step and end_<coordinate>, as ``Trained`` has them.

    Raises:
        InputError: the starts have other coordinates than the model, or what ``find_limits`` and
            ``hitting_times`` refuse.
    """
    starts = Grid(starts, fixed) if isinstance(starts, dict) else starts
    size = int(np.prod(starts.shape))
    scan = Scan(
        model, None, None, starts, fraction, rtol, atol, size, integrator, optimizer=optimizer,
        device=device,
    )  # fmt: skip
    theta = to_model(model, starts.names, starts.block(0, size))
    points = follow(model, theta, replace(scan.how, progress=progress), fraction)
    return scan_record(scan, shaped(points, starts.shape), scan.settings())
