"""What a record must hold to be one: checked whenever a record is read, whoever wrote it."""

from __future__ import annotations

from math import isfinite
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
#: Attributes that are counts, of at least so many.
_COUNTS = {"length": 1, "states": 2, "hidden_per_state": 1, "order": 1}
#: Times of orbits, and one that is beyond all of them.
_TIMES, _LONGEST = ("hitting_time", "settling_time", "sliding_time"), 1e100
#: How far p + q must be from 1 (or p from its threshold) for its side to be beyond rounding.
_ROUNDING = 1e-9
#: Axes whose values increase.
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
        if counted and not (isinstance(value, Integral) and int(value) >= _COUNTS.get(name, 0)):
            raise InputError(f"its {name} is {_short(value)}, no count")
        if name in ("a", "b", "u", "v") and not (isinstance(value, Real) and isfinite(value)):
            raise InputError(f"its {name} is {_short(value)}, no finite number")
        if name in ("kind", "model", "regime", "command", "prior") and not isinstance(value, str):
            raise InputError(f"its {name} is {_short(value)}, no text")
    if _contradicts(a):
        raise InputError(f"its regime is {_short(a['regime'])}, which its p contradicts")
    for name, dims in REQUIRED.get(a.get("kind", ""), {}).items():
        if name not in record.variables:
            raise InputError(f"it lacks {name}")
        found = tuple(map(str, record[name].dims))
        if dims is not None and found != dims:
            raise InputError(f"its {name} has the dimensions {found}, not {dims}")
        if record[name].dtype.kind not in "iuf":
            raise InputError(f"its {name} holds {record[name].dtype}, not numbers")


def check_values(record: xr.Dataset) -> None:
    """Refuse values that no record has: foreign codes, axes in disorder, shares beyond [0, 1].

    Raises:
        InputError: what is wrong; the caller names the file.
    """
    if record.attrs.get("kind") == "comparison":
        _check_decided(record)
    for key, variable in record.variables.items():
        name, values = str(key), variable.to_numpy()
        if name in _LABELLED or "flag_values" in variable.attrs:
            _check_flags(name, values, variable.attrs)
        elif name in _AXES or (name in record.dims and values.dtype.kind == "f"):
            ordered = (
                values.ndim != 1
                or name not in record.dims
                or bool((values[1:] > values[:-1]).all())
            )
            if not (_all_finite(values) and ordered):
                raise InputError(f"its axis {name} does not increase from number to number")
        elif name.startswith(("start_", "boundary_")) and not _all_finite(values):
            raise InputError(f"its {name} are not all finite")
        elif name in _TIMES and not _within(values, _LONGEST):
            raise InputError(f"its {name} holds what is no time")
        elif name.startswith(("share", "fraction")) and not _within(values, 1.0):
            raise InputError(f"its {name} is not within [0, 1]")
        elif name.startswith("count") and not (values.dtype.kind in "iu" and _within(values)):
            raise InputError(f"its {name} holds what is no count")


def _contradicts(attributes: dict[str, Any]) -> bool:
    """Whether the regime is on the other side of the threshold than p, and q where there is one."""
    if not {"p", "regime"} <= set(attributes) or not {"q", "states"} & set(attributes):
        return False
    threshold = 1 - (attributes["q"] if "q" in attributes else 1 / attributes["states"])
    away = attributes["p"] - threshold
    return abs(away) > _ROUNDING and (">" if away > 0 else "<") not in attributes["regime"]


def _check_decided(record: xr.Dataset) -> None:
    """A run of a comparison is decided by its loss, which is then a number at least once."""
    loss, outcome = record["loss"], record["outcome"]
    known = np.isfinite(loss.to_numpy()).any(axis=0)
    if loss.dims[1:] != ("point",) or (~known & (outcome.to_numpy() != 0)).any():
        raise InputError("its loss is unknown where its outcome is decided")


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
