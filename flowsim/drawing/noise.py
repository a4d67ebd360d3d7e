"""Chances of the ends under noise: a map over a plane, or curves over the temperature."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from flowsim.drawing.curves import draw_shares
from flowsim.drawing.style import (
    LINE,
    Canvas,
    Look,
    about,
    edges,
    name_of,
    percent,
)
from flowsim.records.attributes import axes_of


def draw_noise(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw a record of ``end_probabilities`` as a map over a plane, or as curves over temperatures.

    At one temperature over a plane: the chance of each cell to end elsewhere than without noise.
    Else: the share of each end over the temperature, of all starts together, with its interval.
    """
    grid = record["label"].ndim == 2 and {*axes_of(record)} == {*record["label"].dims}
    if grid and record.sizes["temperature"] == 1:
        return _draw_plane(record, Canvas(ax, 7.0, 5.9, look))
    return _draw_curves(record, Canvas(ax, 7.0, 4.4, look))


def _draw_plane(record: xr.Dataset, canvas: Canvas) -> Any:
    """Draw the chance of every cell to end elsewhere than without noise, at one temperature."""
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
    return canvas.complete([*lines, *about(record)], [line] if len(codes) else [])


def _draw_curves(record: xr.Dataset, canvas: Canvas) -> Any:
    """Draw the share of every end over the temperature."""
    ax = canvas.axes()
    draw_shares(record, ax, "temperature", "total_share")
    warmth = record["temperature"]
    if (warmth > 0).all() and len(warmth) > 1:
        ax.set_xscale("log")
    ax.set(xlabel="temperature $T$ of the noise, in nats", ylabel="share of the paths")
    lines = [f"Noise for the time {record.attrs['time']:g}, with 95 % Wilson intervals"]
    return canvas.complete([*lines, *about(record)], ax.get_legend_handles_labels()[0])
