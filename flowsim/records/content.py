"""What a record must hold to be one: checked whenever a record is read, whoever wrote it."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import xarray as xr

from flowsim.errors import InputError

#: The meaning of every variable that holds labels of limits, by code.
LABELS = ("unresolved", "global_minimum", "local_minimum", "saddle")
_LABELLED = {
    *("label", "orbit_label", "near_label", "node_label", "boundary_side", "predicted", "outcome"),
    *("flow_predicted", "cloud_label"),
}
#: The variables that every record of a kind has, with their dimensions; None where they vary.
REQUIRED: dict[str, dict[str, tuple[str, ...] | None]] = {
    "portrait": {"label": ("e", "w"), "curve_w": ("curve",), "minima_e": ("curve",)},
    "induction": {"label": ("beta", "alpha"), "loss": ("beta", "alpha"), "saddle": ("saddles",)},
    "phase space": {"orbit_label": ("orbit",), "near_label": ("near",)},
    "scan": {"label": None, "status": None, "rule": None, "share": None, "count": None},
    "gaussian": {"fraction": ("sigma",), "sigma": ("sigma",)},
    "comparison": {"predicted": ("point",), "outcome": ("point",), "loss": None},
    "training": {"loss": ("step", "model"), "step": ("step",)},
}
#: Axes whose values increase.
_COUNTS = ("length", "states", "hidden_per_state", "order")
_AXES = {"p", "q", "sigma", "e", "u", "w", "a", "v", "time", "step", "alpha", "beta"}


def check_attributes(record: xr.Dataset) -> None:
    """Refuse attributes and dimensions that no record has.

    Raises:
        InputError: what is wrong; the caller names the file.
    """
    a = record.attrs
    for name in ("p", "q"):
        if name in a and not (isinstance(a[name], Real) and 0 < a[name] < 1):
            raise InputError(f"its {name} is {_short(a[name])}, no number between 0 and 1")
    for name, value in a.items():
        if name.endswith("_range") and not _is_range(value):
            raise InputError(f"its {name} is {_short(value)}, no two numbers that increase")
        counted = name.startswith(("cells_", "points_", "orbits_")) or name in _COUNTS
        if counted and not (isinstance(value, Integral) and int(value) >= 0):
            raise InputError(f"its {name} is {_short(value)}, no count")
        if name in ("kind", "model", "regime", "command", "prior") and not isinstance(value, str):
            raise InputError(f"its {name} is {_short(value)}, no text")
    for name, dims in REQUIRED.get(a.get("kind", ""), {}).items():
        if name not in record.variables:
            raise InputError(f"it lacks {name}")
        found = tuple(map(str, record[name].dims))
        if dims is not None and found != dims:
            raise InputError(f"its {name} has the dimensions {found}, not {dims}")


def check_values(record: xr.Dataset) -> None:
    """Refuse values that no record has: foreign codes, axes in disorder, shares beyond [0, 1].

    Raises:
        InputError: what is wrong; the caller names the file.
    """
    for key, variable in record.variables.items():
        name, values = str(key), variable.to_numpy()
        if name in _LABELLED or "flag_values" in variable.attrs:
            _check_flags(name, values, variable.attrs)
        elif name in _AXES | set(map(str, record.dims)) and values.dtype.kind == "f":
            ordered = (
                values.ndim != 1 or name not in record.dims or bool((np.diff(values) > 0).all())
            )
            if not (np.isfinite(values).all() and ordered):
                raise InputError(f"its axis {name} does not increase from number to number")
        elif name.startswith("start_") and not _all_finite(values):
            raise InputError(f"its {name} are not all finite")
        elif name.startswith(("share", "fraction")) and not _within(values, 1.0):
            raise InputError(f"its {name} is not within [0, 1]")
        elif name.startswith("count") and not (values.dtype.kind in "iu" and _within(values)):
            raise InputError(f"its {name} holds what is no count")


def _check_flags(name: str, values: np.ndarray, attributes: dict[str, Any]) -> None:
    """Codes that the variable itself explains; those of labels with the one meaning they have."""
    codes = np.atleast_1d(attributes.get("flag_values", ())).tolist()
    meanings = str(attributes.get("flag_meanings", "")).split()
    if values.dtype.kind not in "iu" or len(codes) != len(meanings) or len(set(codes)) < len(codes):
        raise InputError(f"its {name} does not say what its codes mean")
    if name in _LABELLED and (codes, meanings) != (list(range(len(LABELS))), list(LABELS)):
        raise InputError(f"the codes of its {name} have other meanings than labels have")
    if not np.isin(values, codes).all():
        raise InputError(f"its {name} has codes without a meaning")


def _all_finite(values: np.ndarray) -> bool:
    return values.dtype.kind in "iuf" and bool(np.isfinite(values).all())


def _within(values: np.ndarray, high: float = np.inf) -> bool:
    """Whether numbers lie in [0, high]; NaN, of a share of nothing, does."""
    return values.dtype.kind in "iuf" and not bool(((values < 0) | (values > high)).any())


def _is_range(value: Any) -> bool:
    bounds = np.asarray(value)
    return bounds.shape == (2,) and _all_finite(bounds) and bool(bounds[0] < bounds[1])


def _short(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."
