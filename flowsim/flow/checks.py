"""What the flow's functions ask of starts, times, tolerances and fractions."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.models.own import check_coordinates, check_own, is_own


def check_starts(model: Model, theta0: Numbers, rtol: float, atol: float) -> Tensor:
    """``theta0`` as a tensor (..., k); InputError for a wrong shape or bad tolerances."""
    starts = to_tensor(theta0, "starts")
    check_coordinates(model.name, getattr(model, "coordinates", None))
    k = len(model.coordinates)
    if starts.ndim == 0 or starts.shape[-1] != k or starts.numel() == 0:
        names = ", ".join(model.coordinates)
        raise InputError(f"starts need shape (..., {k}) = ({names}), not {tuple(starts.shape)}")
    if not (0 < rtol < math.inf):
        raise InputError(f"rtol must be a positive number, not {rtol}")
    if not (0 <= atol < math.inf):
        raise InputError(f"atol must be a number that is not negative, not {atol}")
    if is_own(model):
        check_own(model, starts.reshape(-1, k))
    return starts


def check_times(t: Numbers) -> Tensor:
    """``t`` as a tensor of at least two increasing, finite times; else InputError."""
    times = to_tensor(t, "t")
    increasing = times.ndim == 1 and len(times) > 1 and bool((times.diff() > 0).all())
    if not (increasing and bool(times.isfinite().all())):
        raise InputError("t must be a vector of at least two increasing, finite times")
    return times


def check_fraction(fraction: float) -> float:
    """``fraction`` itself, between 0 and 1; else InputError."""
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie strictly between 0 and 1, not {fraction}")
    return fraction


def in_kind(found: Tensor, theta0: Any) -> Any:
    """The result as a tensor if the starts were one, else as a numpy array."""
    return found if isinstance(theta0, Tensor) else found.numpy()
