"""Drawing a phase-space record in (w, e, a). Knows arrays and matplotlib only."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flowsim.drawing.style import (
    INK,
    LINE,
    add_legend,
    chain_caption,
    figure_of,
    meanings,
    model_caption,
    new_figure,
    sentence,
)
from flowsim.errors import InputError

_ORBIT = {"global_minimum": "#3a87b7", "local_minimum": INK["local_minimum"]}
_STYLE: dict[str, Any] = {"global_minimum": "solid", "local_minimum": (0, (5, 1.5))}
_PLANE = {-1: "#e9e9e9", 0: "#ffffff", 1: "#f2c09c", 2: "#cfe4f1"}
_PLANE_NAMES = {1: "local minima", -1: "local maxima", 2: "global minima"}
_MINIMA = INK["global_minimum"]
#: The half-width of the box around the origin.
_ZOOM = 0.5


def draw_phase_space(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """The orbits from afar with the global minima, and a zoom at the origin.

    Args:
        record: from ``phase_space_record`` or read back from its file.
        ax: axes with ``projection="3d"``, for the orbits from afar alone; by default a figure of
            two panels.

    Raises:
        InputError: ``ax`` is not three-dimensional.
    """
    if ax is not None:
        handles = draw_space(record, ax)
        ax.set_title("\n".join(_title(record)), fontsize=10.5)
        add_legend(ax, handles, given=True)
        return figure_of(ax)
    figure = new_figure(11.5, 5.4)
    panels = [figure.add_subplot(1, 2, i, projection="3d") for i in (1, 2)]
    handles = draw_space(record, panels[0])
    draw_space(record, panels[1], "near")
    figure.suptitle("\n".join(_title(record)), fontsize=11)
    add_legend(panels[0], handles, given=False, columns=3)
    return figure


def draw_space(record: xr.Dataset, ax: Any, family: str = "orbit") -> list[Artist]:
    """One panel on three-dimensional axes; the entries of a legend.

    Args:
        record: from ``phase_space_record``.
        ax: with ``projection="3d"``.
        family: "orbit" from afar, "near" for the zoom at the origin.

    Raises:
        InputError: ``ax`` is not three-dimensional.
    """
    if not hasattr(ax, "set_zlim"):
        raise InputError('a phase space needs axes made with projection="3d"')
    box = _box(record, family)
    plane = _draw_plane(record, ax, box)
    minima = _draw_minima(record, ax, box)
    handles = [*_draw_orbits(record, ax, family, box), *minima, *plane]
    ax.set(xlabel="feed-forward $w$", ylabel="attention $a$", zlabel="embedding $e$")
    ax.set(xlim=box["w"], ylim=box["a"], zlim=box["e"])
    where = "whole window" if family == "orbit" else "window around the origin"
    ax.set_title(where, fontsize=10, y=0.98)
    ax.view_init(elev=20, azim=-63)
    ax.set_box_aspect((1.25, 1.0, 1.0), zoom=1.05)
    for axis in "xyz":
        ax.locator_params(axis=axis, nbins=5)
    return handles


def _box(record: xr.Dataset, family: str) -> dict[str, tuple[float, float]]:
    """The drawn interval of each coordinate; records of flowsim 0.1.0 have none for e."""
    if family == "near":
        return dict.fromkeys("wae", (-_ZOOM, _ZOOM))
    kept = {name: record.attrs.get(f"{name}_range", (-2.0, 2.0)) for name in "wae"}
    return {name: (float(low), float(high)) for name, (low, high) in kept.items()}


def _inside(values: np.ndarray, interval: tuple[float, float]) -> np.ndarray:
    return (values >= interval[0]) & (values <= interval[1])


def _clipped(columns: list[np.ndarray], box: dict[str, tuple[float, float]]) -> list[np.ndarray]:
    """w, a and e with NaN outside of the box: matplotlib does not clip in three dimensions."""
    within = np.all([_inside(x, box[n]) for x, n in zip(columns, "wae", strict=True)], axis=0)
    return [np.where(within, x, np.nan) for x in columns]


def _draw_plane(record: xr.Dataset, ax: Any, box: dict[str, tuple[float, float]]) -> list[Artist]:
    """The critical plane e = 0 by kind, and the saddle curve in it."""
    if "plane" not in record or not _inside(np.zeros(1), box["e"])[0]:
        return []
    w, a = record["plane_w"].to_numpy(), record["plane_a"].to_numpy()
    inside_w, inside_a = _inside(w, box["w"]), _inside(a, box["a"])
    kind = record["plane"].to_numpy()[np.ix_(inside_a, inside_w)]
    grid_w, grid_a = np.meshgrid(w[inside_w], a[inside_a])
    ax.plot_surface(
        grid_w, grid_a, np.zeros_like(grid_w), facecolors=np.vectorize(_PLANE.__getitem__)(kind),
        alpha=0.55, shade=False, linewidth=0, antialiased=False, rasterized=True, rcount=81,
        ccount=81,
    )  # fmt: skip
    handles: list[Artist] = [
        Patch(facecolor=_PLANE[value], label=f"plane $e = 0$: {name}")
        for value, name in _PLANE_NAMES.items()
        if (kind == value).any()
    ]
    w, a = record["saddle_w"].to_numpy(), record["saddle_a"].to_numpy()
    near = _inside(w, box["w"]) & _inside(a, box["a"])
    if near.any():
        order = np.argsort(a[near], kind="stable")
        ax.plot(w[near][order], a[near][order], 0, color=LINE, linewidth=2.2, zorder=6)
        handles.append(Line2D([], [], color=LINE, linewidth=2.2, label="saddle curve"))
    return handles


def _draw_minima(record: xr.Dataset, ax: Any, box: dict[str, tuple[float, float]]) -> list[Artist]:
    """The global minima: a curve at a = 0, or a surface for linear attention."""
    if "minima_e" in record:
        w, e = record["minima_w"].to_numpy(), record["minima_e"].to_numpy()
        for sign in (1, -1):
            w_in, a_in, e_in = _clipped([w, np.zeros_like(w), sign * e], box)
            ax.plot(w_in, a_in, e_in, color=_MINIMA, linewidth=2.8, zorder=7)
        return [Line2D([], [], color=_MINIMA, linewidth=2.8, label="global minima (at $a = 0$)")]
    if "minima_surface_e" not in record:
        return []
    e = record["minima_surface_e"].to_numpy()
    grid_w, grid_a = np.meshgrid(record["plane_w"], record["plane_a"])
    for sign in (1, -1):
        w_in, a_in, e_in = _clipped([grid_w, grid_a, sign * e], box)
        ax.plot_wireframe(w_in, a_in, e_in, color=_MINIMA, linewidth=0.5, alpha=0.6,
                          rcount=16, ccount=22)  # fmt: skip
    text = "global minima: $\\Delta = \\Delta^*$"
    return [Line2D([], [], color=_MINIMA, linewidth=0.6, label=text)]


def _draw_orbits(
    record: xr.Dataset, ax: Any, family: str, box: dict[str, tuple[float, float]]
) -> list[Artist]:
    """Each orbit from its start (dot) with an arrow along it, coloured by where it ends."""
    names = meanings(record[f"{family}_label"])
    columns = [record[f"{family}_{name}"].to_numpy() for name in ("w", "a", "e")]
    size = {name: box[name][1] - box[name][0] for name in box}
    drawn: dict[str, Artist] = {}
    for i, code in enumerate(record[f"{family}_label"].to_numpy()):
        path = np.stack(_clipped([column[:, i] for column in columns], box))
        if not np.isfinite(path[:, 0]).all():
            continue  # it starts outside of the box
        colour = _ORBIT.get(names[code], "#000000")
        ax.plot(*path, color=colour, linewidth=1.1, linestyle=_STYLE.get(names[code], "dotted"))
        ax.plot(*path[:, :1], "o", color=colour, markersize=3)
        _draw_arrow(ax, path, np.array([size["w"], size["a"], size["e"]]), colour)
        texts = {"global_minimum": "to the global minima", "local_minimum": "trapped in bad minima"}
        label = f"orbit from its start (dot) {texts.get(names[code], names[code])}"
        drawn.setdefault(names[code], Line2D([], [], color=colour, linewidth=1.1, marker="o",
                         markersize=3, markevery=2, label=label,
                         linestyle=_STYLE.get(names[code], "dotted")))  # fmt: skip
    return [drawn[name] for name in sorted(drawn)]


def _draw_arrow(ax: Any, path: np.ndarray, size: np.ndarray, colour: str) -> None:
    """A small head halfway along an orbit, pointing the way it goes."""
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
    model = sentence(model_caption(record))
    lines = [f"{model}: gradient flow in $(w, e, a)$, {chain_caption(record)}"]
    if record.attrs["model"] == "rank-one":
        lines.append("(starts lifted, orbits projected)")
    return lines
