"""The (w, e) plane of starts in the coordinates of any model, and the way back into it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.confirm import Stage, sample_size
from flowsim.flow.confirm import confirm as confirm_labels
from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel, velocity
from flowsim.models.in_context.induction import InductionModel
from flowsim.models.rank_one import RankOneModel


def plane_starts(
    model: ReducedModel, e: Tensor, w: Tensor, fixed: dict[str, float] | None = None
) -> Tensor:
    """θ of the starts with the given e and w, shape (..., k).

    Starts of the rank-one model are lifted from (e, w), or (e, w, a) with attention. Without a
    value, a or v is 0, the unembedding u is e (a tied start), and a bias that is a coordinate is at
    its optimum.

    Args:
        model: any reduced model.
        e, w: of one shape (...).
        fixed: values of a, v, u or b, for a model that has them.

    Raises:
        InputError: ``fixed`` names a coordinate that the model does not have, or is not finite.
    """
    fixed = check_fixed(model, fixed)
    columns = {"e": e, "w": w, "a": torch.full_like(e, fixed.get("a", 0.0)),
               "u": torch.full_like(e, fixed["u"]) if "u" in fixed else e}  # fmt: skip
    if isinstance(model, RankOneModel):
        given = [columns[name] for name in ("e", "w", "a")[: 2 + model.attention]]
        given += [torch.full_like(e, fixed["b"])] if "b" in fixed else []
        return model.from_canonical(torch.stack(given, dim=-1))
    for name in ("v", "b"):
        columns[name] = torch.full_like(e, fixed.get(name, 0.0))
    theta = torch.stack([columns[name] for name in model.coordinates], dim=-1)
    if "b" in model.coordinates and "b" not in fixed:
        theta[..., model.coordinates.index("b")] = model.optimal_bias(theta)
    return theta


def grid_starts(
    model: ReducedModel, e: np.ndarray, w: np.ndarray, fixed: dict[str, float] | None = None
) -> Tensor:
    """``plane_starts`` at every point of a grid, shape (len(e), len(w), k)."""
    return plane_starts(model, *mesh(e, w), fixed)


def check_fixed(model: ReducedModel, fixed: dict[str, float] | None) -> dict[str, float]:
    """Values of the coordinates beside e and w as numbers; InputError for others."""
    if isinstance(model, RankOneModel):
        allowed = ["a", "b"] if model.attention else ["b"]
    else:
        allowed = [name for name in model.coordinates if name not in ("e", "w", "alpha", "beta")]
    for name, value in (fixed or {}).items():
        if name not in allowed:
            more = (
                f"only {' and '.join(allowed)} can be fixed"
                if allowed
                else "it has no other coordinate"
            )
            plane = "alpha, beta" if "beta" in model.coordinates else "w, e"
            raise InputError(
                f"the {model.name} model's plane ({plane}) takes no fixed {name}: {more}"
            )
        if not math.isfinite(value):
            raise InputError(f"the fixed value of {name} must be finite, not {value}")
    return {name: float(value) for name, value in (fixed or {}).items()}


def usual_resolution(model: ReducedModel) -> int:
    """Cells along each axis of a portrait, unless given."""
    if model.loss_of_gap:
        return 208
    return 48 if isinstance(model, InductionModel) else 64


def mesh(e: np.ndarray, w: np.ndarray) -> tuple[Tensor, Tensor]:
    """e and w of every point of a grid, each (len(e), len(w))."""
    grid_e, grid_w = np.meshgrid(e, w, indexing="ij")
    return torch.from_numpy(grid_e), torch.from_numpy(grid_w)


def confirmed(
    model: ReducedModel,
    theta: Tensor,
    record: xr.Dataset,
    integrator: str,
    count: int | None,
    stage: Stage | None,
) -> dict[str, int]:
    """How many cells of a sample torchdiffeq labels alike: attributes ``confirm_…``."""
    if count is None:
        count = 0 if integrator == "torchdiffeq" else sample_size(model)
    if not count:
        return {}
    labels = record["label"].to_numpy()
    count = min(count, int((labels != Label.UNRESOLVED).sum()))
    counted = stage("cells checked by torchdiffeq", count) if stage is not None else None
    return confirm_labels(model, theta, labels, count, progress=counted)


def to_window(model: ReducedModel, theta: Tensor) -> Tensor:
    """(e, w), or (e, w, a) where there is attention, of points of the model, shape (..., 2 or 3).

    A projection where the model has more coordinates.
    """
    if isinstance(model, RankOneModel):
        return model.to_canonical(theta)
    names = [name for name in ("e", "w", "a") if name in model.coordinates]
    return theta[..., [model.coordinates.index(name) for name in names]]


def plane_velocity(model: ReducedModel, theta: Tensor) -> Tensor:
    """The flow's direction along (e, w), unit vectors of shape (..., 2); 0 where it rests."""
    field = velocity(model, theta)
    if isinstance(model, RankOneModel):
        size: Any = field.abs().amax(dim=-1, keepdim=True).clamp_min(1e-300)
        step = 1e-6 * theta.abs().amax(dim=-1, keepdim=True).clamp_min(1e-3) / size
        field = to_window(model, theta + step * field) - to_window(model, theta - step * field)
    else:
        field = to_window(model, field)
    field = field[..., :2]
    size = field.abs().amax(dim=-1, keepdim=True)
    square_fits = (size > 1e-150) & (size < 1e150)
    field = torch.where(square_fits, field, field / size)
    return torch.nan_to_num(field / field.norm(dim=-1, keepdim=True))
