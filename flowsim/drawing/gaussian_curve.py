"""Drawing a Gaussian record: probability against σ. Knows arrays and matplotlib only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flowsim.drawing.style import (
    INK,
    SOFT,
    add_legend,
    captions,
    data_of,
    figure_of,
    optimizer_caption,
    own_axes,
    sentence,
    title_of,
)

_EVENT = {False: "reaching the global minima", True: "not reaching the global minima"}


def draw_gaussian(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """One record of ``gaussian_record``: both axes logarithmic, so that small σ is visible.

    Where nearly all small starts reach the global minima, the probability not to is drawn.

    Args:
        record: from ``gaussian_record`` or read back from its file.
        ax: axes to draw on; by default those of a new figure.
    """
    given = ax is not None
    ax = own_axes(ax, 7.0, 5.2)
    draw_probability(record, ax)
    lines = [f"{title_of(record)}, Gaussian starts", *map(sentence, data_of(record))]
    ax.set_title("\n".join(lines), fontsize=10.5)
    add_legend(ax, ax.get_legend_handles_labels()[0], given, columns=1)
    return figure_of(ax)


def draw_probability(record: xr.Dataset, ax: Axes) -> None:
    """The integral as a curve, the scan as points with intervals, the limits in σ dotted."""
    sigma, a, words = record["sigma"].to_numpy(), record.attrs, captions(record)
    known = "integral" in record
    small, large = (a["limit_small_sigma"], a["limit_large_sigma"]) if known else (0.5, 0.5)
    flip = bool(small == 1 and large < 1)  # the probability of the rarer end
    other = words.get("integral_of")  # whose basins are integrated over, if not its own

    def of(name: str) -> np.ndarray:
        values = record[name].to_numpy()
        return 1 - values if flip else values

    fraction = of("fraction")
    low, high = sorted((of("fraction_low"), of("fraction_high")), key=lambda v: float(v.sum()))
    if known:
        whose = f" of the {other}" if other else ""
        ax.plot(
            sigma, of("integral"), color=INK["global_minimum"], linewidth=1.8,
            linestyle="dashed" if other else "solid",
            label=f"integral over the analytic basin{whose}",
        )  # fmt: skip
    # the interval of a fraction of 0 or 1 is cut there only within rounding
    reach = np.maximum(np.stack([fraction - low, high - fraction]), 0)
    points: dict[str, Any] = {"color": INK["local_minimum"], "fmt": "o", "markersize": 3.5}
    ax.errorbar(
        sigma, fraction, reach, capsize=2, zorder=3, linewidth=1.0,
        label=f"gradient flow of {a['samples']} starts per $\\sigma$, 95 % interval", **points,
    )  # fmt: skip
    if "learned" in record:
        _draw_learned(record, ax, of)
    floor = 0.1 / float(a["samples"])
    if 0 < small < 1 or small == large:
        ax.set_ylim(-0.04, 1.08)
    else:
        ax.set_yscale("log")
        ax.set_ylim(floor, 2.0)
        none = fraction <= 0
        ax.plot(sigma[none], high[none], "v", color=INK["local_minimum"], markersize=4,
                label="none of them: end of the interval" if none.any() else None)  # fmt: skip
    for limit, text in ((small, "0"), (large, "\\infty")):
        if known and not other and (small == large or limit not in (0, 1)):
            when = "any $\\sigma$" if small == large else f"limit as $\\sigma \\to {text}$"
            _mark_limit(ax, 1 - limit if flip else limit, when)
    ax.set_xscale("log")
    *first, last = (f"${name}$" for name in np.atleast_1d(a.get("coordinates", "theta")))
    usual = f"{', '.join(first)} and {last}" if first else last
    ax.set_xlabel(f"standard deviation $\\sigma$ of {words.get('starts', usual)}")
    ax.set_ylabel(f"probability of {_EVENT[flip]}")


def _draw_learned(record: xr.Dataset, ax: Axes, of: Callable[[str], np.ndarray]) -> None:
    """The share of the same starts that an optimizer brings to the bigram, or does not."""
    learned = of("learned")
    ends = np.sort(np.stack([of("learned_low"), of("learned_high")]), axis=0)
    reach = np.maximum(np.stack([learned - ends[0], ends[1] - learned]), 0)
    ax.errorbar(
        record["sigma"].to_numpy(), learned, reach, capsize=2, zorder=3, linewidth=1.0,
        color=INK["unresolved"], fmt="s", markersize=3.5, markerfacecolor="white",
        label=f"the same starts trained, 95 % interval:\n{optimizer_caption(record)}",
    )  # fmt: skip


def _mark_limit(ax: Axes, value: float, text: str) -> None:
    """A dotted line with its value, above it at the left, which the curve leaves free."""
    ax.axhline(value, color=SOFT, linewidth=1.2, linestyle=":", zorder=1)
    ax.annotate(
        f"{text}: {value:g}", (0.02, value), xycoords=("axes fraction", "data"),
        xytext=(0, 4), textcoords="offset points", ha="left", va="bottom", color=SOFT, fontsize=9,
    )  # fmt: skip
