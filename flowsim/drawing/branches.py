"""Branches of critical points over a parameter, and curves of folds over two."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from flowsim.drawing.curves import draw_shares
from flowsim.drawing.style import (
    INK,
    LINE,
    MARKER,
    SOFT,
    Canvas,
    Look,
    about,
    name_of,
    symbol,
    wrapped,
)
from flowsim.errors import InputError

#: Marker of every kind of event.
_EVENTS = {
    "fold": "o", "pitchfork": "D", "transcritical": "X", "flip": "P", "hopf": "*",
    "neimark-sacker": "*",
}  # fmt: skip
#: Lines of curves of every kind.
_CURVES = {"fold": "solid", "flip": "dashed", "pitchfork": "dashdot", "transcritical": "dotted"}
#: Events of one kind that are named by their values in the legend.
_NAMED = 3


def draw_continuation(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw a record of ``continuation``: branches, shares of ends, and distances if it has them.

    Stable branches are solid, the others dashed; events have markers. On given axes only branches
    are drawn.
    """
    parameter = str(record.attrs["parameter"])
    more = [
        x for x in record.values() if "drawn_as" in x.attrs and {*x.dims} == {parameter, "basin"}
    ]
    heights = [3.0, 1.6, *[1.6] * len(more)]
    canvas = Canvas(ax, 7.0, 6.0 + 1.4 * len(more), look)
    if ax is not None:
        handles = _draw_branches(record, ax, parameter)
        ax.set_xlabel(_words(parameter))
        return canvas.complete([], handles)
    panels = canvas.figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    above, middle, *further = panels
    handles = _draw_branches(record, above, parameter)
    draw_shares(record, middle, parameter)
    shares = middle.get_legend_handles_labels()[0]
    for line in shares:  # the loss of an end changes along the parameter
        line.set_label(str(line.get_label()).partition(" (loss")[0])
    values, place = record[parameter].to_numpy(), f"end_{_coordinate_to_draw(record)}"
    for name in map(str, record["basin"].to_numpy()):
        own = record.sel(basin=name)
        mark = {"color": INK[name], "marker": MARKER[name], "markersize": 4,
                "markevery": max(1, len(values) // 10)}  # fmt: skip
        if place in own:
            above.plot(values, own[place], linestyle="none", **mark)
        for panel, variable in zip(further, more, strict=True):
            if np.isfinite(height := variable.sel(basin=name)).any():
                panel.plot(values, height.where(np.isfinite), linewidth=1.2, **mark)
    for panel, variable in zip(further, more, strict=True):
        panel.set_ylim(bottom=0)
        panel.set_ylabel(wrapped(variable.attrs["legend"], 1.3, "medium"))
    panels[-1].set(xlabel=_words(parameter), xlim=(values[0], values[-1]))
    lines = [f"Critical points and basins over {_words(parameter)}", *about(record)]
    if left_out := record.attrs.get("left_out"):
        lines.append(f"Not drawn: {left_out}")
    return canvas.complete(lines, [*handles, *shares])


def _words(parameter: str) -> str:
    """A parameter as a figure writes it: a letter as mathematics, a longer name as words."""
    return symbol(parameter) if len(parameter) == 1 else parameter.replace("_", " ")


def _draw_branches(record: xr.Dataset, ax: Axes, parameter: str) -> list[Any]:
    """Draw critical points over the parameter and markers of events; return a legend's entries."""
    name = _coordinate_to_draw(record)
    place, value = record[f"branch_{name}"].to_numpy(), record["branch_value"].to_numpy()
    number = record["branch_number"].to_numpy()
    unstable = record["branch_unstable"].to_numpy() > 0
    for i in np.unique(number):
        x, y, open_ = (column[number == i] for column in (value, place, unstable))
        for stable, style in ((True, "solid"), (False, "dashed")):
            edge = open_ != stable
            # a piece reaches as far as the point where its stability changes
            shown = edge | np.append(edge[1:], False) if not stable else edge
            ax.plot(x, np.where(shown, y, np.nan), color=LINE if stable else SOFT, linestyle=style,
                    linewidth=1.5 if stable else 1.0)  # fmt: skip
    names = "stable equilibria", "unstable equilibria"
    if "optimizer" in record.attrs:
        names = "stable fixed or periodic points", "unstable fixed or periodic points"
    elif record.attrs.get("gradient_flow", True):
        names = "minima", "saddles and maxima"
    handles = [
        Line2D([], [], color=LINE, linewidth=1.5, label=names[0]),
        Line2D([], [], color=SOFT, linestyle="dashed", linewidth=1.0, label=names[1]),
    ]
    kinds = record["event_kind"].to_numpy()
    for kind in dict.fromkeys(map(str, kinds)):
        at = record["event_value"].to_numpy()[kinds == kind]
        where = record[f"event_{name}"].to_numpy()[kinds == kind]
        ax.plot(at, where, _EVENTS[kind], color=INK["saddle"], markersize=5.5,
                markeredgecolor="white", markeredgewidth=0.6, zorder=4)  # fmt: skip
        several = np.unique(at.round(6))
        texts = [f"{x:.6g}".replace("-", "−") for x in several[:_NAMED]]
        more = f" and {len(several) - _NAMED} more" if len(several) > _NAMED else ""
        label = f"{kind.capitalize()} at {_words(parameter)} = {', '.join(texts)}{more}"
        handles.append(Line2D([], [], color=INK["saddle"], marker=_EVENTS[kind], linestyle="none",
                              markersize=5.5, label=label))  # fmt: skip
    ax.set_ylabel(name_of(record, name))
    return handles


def _coordinate_to_draw(record: xr.Dataset) -> str:
    """The first coordinate that differs among the points of branches; the first if none does."""
    own = {"number", "period", "value", "unstable"}
    names = [str(name).removeprefix("branch_") for name in record if str(name)[:7] == "branch_"]
    coordinates = [name for name in names if name not in own]
    if not record.sizes["branch_point"]:
        raise InputError("the record has no branches")
    spread = {name: float(np.ptp(record[f"branch_{name}"].to_numpy())) for name in coordinates}
    return next((name for name in coordinates if spread[name] > 1e-6), coordinates[0])


def draw_fold_curves(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw a record of ``fold_curves``: curves in the plane of two parameters, and their cusps."""
    canvas = Canvas(ax, 7.0, 4.6, look)
    ax = canvas.figure.subplots() if ax is None else ax
    first, second = (_words(str(record.attrs[name])) for name in ("parameter", "second"))
    kinds = zip(record["curve_kind"].to_numpy(), record["curve_period"].to_numpy(), strict=True)
    number, handles = record["curve_number"].to_numpy(), {}
    x, y = record["curve_value"].to_numpy(), record["curve_second"].to_numpy()
    for i, (kind, period) in enumerate(kinds):
        times = "" if period == 1 else f" of period {period}"
        color = LINE if period == 1 else SOFT
        (handles[kind, period],) = ax.plot(
            x[number == i], y[number == i], color=color, linestyle=_CURVES[str(kind)],
            linewidth=1.5, label=f"{str(kind).capitalize()}{times}",
        )  # fmt: skip
    cusps = record["cusp_value"].to_numpy(), record["cusp_second"].to_numpy()
    if len(cusps[0]):
        (handles["cusp", 0],) = ax.plot(
            *cusps, "o", color=INK["saddle"], markersize=5.5, markeredgecolor="white",
            markeredgewidth=0.6, zorder=4, label="Cusp",
        )  # fmt: skip
    ax.set(xlim=record.attrs["range"], ylim=record.attrs["second_range"],
           xlabel=first, ylabel=second)  # fmt: skip
    title = f"Where critical points change over {first} and {second}"
    return canvas.complete([title, *about(record)], list(handles.values()))
