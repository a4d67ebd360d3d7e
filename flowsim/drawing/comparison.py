"""Drawing a comparison record: prediction beside outcome, and how the two part over time."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from flowsim.drawing.style import (
    AGREE,
    DIFFER,
    FILL,
    INK,
    LINE,
    MARKER,
    SHORT,
    SOFT,
    TRAINERS,
    Canvas,
    Look,
    basin_dots,
    in_points,
    label_names,
    name_of,
    subtitle_of,
)
from flowsim.records.attributes import axes_of

#: Loss curves drawn of each outcome.
_CURVES = 6
#: Words in the table of SGD and AdamW, and the entries of their legend.
_AFTER_STEPS = {"global_minimum": "learned", "unresolved": "not yet"}
_LEARNED = {
    "global_minimum": "learned within {} steps",
    "unresolved": "not learned within {} steps",
}


def draw_comparison(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw a comparison in six panels; on given axes, or below 5 inches wide, the outcomes alone.

    Rings mark the starts whose outcome is not the predicted one.
    """
    differ = Line2D([], [], color=DIFFER, marker="o", markersize=9, markerfacecolor="none",
                    linestyle="none", label="prediction and outcome differ")  # fmt: skip
    if ax is not None or (look.get("width") or 12.0) < 5:
        canvas = Canvas(ax, 5.0, 4.5, look)
        draw_labels(record, canvas.axes(), "outcome")
        draw_disagreements(record, canvas.axes())
        return canvas.complete(_title(record), [*_dots(record), differ])
    canvas = Canvas(None, 12.0, 7.4, look)
    axes = canvas.figure.subplots(2, 3)
    draw_labels(record, axes[0, 0], "predicted")
    by = f"the {record.attrs['model']} model"
    if "predicted_by" in record.attrs:
        by = f"{TRAINERS[record.attrs['trainer']]}'s reduced map"
    axes[0, 0].set_title(f"predicted by {by}", fontsize="medium")
    draw_labels(record, axes[0, 1], "outcome")
    draw_disagreements(record, axes[0, 1])
    axes[0, 1].set_title("found in training", fontsize="medium")
    draw_confusion(record, axes[0, 2])
    names = ", ".join(str(name) for name in record["coordinate"].to_numpy())
    draw_losses(record, axes[1, 0])
    draw_spread(record, axes[1, 1], "distance", f"distance of ({names}) from the reduced orbit")
    draw_spread(record, axes[1, 2], "drift", "relative distance from the model's family")
    lines: list[Artist] = [
        Line2D([], [], color=AGREE, label="runs as predicted: median, central 80 %"),
        Line2D([], [], color=DIFFER, linestyle="--", label="runs that end otherwise"),
    ]
    return canvas.complete(_title(record), [*_dots(record), differ, *lines], columns=4)


def draw_labels(record: xr.Dataset, ax: Axes, variable: str) -> None:
    """Draw every start in the plane, marked by its label in ``variable``, predicted or outcome."""
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
    """Draw a ring around every start whose outcome is known and not the predicted one."""
    predicted, outcome = label_names(record["predicted"]), label_names(record["outcome"])
    off = predicted != outcome
    if "predicted_by" not in record.attrs:  # else unresolved means: not learned within the steps
        off &= (predicted != "unresolved") & (outcome != "unresolved")
    x, y = (record[name].to_numpy() for name in axes_of(record))
    ax.scatter(x[off], y[off], s=2.2 * _marker_size(record), facecolors="none", edgecolors=DIFFER,
               linewidths=1.2)  # fmt: skip


def draw_confusion(record: xr.Dataset, ax: Axes) -> None:
    """Draw the confusion table of predictions and outcomes.

    Cells have counts, and each outcome's share of a prediction, with its interval if it has one.
    """
    table, share = record["confusion"].to_numpy(), record["share"].to_numpy()
    labels = [str(name) for name in record["predicted_label"].to_numpy()]
    rows = [i for i in range(len(labels)) if table[i].sum()]
    columns = sorted({j for j in range(len(labels)) if table[:, j].sum()} | set(rows))
    after_steps = "predicted_by" in record.attrs
    short = SHORT | (_AFTER_STEPS if after_steps else {})
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
    drawn.set_fontsize(in_points("small" if len(columns) < 4 else "x-small"))
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
    ax.text(0.5, 0.1, f"{agreement}\n{unresolved}", ha="center", va="center",
            transform=ax.transAxes, color=LINE)  # fmt: skip
    title = "starts, and share of each prediction"
    ax.set_title(title + (",\nwith 95 % intervals" if random else ""), fontsize="medium")


def draw_losses(record: xr.Dataset, ax: Axes) -> None:
    """Draw the losses of training and of the reduced orbits over time, a few of each outcome."""
    x, names = _horizontal(record, ax), label_names(record["outcome"])
    bigram = float(record.attrs.get("entropy_rate", 0.0))
    for name in ("global_minimum", "local_minimum", "unresolved"):
        at = np.flatnonzero(names == name)
        if not len(at):
            continue
        at = at[np.unique(np.linspace(0, len(at) - 1, min(_CURVES, len(at))).astype(int))]
        if "reduced_loss" in record:
            values = record["reduced_loss"].to_numpy()[:, at] - bigram
            ax.plot(x, values, color=INK[name], linewidth=0.8, linestyle="--")
        for values in record["loss"].to_numpy()[:, at].T - bigram:
            known = np.flatnonzero(np.isfinite(values))
            ax.plot(x, values, color=INK[name], linewidth=1.1, alpha=0.8)
            ax.plot(x[known[-1:]], values[known[-1:]], "o", color=INK[name], markersize=3.5)
    ax.set_ylabel("loss (nats)")
    if "entropy_rate" in record.attrs:
        unigram = float(record.attrs["stationary_entropy"])
        gap = max(unigram - bigram, 1e-3)
        mark_level(ax, unigram - bigram, f"unigram {unigram:.4f}", above=False)  # ends lie above
        mark_level(ax, 0.0, f"bigram {bigram:.4f}", above=unigram == bigram)
        ax.set_yscale("symlog", linthresh=gap / 10)
        ax.set_ylim(bottom=-gap / 20)
        ax.set_ylabel("loss above the bigram's (nats)")
    ax.set_title(
        "loss of training (full line, dot: its end)\nand of the reduced orbit (dashed)",
        fontsize="small",
    )


def mark_level(ax: Axes, level: float, text: str, above: bool = True) -> None:
    """Draw a dotted line across the axes, on its right a label that no curve strikes through."""
    ax.axhline(level, color=SOFT, linewidth=0.8, linestyle=":")
    ax.annotate(
        text, (0.99, level), xycoords=ax.get_yaxis_transform(), xytext=(0, 3 if above else -4),
        textcoords="offset points", ha="right", va="bottom" if above else "top", fontsize="small",
        color=SOFT, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
    )  # fmt: skip


def draw_spread(record: xr.Dataset, ax: Axes, variable: str, title: str) -> None:
    """Draw the median and the central 80 % of a variable over time, of the runs that still go on.

    Runs that end as predicted and those that end otherwise have lines and bands of their own.
    """
    ax.set_title(title, fontsize="small")
    if variable not in record:
        ax.set_axis_off()
        ax.text(0.5, 0.5, "not in this record", ha="center", color=LINE)
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
        ax.text(0.5, 0.6, "zero throughout", ha="center", transform=ax.transAxes, color=LINE)


def _horizontal(record: xr.Dataset, ax: Axes) -> np.ndarray:
    """Scale and label the horizontal axis, and return its values (n,): times, or steps.

    Time is on a scale that is linear first and logarithmic then.
    """
    if "time" in record.dims:
        x = record["time"].to_numpy()
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_xlabel("gradient-flow time")
    else:
        x = record["step"].to_numpy()
        ax.set_xlabel("step")
    ax.set_xlim(0, max(float(x[-1]), 1.0))
    return x


def _dots(record: xr.Dataset) -> list[Artist]:
    """A legend's entries for the labels that were predicted or found."""
    found = {*label_names(record["predicted"]), *label_names(record["outcome"])}
    names = [name for name in FILL if name in found]
    dots = basin_dots(names)
    if "predicted_by" in record.attrs:
        for dot, name in zip(dots, names, strict=True):
            dot.set_label(_LEARNED.get(name, name).format(record.attrs["steps"]))
    return dots


def _marker_size(record: xr.Dataset) -> float:
    """Marker area in points², such that a grid's markers nearly touch."""
    across = record.attrs.get("columns") or np.sqrt(record.sizes["point"])
    down = record.attrs.get("rows") or across
    return float(np.clip((165 / max(across, down)) ** 2 * 0.5, 3.0, 60.0))


def _title(record: xr.Dataset) -> list[str]:
    """The lines of a comparison's title: trainer, models and noise, then data and remarks."""
    a = record.attrs
    where = {"attention": "attention's weights", "others": "all weights but attention's"}
    noise = f", noise {a['noise']:g} on " if a["noise"] else ""
    noise += where.get(str(a.get("noise_on")), "every weight") if noise else ""
    coordinates = map(str, record["coordinate"].to_numpy())
    beside = {n: np.unique(record[n].to_numpy()) for n in coordinates if n not in axes_of(record)}
    same = [f", from ${n}$ = {x[0]:g}" for n, x in beside.items() if len(x) == 1]
    words = (
        f"{TRAINERS[a['trainer']]} of the full transformer, $d$ = {a['d']}, $N$ = {a['length']}"
        f"{noise}, against the {a['model']} model{''.join(same)}"
    )
    data, *remarks = subtitle_of(record) or [""]
    return [words, data, *remarks]
