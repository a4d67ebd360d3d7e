"""Ends of the flow and of several optimizers from the same starts, in one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr

from flowsim.errors import InputError
from flowsim.flow.options import SolverOptions, Stage
from flowsim.flow.orbits import find_limits, limits_by
from flowsim.interface import Model, Range, check_fixed, theta_on_grid, with_axes
from flowsim.labels import Label
from flowsim.landscape.ends import Ends
from flowsim.records.attributes import described, fixed_attributes, provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.records.netcdf import flags
from flowsim.running import quickly
from flowsim.scan.follow import names_of_codes
from flowsim.scan.starts import cell_centres
from flowsim.training.descent import descend
from flowsim.training.optimizer_choice import OptimizerChoice

#: The optimizers with their usual rates. Sign descent is Adam without means.
COMPARED: dict[str, tuple[str, float, dict[str, Any]]] = {
    "gd": ("gd", 0.1, {}),
    "momentum": ("momentum", 0.1, {}),
    "adam": ("adam", 0.01, {}),
    "adamw": ("adamw", 0.01, {}),
    "sign": ("adam", 0.01, {"beta1": 0.0, "beta2": 0.0, "epsilon": 1e-12}),
}

#: Runs that stay within this part of their largest coordinate of an end are at it.
_ABOUT = 0.02


@quickly
def compare_optimizers(
    model: Model,
    window: Mapping[str, Range] | None = None,
    fixed: Mapping[str, float] | None = None,
    resolution: int = 48,
    learning_rate: float | None = None,
    steps: int = 3000,
    progress: Callable[[int], object] | None = None,
    next_stage: Stage | None = None,
) -> xr.Dataset:
    """Find ends of gradient flow, gd, momentum, Adam, AdamW and sign descent from the same starts.

    Args:
        model: any model.
        window, fixed, resolution: as of ``portrait``.
        learning_rate: of all optimizers; by default 0.1 of gd and momentum, else 0.01.
        steps: of each optimizer.
        progress: called with the number of starts done by the flow.
        next_stage: called before each optimizer, as of ``portrait``.

    A run that keeps going within 2 % of its size about an end, as sign descent does, counts there.

    Returns:
        Dataset over (follower, y, x) with ``label``; ``elsewhere``, how many optimizers end
        elsewhere than the flow; and ``share_elsewhere`` (follower), the share of the starts decided
        by both that end elsewhere than the flow.

    Raises:
        InputError: a window or fixed values that the plane does not have, bad numbers, or a field
            along which the loss rises.

    >>> import flowsim
    >>> from flowsim.portraits.optimizers import compare_optimizers
    >>> well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "well")
    >>> record = compare_optimizers(well, {"x": (-2, 2), "y": (-1, 1)}, resolution=4, steps=500)
    >>> record["share_elsewhere"].sel(follower="gd").item()
    0.0
    """
    model = with_axes(model, *(window or ()))
    plane = model.plane
    fixed = check_fixed(plane, fixed)
    ranges = {**plane.window, **(window or {})}
    sides = {name: ranges[name] for name in (plane.x, plane.y)}
    y, x = (cell_centres(*sides[name], resolution) for name in (plane.y, plane.x))
    theta = theta_on_grid(plane, x, y, fixed).reshape(-1, len(model.coordinates))
    gradient, field = model.gradient(theta), model.field(theta)
    rises = (gradient * field).sum(1) > 1e-12 * gradient.norm(dim=1) * field.norm(dim=1)
    if bool(rises.any()):
        raise InputError(
            f"the loss of {model.name} rises along its field, in {int(rises.sum())} of "
            f"{len(theta)} cells: optimizers descend the loss, and are not compared with it"
        )
    choices = {
        name: OptimizerChoice.named(
            optimizer, steps=steps, learning_rate=learning_rate or rate, loss="population", **more
        ).on(model)
        for name, (optimizer, rate, more) in COMPARED.items()
    }
    ends = Ends(model)
    limits = limits_by(model, theta, SolverOptions(progress=progress))
    codes = [ends.identify(limits)]
    for name, choice in choices.items():
        counted = next_stage and next_stage(f"steps of {name}", len(theta) * steps)
        found = descend(model, theta, choice, counted)
        # runs that keep going about an end of the flow have it, as all of sign descent's do
        going = (found.label == Label.PERIODIC) | (found.label == Label.BOUNDED)
        going |= found.label == Label.UNRESOLVED
        rows = (going & found.theta.isfinite().all(1)).nonzero()[:, 0]
        if len(rows) and len(found.largest):
            limits = find_limits(model, found.theta[rows])
            away = (limits.theta - found.theta[rows]).abs().amax(1)
            near = (away <= _ABOUT * found.largest[rows]) & (limits.label != Label.UNRESOLVED)
            for key in ("label", "theta", "loss"):
                getattr(found, key)[rows[near]] = getattr(limits, key)[near]
        codes.append(ends.identify(found))
    label = torch.stack([code.int() for code in codes]).reshape(-1, len(y), len(x)).numpy()
    names = names_of_codes(ends, label)
    known = (label[1:] > 0) & (label[0] > 0)
    other = known & (label[1:] != label[0])
    share = other.sum((1, 2)) / np.maximum(known.sum((1, 2)), 1)
    record = xr.Dataset(
        {
            "label": (("follower", plane.y, plane.x), label, flags(names, label.dtype)),
            "elsewhere": (
                (plane.y, plane.x), other.sum(0).astype("i4"),
                {"long_name": "optimizers that end elsewhere than the flow"},
            ),
            "share_elsewhere": (
                "follower", np.concatenate([[0.0], share]),
                {"long_name": "share of the starts that end elsewhere than by the flow"},
            ),
        },
        {"follower": ["flow", *choices], plane.y: y, plane.x: x},
    )  # fmt: skip
    settings: dict[str, object] = {
        "kind": "optimizers",
        "axes": (plane.x, plane.y),
        **model_attributes(model),
        **fixed_attributes(fixed),
        **{f"{name}_range": side for name, side in sides.items()},
        "resolution": resolution,
        "steps": steps,
        **{f"learning_rate_{name}": c.learning_rate for name, c in choices.items()},
        **ends.attributes(),
    }
    return described(record.assign_attrs(provenance(settings)), model.long_names)
