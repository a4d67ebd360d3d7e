"""Curves of a comparison over time: losses, and how far training is from its prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from flowsim.drawing.style import AGREE, DIFFER, INK, SOFT, label_names

#: Loss curves drawn of each outcome.
_CURVES = 6


def draw_losses(record: xr.Dataset, ax: Axes) -> None:
    """Loss curves of training and of the reduced orbits, for some starts of each outcome."""
    x, names = _horizontal(record, ax), label_names(record["outcome"])
    for name in ("global_minimum", "local_minimum", "unresolved"):
        at = np.flatnonzero(names == name)
        if not len(at):
            continue
        at = at[np.unique(np.linspace(0, len(at) - 1, min(_CURVES, len(at))).astype(int))]
        if "reduced_loss" in record:
            values = record["reduced_loss"].to_numpy()[:, at]
            ax.plot(x, values, color=INK[name], linewidth=0.8, linestyle="--")
        for values in record["loss"].to_numpy()[:, at].T:
            known = np.flatnonzero(np.isfinite(values))
            ax.plot(x, values, color=INK[name], linewidth=1.1, alpha=0.8)
            ax.plot(x[known[-1:]], values[known[-1:]], "o", color=INK[name], markersize=3.5)
    draw_levels(record, ax)
    ax.set_title(
        "loss of training (full line, dot: its end)\nand of the reduced orbit (dashed)", fontsize=9
    )


def draw_levels(record: xr.Dataset, ax: Axes) -> None:
    """The unigram and the bigram loss as dotted lines, and limits around them."""
    attrs = record.attrs
    if "entropy_rate" in attrs:
        low, high = float(attrs["entropy_rate"]), float(attrs["stationary_entropy"])
        for value, text in ((high, "unigram"), (low, "bigram")):
            ax.axhline(value, color=SOFT, linewidth=0.8, linestyle=":")
            above = value == high  # beside the curves, which come from above and end at the levels
            ax.annotate(
                f"{text} {value:.4f}", (0.99, value), xycoords=("axes fraction", "data"),
                xytext=(0, 3 if above else -4), textcoords="offset points", ha="right",
                va="bottom" if above else "top", fontsize=8, color=SOFT,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )  # fmt: skip
        gap = max(high - low, 1e-3)
        ax.set_ylim(low - 0.3 * gap, high + 1.5 * gap)
    ax.set_ylabel("loss (nats)")


def draw_spread(record: xr.Dataset, ax: Axes, variable: str, title: str) -> None:
    """Median and central 80 % over the runs still on, by whether they agree in the end."""
    ax.set_title(title, fontsize=9)
    if variable not in record:
        ax.set_axis_off()
        ax.text(0.5, 0.5, "not in this record", ha="center")
        return
    x, values = _horizontal(record, ax), record[variable].to_numpy()
    if variable == "distance":  # training and orbit start at the same point, to rounding
        x, values = x[1:], values[1:]
    positive = values[np.isfinite(values) & (values > 0)]
    floor = float(positive.min()) if positive.size else 1e-17  # zeros have a place on the axis
    agree = label_names(record["predicted"]) == label_names(record["outcome"])
    styles: tuple[tuple[np.ndarray, dict[str, Any]], ...] = (
        (agree, {"color": AGREE}),
        (~agree, {"color": DIFFER, "linestyle": "--"}),
    )
    for on, style in styles:
        kept = np.isfinite(values[:, on]).sum(axis=1) > 0
        if not kept.any():
            continue
        part = np.where(np.isfinite(values[kept][:, on]), values[kept][:, on], np.nan)
        low, middle, high = np.maximum(np.nanquantile(part, [0.1, 0.5, 0.9], axis=1), floor)
        ax.fill_between(x[kept], low, high, color=style["color"], alpha=0.2, linewidth=0)
        ax.plot(x[kept], middle, linewidth=1.4, **style)
    ax.set_yscale("log")
    if not positive.size:
        ax.set_yticks([floor], ["0"], minor=False)
        ax.text(0.5, 0.6, "zero throughout", ha="center", transform=ax.transAxes)


def _horizontal(record: xr.Dataset, ax: Axes) -> np.ndarray:
    """Time, on a scale that is linear first and logarithmic then, or steps."""
    if "time" in record.dims:
        x = record["time"].to_numpy()
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_xlabel("gradient-flow time")
    else:
        x = record["step"].to_numpy()
        ax.set_xlabel("step")
    ax.set_xlim(0, max(float(x[-1]), 1.0))
    return x
