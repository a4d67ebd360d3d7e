"""Drawing a scan record. Knows arrays and matplotlib, nothing of models or integration."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flowsim.drawing.plane import BASINS, FILL, NAMES, basin_patches, draw_basins
from flowsim.drawing.style import chain_caption
from flowsim.errors import InputError

_EDGE = {"global_minimum": "#00537f", "local_minimum": "#a33b00"}
_MARKERS = {"global_minimum": "o", "local_minimum": "^", "saddle": "s", "unresolved": "X"}
_MODELS = {
    "canonical": "without attention",
    "linear": "linear attention",
    "untied": "untied weights",
    "rank-one": "rank-one manifold",
}
_VARIED = {"p": "$p$ = P(0→1)", "q": "$q$ = P(1→0)", "sigma": "spread $\\sigma$ of the starts"}
_PANELS = 6


def draw_scan(record: xr.Dataset) -> Figure:
    """A figure of a scan: basins over a grid, starts as points, or shares over p, q and σ.

    A grid over two coordinates is drawn as filled cells, one over three as up to six slices; starts
    from a file or a cloud as points at their first two coordinates (w horizontal, e vertical where
    they have both). Where p, q or σ vary, the share of starts that reach the global minima is
    drawn instead: against one of them with its 95 % interval, or over two as a map.

    Args:
        record: from ``write_scan``, read back from its file.

    Raises:
        InputError: all of p, q and σ vary, or a grid over one or more than three coordinates, or
            with an axis that is a single value or not evenly spaced.
    """
    varied = [name for name in record["share"].dims if name != "basin"]
    if len(varied) > 2:
        raise InputError("a figure shows one or two of p, q and sigma; this scan varies all three")
    if len(varied) == 2:
        return _draw_map(record, *map(str, varied))
    if varied:
        return _draw_curve(record, str(varied[0]))
    if any(str(name).startswith("start_") for name in record):
        return _draw_points(record)
    return _draw_grid(record)


def check_grid(record: xr.Dataset) -> list[str]:
    """The dimensions of a grid that can be drawn; InputError for another one."""
    dims = [str(name) for name in record["label"].dims]
    if len(dims) not in (2, 3):
        raise InputError(f"a figure shows a grid over two or three coordinates, not {len(dims)}")
    for name in dims:
        _edges_of(record, name)
    return dims


def _draw_map(record: xr.Dataset, up: str, across: str) -> Figure:
    figure, axes = _figure(record, 7.0, 6.0)
    share = record["share"].sel(basin="global_minimum")
    x, y = (_edges_of(record, name) for name in (across, up))
    mesh = axes.pcolormesh(x, y, share, cmap="cividis", vmin=0, vmax=1, rasterized=True)
    figure.colorbar(mesh, label="share of starts that reach the global minima")
    axes.set(xlabel=_VARIED[across], ylabel=_VARIED[up])
    if {across, up} == {"p", "q"}:
        low, high = max(x[0], 1 - y[-1]), min(x[-1], 1 - y[0])
        if low < high:
            line = axes.plot([low, high], [1 - low, 1 - high], color="#ffffff", linestyle="--")
            line[0].set_label("$p + q$ = 1")
            axes.legend(facecolor="#555555", labelcolor="#ffffff", framealpha=1)
    return figure


def _draw_curve(record: xr.Dataset, varied: str) -> Figure:
    figure, axes = _figure(record, 7.0, 5.0)
    drawn = "share_low" in record  # of chosen starts a share has no sampling error
    for name in ("global_minimum", "local_minimum", "unresolved"):
        here = record.sel(basin=name)
        if name == "unresolved" and not here["count"].any():
            continue
        colour = _EDGE.get(name, "#000000")
        x = here[varied].to_numpy()
        if drawn:
            low, high = here["share_low"], here["share_high"]
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        style: dict[str, Any] = {"marker": _MARKERS[name], "markersize": 4, "linewidth": 1.4}
        axes.plot(x, here["share"], color=colour, label=BASINS[name], **style)
    axes.set(xlabel=_VARIED[varied], ylabel="share of the starts", ylim=(-0.02, 1.02))
    axes.legend(title="with 95 % Wilson interval" if drawn else None, framealpha=1)
    return figure


def _draw_points(record: xr.Dataset) -> Figure:
    figure, axes = _figure(record, 7.0, 6.4)
    names = [str(name).removeprefix("start_") for name in record if str(name).startswith("start_")]
    names = ["w", "e"] if {"w", "e"} <= set(names) else (names * 2)[:2]
    x, y = (record[f"start_{name}"].to_numpy() for name in names)
    labels = record["label"].to_numpy()
    size = 12.0 if labels.size > 2000 else 26.0
    present = [name for name in BASINS if record.attrs[f"points_{name}"]]
    handles = []
    for name in present:
        here = labels == _code(record, name)
        style: dict[str, Any] = {
            "marker": _MARKERS[name],
            "facecolor": FILL[name],
            "edgecolor": _EDGE.get(name, "#000000"),
            "linewidth": 0.6,
        }
        axes.scatter(x[here], y[here], s=size, rasterized=labels.size > 2000, **style)
        entry = Line2D([], [], marker=_MARKERS[name], color=FILL[name], linestyle="none")
        entry.set(markeredgecolor=style["edgecolor"], label=BASINS[name])
        handles.append(entry)
    axes.set(xlabel=f"start: {_name(names[0])}", ylabel=f"start: {_name(names[1])}")
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_grid(record: xr.Dataset) -> Figure:
    dims = check_grid(record)
    across, up = ("w", "e") if {"w", "e"} <= set(dims) else (dims[1], dims[0])
    if len(dims) == 2:
        figure, axes = _figure(record, 7.0, 6.6)
        _draw_cells(record, axes, across, up)
    else:
        slicing = next(name for name in dims if name not in (across, up))
        values = record[slicing].to_numpy()
        chosen = np.unique(np.linspace(0, len(values) - 1, _PANELS).round().astype(int))
        columns = min(3, len(chosen))
        rows = -(-len(chosen) // columns)
        figure = Figure(figsize=(3.4 * columns, 3.2 * rows + 0.9), dpi=120, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes, at in zip(panels.flat, chosen, strict=False):
            _draw_cells(record.isel({slicing: at}), axes, across, up)
            axes.set_title(f"${slicing}$ = {values[at]:.3g}", fontsize=10)
        for axes in panels.flat[len(chosen) :]:
            axes.set_axis_off()
        for axes in panels.flat:
            axes.label_outer()
        figure.suptitle(_title(record), fontsize=11)
    present = [name for name in BASINS if record.attrs[f"points_{name}"]]
    figure.legend(
        handles=basin_patches(present), loc="outside lower center", ncols=2, frameon=False
    )
    return figure


def _draw_cells(record: xr.Dataset, axes: Axes, across: str, up: str) -> None:
    draw_basins(record, axes, across, up)
    axes.set(xlabel=_name(across), ylabel=_name(up))


def _figure(record: xr.Dataset, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_title(record), fontsize=11)
    return figure, axes


def _title(record: xr.Dataset) -> str:
    a = record.attrs
    model = _MODELS.get(a["model"]) or f"uniform attention over $N$ = {a['length']}"
    if "p" in a and "q" in a:
        chain = f"the Markov chain {chain_caption(record)}"
    else:
        kept = [f"${n}$ = {a[n]:g}" for n in "pq" if n in a]
        chain = f"Markov chains, {kept[0]}" if kept else "Markov chains"
    total = sum(int(a[f"points_{name}"]) for name in BASINS)
    fixed = [f"${n}$ = {float(v):g}" for n, v in record.coords.items() if not v.dims]
    share = int(a["points_global_minimum"]) / total
    return (
        f"Gradient flow on {chain}\n"
        f"{', '.join([model, *fixed])}: {share:.1%} of {total} starts reach the global minima"
    )


def _name(coordinate: str) -> str:
    return NAMES.get(coordinate, f"${coordinate}$")


def _code(record: xr.Dataset, name: str) -> int:
    attributes = record["label"].attrs
    return int(attributes["flag_values"][str(attributes["flag_meanings"]).split().index(name)])


def _edges_of(record: xr.Dataset, name: str) -> np.ndarray:
    """Edges of the cells around evenly spaced values."""
    values = record[name].to_numpy()
    steps = np.diff(values)
    if not steps.size or np.ptp(steps) > 1e-6 * steps[0]:
        raise InputError(f"a figure needs two or more evenly spaced values of {name}")
    return np.append(values - steps[0] / 2, values[-1] + steps[0] / 2)
