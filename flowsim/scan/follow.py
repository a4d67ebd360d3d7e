"""Basins of attraction: the limit of every start of a scan, as one labelled record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.hitting_times import hitting_times
from flowsim.flow.limits import find_limits
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel
from flowsim.records.netcdf import flags
from flowsim.scan.starts import Grid, Starts
from flowsim.scan.statistics import BASIN, count_labels, share_variables


def scan_basins(
    model: ReducedModel,
    starts: Starts | dict[str, np.ndarray],
    fixed: dict[str, float] | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    fraction: float | None = None,
    compile: bool = False,
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
        compile: as in ``find_limits``.

    Returns:
        Dataset over the dimensions of the starts: label, status and rule (flags);
        limit_<coordinate>; limit_loss (nats); gradient_norm; hitting_time, if asked for;
        evaluations of the field; drift_<conserved> = |Q(end) − Q(start)|, NaN where the quantity
        is not defined; start_<coordinate> of starts that are not a grid. Over the basins, and
        over sigma where it varies: count, share and its 95 % Wilson interval share_low,
        share_high (for a grid: as if its cells were independent draws).

    Raises:
        InputError: the starts have other coordinates than the model, or what ``find_limits`` and
            ``hitting_times`` refuse.
    """
    starts = Grid(starts, fixed) if isinstance(starts, dict) else starts
    rows = starts.block(0, int(np.prod(starts.shape)))
    points = follow(model, starts.names, rows, rtol, atol, fraction, compile, progress)
    record = xr.Dataset(coords=starts.coords())
    attributes = point_attributes(points.dtype, fraction)
    for name in points.dtype.names or ():
        record[name] = (starts.dims, points[name].reshape(starts.shape), attributes[name])
    if starts.scattered:
        for i, name in enumerate(starts.names):
            record[f"start_{name}"] = (starts.dims, rows[:, i].reshape(starts.shape))
    families = starts.shape[:-1] if starts.dims[0] == "sigma" else ()
    counts = count_labels(points["label"].reshape(*families, -1))
    return record.assign_coords(basin=BASIN).assign(share_variables(counts, starts.dims))


def follow(
    model: ReducedModel,
    names: Sequence[str],
    rows: np.ndarray,
    rtol: float | None,
    atol: float,
    fraction: float | None,
    compile: bool = False,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """What a scan records of starts whose columns are ``names``: a structured array, shape (n,).

    A pure function of its arguments, up to the last bits that depend on how many rows there are.
    """
    theta = to_model(model, names, torch.from_numpy(np.ascontiguousarray(rows)))
    limits = find_limits(model, theta, rtol, atol, progress=progress, compile=compile)
    points = np.empty(len(rows), point_dtype(model, fraction))
    for name in ("label", "status", "rule", "gradient_norm", "evaluations"):
        points[name] = getattr(limits, name).numpy()
    points["limit_loss"] = limits.loss.numpy()
    for i, name in enumerate(model.coordinates):
        points[f"limit_{name}"] = limits.theta[:, i].numpy()
    drift = (model.conserved(limits.theta) - model.conserved(theta)).abs()
    for i, name in enumerate(model.conserved_names):
        points[f"drift_{name}"] = drift[:, i].numpy()
    if fraction is not None:
        times = hitting_times(model, theta, fraction, rtol, limits)
        points["hitting_time"] = times.numpy()
    return points


def to_model(model: ReducedModel, names: Sequence[str], rows: Tensor) -> Tensor:
    """Rows with columns ``names`` in the model's coordinates, shape (n, len(coordinates)).

    Starts of the rank-one model may be canonical, (e, w), (e, w, a) or either with b: they are
    lifted to points with the same logits.

    Raises:
        InputError: the names are not the model's coordinates.
    """
    order = starting_coordinates(model, names)
    theta = rows[:, [list(names).index(name) for name in order]]
    if isinstance(model, RankOneModel) and order != model.coordinates:
        return model.from_canonical(theta)
    return theta


def starting_coordinates(model: ReducedModel, names: Sequence[str]) -> tuple[str, ...]:
    """The coordinates in which starts named ``names`` are given, in the model's order.

    Raises:
        InputError: they are not exactly the model's, nor canonical ones that it can lift.
    """
    allowed = [model.coordinates]
    if isinstance(model, RankOneModel):
        canonical = ("e", "w", "a") if model.attention else ("e", "w")
        allowed = [canonical, (*canonical, "b"), model.coordinates]
    for order in allowed:
        if sorted(names) == sorted(order):
            return order
    wanted = ", or ".join(", ".join(_shortened(order)) for order in allowed)
    raise InputError(
        f"the coordinates of the starts must together be {wanted}; they are {', '.join(names)}"
    )


def _shortened(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) < 10 else (*names[:3], "…", *names[-5:])


def point_dtype(model: ReducedModel, fraction: float | None) -> np.dtype:
    """Names and types of what ``follow`` records of one point."""
    floats = [f"limit_{name}" for name in model.coordinates] + ["limit_loss", "gradient_norm"]
    floats += ["hitting_time"] * (fraction is not None)
    drifts = [(f"drift_{name}", "<f8") for name in model.conserved_names]
    codes = [(name, "i1") for name in ("label", "status", "rule")]
    return np.dtype([*codes, *((name, "<f8") for name in floats), ("evaluations", "<i4"), *drifts])


def point_attributes(dtype: np.dtype, fraction: float | None) -> dict[str, dict[str, Any]]:
    """NetCDF attributes of every variable of ``point_dtype``."""
    attributes: dict[str, dict[str, Any]] = {name: {} for name in dtype.names or ()}
    for name, codes in (("label", Label), ("status", Status), ("rule", Rule)):
        attributes[name] = flags(codes)
    attributes["limit_loss"]["units"] = "nats"
    if fraction is not None:
        attributes["hitting_time"] = {"fraction": fraction, "of": "excess loss over the limit's"}
    return attributes
