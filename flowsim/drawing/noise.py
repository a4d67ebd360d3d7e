"""Chances of the ends under noise: a map over a plane, or curves over the temperature."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from flowsim.drawing.style import (
    INK,
    LINE,
    MARKER,
    Canvas,
    Look,
    about,
    basin_names,
    edges,
    name_of,
    percent,
    plain,
    symbol,
)
from flowsim.records.attributes import axes_of, fixed_of, most_frequent


def draw_noise(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """One record of ``end_probabilities``.

    At one temperature over a plane: the chance of each cell to end elsewhere than without noise.
    Else: the share of each end over the temperature, of all starts together, with its interval.
    """
    grid = record["label"].ndim == 2 and {*axes_of(record)} == {*record["label"].dims}
    if grid and record.sizes["temperature"] == 1:
        return _draw_plane(record, Canvas(ax, 7.0, 5.9, look))
    return _draw_curves(record, Canvas(ax, 7.0, 4.4, look))


def _draw_plane(record: xr.Dataset, canvas: Canvas) -> Any:
    ax, (across, up) = canvas.axes(), axes_of(record)
    label = record["label"].transpose(up, across).to_numpy()
    share = record["share"].isel(temperature=0).transpose(up, across, "basin").to_numpy()
    leaves = 1 - np.take_along_axis(share, label[..., None].astype(int), axis=-1)[..., 0]
    x, y = (edges(record[name].to_numpy(), name) for name in (across, up))
    mesh = ax.pcolormesh(x, y, leaves, cmap="cividis", vmin=0, vmax=1, rasterized=True)
    canvas.figure.colorbar(mesh, ax=ax, label="chance to end elsewhere than without noise")
    places = [record[name].to_numpy() for name in (across, up)]
    codes = np.unique(label)[:-1]
    for code in codes:
        ax.contour(*places, label <= code, levels=[0.5], colors="#ffffff", linewidths=1.6)
    outline = [withStroke(linewidth=2.6, foreground=LINE)]
    line = Line2D([], [], color="#ffffff", linewidth=1.6, path_effects=outline)
    line.set_label("boundary without noise")
    ax.set(xlabel=name_of(record, across), ylabel=name_of(record, up))
    warmth = float(record["temperature"][0])
    lines = [f"Noise of temperature {warmth:g} for the time {record.attrs['time']:g}: "
             f"{percent(round(1e6 * float(leaves.mean())), 10**6)} end elsewhere"]  # fmt: skip
    return canvas.complete([*lines, *_about(record)], [line] if len(codes) else [])


def _draw_curves(record: xr.Dataset, canvas: Canvas) -> Any:
    ax = canvas.axes()
    names = [str(name) for name in record["basin"].to_numpy()]
    warmth, counts = record["temperature"].to_numpy(), record["total_count"].sum("temperature")
    named, others = most_frequent(dict(zip(names, counts.to_numpy(), strict=True)))
    words = basin_names(record)
    for name in named:
        own = record.sel(basin=name)
        ax.fill_between(warmth, own["total_share_low"], own["total_share_high"], color=INK[name],
                        alpha=0.2, linewidth=0)  # fmt: skip
        ax.plot(warmth, own["total_share"], color=INK[name], marker=MARKER[name], markersize=4,
                linewidth=1.4, label=plain(words[name]))  # fmt: skip
    if (warmth > 0).all() and len(warmth) > 1:
        ax.set_xscale("log")
    ax.set(xlabel="temperature $T$ of the noise, in nats", ylabel="share of the paths",
           ylim=(-0.02, 1.02))  # fmt: skip
    lines = [f"Noise for the time {record.attrs['time']:g}, with 95 % Wilson intervals"]
    lines += _about(record)
    lines += [f"{len(others)} more ends are not drawn"] if others else []
    return canvas.complete(lines, ax.get_legend_handles_labels()[0])


def _about(record: xr.Dataset) -> list[str]:
    fixed = [f"{symbol(name)} = {value:g}" for name, value in fixed_of(record.attrs).items()]
    return about(record, *fixed)
