"""Basins of attraction: the limit of every start on a grid, as one labelled record."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from flowsim.errors import InputError
from flowsim.landscape import Label
from flowsim.limits import Status, find_limits
from flowsim.models import ReducedModel
from flowsim.orbits import Rule
from flowsim.results import flags


def cell_centres(low: float, high: float, cells: int) -> np.ndarray:
    """Centres of ``cells`` equal cells that fill [low, high], float64, shape (cells,)."""
    edges = np.linspace(low, high, cells + 1)
    return (edges[1:] + edges[:-1]) / 2


def scan_basins(
    model: ReducedModel,
    axes: dict[str, np.ndarray],
    fixed: dict[str, float] | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """The limit of every start on a grid over named coordinates.

    Args:
        model: the reduced model.
        axes: values of each varied coordinate; their order is the order of the dimensions.
        fixed: value of every other coordinate.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done.

    Returns:
        Dataset over the axes: label, status and rule (flags); limit_<coordinate>; limit_loss
        (nats); gradient_norm; evaluations; drift_<conserved> = |Q(end) − Q(start)|, NaN where the
        quantity is not defined.

    Raises:
        InputError: the axes and fixed values are not exactly the model's coordinates.
    """
    fixed = fixed or {}
    if sorted([*axes, *fixed]) != sorted(model.coordinates):
        wanted = ", ".join(model.coordinates)
        raise InputError(f"axes and fixed values must together be {wanted}")
    grids = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    shape = tuple(len(values) for values in axes.values())
    columns = [grids[c] if c in grids else np.full(shape, fixed[c]) for c in model.coordinates]
    start = torch.from_numpy(np.stack(columns, axis=-1))
    limits = find_limits(model, start, rtol, atol, progress=progress)
    drift = (model.conserved(limits.theta) - model.conserved(start)).abs()

    dims = tuple(axes)
    record = xr.Dataset(coords={**axes, **fixed})
    for name, codes in (("label", Label), ("status", Status), ("rule", Rule)):
        record[name] = (dims, getattr(limits, name).numpy(), flags(codes))
    for i, name in enumerate(model.coordinates):
        record[f"limit_{name}"] = (dims, limits.theta[..., i].numpy())
    record["limit_loss"] = (dims, limits.loss.numpy(), {"units": "nats"})
    record["gradient_norm"] = (dims, limits.gradient_norm.numpy())
    record["evaluations"] = (dims, limits.evaluations.numpy())
    for i, name in enumerate(model.conserved_names):
        record[f"drift_{name}"] = (dims, drift[..., i].numpy())
    return record
