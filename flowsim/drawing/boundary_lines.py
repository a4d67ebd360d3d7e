"""Drawing a refined boundary. Knows arrays and matplotlib only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.collections import LineCollection
from matplotlib.colors import LightSource
from matplotlib.lines import Line2D

from flowsim.drawing.style import (
    INK,
    LINE,
    Canvas,
    Look,
    about,
    basin_names,
    meanings,
    name_of,
)
from flowsim.records.attributes import axes_of

#: Lighter than ink, so that the boundary stands out among the starts that were followed.
_POINT = {"global_minimum": "#7fb2d4"}
BESIDE_SADDLES: dict[str, Any] = {"color": INK["saddle"], "linewidth": 1.2}
_STYLE: dict[bool, dict[str, Any]] = {
    False: {"color": LINE, "linewidth": 1.8, "zorder": 4},
    True: {**BESIDE_SADDLES, "zorder": 3},
}
_BRIGHT: dict[str, Any] = {"color": "#ffd400", "linewidth": 1.4, "linestyle": (0, (4, 4))}
#: A surface is lit from where the normals of its faces point to.
_LIGHT = LightSource(azdeg=20, altdeg=-40)
_TEXT = {False: "basin boundary", True: "starts that end in a saddle"}
_SURFACE = {False: "#f2a56f", True: INK["saddle"]}


def draw_refined(record: xr.Dataset, ax: Any = None, **look: Unpack[Look]) -> Any:
    """Draw a record of ``refine_boundary``: the starts that were followed, and the boundary.

    In two dimensions the dots are the starts that were followed, dense where cells were halved.
    In three only the boundary is drawn.

    Args:
        record: holds what ``refine_boundary`` returns.
        ax: axes to draw on, with ``projection="3d"`` for three dimensions; by default new ones.
        look: width, title and legend, as of ``draw``, which says what is returned.

    >>> import flowsim, numpy as np
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), np.linspace(-2, 2, 9)
    >>> record = flowsim.refine_boundary(model, {"w": axis, "e": axis}, levels=1)
    >>> flowsim.drawing.draw_refined(record).axes[0].get_xlabel()
    'feed-forward weight $w$'
    """
    names = _varied(record)
    flat = len(names) == 2
    canvas = Canvas(ax, 7.0, 6.2, look)
    ax = canvas.axes(**({} if flat else {"projection": "3d"}))
    if not canvas.given and not flat:
        ax.view_init(elev=24, azim=-62)
        ax.set_box_aspect((1.25, 1.0, 0.9), zoom=1.0)
        ax.locator_params(nbins=5)
    handles, label = [], record["node_label"].to_numpy()
    for code, end in enumerate(meanings(record["node_label"]) if flat else ()):
        on, colour = label == code, _POINT.get(end) or INK[end]
        if on.any() and end != "saddle":  # which has a line
            x, y = (record[f"node_{name}"].to_numpy()[on] for name in names)
            size = min(max(2e4 / len(label), 1.6), 10.0)
            ax.scatter(x, y, s=size, color=colour, linewidths=0, rasterized=True)
            handles.append(Line2D([], [], color=colour, label=basin_names(record)[end],
                                  marker="o", linestyle="none", markersize=4))  # fmt: skip
    handles += draw_boundary(record, ax)
    for axis, name in zip("xyz", names, strict=False):
        low, high = record[f"fine_{name}"].to_numpy()[[0, -1]]
        ax.set(**{f"{axis}label": name_of(record, name, f"fine_{name}"), f"{axis}lim": (low, high)})
    attrs = record.attrs
    counts = f"{attrs['refine_evaluated']:,} of {attrs['refine_full']:,}"
    title = f"Basin boundary from {counts} starts of the fine grid"
    return canvas.complete([title, *about(record)], handles)


def draw_boundary(
    record: xr.Dataset, ax: Any, names: Sequence[str] | None = None, bright: bool = False
) -> list[Line2D]:
    """Draw a record's boundary on given axes, flat or three-dimensional ones.

    Args:
        record: holds what ``refine_boundary`` returns.
        ax: of a plane, or with ``projection="3d"`` for a boundary along three axes.
        names: the coordinates, horizontal first; by default those that the record varies.
        bright: dashed and bright, to lie over another line.

    Returns:
        Entries for a legend, one for each kind of boundary drawn.

    >>> import flowsim, numpy as np
    >>> from matplotlib.figure import Figure
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), np.linspace(-2, 2, 9)
    >>> record = flowsim.refine_boundary(model, {"e": axis, "w": axis}, levels=1)
    >>> len(flowsim.drawing.draw_boundary(record, Figure().add_subplot()))
    2
    """
    names = names or _varied(record)
    points, pieces, beside = boundary_pieces(record, names)
    handles, plane = [], len(names) == 2
    for saddle in (False, True):
        chosen = points[pieces[beside == saddle]]
        if not len(chosen):
            continue
        style, text = {**_STYLE[saddle], **(_BRIGHT if bright else {})}, _TEXT[saddle]
        if plane:
            ax.add_collection(LineCollection(list(chosen), **style), autolim=False)
        else:
            style = {"color": _SURFACE[saddle], "linewidth": 5}
            ax.plot_trisurf(
                *points.T, triangles=pieces[beside == saddle], color=_SURFACE[saddle],
                lightsource=_LIGHT, linewidth=0, antialiased=False, rasterized=True,
            )  # fmt: skip
        handles.append(Line2D([], [], label=text, **style))
    return handles


def boundary_pieces(
    record: xr.Dataset, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the boundary's points (n, d), its edges (m, 2) or faces (m, 3), and a mask (m,).

    Points have the ``names`` as their coordinates; edges and faces are numbers of points. The mask
    is True of pieces beside starts that end in a saddle.
    """
    points = np.stack([record[f"boundary_{n}"].to_numpy() for n in names], axis=-1)
    if len(names) == 2:
        curve = record["boundary_curve"].to_numpy()
        start = np.flatnonzero(curve[1:] == curve[:-1])
        pieces = np.stack([start, start + 1], axis=1)
    else:
        pieces = record["boundary_face"].to_numpy()
    side = record["boundary_side"]
    saddles = [code for code, name in enumerate(meanings(side)) if name.startswith("saddle")]
    beside = np.isin(side.to_numpy(), saddles)[pieces]
    return points, pieces, np.asarray(beside.all(axis=1))


def _varied(record: xr.Dataset) -> list[str]:
    """The varied coordinates: the plane's horizontal one first, its vertical one last."""
    names = [str(n).removeprefix("fine_") for n in record.variables if str(n).startswith("fine_")]
    across, up = axes_of(record)
    return sorted(names, key=lambda name: ((name == up) - (name == across), name))
