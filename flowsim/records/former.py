"""Records of the schema before, read as those of the present one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from flowsim.curves import Curve, with_curves
from flowsim.records.attributes import SCHEMA

#: The kinds of the critical line, by the codes that it had.
_KINDS = {-1: "local maxima", 0: "saddles", 1: "local minima", 2: "global minima"}
#: Captions of the axes, by how their names began.
_NAME = "name_"


def upgraded(record: xr.Dataset) -> xr.Dataset:
    """Add title, long names and a table of curves to a former record."""
    if record.attrs.get("schema") == SCHEMA:
        return record
    captions: dict[str, str] = json.loads(record.attrs.get("captions", "{}"))
    record = record.copy()
    ends = {key[4:]: text for key, text in captions.items() if key.startswith("end_")}
    record.attrs.pop("captions", None)
    record.attrs["schema"] = SCHEMA
    if captions:
        record.attrs["title"] = captions.get("title", "")
        record.attrs["subtitle"] = captions.get("data", "")
    if {"x", "y"} <= captions.keys():
        record.attrs["axes"] = (captions["x"], captions["y"])
    if ends:
        record.attrs["end_names"] = json.dumps(ends, ensure_ascii=False)
    for key, text in captions.items():
        for prefix in ("", "start_", "orbit_", "fine_"):
            name = prefix + key.removeprefix(_NAME)
            if key.startswith(_NAME) and name in record.variables:
                record[name].attrs["long_name"] = text
    for name, other in (("differs", "simpler"), ("integral", "integral_of")):
        if name in record and other in captions:
            record[name].attrs["of"] = captions[other]
    return _in_space(record, captions) if "plane" in record else _in_plane(record, captions)


def _in_plane(record: xr.Dataset, captions: dict[str, str]) -> xr.Dataset:
    across, up = captions.get("x", "w"), captions.get("y", "e")
    there = {str(name) for name in record.variables}
    curves: list[Curve] = []

    def values(name: str) -> np.ndarray:
        found: np.ndarray = record[name].to_numpy()
        return found

    x = values(f"curve_{across}") if f"curve_{across}" in there else np.empty(0)
    for name, kind in (("separatrix", "separatrix"), ("minima", "global minima")):
        if f"{name}_{up}" in there and np.isfinite(y := values(f"{name}_{up}")).any():
            of = captions.get("simpler", "") if name == "separatrix" else ""
            both = record[f"{name}_{up}"].attrs.get("mirrored", 1)
            curves += [Curve(kind, x, sign * y, of) for sign in ((1, -1) if both else (1,))]
    saddles = values(f"saddle_{across}") if f"saddle_{across}" in there else np.empty(0)
    if "critical_line" in there:
        curves += _pieces(x, values("critical_line"), saddles)
        if "minima_x" in captions and up in there:
            ends, at = values(up)[[0, -1]], float(captions["minima_x"])
            curves.append(Curve("global minima", np.full(2, at), ends))
    if "plateau" in captions and len(x):
        curves.append(Curve("plateau", x[[0, -1]], np.zeros(2)))
    if f"valley_{up}" in there:
        lines = record[f"valley_{up}"].transpose("side", across).to_numpy()
        curves += [Curve("valley", values(across), line) for line in lines]
    if "minimum" in there:
        places = zip(values(f"minimum_{across}"), values(f"minimum_{up}"), strict=True)
        named = zip(values("minimum"), places, strict=True)
        curves += [Curve(str(name).replace("_", " "), np.array([x]), np.array([y]))
                   for name, (x, y) in named]  # fmt: skip
    if "critical_point" in there:
        kinds = str(record["critical_point"].attrs["flag_meanings"]).split()
        points = zip(*(values(f"critical_point_{n}") for n in (across, up)), strict=True)
        codes = zip(values("critical_point"), points, strict=True)
        curves += [Curve(kinds[i], np.array([x]), np.array([y])) for i, (x, y) in codes]
    curves += [Curve("saddle", np.array([x]), np.zeros(1)) for x in saddles]
    old = [f"curve_{across}", f"separatrix_{up}", f"minima_{up}", f"saddle_{across}",
           f"valley_{up}", "critical_line", "minimum", "critical_point", "level"]  # fmt: skip
    old += [n for n in there if n.startswith(("minimum_", "critical_point_", "loss_", "plateau_"))]
    if not there & {*old}:
        return record
    record = record.drop_vars([name for name in old if name in there])
    columns: dict[str, Any] = {across: [c.x for c in curves], up: [c.y for c in curves]}
    return with_curves(record, curves, **columns)


def _pieces(x: np.ndarray, kinds: np.ndarray, saddles: np.ndarray) -> list[Curve]:
    found = []
    for left, right in pairwise([x[0], *np.sort(saddles), x[-1]]):
        inside = kinds[(x > left) & (x < right)]
        if len(inside):
            codes, counts = np.unique(inside, return_counts=True)
            kind = _KINDS[int(codes[counts.argmax()])]
            found.append(Curve(kind, np.array([left, right]), np.zeros(2)))
    return found


def _in_space(record: xr.Dataset, captions: dict[str, str]) -> xr.Dataset:
    across, up = captions["x"], captions["y"]
    third = next(str(dim)[6:] for dim in record["plane"].dims if str(dim) != f"plane_{across}")
    x, values = (record[f"plane_{name}"].to_numpy() for name in (across, third))
    at, level = (record[f"saddle_{name}"].to_numpy() for name in (across, third))
    curves: list[Curve] = []
    places: list[np.ndarray] = []

    def add(found: list[Curve], value: float) -> None:
        curves.extend(found)
        places.extend(np.full(len(curve.x), value) for curve in found)

    surface = record.get(f"minima_surface_{up}")
    for i, value in enumerate(values):
        saddles = at[level == value]
        add(_pieces(x, record["plane"].to_numpy()[i], saddles), value)
        add([Curve("saddle", np.array([s]), np.zeros(1)) for s in saddles], value)
        if surface is not None:
            y = surface.to_numpy()[i]
            add([Curve("global minima", x, sign * y) for sign in (1, -1)], value)
    if f"minima_{up}" in record:
        x, y = (record[f"minima_{name}"].to_numpy() for name in (across, up))
        add([Curve("global minima", x, sign * y) for sign in (1, -1)], 0.0)
    names = [f"saddle_{across}", f"saddle_{third}", f"minima_{across}", f"minima_{up}",
             f"minima_surface_{up}", f"plane_{across}", f"plane_{third}"]  # fmt: skip
    record = record.drop_vars(["plane", *(name for name in names if name in record.variables)])
    columns: dict[str, Any] = {across: [c.x for c in curves], up: [c.y for c in curves]}
    return with_curves(record, curves, **columns, **{third: places})
