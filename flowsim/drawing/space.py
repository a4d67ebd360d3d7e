"""Drawing a phase-space record in (w, e, a). Knows arrays and matplotlib only."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flowsim.drawing.style import attention_caption, chain_caption

_MINIMA, _GLOBAL, _LOCAL, _SADDLE = "#00537f", "#3a87b7", "#c25700", "#111111"
_ORBIT = {"global_minimum": _GLOBAL, "local_minimum": _LOCAL}
_PLANE = {-1: "#e9e9e9", 0: "#ffffff", 1: "#f2c09c", 2: "#cfe4f1"}


def draw_phase_space(record: xr.Dataset) -> Figure:
    """Two panels: the orbits from afar with the global minima, and the zoom at the origin.

    Args:
        record: from ``phase_space_record`` or read back from its file.
    """
    figure = Figure(figsize=(11.0, 5.8), dpi=120, layout="constrained")
    for position, family in ((1, "orbit"), (2, "near")):
        draw_space(record, figure.add_subplot(1, 2, position, projection="3d"), family)
    figure.suptitle(_title(record))
    figure.legend(
        handles=space_legend(record), loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    return figure


def draw_space(record: xr.Dataset, axes: Any, family: str) -> None:
    """One panel on three-dimensional axes: ``family`` "orbit" from afar, "near" for the zoom."""
    span = 2.5 if family == "orbit" else 0.5
    _draw_plane(record, axes, span)
    if family == "orbit":
        _draw_minima(record, axes)
    _draw_orbits(record, axes, family, None if family == "orbit" else span)
    axes.set(xlabel="feed-forward $w$", ylabel="attention $a$", zlabel="embedding $e$")
    axes.set(xlim=(-span, span), zlim=(-min(span, 2), min(span, 2)))
    axes.set_title("whole space" if family == "orbit" else "around the origin")
    axes.set_ylim(*record.attrs["a_range"] if family == "orbit" else (-span, span))
    axes.view_init(elev=22, azim=-66)
    axes.set_box_aspect((1.25, 1.0, 1.0), zoom=1.02)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="z", nbins=5)


def _draw_plane(record: xr.Dataset, axes: Any, span: float) -> None:
    """The critical plane e = 0 by kind, and the saddle curve in it."""
    w, a = record["plane_w"].to_numpy(), record["plane_a"].to_numpy()
    inside_w, inside_a = np.abs(w) <= span, np.abs(a) <= span
    kind = record["plane"].to_numpy()[np.ix_(inside_a, inside_w)]
    grid_w, grid_a = np.meshgrid(w[inside_w], a[inside_a])
    colours = np.vectorize(_PLANE.__getitem__)(kind)
    axes.plot_surface(
        grid_w, grid_a, np.zeros_like(grid_w), facecolors=colours, alpha=0.55, shade=False,
        linewidth=0, antialiased=False, rasterized=True, rcount=81, ccount=81,
    )  # fmt: skip
    w, a = record["saddle_w"].to_numpy(), record["saddle_a"].to_numpy()
    near = (np.abs(w) <= span) & (np.abs(a) <= span)
    if near.any():
        order = np.argsort(a[near], kind="stable")
        axes.plot(w[near][order], a[near][order], 0, color=_SADDLE, linewidth=2.2, zorder=6)


def _draw_minima(record: xr.Dataset, axes: Any) -> None:
    """The global minima: a curve at a = 0 for uniform attention, a surface for linear."""
    if "minima_e" in record:
        w, e = record["minima_w"].to_numpy(), record["minima_e"].to_numpy()
        e = np.where(e <= 2, e, np.nan)
        for sign in (1, -1):
            axes.plot(w, np.zeros_like(w), sign * e, color=_MINIMA, linewidth=2.8, zorder=7)
        return
    e = record["minima_surface_e"].to_numpy()
    e = np.where(e <= 2, e, np.nan)
    grid_w, grid_a = np.meshgrid(record["plane_w"], record["plane_a"])
    for sign in (1, -1):
        axes.plot_wireframe(
            grid_w, grid_a, sign * e, color=_MINIMA, linewidth=0.5, alpha=0.6, rcount=16, ccount=22
        )


def _draw_orbits(record: xr.Dataset, axes: Any, family: str, span: float | None) -> None:
    """Each orbit from its start (dot), coloured by where it ends."""
    meanings = str(record[f"{family}_label"].attrs["flag_meanings"]).split()
    columns = [record[f"{family}_{name}"].to_numpy() for name in ("w", "a", "e")]
    for i, code in enumerate(record[f"{family}_label"].to_numpy()):
        w, a, e = (column[:, i] for column in columns)
        if span is not None:  # matplotlib does not clip in three dimensions
            beyond = np.abs(np.stack([w, a, e])).max(axis=0) > span
            w, a, e = (np.where(beyond, np.nan, x) for x in (w, a, e))
        colour = _ORBIT.get(meanings[code], "#000000")
        axes.plot(w, a, e, color=colour, linewidth=1.1)
        axes.plot(w[:1], a[:1], e[:1], "o", color=colour, markersize=3)


def _title(record: xr.Dataset) -> str:
    kind, chain = attention_caption(record), chain_caption(record)
    return f"Gradient flow in $(w, e, a)$, {kind}, {chain}"


def space_legend(record: xr.Dataset) -> list[Patch | Line2D]:
    """One entry for each thing that is in the picture."""
    present = set(record["plane"].to_numpy().ravel().tolist())
    surface = "minima_e" not in record
    minima = "global minima: $\\Delta = \\Delta^*$" if surface else "global minima (at $a = 0$)"
    dot: dict[str, Any] = {"marker": "o", "markersize": 3, "markevery": 2}
    handles: list[Patch | Line2D] = [
        Line2D([], [], color=colour, label=text, **dot)
        for name, colour, text in (
            ("global_minimum", _GLOBAL, "orbit to the global minima"),
            ("local_minimum", _LOCAL, "orbit trapped in bad minima"),
        )
        if record.attrs[f"orbits_{name}"]
    ]
    handles.append(Line2D([], [], color=_MINIMA, linewidth=0.6 if surface else 2.8, label=minima))
    names = {1: "local minima", -1: "local maxima", 2: "global minima"}
    handles += [
        Patch(facecolor=_PLANE[value], label=f"plane $e = 0$: {name}")
        for value, name in names.items()
        if value in present
    ]
    if record["saddle_w"].size:
        handles.append(Line2D([], [], color=_SADDLE, linewidth=2.2, label="saddle curve"))
    return handles
