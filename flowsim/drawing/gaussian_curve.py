"""Drawing a Gaussian record: probability against σ. Knows arrays and matplotlib only."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flowsim.drawing.style import chain_caption

_INTEGRAL, _SCAN, _LIMIT = "#00537f", "#a33b00", "#4d4d4d"


def draw_gaussian(record: xr.Dataset) -> Figure:
    """A figure of one record of ``gaussian_record``; ``draw_probability`` draws on given axes."""
    figure = Figure(figsize=(7.0, 4.8), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    draw_probability(record, axes)
    axes.set_title(
        "Gaussian initialization that reaches the global minima\n"
        f"Markov chain {chain_caption(record)}"
    )
    axes.legend(loc="best", frameon=False, fontsize=9)
    return figure


def draw_probability(record: xr.Dataset, axes: Axes) -> None:
    """The integral as a curve, the scan as points with intervals, the limits in σ dotted."""
    sigma = record["sigma"].to_numpy()
    fraction = record["fraction"].to_numpy()
    low, high = (record[f"fraction_{side}"].to_numpy() for side in ("low", "high"))
    # the interval of a fraction of 0 or 1 is cut there only within rounding
    reach = np.maximum(np.stack([fraction - low, high - fraction]), 0)
    small, large = record.attrs["limit_small_sigma"], record.attrs["limit_large_sigma"]
    if small == large:
        _mark_limit(axes, large, "any $\\sigma$", right=True)
    else:
        _mark_limit(axes, small, "limit as $\\sigma \\to 0$", right=True)
        _mark_limit(axes, large, "limit as $\\sigma \\to \\infty$", right=False)
    axes.plot(
        sigma, record["integral"], color=_INTEGRAL, linewidth=1.8,
        label="integral over the analytic basin",
    )  # fmt: skip
    points: dict[str, Any] = {"color": _SCAN, "fmt": "o", "markersize": 3.5, "linewidth": 1.0}
    axes.errorbar(
        sigma, fraction, reach, capsize=2, zorder=3,
        label=f"gradient flow of {record.attrs['samples']} samples per $\\sigma$, 95 % interval",
        **points,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(-0.04, 1.04)
    axes.set_xlabel("standard deviation $\\sigma$ of $e$ and $w$")
    axes.set_ylabel("probability of the global minima")


def _mark_limit(axes: Axes, value: float, text: str, right: bool) -> None:
    """A dotted line with its value, at the end that the curve leaves free."""
    above = value <= 0.5
    axes.axhline(value, color=_LIMIT, linewidth=1.2, linestyle=":", zorder=1)
    axes.annotate(
        f"{text}: {value:g}",
        (0.99 if right else 0.01, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4 if above else -4),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom" if above else "top",
        color=_LIMIT,
        fontsize=9,
    )
