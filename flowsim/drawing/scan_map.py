"""Drawing a scan record. Knows arrays and matplotlib, nothing of models or integration."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D

from flowsim.drawing.curves import draw_shares
from flowsim.drawing.plane import draw_basins
from flowsim.drawing.style import (
    FILL,
    INK,
    MARKER,
    Canvas,
    Look,
    about,
    basin_dots,
    basin_names,
    code_of,
    edges,
    meanings,
    name_of,
    optimizer_caption,
    percent,
    symbol,
    wrapped,
)
from flowsim.errors import InputError
from flowsim.records.attributes import axes_of, most_frequent

#: Slices shown of a grid over three coordinates.
_PANELS = 6
#: A chain with a larger share of unresolved starts is drawn as unknown.
_UNKNOWN = 0.05


def draw_scan(
    record: xr.Dataset, ax: Axes | None = None, show: str = "label", **look: Unpack[Look]
) -> Any:
    """Draw a scan: basins over a grid, starts as points, or shares over p, q and σ.

    A grid over two coordinates is drawn as filled cells, one over three as up to six slices; starts
    from a file or a cloud as points in the record's plane, or at their first two coordinates where
    they have not both of its. Where p, q, N or σ vary, the share of starts that reach the global
    minima is drawn instead: against one of them with its 95 % interval, or over two as a map.

    Args:
        record: from ``write_scan``, read back from its file.
        ax: axes to draw on; by default those of a new figure.
        show: "label" for where starts end, "hitting_time" for when they have learned.
        look: width, title and legend, as of ``draw``, which says what is returned.

    Raises:
        InputError: more than two of p, q, N and σ vary, or a grid over one or more than three
            coordinates, or with an axis that is a single value or not evenly spaced; slices on
            given axes; no hitting times in the record.

    >>> import flowsim, numpy as np
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), np.linspace(-2, 2, 8)
    >>> record = flowsim.scan(model, {"e": axis, "w": axis}, fraction=0.01)
    >>> flowsim.drawing.draw_scan(record, show="hitting_time").axes[0].get_ylabel()
    'embedding $e$'
    """
    if show not in ("label", "hitting_time"):
        raise InputError(f'show must be "label" or "hitting_time", not {show!r}')
    if show not in record:
        raise InputError("the record has no hitting times; scan with a fraction to find them")
    varied = [str(name) for name in record["share"].dims if name != "basin"]
    if len(varied) > 2:
        raise InputError(
            f"a figure shows one or two of {', '.join(varied)}, not all "
            f"{'three' if len(varied) == 3 else 'four'}: select a part of the record"
        )
    if varied and show != "label":
        raise InputError("hitting times are drawn where none of p, q, length and sigma varies")
    if len(varied) == 2:
        return _draw_map(record, Canvas(ax, 7.0, 5.4, look), *varied)
    if varied:
        return _draw_curve(record, Canvas(ax, 7.0, 4.2, look), varied[0])
    if any(str(name).startswith("start_") for name in record):
        return _draw_points(record, Canvas(ax, 7.0, 5.4, look), show)
    norm = _time_norm(record) if show != "label" else None
    dims = check_grid(record)
    if len(dims) == 3:
        return _draw_slices(record, ax, dims, norm, look)
    canvas = Canvas(ax, 7.0, 5.6, look)
    ax = canvas.axes()
    handles = _draw_cells(record, ax, *_directions(record, dims), norm)
    if norm is not None:
        colours = ScalarMappable(norm, "viridis")
        canvas.figure.colorbar(colours, ax=[ax], label=_time_text(record))
    return canvas.complete(_title(record), handles)


def check_grid(record: xr.Dataset) -> list[str]:
    """Return the dimensions of a grid that can be drawn; InputError for another one."""
    dims = [str(name) for name in record["label"].dims]
    if len(dims) not in (2, 3):
        raise InputError(f"a figure shows a grid over two or three coordinates, not {len(dims)}")
    for name in dims:
        edges(record[name].to_numpy(), name)
    return dims


def _draw_map(record: xr.Dataset, canvas: Canvas, up: str, across: str) -> Any:
    """Draw the share of starts that reach the first end as a map over two varied arguments."""
    ax = canvas.axes()
    if {across, up} == {"p", "q"}:  # p across, as in the papers
        across, up = "p", "q"
    best = str(record["basin"][1].item())
    share = record["share"].sel(basin=best).transpose(up, across)
    unresolved = record["share"].isel(basin=0).transpose(up, across)
    unknown = (unresolved > _UNKNOWN).to_numpy()
    share = share.where(~unknown)
    x, y = (edges(record[name].to_numpy(), name) for name in (across, up))
    mesh = ax.pcolormesh(x, y, share, cmap="cividis", vmin=0, vmax=1, rasterized=True)
    canvas.figure.colorbar(mesh, ax=ax, label=f"share: {basin_names(record)[best]}")
    ax.set(xlabel=name_of(record, across), ylabel=name_of(record, up))
    handles: list[Any] = []
    if unknown.any():
        hatched: dict[str, Any] = {"facecolor": "#f4f4f4", "edgecolor": "#777777", "hatch": "////"}
        ax.patch.set(**hatched)
        handles += ax.fill([], [], label="unknown: unresolved starts", **hatched)
    if {across, up} == {"p", "q"}:
        low, high = max(x[0], 1 - y[-1]), min(x[-1], 1 - y[0])
        if low < high:
            ends = [low, high], [1 - low, 1 - high]
            ax.plot(*ends, color="#555555", linewidth=3.0)
            ax.plot(*ends, color="#ffffff", linestyle="--")
            handles += [Line2D([], [], color="#555555", linestyle="--", label="$p + q$ = 1")]
    return canvas.complete(_title(record), handles)


def _draw_curve(record: xr.Dataset, canvas: Canvas, varied: str) -> Any:
    """Draw the share of every end over one varied argument."""
    ax = canvas.axes()
    draw_shares(record, ax, varied)
    ax.set_xlabel(name_of(record, varied))
    intervals = ["with 95 % Wilson intervals"] * ("share_low" in record)
    return canvas.complete(_title(record) + intervals, ax.get_legend_handles_labels()[0])


def _draw_points(record: xr.Dataset, canvas: Canvas, show: str) -> Any:
    """Draw starts of a file or a cloud where they lie, marked by their ends or hitting times."""
    ax = canvas.axes()
    names = [str(name).removeprefix("start_") for name in record if str(name).startswith("start_")]
    plane = axes_of(record)
    names = list(plane) if set(plane) <= set(names) else (names * 2)[:2]
    x, y = (record[f"start_{name}"].to_numpy() for name in names)
    labels = record["label"].to_numpy()
    size = 12.0 if labels.size > 2000 else 26.0
    present = [name for name in meanings(record["label"]) if record.attrs[f"points_{name}"]]
    timed = _has_time(record["hitting_time"].to_numpy()) if show != "label" else labels < 0
    if timed.any():
        drawn = ax.scatter(
            x[timed], y[timed], s=size, c=record["hitting_time"].to_numpy()[timed], cmap="viridis",
            norm=_time_norm(record), linewidths=0, rasterized=True,
        )  # fmt: skip
        canvas.figure.colorbar(drawn, ax=ax, label=_time_text(record))
    counts = {}
    for name in present:
        here = (labels == code_of(record["label"], name)) & ~timed
        counts[name] = int(here.sum())
        style: dict[str, Any] = {"facecolor": FILL[name], "edgecolor": INK[name], "linewidth": 0.6}
        many = labels.size > 2000
        ax.scatter(x[here], y[here], s=size, rasterized=many, marker=MARKER[name], **style)
    across, up = (name_of(record, name, f"start_{name}") for name in names)
    ax.set(xlabel=across, ylabel=up)
    named, others = most_frequent(counts)
    handles = basin_dots(named, basin_names(record))
    if others:
        handles += [Line2D([], [], linestyle="none", label=f"{len(others)} more ends")]
    return canvas.complete(_title(record), handles)


def _time_norm(record: xr.Dataset) -> LogNorm:
    """The logarithmic scale of colours from the shortest hitting time to the longest."""
    values = record["hitting_time"].to_numpy()
    values = values[_has_time(values)]
    low, high = (values.min(), values.max()) if values.size else (1.0, 10.0)
    return LogNorm(low, max(high, low * 1.01))


def _time_text(record: xr.Dataset) -> str:
    """The label of the bar of colours of hitting times."""
    left = record["hitting_time"].attrs.get("fraction")
    return "gradient-flow time until the excess loss has fallen " + (
        f"to {left:g} of its start" if left is not None else "away"
    )


def _draw_slices(
    record: xr.Dataset, ax: Axes | None, dims: list[str], norm: LogNorm | None, look: Look
) -> Any:
    """Draw up to six slices of a grid over three coordinates, a panel each; return the figure."""
    if ax is not None:
        raise InputError("a grid over three coordinates has several slices; omit ax, or select one")
    across, up = _directions(record, dims)
    slicing = next(name for name in dims if name not in (across, up))
    values = record[slicing].to_numpy()
    chosen = np.unique(np.linspace(0, len(values) - 1, _PANELS).round().astype(int))
    columns = min(2 if (look.get("width") or 9) < 5 else 3, len(chosen))
    rows = -(-len(chosen) // columns)
    canvas = Canvas(None, 3.4 * columns, 3.2 * rows, look)
    height = canvas.figure.get_figheight()
    panels = canvas.figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    handles: dict[object, Any] = {}
    for panel, at in zip(panels.flat, chosen, strict=False):
        for handle in _draw_cells(record.isel({slicing: at}), panel, across, up, norm):
            handles.setdefault(handle.get_label(), handle)
        panel.set_title(f"{symbol(slicing)} = {values[at]:.3g}", fontsize="medium")
        for axis, room in ((panel.xaxis, canvas.width / columns), (panel.yaxis, height / rows)):
            axis.label.set_text(wrapped(axis.label.get_text(), room - 0.3, "medium"))
    for panel in panels.flat[len(chosen) :]:
        panel.set_axis_off()
    for panel in panels.flat:
        panel.label_outer()
    if norm is not None:
        canvas.figure.set_figheight(height + canvas.narrow)  # for the bar below
        side, colours = "bottom" if canvas.narrow else "right", ScalarMappable(norm, "viridis")
        canvas.figure.colorbar(colours, ax=panels, label=_time_text(record), location=side)
    return canvas.complete(_title(record), list(handles.values()))


def _directions(record: xr.Dataset, dims: list[str]) -> tuple[str, str]:
    """The horizontal and the vertical dimension: the plane's axes, where the grid has both."""
    plane = axes_of(record)
    return plane if set(plane) <= set(dims) else (dims[1], dims[0])


def _draw_cells(
    record: xr.Dataset, ax: Axes, across: str, up: str, norm: LogNorm | None
) -> list[Any]:
    """Draw basins, and with ``norm`` the hitting times; return a legend's entries."""
    if norm is None:
        return draw_basins(record, ax, (across, up))
    times = record["hitting_time"].transpose(up, across).to_numpy()
    handles = draw_basins(record, ax, (across, up), hidden=_has_time(times))
    x, y = (edges(record[name].to_numpy(), name) for name in (across, up))
    ax.pcolormesh(x, y, np.where(_has_time(times), times, np.nan), cmap="viridis", norm=norm,
                  rasterized=True)  # fmt: skip
    return handles


def _has_time(times: np.ndarray) -> np.ndarray:
    """Mask of the starts that learn after a finite time, which a colour shows."""
    return np.isfinite(times) & (times > 0)


def _title(record: xr.Dataset) -> list[str]:
    """The lines of a scan's title: the share that reaches the first end, the model, remarks."""
    a = record.attrs
    counts = {str(name): int(a[f"points_{name}"]) for name in record["basin"].to_numpy()}
    best, total = [*counts, ""][1], sum(counts.values())  # the first code is what is unresolved
    known = best in ("global_minimum", "")
    reached = "the global minima" if known else basin_names(record)[best]
    of_model, *remarks = about(record)
    steps = [optimizer_caption(record)] if "optimizer" in a else []
    reach = f"{percent(counts.get(best, 0), total)} of {total:,} starts reach {reached}"
    return [reach, of_model, *steps, *remarks]
