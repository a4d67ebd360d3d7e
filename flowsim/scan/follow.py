"""Ends of many starts, as the columns that a scan records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.options import SolverOptions
from flowsim.flow.orbits import learned_labels, limits_by, settling_times
from flowsim.flow.solver import solver_of
from flowsim.interface import Model, conserved_names, conserved_values
from flowsim.labels import BASINS, Label, Rule, Status
from flowsim.landscape.ends import Ends
from flowsim.records.attributes import described
from flowsim.records.netcdf import flags
from flowsim.training.descent import descend
from flowsim.training.optimizer_choice import OptimizerChoice
from flowsim.training.rule import recorded, rule_of


def follow(
    model: Model, theta: Tensor, options: SolverOptions, fraction: float | None = None
) -> np.ndarray:
    """Follow starts θ (n, k) to their ends: a structured array (n,) of the columns of a scan.

    With an optimizer the starts are trained, and progress counts steps instead of starts.
    """
    if options.optimizer is not None:
        trained = descend(model, theta, options.optimizer, options.progress)
        points = np.empty(len(theta), training_dtype(model))
        for name in ("label", "status", "rule", *recorded(model)):
            points[name] = getattr(trained, name).numpy()
        for i, name in enumerate(model.coordinates):
            points[f"end_{name}"] = trained.theta[:, i].numpy()
        return points
    if options.integrator == "flowsim":
        limits = limits_by(model, theta, options)
    else:
        from flowsim.flow.reference import reference_limits

        limits = reference_limits(model, theta, options.rtol, options.atol, options.progress)
    points = np.empty(len(theta), point_dtype(model, fraction))
    names = ("label", "status", "rule", "gradient_norm", "evaluations")
    for name in (*names, *_optional_columns(model)):
        points[name] = getattr(limits, name).numpy()
    points["limit_loss"] = limits.loss.numpy()
    for i, name in enumerate(model.coordinates):
        points[f"limit_{name}"] = limits.theta[:, i].numpy()
    drift = (conserved_values(model, limits.theta) - conserved_values(model, theta)).abs()
    for i, name in enumerate(conserved_names(model)):
        points[f"drift_{name}"] = drift[:, i].numpy()
    if fraction is not None:
        times = settling_times(model, theta, fraction, options.rtol, limits).numpy()
        points["settling_time"] = times
        learned = np.isin(points["label"], learned_labels(model))
        points["hitting_time"] = np.where(learned, times, np.nan)
    return points


def name_ends(ends: Ends, columns: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Replace labels by codes of the ends that were found, if the model names no ends itself."""
    if ends.named:
        return columns
    there, loss = ("limit", "limit_loss") if "limit_loss" in columns else ("end", "loss")
    theta = [columns[f"{there}_{name}"].ravel() for name in ends.model.coordinates]
    parts = columns["label"].ravel(), np.stack(theta, axis=-1), columns[loss].ravel()
    codes = ends.codes(*(torch.tensor(part) for part in parts)).numpy()
    return {**columns, "label": codes.reshape(columns["label"].shape)}


def names_of_codes(ends: Ends, label: np.ndarray) -> list[str]:
    """The list of names that the codes in ``label`` index.

    It has the names of the ends or, if the model names its ends and an optimizer's codes occur
    (periodic and the like, above them), those of all labels.
    """
    known = not ends.named or label.max(initial=0) < len(ends.names)
    return ends.names if known else [code.name.lower() for code in Label]


def as_variables(
    columns: Mapping[str, np.ndarray],
    dims: Sequence[str],
    model: Model,
    fraction: float | None = None,
    names: Sequence[str] = BASINS,
) -> dict[str, tuple[Sequence[str], np.ndarray, dict[str, Any]]]:
    """Turn columns of ``follow``, each over ``dims``, into variables of a record, with attributes.

    ``names`` are those of the codes in ``label``; ``fraction`` is that of ``scan_basins``.
    """
    flagged: dict[str, dict[str, Any]] = {
        name: flags(codes, columns[name].dtype)
        for name, codes in (("label", names), ("status", Status), ("rule", Rule))
    }
    if fraction is not None:
        flagged["settling_time"] = {"fraction": fraction, "of": "excess loss over the limit's"}
        flagged["hitting_time"] = {"fraction": fraction, "of": "excess loss, NaN if never"}
    flagged["sliding_time"] = {
        "drawn_as": "slide",
        "legend": "the orbit slides along a ReLU's kink",
        "counted_as": "cells_sliding",
    }
    if "progress" in columns:
        words = rule_of(model).progress
        codes = flags([*words], columns["progress"].dtype)
        flagged["progress"] = {**codes, "words": json.dumps(words, ensure_ascii=False)}
        flagged["label"]["ancillary_variables"] = "progress"
    return {name: (dims, column, flagged.get(name, {})) for name, column in columns.items()}


def shaped(points: np.ndarray, shape: Sequence[int]) -> dict[str, np.ndarray]:
    """Split what ``follow`` found of starts in C order into columns by name, each of that shape."""
    return {name: points[name].reshape(shape) for name in points.dtype.names or ()}


def as_dataset(points: np.ndarray, axes: dict[str, np.ndarray], ends: Ends) -> xr.Dataset:
    """Turn what ``follow`` found of the starts of a grid into a dataset over its axes."""
    columns = name_ends(ends, shaped(points, [len(values) for values in axes.values()]))
    names = names_of_codes(ends, columns["label"])
    record = xr.Dataset(as_variables(columns, tuple(axes), ends.model, names=names), axes)
    return described(record, ends.model.long_names)


def to_model(model: Model, names: Sequence[str], rows: Tensor | np.ndarray) -> Tensor:
    """Convert starts (n, …) with columns ``names`` to the model's coordinates θ (n, k).

    Starts with fewer coordinates than the model has are lifted by its plane.

    Raises:
        InputError: the names are not the model's coordinates.
    """
    order, rows = starting_coordinates(model, names), torch.as_tensor(rows)
    columns = {name: rows[:, list(names).index(name)] for name in order}
    if order == model.coordinates:
        return torch.stack(list(columns.values()), dim=-1)
    return model.plane.embed(columns)


def starting_coordinates(model: Model, names: Sequence[str]) -> tuple[str, ...]:
    """The coordinates in which starts of these names are given, in the model's order."""
    allowed = model.plane.defaults.starts
    for order in allowed:
        if sorted(names) == sorted(order):
            return order
    short = [x if len(x) < 10 else (*x[:3], "…", *x[-5:]) for x in allowed]
    wanted = ", or ".join(", ".join(order) for order in short)
    raise InputError(
        f"the coordinates of the starts must together be {wanted}; they are {', '.join(names)}"
    )


def point_dtype(model: Model, fraction: float | None) -> np.dtype:
    """Names and types of what ``follow`` records of one point."""
    floats = [f"limit_{name}" for name in model.coordinates] + ["limit_loss", "gradient_norm"]
    floats += ["hitting_time", "settling_time"] * (fraction is not None)
    drifts = [(f"drift_{name}", "<f8") for name in conserved_names(model)]
    codes = [(name, "i1") for name in ("label", "status", "rule")]
    numbers = [(name, "<f8") for name in floats] + [("evaluations", "<i4")]
    return np.dtype([*codes, *numbers, *_optional_columns(model).items(), *drifts])


def _optional_columns(model: Model) -> dict[str, str]:
    """Columns of ``Limits`` for kinks that were met and for closed orbits, with their types."""
    kinks = {"kinks": "<i4", "sliding_time": "<f8"} if solver_of(model).defaults.count_kinks else {}
    closed = {} if type(model).field is Model.field else {"period": "<f8"}
    return {**kinks, **closed}


def training_dtype(model: Model) -> np.dtype:
    """Names and types of what is recorded of one trained start."""
    ends = [(f"end_{name}", "<f8") for name in model.coordinates]
    codes = [(name, "i1") for name in ("label", "status", "rule")]
    return np.dtype([*codes, *recorded(model).items(), *ends])


def resolve_optimizer(
    model: Model, options: SolverOptions, fraction: float | None = None
) -> SolverOptions:
    """Solver options with the optimizer, if any, as it trains that model.

    Raises:
        InputError: options that steps do not have, or batches of a model without.
    """
    if options.optimizer is None:
        return options
    if not isinstance(options.optimizer, OptimizerChoice):
        usual = 'OptimizerChoice.named("adam")'
        raise InputError(f"optimizer must be such as {usual}, not {options.optimizer!r}")
    given = fraction, options.rtol, options.max_steps
    if given != (None, None, None) or options.integrator != "flowsim":
        raise InputError(
            "fraction, tolerances, max_steps and integrator are of the flow: an optimizer takes "
            "its own steps; omit them"
        )
    return replace(options, optimizer=options.optimizer.on(model))
