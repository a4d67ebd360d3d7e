"""Drawing a comparison record: prediction beside outcome, and how the two part over time."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from flowsim.drawing.comparison_curves import draw_losses, draw_spread
from flowsim.drawing.style import (
    AGREE,
    DIFFER,
    FILL,
    INK,
    MARKER,
    add_legend,
    axes_of,
    basin_dots,
    captions,
    data_of,
    figure_of,
    label_names,
    name_of,
    new_figure,
)

_SHORT = {
    "global_minimum": "global",
    "local_minimum": "local",
    "saddle": "saddle",
    "unresolved": "unres.",
}
#: The same of SGD and AdamW, and the entries of their legend.
_AFTER_STEPS = {"global_minimum": "learned", "unresolved": "not yet"}
_LEARNED = {
    "global_minimum": "learned within {} steps",
    "unresolved": "not learned within {} steps",
}
_TRAINER = {"gd": "gradient descent", "flow": "gradient flow", "sgd": "SGD", "adamw": "AdamW"}


def draw_comparison(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """Prediction, outcome, table and curves of a comparison.

    Args:
        record: from ``compare`` or read back from its file.
        ax: axes to draw on, which then show the outcomes and where they differ from the
            prediction; by default a figure of six panels.
    """
    differ = Line2D([], [], color=DIFFER, marker="o", markersize=9, markerfacecolor="none",
                    linestyle="none", label="prediction and outcome differ")  # fmt: skip
    if ax is not None:
        draw_labels(record, ax, "outcome")
        draw_disagreements(record, ax)
        ax.set_title(_title(record), fontsize=10)
        add_legend(ax, [*_dots(record), differ], given=True)
        return figure_of(ax)
    figure = new_figure(12.0, 8.4)
    axes = figure.subplots(2, 3)
    draw_labels(record, axes[0, 0], "predicted")
    axes[0, 0].set_title(_predicted_by(record), fontsize=10)
    draw_labels(record, axes[0, 1], "outcome")
    draw_disagreements(record, axes[0, 1])
    axes[0, 1].set_title("found in training", fontsize=10)
    draw_confusion(record, axes[0, 2])
    names = ", ".join(str(name) for name in record["coordinate"].to_numpy())
    draw_losses(record, axes[1, 0])
    draw_spread(record, axes[1, 1], "distance", f"distance of ({names}) from the reduced orbit")
    family = captions(record).get("family", "model's family")
    draw_spread(record, axes[1, 2], "drift", f"relative distance from the {family}")
    figure.suptitle(_title(record), fontsize=11)
    lines: list[Artist] = [
        Line2D([], [], color=AGREE, label="runs as predicted: median, central 80 %"),
        Line2D([], [], color=DIFFER, linestyle="--", label="runs that end otherwise"),
    ]
    handles = [*_dots(record), differ, *lines]
    add_legend(axes[0, 0], handles, given=False, columns=4)
    return figure


def draw_labels(record: xr.Dataset, ax: Axes, variable: str) -> None:
    """Every start with the marker of its label."""
    across, up = axes_of(record)
    x, y = record[across].to_numpy(), record[up].to_numpy()
    names = label_names(record[variable])
    size = _marker_size(record)
    for name in FILL:
        on = names == name
        ax.scatter(x[on], y[on], s=size, c=FILL[name], marker=MARKER[name],
                   edgecolors=INK[name], linewidths=0.5)  # fmt: skip
    ax.set(xlabel=name_of(record, across), ylabel=name_of(record, up))


def draw_disagreements(record: xr.Dataset, ax: Axes) -> None:
    """A ring around every start whose outcome is known and not the predicted one."""
    predicted, outcome = label_names(record["predicted"]), label_names(record["outcome"])
    off = predicted != outcome
    if "predicted_by" not in record.attrs:  # else unresolved means: not learned within the steps
        off &= (predicted != "unresolved") & (outcome != "unresolved")
    x, y = (record[name].to_numpy() for name in axes_of(record))
    ax.scatter(x[off], y[off], s=2.2 * _marker_size(record), facecolors="none", edgecolors=DIFFER,
               linewidths=1.2)  # fmt: skip


def draw_confusion(record: xr.Dataset, ax: Axes) -> None:
    """The confusion table: counts, and each outcome's share of a prediction with its interval."""
    table, share = record["confusion"].to_numpy(), record["share"].to_numpy()
    labels = [str(name) for name in record["predicted_label"].to_numpy()]
    rows = [i for i in range(len(labels)) if table[i].sum()]
    columns = sorted({j for j in range(len(labels)) if table[:, j].sum()} | set(rows))
    after_steps = "predicted_by" in record.attrs
    short = _SHORT | (_AFTER_STEPS if after_steps else {})
    ax.set_axis_off()
    random = "share_low" in record  # where nothing was drawn at random, shares have no interval
    spans = np.full(table.shape, "", dtype=object)
    if random:
        ends = record["share_low"].to_numpy(), record["share_high"].to_numpy()
        spans[:] = [[f"\n{a:.0%} to {b:.0%}" for a, b in zip(*pair, strict=True)]
                    for pair in zip(*ends, strict=True)]  # fmt: skip
    cells = [[f"{table[i, j]}\n{share[i, j]:.1%}{spans[i, j]}" for j in columns] for i in rows]
    drawn = ax.table(
        cells,
        rowLabels=[f"predicted\n{short[labels[i]]}" for i in rows],
        colLabels=[f"found\n{short[labels[j]]}" for j in columns],
        cellLoc="center",
        bbox=Bbox.from_bounds(0.2, 0.3, 0.8, 0.62),
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8.5 if len(columns) < 4 else 7.5)
    a = record.attrs
    agreement = "no run is decided"
    if a["decided"]:
        agreement = f"agreement {a['agreement']:.1%} of {a['decided']} decided"
        if random:
            span = f"{a['agreement_low']:.1%} to {a['agreement_high']:.1%}"
            agreement += f"\n(95 % interval {span})"
    unresolved = f"unresolved: {a['unresolved_outcomes']} runs, "
    unresolved += f"{a['unresolved_predictions']} predictions"
    if after_steps:
        unresolved = f"after {a['steps']} steps; not finite: {a['unresolved_outcomes']} runs"
    ax.text(0.5, 0.1, f"{agreement}\n{unresolved}", ha="center", va="center", fontsize=9.5,
            transform=ax.transAxes)  # fmt: skip
    title = "starts, and share of each prediction"
    ax.set_title(title + (",\nwith 95 % intervals" if random else ""), fontsize=10)


def _predicted_by(record: xr.Dataset) -> str:
    """The title over the predictions."""
    if "predicted_by" in record.attrs:
        return f"predicted by {_TRAINER[record.attrs['trainer']]}'s reduced map"
    return f"predicted by the {record.attrs['model']} model"


def _dots(record: xr.Dataset) -> list[Artist]:
    """A legend's entries for the labels that occur."""
    dots = basin_dots(_present(record))
    if "predicted_by" in record.attrs:
        for dot, name in zip(dots, _present(record), strict=True):
            dot.set_label(_LEARNED.get(name, name).format(record.attrs["steps"]))
    return dots


def _present(record: xr.Dataset) -> list[str]:
    """The labels that occur, predicted or found."""
    found = {*label_names(record["predicted"]), *label_names(record["outcome"])}
    return [name for name in FILL if name in found]


def _marker_size(record: xr.Dataset) -> float:
    """Marker area in points², such that a grid's markers nearly touch."""
    across = record.attrs.get("columns") or np.sqrt(record.sizes["point"])
    down = record.attrs.get("rows") or across
    return float(np.clip((165 / max(across, down)) ** 2 * 0.5, 3.0, 60.0))


def _title(record: xr.Dataset) -> str:
    a = record.attrs
    where = {"attention": "attention's weights", "others": "all weights but attention's"}
    noise = f", noise {a['noise']:g} on " if a["noise"] else ""
    noise += where.get(str(a.get("noise_on")), "every weight") if noise else ""
    against = captions(record).get("short", f"the {a['model']} model{_shared(record)}")
    words = (
        f"{_TRAINER[a['trainer']]} of the full transformer, $d$ = {a['d']}, $N$ = {a['length']}"
        f"{noise}, against {against}"
    )
    return "\n".join([*data_of(record), words])


def _shared(record: xr.Dataset) -> str:
    """Coordinates beside the plane that are the same for all starts."""
    others = [name for name in map(str, record["coordinate"].to_numpy())
              if name not in axes_of(record)]  # fmt: skip
    values = {name: np.unique(record[name].to_numpy()) for name in others}
    same = [f", from ${name}$ = {x[0]:g}" for name, x in values.items() if len(x) == 1]
    return "".join(same)
