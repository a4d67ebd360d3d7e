"""Drawing where an optimizer takes the starts of the plane, with the flow's boundary over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flowsim.drawing.style import (
    FILL,
    INK,
    LINE,
    add_legend,
    chain_caption,
    code_of,
    edges,
    figure_of,
    model_caption,
    name_of,
    optimizer_caption,
    own_axes,
    percent,
    sentence,
)

#: Colour, hatch and its colour of every outcome, in the order of a legend.
_OUTCOMES: dict[str, tuple[str, str, str]] = {
    "learned": (FILL["global_minimum"], "", LINE),
    "trapped": (FILL["local_minimum"], "///", "#ffffff"),
    "plateau": ("#f6d9bd", "...", "#c25700"),
    "between": ("#f3e27a", "", LINE),
    "above": ("#a8a8a8", "", LINE),
    "equal": ("#ffffff", "", LINE),
    "periodic": ("#cdb9df", "xx", "#7a4fa3"),
    "diverged": ("#000000", "", LINE),
}
_TEXTS = {
    "learned": "learns the bigram",
    "trapped": "trapped at the unigram for good",
    "plateau": "at the unigram after {steps} steps",
    "between": "between unigram and bigram after {steps} steps",
    "above": "loss above the unigram's after {steps} steps",
    "equal": "unigram and bigram have the same loss",
    "periodic": "large steps go round in a circle",
    "diverged": "diverges",
}
_FLOW: dict[str, Any] = {"color": LINE, "linewidth": 1.7, "linestyle": (0, (4, 2.5)), "zorder": 4}
_MINIMA: dict[str, Any] = {"color": INK["global_minimum"], "linewidth": 2.2}


def draw_trained(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """A portrait of an optimizer's basins, or a scan of them over the plane.

    Args:
        record: from ``trained_portrait``, or a scan with an optimizer over a grid in e and w.
        ax: axes to draw on; by default those of a new figure.
    """
    given = ax is not None
    ax = own_axes(ax, 7.0, 7.4)
    handles = draw_trained_layers(record, ax)
    ax.set_title("\n".join(_title(record)), fontsize=10.5)
    add_legend(ax, handles, given)
    return figure_of(ax)


def draw_trained_layers(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Cells, the flow's boundary and the global minima on given axes; entries of a legend."""
    found = outcomes(record)
    x, y = edges(record["w"].to_numpy(), "w"), edges(record["e"].to_numpy(), "e")
    names = list(_OUTCOMES)
    codes = np.zeros(found.shape, dtype=int)
    for i, name in enumerate(names):
        codes[found == name] = i
    ax.imshow(
        codes, origin="lower", extent=(x[0], x[-1], y[0], y[-1]), aspect="auto", vmin=-0.5,
        vmax=len(names) - 0.5, cmap=ListedColormap([_OUTCOMES[name][0] for name in names]),
        interpolation="nearest", rasterized=True,
    )  # fmt: skip
    handles: list[Artist] = []
    for name, (colour, hatch, ink) in _OUTCOMES.items():
        if not (found == name).any():
            continue
        if hatch:
            cells = [np.repeat(values, 2)[1:-1] for values in (x, y)]
            on = (found == name).repeat(2, axis=0).repeat(2, axis=1)
            drawn = ax.contourf(*cells, on, levels=[0.5, 1.5], colors="none", hatches=[hatch])
            drawn.set(edgecolor=ink, linewidth=0)
        text = _TEXTS[name].format(steps=record.attrs["steps"])
        patch = Patch(facecolor=colour, hatch=hatch, linewidth=0, label=text)
        patch.set_edgecolor(ink)
        handles.append(patch)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xlabel=name_of("w"), ylabel=name_of("e"))
    return [*handles, *_draw_lines(record, ax)]


def outcomes(record: xr.Dataset) -> np.ndarray:
    """What became of every cell, by name, over (e, w)."""
    cells = record[["label", "status", "on_plateau_at_end", "open_share"]].transpose("e", "w")
    label, status = cells["label"].to_numpy(), cells["status"].to_numpy()
    found = np.full(label.shape, "between", dtype=object)
    found[cells["open_share"].to_numpy() > 1] = "above"
    found[np.isnan(cells["open_share"].to_numpy())] = "equal"  # p + q = 1
    found[cells["on_plateau_at_end"].to_numpy() == 1] = "plateau"
    found[label == code_of(cells["label"], "global_minimum")] = "learned"
    found[label == code_of(cells["label"], "local_minimum")] = "trapped"
    for name, codes in (("periodic", ("periodic",)), ("diverged", ("diverged", "failed"))):
        for code in codes:
            found[status == code_of(cells["status"], code)] = name
    return found


def _draw_lines(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """The boundary of the flow's basin, and the global minima."""
    handles: list[Artist] = []
    if "boundary_w" in record and record.sizes.get("vertex", 0):
        points = np.stack([record["boundary_w"].to_numpy(), record["boundary_e"].to_numpy()], -1)
        curve = record["boundary_curve"].to_numpy()
        curves = [points[curve == number] for number in np.unique(curve)]
        ax.add_collection(LineCollection(curves, **_FLOW), autolim=False)
        handles.append(Line2D([], [], label="boundary of the basin of gradient flow", **_FLOW))
    if "minima_e" in record and np.isfinite(record["minima_e"]).any():
        w, e = record["curve_w"].to_numpy(), record["minima_e"].to_numpy()
        for sign in (1, -1):
            ax.plot(w, sign * e, **_MINIMA)
        handles.append(Line2D([], [], label="global minima", **_MINIMA))
    return handles


def _title(record: xr.Dataset) -> list[str]:
    found, a = outcomes(record), record.attrs
    held = [f"${name}$ = {a[name]:g}" for name in ("a", "b") if name in a]
    shares = f"learns from {percent(found == 'learned')} of the window"
    if "flow_label" in record:
        flow = record["flow_label"].to_numpy() == code_of(record["flow_label"], "global_minimum")
        shares += f", gradient flow from {percent(flow)}"
    return [
        optimizer_caption(record),
        f"{sentence(', '.join([model_caption(record), *held]))}, starts lifted from the plane",
        chain_caption(record),
        shares,
    ]
