"""Drawing the plane of the induction model. Knows arrays and matplotlib only."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flowsim.drawing.plane import draw_basins
from flowsim.drawing.style import (
    BASINS,
    INK,
    LINE,
    SOFT,
    add_legend,
    chain_caption,
    figure_of,
    model_caption,
    own_axes,
    percent,
    sentence,
)

#: What the legend calls both ends, by its usual words.
_ENDS = {
    BASINS["global_minimum"]: "learns to look at what followed before",
    BASINS["local_minimum"]: "creeps along the other valley (own symbol, β < 0)",
}
_VALLEY, _CONTOUR = "#2a7f62", "#8a8a8a"


def draw_induction(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """Basins, loss contours, plateau, valleys, separatrix, flow and orbits.

    Args:
        record: from ``induction_record`` or read back from its file.
        ax: axes to draw on; by default those of a new figure.
    """
    given = ax is not None
    ax = own_axes(ax, 7.4, 7.0)
    handles = draw_basins(record, ax, "alpha", "beta")
    for handle in handles:
        handle.set_label(_ENDS.get(str(handle.get_label()), handle.get_label()))
    loss, a = record["loss"].to_numpy(), record.attrs
    levels = np.unique(np.quantile(loss, np.linspace(0.02, 0.9, 14)))
    ax.contour(record["alpha"], record["beta"], loss, levels, colors=_CONTOUR, linewidths=0.5)
    ax.quiver(
        record["arrow_alpha"], record["arrow_beta"], record["direction_alpha"],
        record["direction_beta"], angles="xy", pivot="mid", scale=38, width=0.002,
        color="#6a6a6a", alpha=0.7,
    )  # fmt: skip
    handles += _lines(record, ax)
    total = record["label"].size
    ax.set_title(
        f"{sentence(model_caption(record))}, {chain_caption(record)}\n"
        f"loss {a['plateau_loss']:.4f} on the plateau, {a['bayes_loss']:.4f} of Bayes; "
        f"{percent(int(a['cells_global_minimum']), total)} of the window learns",
        fontsize=10.5,
    )
    add_legend(ax, handles, given)
    return figure_of(ax)


def _lines(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Plateau, valleys, separatrix, saddle, the end inside the window, and orbits."""
    x, y = ax.get_xlim(), ax.get_ylim()
    alpha = record["alpha"]
    ax.plot(record["orbit_alpha"], record["orbit_beta"], color=SOFT, linewidth=0.9)
    ax.plot(record["orbit_alpha"][0], record["orbit_beta"][0], "o", color=SOFT, markersize=2.8)
    handles: list[Artist] = [
        *ax.plot(x, (0, 0), color=LINE, linestyle="--", linewidth=1.1,
                 label="plateau β = 0, the in-context unigram"),
    ]  # fmt: skip
    for name in ("valley_below", "valley_above"):
        (line,) = ax.plot(alpha, record[name], color=_VALLEY, linewidth=1.6, linestyle=":",
                          label="valley: least loss at this α")  # fmt: skip
    handles.append(line)
    borders = ax.plot(record["separatrix_alpha"], record["separatrix_beta"], color=LINE, lw=1.8)
    if borders:
        borders[0].set(label="separatrix")
        handles.append(borders[0])
        handles += ax.plot(record["saddle"], np.zeros(record.sizes["saddles"]), "s", color="white",
                           markeredgecolor=LINE, markersize=6, linestyle="none",
                           label="saddle")  # fmt: skip
    share = record.attrs.get("global_minimum_share", 0.0)
    at = np.log(share) - np.log1p(-share) if 0 < share < 1 else np.inf
    if x[0] <= at <= x[1]:
        handles += ax.plot(
            [at], [record.attrs["global_minimum_beta"]], "*", color=INK["global_minimum"],
            markersize=12, linestyle="none", label="global minimum",
        )  # fmt: skip
    handles.append(Line2D([], [], color=SOFT, lw=0.9, marker="o", markersize=2.8, markevery=2,
                          label="orbit from its start (dot)"))  # fmt: skip
    handles.append(Line2D([], [], color=_CONTOUR, lw=0.5, label="level of the loss"))
    ax.set(xlim=x, ylim=y)
    return handles
