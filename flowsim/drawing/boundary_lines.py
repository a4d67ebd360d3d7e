"""Drawing a refined boundary. Knows arrays and matplotlib only."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flowsim.drawing.style import attention_caption, chain_caption

_LINE = "#111111"
_POINT = {
    "global_minimum": "#7fb2d4",
    "local_minimum": "#c25700",
    "saddle": "#7a4fa3",
    "unresolved": "#000000",
}
_NAMES = {
    "global_minimum": "reaches the global minima",
    "local_minimum": "trapped in bad local minima",
    "saddle": "ends in a saddle",
    "unresolved": "unresolved",
}
_STYLE: dict[bool, dict[str, Any]] = {
    False: {"color": _LINE, "linewidth": 1.8, "zorder": 4},
    True: {"color": _POINT["saddle"], "linewidth": 1.2, "zorder": 3},
}
_LIGHT = np.array([-0.48, -0.36, 0.8])
_AXIS = {"w": "feed-forward weight $w$", "e": "embedding $e$", "a": "attention $a$"}


def draw_refined(record: xr.Dataset) -> Figure:
    """A figure of one record of ``refine_boundary``: evaluated starts, and the boundary.

    In two dimensions the dots are all the starts that were followed, dense where cells were
    halved. In three only the boundary is drawn. ``draw_boundary`` draws it on given axes.
    """
    figure = Figure(figsize=(7.0, 7.2), dpi=120, layout="constrained")
    names = _names(record)
    attrs = record.attrs
    handles = []
    if len(names) == 2:
        axes: Any = figure.add_subplot()
        present = _draw_nodes(record, axes)
        handles = [
            Line2D([], [], color=_POINT[n], marker="o", linestyle="none", markersize=4,
                   label=_NAMES[n])
            for n in present
        ]  # fmt: skip
    else:
        axes = figure.add_subplot(projection="3d")
        axes.view_init(elev=22, azim=-66)
        axes.set_box_aspect((1.25, 1.0, 1.0), zoom=0.95)
        axes.locator_params(nbins=5)
    handles += draw_boundary(record, axes)
    lines = [f"Basin boundary on the Markov chain {chain_caption(record)}"]
    held = [c for c in attrs["coordinates"] if c not in names and c in record]
    words = [attention_caption(record)] if "a" in attrs["coordinates"] else []
    words += [f"slice ${c}$ = {float(record[c]):g}" for c in held]
    lines += [", ".join(words)] if words else []
    lines.append(
        f"{attrs['refine_evaluated']:,} starts instead of the {attrs['refine_full']:,} "
        "of the full fine grid"
    )
    axes.set_title("\n".join(lines))
    for axis, name in zip("xyz", names, strict=False):
        low, high = record[f"fine_{name}"].to_numpy()[[0, -1]]
        axes.set(**{f"{axis}label": _AXIS.get(name, f"${name}$"), f"{axis}lim": (low, high)})
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    return figure


def draw_boundary(record: xr.Dataset, axes: Axes) -> list[Line2D]:
    """The refined boundary on given axes, w horizontal and e vertical; three-dimensional ones too.

    Args:
        record: holds what ``refine_boundary`` returns.
        axes: of a plane, or with ``projection="3d"`` for a boundary along three axes.

    Returns:
        Entries for a legend, one for each kind of boundary drawn.
    """
    names = _names(record)
    points = np.stack([record[f"boundary_{n}"].to_numpy() for n in names], axis=-1)
    if not len(points):
        return []
    meanings = str(record["boundary_side"].attrs["flag_meanings"]).split()
    unstable = record["boundary_side"].to_numpy() == meanings.index("saddle")
    plane = len(names) == 2
    if plane:
        curve = record["boundary_curve"].to_numpy()
        start = np.flatnonzero(curve[1:] == curve[:-1])
        pieces = np.stack([start, start + 1], axis=1)
    else:
        pieces = record["boundary_face"].to_numpy()
    beside = unstable[pieces].all(axis=1)
    handles = []
    for saddle, text in ((False, "basin boundary"), (True, "starts that end in a saddle")):
        chosen = points[pieces[beside == saddle]]
        if not len(chosen):
            continue
        if plane:
            axes.add_collection(LineCollection(list(chosen), **_STYLE[saddle]))
            handles.append(Line2D([], [], label=text, **_STYLE[saddle]))
        else:
            colour = _POINT["saddle"] if saddle else "#f2a56f"
            _draw_surface(axes, points, pieces[beside == saddle], colour)
            handles.append(Line2D([], [], color=colour, linewidth=5, label=text))
    return handles


def overlay_boundary(record: xr.Dataset, axes: Axes) -> None:
    """The refined boundary of a plane, bright and dashed, on a portrait that has its own lines."""
    draw_boundary(record, axes)
    for drawn in axes.collections[-2:]:
        if isinstance(drawn, LineCollection):
            drawn.set(color="#ffd400", linestyle=(0, (4, 4)), linewidth=1.4, zorder=5)
    line = Line2D([], [], color="#ffd400", linestyle=(0, (4, 4)), linewidth=1.4)
    attrs = record.attrs
    line.set_label(f"boundary from {attrs['refine_evaluated']:,} starts")
    axes.legend(handles=[line], loc="upper right", fontsize=8.5, facecolor="#777777",
                labelcolor="#ffffff", framealpha=1)  # fmt: skip


def _draw_surface(axes: Any, points: np.ndarray, faces: np.ndarray, colour: str) -> None:
    """Triangles, shaded alike from both sides by normals that are averaged over neighbours."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    span = np.ptp(points, axis=0)
    corner = (points / np.where(span > 0, span, 1))[faces]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    for _ in range(4):  # wide enough to hide the steps of the grid
        at_vertex = np.zeros_like(points)
        for i in range(3):
            np.add.at(at_vertex, faces[:, i], normal)
        normal = at_vertex[faces].mean(axis=1)
    length = np.linalg.norm(normal, axis=1)
    facing = np.abs(normal @ _LIGHT) / np.where(length > 0, length, 1)
    shade = (0.6 + 0.4 * facing)[:, None] * np.array(to_rgb(colour))
    triangles = Poly3DCollection(
        points[faces], facecolors=shade, edgecolors=shade, linewidths=0.2, rasterized=True
    )
    axes.add_collection3d(triangles)
    axes.auto_scale_xyz(*np.stack([points.min(axis=0), points.max(axis=0)], axis=1))


def _draw_nodes(record: xr.Dataset, axes: Axes) -> list[str]:
    """Every evaluated start as a dot; the names of the labels that occur."""
    x, y = (record[f"node_{n}"].to_numpy() for n in _names(record))
    label = record["node_label"].to_numpy()
    meanings = str(record["node_label"].attrs["flag_meanings"]).split()
    size = min(max(2e4 / len(label), 1.6), 10.0)
    present = []
    for name in _NAMES:
        chosen = label == meanings.index(name)
        if chosen.any():
            axes.scatter(
                x[chosen], y[chosen], s=size, color=_POINT[name], linewidths=0, rasterized=True
            )
            present.append(name)
    return present


def _names(record: xr.Dataset) -> list[str]:
    """The varied coordinates, horizontal first: e comes last."""
    names = [str(n).removeprefix("fine_") for n in record.variables if str(n).startswith("fine_")]
    return sorted(names, key="wauebpo".find if set(names) <= set("wauebpo") else None)
