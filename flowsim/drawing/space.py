"""Drawing a phase-space record. Knows arrays and matplotlib only."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from flowsim.curves import curves_of
from flowsim.drawing.looks import look_of
from flowsim.drawing.style import (
    INK,
    LINE,
    MARKER,
    Canvas,
    Look,
    about,
    basin_names,
    figure_of,
    meanings,
    name_of,
    remarks_on_motion,
    symbol,
)
from flowsim.errors import InputError
from flowsim.records.attributes import axes_of

_ORBIT = {"global_minimum": "#3a87b7", "saddle": "#000000"}
#: Line styles of orbits by the code of their end; further codes have the last four again.
_STYLES: tuple[Any, ...] = ("dotted", "solid", (0, (5, 1.5)), "dotted", (0, (6, 2, 1, 2)))
_TEXTS = {"global_minimum": "to the global minima", "local_minimum": "trapped in bad minima"}
_SURFACE = {"local maxima": "#e9e9e9", "local minima": "#f2c09c", "global minima": "#cfe4f1"}
#: The half-width of the box around the origin.
_ZOOM = 0.5


def draw_phase_space(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw orbits in space with known curves or the ends, and a zoom at the origin if it is known.

    Args:
        record: from ``phase_space`` or read back from its file.
        ax: axes with ``projection="3d"``, for the orbits from afar alone; by default a new figure.
        look: width, title and legend, as of ``draw``, which says what is returned.

    Raises:
        InputError: ``ax`` is not three-dimensional.

    >>> import flowsim
    >>> bowl = flowsim.from_loss(lambda x, y, z: x**2 + y**2 + 2 * z**2, "bowl")
    >>> record = flowsim.portraits.phase_space(bowl, rtol=1e-3, atol=1e-3)
    >>> flowsim.drawing.draw_phase_space(record).axes[0].name
    '3d'
    """
    beside = ax is None and "near_label" in record and not (look.get("width") or 9) < 5
    canvas = Canvas(ax, *((11.5, 4.4) if beside else (7.5, 5.6)), look)
    if not beside:
        return canvas.complete(_title(record), draw_space(record, canvas.axes(projection="3d")))
    left, right = canvas.figure.subplots(1, 2, subplot_kw={"projection": "3d"})
    handles = draw_space(record, left)
    draw_space(record, right, "near")
    for panel, where in ((left, "whole window"), (right, "window around the origin")):
        panel.set_title(where, fontsize="medium", y=0.98)
    return canvas.complete(_title(record), handles, columns=3)


def draw_space(record: xr.Dataset, ax: Any, family: str = "orbit") -> list[Artist]:
    """Draw one panel on three-dimensional axes; return the entries of a legend.

    ``family`` is "orbit", the orbits from afar, or "near", those from around the origin.
    """
    if not hasattr(ax, "set_zlim"):
        raise InputError('a phase space needs axes made with projection="3d"')
    box = _box(record, family)
    known = _draw_curves(record, ax, box)
    handles = [*_draw_orbits(record, ax, family, box), *known]
    for axis, (name, interval) in zip("xyz", box.items(), strict=True):
        narrow = figure_of(ax).get_figwidth() < 5  # where long names run into one another
        text = symbol(name) if narrow else name_of(record, name, f"orbit_{name}")
        ax.set(**{f"{axis}label": text, f"{axis}lim": interval})
    ax.view_init(elev=20, azim=-63)
    ax.set_box_aspect((1.25, 1.0, 1.0), zoom=1.05)
    for axis in "xyz":
        ax.locator_params(axis=axis, nbins=5)
    return handles


def _box(record: xr.Dataset, family: str) -> dict[str, tuple[float, float]]:
    """The drawn interval of each coordinate, that of the vertical axis last."""
    x, y = axes_of(record)
    others = {str(name).removeprefix("orbit_") for name in record if "orbit_" in str(name)}
    (z,) = others - {x, y, "label"}
    names = (x, y, z) if "ends" in record.attrs else (x, z, y)
    if family == "near":
        return dict.fromkeys(names, (-_ZOOM, _ZOOM))
    kept = {name: record.attrs[f"{name}_range"] for name in names}
    return {name: (float(low), float(high)) for name, (low, high) in kept.items()}


def _inside(values: np.ndarray, interval: tuple[float, float]) -> np.ndarray:
    """Mask of the values that lie in a closed interval."""
    return (values >= interval[0]) & (values <= interval[1])


def _clipped(columns: list[np.ndarray], box: dict[str, tuple[float, float]]) -> list[np.ndarray]:
    """The columns, NaN outside of the box: matplotlib does not clip in three dimensions."""
    pairs = zip(columns, box.values(), strict=True)
    within = np.all([_inside(x, interval) for x, interval in pairs], axis=0)
    return [np.where(within, x, np.nan) for x in columns]


def _draw_curves(record: xr.Dataset, ax: Any, box: dict[str, tuple[float, float]]) -> list[Artist]:
    """Draw curves known in planes of constant second axis; return the entries of a legend.

    Pieces of such curves along y = 0 together are drawn as a surface.
    """
    first, second, up = box
    if "curve_kind" not in record:
        return []
    artists: dict[str, Artist] = {}
    curves = [
        (curve, float(np.ravel(height)[0]))
        for curve, (_, height, *_) in zip(
            curves_of(record, first, up), curves_of(record, second, second), strict=True
        )
    ]
    values = np.unique([value for _, value in curves])
    half = np.diff(values).max(initial=0) / 2
    pieces = [(c, z) for c, z in curves if len(c.x) > 1 and not np.any(c.y)]
    lines = [(c, z) for c, z in curves if len(c.x) > 1 and np.any(c.y)]
    several = len({z for _, z in lines}) > 1
    for curve, value in pieces:
        (left, right), (low, high) = box[first], box[second]
        x = np.clip([curve.x.min(), curve.x.max()], left, right)
        z = np.clip([value - half, value + half], low, high)
        if x[0] < x[1] and z[0] < z[1] and _inside(np.zeros(1), box[up])[0]:
            colour = _SURFACE.get(curve.kind, "#ffffff")
            corners = [(x[i], z[j], 0.0) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))]
            ax.add_collection3d(Poly3DCollection([corners], facecolor=colour, alpha=0.55,
                                                 linewidth=0, rasterized=True))  # fmt: skip
            name = f"plane ${up} = 0$: {curve.kind}"
            if curve.kind in _SURFACE:
                artists.setdefault(name, Patch(facecolor=colour, label=name))
    points = np.array([(x, z, y) for c, z in curves for x, y in c.points]).reshape(-1, 3)
    points = points[
        np.all([_inside(v, box[n]) for v, n in zip(points.T, box, strict=True)], axis=0)
    ]
    if len(points):
        look: dict[str, Any] = {"color": LINE, "linewidth": 2.2}
        ax.plot(*points[np.argsort(points[:, 1], kind="stable")].T, zorder=6, **look)
        artists["saddles"] = Line2D([], [], label="saddle curve", **look)
    shown = values[:: max(1, len(values) // 22)]
    for curve, value in lines:
        if several and value not in shown:
            continue
        width = 0.5 if several else 2.8
        columns = _clipped([curve.x, np.full_like(curve.x, value), curve.y], box)
        line = look_of(curve) | {"linewidth": width, "alpha": 0.6 if several else 1.0, "marker": ""}
        ax.plot(*columns, zorder=7, **line)
        name = curve.kind if several else f"{curve.kind} (at ${second} = {value:g}$)"
        artists.setdefault(name, Line2D([], [], label=name, **line))
    return list(artists.values())


def _draw_orbits(
    record: xr.Dataset, ax: Any, family: str, box: dict[str, tuple[float, float]]
) -> list[Artist]:
    """Draw each orbit from its start (dot) with an arrow along it, coloured by where it ends.

    Returns the entries of a legend. The axes' intervals are ``box``, by coordinate.
    """
    names = meanings(record[f"{family}_label"])
    found, words = "ends" in record.attrs, basin_names(record)
    columns = [record[f"{family}_{name}"].to_numpy() for name in box]
    parts = np.linspace(0, len(columns[0]) - 1, 20 * len(columns[0]) - 19)
    size = np.array([high - low for low, high in box.values()])
    artists: dict[str, Artist] = {}
    for i, code in enumerate(record[f"{family}_label"].to_numpy()):
        rows = [column[:, i] for column in columns]
        if found:  # nearly as far as the sides of the box, where an orbit leaves it
            rows = [np.interp(parts, np.arange(len(row)), row) for row in rows]
        path = np.stack(_clipped(rows, box))
        if not np.isfinite(path[:, 0]).all():
            continue  # it starts outside of the box
        name = names[code]
        colour = _ORBIT.get(name, INK[name])
        line: dict[str, Any] = {"color": colour, "linewidth": 1.1,
                                "linestyle": _STYLES[code and (code - 1) % 4 + 1]}  # fmt: skip
        ax.plot(*path, **line)
        ax.plot(*path[:, :1], "o", color=colour, markersize=3)
        _draw_arrow(ax, path, size, colour)
        mark: dict[str, Any] = {"marker": "o", "markersize": 3}
        text = f"orbit from its start (dot) {_TEXTS.get(name, name)}"
        if found:
            text = f"to {words[name].removeprefix('to ')}" if code else words[name]
        if found and code and not name.startswith("infinity"):
            mark = {"marker": MARKER[name], "markersize": 7, "markeredgecolor": "#ffffff"}
            ax.plot(*path[:, -1:], color=colour, linestyle="none", zorder=8, **mark)
        artists.setdefault(name, Line2D([], [], markevery=2, label=text, **line, **mark))
    return [artists[name] for name in sorted(artists)]


def _draw_arrow(ax: Any, path: np.ndarray, size: np.ndarray, colour: str) -> None:
    """Draw a small head halfway along an orbit (3, times), pointing the way it goes.

    ``size`` (3,) are the sides of the drawn box.
    """
    path = path[:, np.isfinite(path).all(axis=0)]
    length = np.linalg.norm(np.diff(path / size[:, None], axis=1), axis=0).cumsum()
    if not len(length) or length[-1] < 0.08:
        return
    at = int(np.searchsorted(length, length[-1] / 2))
    step = (path[:, at + 1] - path[:, at]) / size
    head = 0.035 * size * step / np.linalg.norm(step)
    ax.quiver(*(path[:, at + 1] - head), *head, color=colour, linewidth=1.1,
              arrow_length_ratio=1.0)  # fmt: skip


def _title(record: xr.Dataset) -> list[str]:
    """The lines of the title of a view in space: its coordinates, the model, remarks."""
    x, y = axes_of(record)
    (z,) = set(_box(record, "orbit")) - {x, y}
    title = f"Gradient flow in ({', '.join(map(symbol, (x, y, z)))})"
    starts = ["Orbits from their starts (dots) to their ends"] * ("ends" in record.attrs)
    return [title, *about(record), *starts, *remarks_on_motion(record)]
