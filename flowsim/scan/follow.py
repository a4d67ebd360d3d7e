"""Where each of many starts ends, as the columns that a scan records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.ends import Limits
from flowsim.flow.hitting_times import settling_times
from flowsim.flow.limits import find_limits
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel
from flowsim.records.describe import attributes_of
from flowsim.records.netcdf import flags
from flowsim.scan.trained_points import trained_points
from flowsim.training.optimizer_choice import OptimizerChoice

#: What decides where starts end: this package's engines, or torchdiffeq's odeint alone.
INTEGRATORS = ("flowsim", "torchdiffeq")


def follow(
    model: ReducedModel,
    names: Sequence[str],
    rows: np.ndarray,
    rtol: float | None,
    atol: float,
    fraction: float | None,
    progress: Callable[[int], object] | None = None,
    integrator: str = "flowsim",
    optimizer: OptimizerChoice | None = None,
) -> np.ndarray:
    """What a scan records of starts whose columns are ``names``: a structured array, shape (n,).

    A pure function of its arguments, up to the last bits that depend on how many rows there are.
    With an optimizer the starts are trained, and progress counts steps instead of starts.
    """
    theta = to_model(model, names, torch.from_numpy(np.ascontiguousarray(rows)))
    if optimizer is not None:
        return trained_points(model, theta, optimizer, progress)
    if check_integrator(integrator) == "flowsim":
        limits = find_limits(model, theta, rtol, atol, progress=progress)
    else:
        from flowsim.flow.reference_limits import reference_limits

        limits = reference_limits(model, theta, rtol, atol, progress)
    points = np.empty(len(rows), point_dtype(model, fraction))
    for name in ("label", "status", "rule", "gradient_norm", "evaluations", *_of_kinks(model)):
        points[name] = getattr(limits, name).numpy()
    points["limit_loss"] = limits.loss.numpy()
    for i, name in enumerate(model.coordinates):
        points[f"limit_{name}"] = limits.theta[:, i].numpy()
    drift = (model.conserved(limits.theta) - model.conserved(theta)).abs()
    for i, name in enumerate(model.conserved_names):
        points[f"drift_{name}"] = drift[:, i].numpy()
    if fraction is not None:
        times = settling_times(model, theta, fraction, rtol, limits).numpy()
        points["settling_time"] = times
        learned = points["label"] == Label.GLOBAL_MINIMUM
        points["hitting_time"] = np.where(learned, times, np.nan)
    return points


def as_variables(
    points: np.ndarray, dims: Sequence[str], shape: Sequence[int], fraction: float | None = None
) -> dict[str, tuple[Sequence[str], np.ndarray, dict[str, Any]]]:
    """What ``follow`` found of a grid of starts, in C order, as the variables of a record."""
    columns = point_attributes(points.dtype, fraction)
    names = points.dtype.names or ()
    return {name: (dims, points[name].reshape(shape), columns[name]) for name in names}


def follow_grid(
    model: ReducedModel,
    theta: Tensor,
    axes: dict[str, np.ndarray],
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    integrator: str = "flowsim",
    optimizer: OptimizerChoice | None = None,
) -> xr.Dataset:
    """What a scan records of the starts θ, shape (*axes, k), as a dataset over those axes."""
    rows, shape = theta.reshape(-1, theta.shape[-1]).numpy(), theta.shape[:-1]
    points = follow(
        model, model.coordinates, rows, rtol, atol, None, progress, integrator, optimizer
    )
    return xr.Dataset(as_variables(points, tuple(axes), shape), axes)


def check_integrator(name: str) -> str:
    """``name`` itself, one of ``INTEGRATORS``; else InputError."""
    if name not in INTEGRATORS:
        raise InputError(f"integrator must be one of {', '.join(INTEGRATORS)}, not {name!r}")
    return name


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
    floats += ["hitting_time", "settling_time"] * (fraction is not None)
    drifts = [(f"drift_{name}", "<f8") for name in model.conserved_names]
    codes = [(name, "i1") for name in ("label", "status", "rule")]
    numbers = [(name, "<f8") for name in floats] + [("evaluations", "<i4")]
    return np.dtype([*codes, *numbers, *_of_kinks(model).items(), *drifts])


def _of_kinks(model: ReducedModel) -> dict[str, str]:
    """What ``Limits`` says of a rank-one orbit's kinks, with the types of its columns."""
    columns = {"kinks": "<i4", "sliding_time": "<f8"}
    known = {f.name for f in fields(Limits)} if isinstance(model, RankOneModel) else set()
    return {name: kind for name, kind in columns.items() if name in known}


def point_attributes(dtype: np.dtype, fraction: float | None) -> dict[str, dict[str, Any]]:
    """NetCDF attributes of every variable of ``point_dtype``."""
    attributes: dict[str, dict[str, Any]] = {name: {} for name in dtype.names or ()}
    for name, codes in (("label", Label), ("status", Status), ("rule", Rule)):
        attributes[name] = flags(codes)
    if fraction is not None:
        attributes["settling_time"] = {"fraction": fraction, "of": "excess loss over the limit's"}
        attributes["hitting_time"] = {"fraction": fraction, "of": "excess loss, NaN if never"}
    return {n: a | attributes_of(n, dtype[n].kind, a) for n, a in attributes.items()}
