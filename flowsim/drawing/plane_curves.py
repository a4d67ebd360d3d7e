"""The lines of a portrait: separatrix, numerical boundary, minima, critical line, energy."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from flowsim.drawing.boundary_lines import draw_boundary
from flowsim.drawing.style import INK, LINE, meanings

MINIMA: dict[str, Any] = {"color": INK["global_minimum"], "linewidth": 2.6}
_SADDLE: dict[str, Any] = {
    "marker": "X", "markersize": 9, "color": "#ffffff", "markeredgecolor": LINE,
    "linestyle": "none",
}  # fmt: skip
CRITICAL: dict[str, dict[str, Any]] = {
    "local_minimum": {"color": "#a33b00", "linewidth": 3.0},
    "local_maximum": {"color": LINE, "linewidth": 1.6, "linestyle": (0, (2, 2))},
    "saddle": {"color": LINE, "linewidth": 1.6, "linestyle": (0, (6, 2, 1, 2))},
    "global_minimum": MINIMA,
}
_KINDS = {"local_minimum": "local minima", "local_maximum": "local maxima", "saddle": "saddles"}
SEPARATRIX: dict[str, Any] = {"color": LINE, "linewidth": 1.8}
CANONICAL_SEPARATRIX: dict[str, Any] = {"color": LINE, "linewidth": 1.6, "linestyle": (0, (4, 3))}
_ENERGY: dict[str, Any] = {"colors": "#7a4fa3", "linewidths": 0.7, "linestyles": "dotted"}


def draw_curves(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Separatrix or boundary, curve of global minima, critical line by kind, and the saddle.

    Returns:
        Entries for a legend, one for each thing that is in the picture.
    """
    w = record["curve_w"].to_numpy()
    handles: list[Artist] = [*_draw_borders(record, ax, w)]
    minima = record["minima_e"].to_numpy()
    signs = (1, -1) if record["minima_e"].attrs.get("mirrored", 1) else (1,)
    for sign in signs:
        ax.plot(w, sign * minima, **MINIMA)
    label = "global minima" if np.isfinite(minima).any() else ""
    if "critical_line" in record:
        kinds = _draw_critical_line(record, ax, w)
        if "global_minimum" in kinds:  # p + q = 1
            m = int(record.attrs.get("hidden_per_state", 2))
            ax.axvline(-1 / np.sqrt(m), **MINIMA)
            label = f"global minima: $e = 0$ or $w = -1/\\sqrt{{{m}}}$"
    else:
        kinds = []
    handles += [Line2D([], [], label=label, **MINIMA)] if label else []
    handles += [
        Line2D([], [], label=f"$e = 0$: {_KINDS[kind]}", **CRITICAL[kind])
        for kind in kinds
        if kind != "global_minimum"
    ]
    saddle = record["saddle_w"].to_numpy()
    if saddle.size:
        ax.plot(saddle, np.zeros_like(saddle), **_SADDLE)
        handles.append(Line2D([], [], label="saddle", **_SADDLE))
    return handles


def _draw_borders(record: xr.Dataset, ax: Axes, w: np.ndarray) -> list[Artist]:
    """The closed form of the basins' border, and the boundary between the labels."""
    border = record["separatrix_e"].to_numpy()
    handles: list[Artist] = []
    known, lifted = bool(np.isfinite(border).any()), record.attrs.get("model") == "rank-one"
    if known:
        style = CANONICAL_SEPARATRIX if lifted else SEPARATRIX
        for sign in (1, -1):
            ax.plot(w, sign * border, zorder=5 if lifted else 2, **style)
        text = "separatrix of the canonical model" if lifted else "separatrix (analytic)"
        handles.append(Line2D([], [], label=text, **style))
    if "boundary_w" in record:
        handles = [*draw_boundary(record, ax, ("w", "e"), known and not lifted), *handles]
    return handles


def _draw_critical_line(record: xr.Dataset, ax: Axes, w: np.ndarray) -> list[str]:
    """The line e = 0, drawn by kind; the kinds that more than a point of it has."""
    kind, names = record["critical_line"].to_numpy(), meanings(record["critical_line"])
    values = record["critical_line"].attrs["flag_values"]
    saddle = values[names.index("saddle")]
    drawn = []
    for value, name in zip(values, names, strict=True):
        if (kind == value).sum() > max(1, record["saddle_w"].size):
            joined = (kind == value) | ((kind == saddle) & (np.abs(w[:, None] - record[
                "saddle_w"].to_numpy()).min(axis=1, initial=np.inf) < 1e-9))  # fmt: skip
            ax.plot(np.where(joined, w, np.nan), np.zeros_like(w), **CRITICAL[name])
            drawn.append(name)
    return sorted(drawn, key=list(CRITICAL).index)


def draw_energy(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Contours of the conserved energy, along which orbits run; a legend's entry."""
    w, e = record["w"].to_numpy(), record["e"].to_numpy()
    values = record["energy"].transpose("e", "w").to_numpy()
    for side in (w < 0, w > 0):  # E is infinite at w = 0
        if side.sum() > 1:
            levels = np.arange(-8.0, 9.0, 2.0)
            ax.contour(w[side], e, values[:, side], levels=levels, **_ENERGY)
    return [Line2D([], [], color="#7a4fa3", linewidth=0.9, linestyle="dotted", label="energy $E$")]
