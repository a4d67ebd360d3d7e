"""Drawing a comparison record: prediction beside outcome, and how the two part over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox

from flowsim.drawing.style import chain_caption

_FILL = {
    "global_minimum": "#7fb6da",
    "local_minimum": "#e8965a",
    "saddle": "#ffffff",
    "unresolved": "#000000",
}
_MARKER = {"global_minimum": "s", "local_minimum": "D", "saddle": "o", "unresolved": "X"}
_NAMES = {
    "global_minimum": "global minimum",
    "local_minimum": "bad local minimum",
    "saddle": "saddle",
    "unresolved": "unresolved",
}
_SHORT = {
    "global_minimum": "global",
    "local_minimum": "local",
    "saddle": "saddle",
    "unresolved": "unres.",
}
_AGREE, _DISAGREE, _LINE = "#00537f", "#a33b00", "#111111"


def draw_comparison(record: xr.Dataset) -> Figure:
    """The figure of one comparison record; the other functions draw its parts on given axes."""
    figure = Figure(figsize=(11.5, 7.6), dpi=110, layout="constrained")
    axes = figure.subplots(2, 3)
    draw_labels(record, axes[0, 0], "predicted")
    axes[0, 0].set_title(f"predicted by the {record.attrs['model']} model", fontsize=10)
    draw_labels(record, axes[0, 1], "outcome")
    draw_disagreements(record, axes[0, 1])
    axes[0, 1].set_title("found in training the full transformer", fontsize=10)
    draw_confusion(record, axes[0, 2])
    names = ", ".join(str(name) for name in record["coordinate"].to_numpy())
    draw_losses(record, axes[1, 0])
    draw_spread(record, axes[1, 1], "distance", f"distance of ({names}) from the reduced orbit")
    draw_spread(record, axes[1, 2], "drift", "relative distance from the rank-one manifold")
    figure.suptitle(_title(record), fontsize=11)
    figure.legend(
        handles=_legend(record),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=9,
    )
    return figure


def draw_labels(record: xr.Dataset, axes: Axes, variable: str) -> None:
    """Every start coloured by its label, w horizontal and e vertical."""
    w, e = record["w"].to_numpy(), record["e"].to_numpy()
    names = _names(record, variable)
    cell = _cell_size(record)
    for name in _FILL:
        on = names == name
        axes.scatter(
            w[on],
            e[on],
            s=cell,
            c=_FILL[name],
            marker=_MARKER[name],
            edgecolors=_LINE,
            linewidths=0.25,
        )
    axes.set(xlabel="feed-forward weight $w$", ylabel="embedding $e$")


def draw_disagreements(record: xr.Dataset, axes: Axes) -> None:
    """A cross on every start whose outcome is known and not the predicted one."""
    predicted, outcome = _names(record, "predicted"), _names(record, "outcome")
    off = (predicted != outcome) & (predicted != "unresolved") & (outcome != "unresolved")
    w, e = record["w"].to_numpy(), record["e"].to_numpy()
    axes.scatter(w[off], e[off], s=_cell_size(record), c=_LINE, marker="x", linewidths=1.0)


def draw_confusion(record: xr.Dataset, axes: Axes) -> None:
    """The confusion table: counts, and each outcome's share of a prediction with its interval."""
    table, share = record["confusion"].to_numpy(), record["share"].to_numpy()
    low, high = record["share_low"].to_numpy(), record["share_high"].to_numpy()
    labels = [str(name) for name in record["predicted_label"].to_numpy()]
    rows = [i for i in range(len(labels)) if table[i].sum()]
    columns = [j for j in range(len(labels)) if table[:, j].sum()]
    columns = sorted(set(rows) | set(columns))
    axes.set_axis_off()
    cells = [
        [f"{table[i, j]}\n{share[i, j]:.1%}\n[{low[i, j]:.1%}, {high[i, j]:.1%}]" for j in columns]
        for i in rows
    ]
    drawn = axes.table(
        cells,
        rowLabels=[f"predicted\n{_SHORT[labels[i]]}" for i in rows],
        colLabels=[f"found {_SHORT[labels[j]]}" for j in columns],
        cellLoc="center",
        bbox=Bbox.from_bounds(0.12, 0.3, 0.88, 0.6),
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8.5)
    a = record.attrs
    agreement = "no run is decided"
    if a["decided"]:
        agreement = (
            f"agreement {a['agreement']:.1%} of {a['decided']} decided\n"
            f"(95 % interval {a['agreement_low']:.1%} to {a['agreement_high']:.1%})"
        )
    unresolved = f"unresolved: {a['unresolved_outcomes']} runs, "
    unresolved += f"{a['unresolved_predictions']} predictions"
    axes.text(0.5, 0.1, f"{agreement}\n{unresolved}", ha="center", va="center", fontsize=9.5,
              transform=axes.transAxes)  # fmt: skip
    axes.set_title("share of each prediction, with 95 % intervals", fontsize=10)


def draw_losses(record: xr.Dataset, axes: Axes) -> None:
    """Loss curves of training and of the reduced orbits, for some starts of each outcome."""
    x = _horizontal(record, axes)
    names = _names(record, "outcome")
    for name in ("global_minimum", "local_minimum", "unresolved"):
        at = np.flatnonzero(names == name)
        at = at[np.linspace(0, len(at) - 1, min(6, len(at))).astype(int)] if len(at) else at
        colour = {"global_minimum": _AGREE, "local_minimum": "#c96a1f"}.get(name, "#666666")
        if "reduced_loss" in record:
            axes.plot(x, record["reduced_loss"].to_numpy()[:, at], color=colour, lw=0.8, ls="--")
        axes.plot(x, record["loss"].to_numpy()[:, at], color=colour, lw=1.1, alpha=0.8)
    p, q = record.attrs["p"], record.attrs["q"]
    unigram, bigram = _entropies(p, q)
    axes.axhline(unigram, color=_LINE, lw=0.8, ls=":")
    axes.axhline(bigram, color=_LINE, lw=0.8, ls=":")
    right = axes.get_xlim()[1]
    for value, text in ((unigram, "unigram"), (bigram, "bigram")):
        axes.annotate(text, (right, value), ha="right", va="bottom", fontsize=8)
    gap = max(unigram - bigram, 1e-3)
    axes.set_ylim(bigram - 0.3 * gap, unigram + 1.5 * gap)
    axes.set_ylabel("population loss (nats)")
    axes.set_title(
        "loss of training (full line, to where it is\ndecided) and reduced orbit (dashed)",
        fontsize=9,
    )


def draw_spread(record: xr.Dataset, axes: Axes, variable: str, title: str) -> None:
    """Median and central 80 % over the runs still on, by whether they agree in the end."""
    axes.set_title(title, fontsize=10)
    if variable not in record:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "steps of AdamW have no time\nto compare an orbit at", ha="center")
        return
    x = _horizontal(record, axes)
    values = record[variable].to_numpy()
    agree = _names(record, "predicted") == _names(record, "outcome")
    for on, colour in ((agree, _AGREE), (~agree, _DISAGREE)):
        kept = np.isfinite(values[:, on]).sum(axis=1) > 0
        if not kept.any():
            continue
        part = np.where(np.isfinite(values[kept][:, on]), values[kept][:, on], np.nan)
        low, middle, high = np.nanquantile(part, [0.1, 0.5, 0.9], axis=1)
        floor = 1e-17  # what is exactly zero still has a place on the axis
        axes.fill_between(x[kept], np.maximum(low, floor), np.maximum(high, floor), color=colour,
                          alpha=0.2, linewidth=0)  # fmt: skip
        axes.plot(x[kept], np.maximum(middle, floor), color=colour, lw=1.4)
    axes.set_yscale("log")
    axes.set_ylim(1e-17, max(3.0, axes.get_ylim()[1]))


def _horizontal(record: xr.Dataset, axes: Axes) -> np.ndarray:
    """Time, on a scale that is linear first and logarithmic then, or steps."""
    if "time" in record.dims:
        x = record["time"].to_numpy()
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlabel("gradient-flow time")
    else:
        x = record["step"].to_numpy()
        axes.set_xlabel("step")
    axes.set_xlim(0, max(float(x[-1]), 1.0))
    return x


def _entropies(p: float, q: float) -> tuple[float, float]:
    """h(π₁) and the entropy rate, in nats."""

    def h(x: float) -> float:
        return float(-x * np.log(x) - (1 - x) * np.log1p(-x))

    return h(p / (p + q)), (q * h(p) + p * h(q)) / (p + q)


def _names(record: xr.Dataset, variable: str) -> np.ndarray:
    meanings = np.array(str(record[variable].attrs["flag_meanings"]).split())
    return meanings[record[variable].to_numpy().astype(int)]


def _cell_size(record: xr.Dataset) -> float:
    """Marker area in points², such that a grid's markers nearly touch."""
    across = record.attrs.get("columns") or np.sqrt(record.sizes["point"])
    down = record.attrs.get("rows") or across
    return float(np.clip((165 / max(across, down)) ** 2 * 0.8, 3.0, 90.0))


def _title(record: xr.Dataset) -> str:
    a = record.attrs
    noise = f", noise {a['noise']:g} on every weight" if a["noise"] else ""
    trainer = {"gd": "gradient descent", "flow": "gradient flow", "sgd": "SGD", "adamw": "AdamW"}
    return (
        f"Markov chain {chain_caption(record)}\n"
        f"{trainer[a['trainer']]} of the full transformer, $d$ = {a['d']}, $N$ = {a['length']}"
        f"{noise}, against the {a['model']} model{_attention(record)}"
    )


def _attention(record: xr.Dataset) -> str:
    """The attention scalar of the starts, if they have one and it is the same for all."""
    values = np.unique(record["a"].to_numpy()) if "a" in record else np.empty(0)
    return f", from $a$ = {values[0]:g}" if len(values) == 1 else ""


def _legend(record: xr.Dataset) -> list[Any]:
    handles: list[Any] = []
    for name in _FILL:
        if (_names(record, "predicted") == name).any() or (_names(record, "outcome") == name).any():
            handles.append(
                Patch(facecolor=_FILL[name], edgecolor=_LINE, lw=0.3, label=_NAMES[name])
            )
    handles.append(
        Line2D(
            [], [], color=_LINE, marker="x", linestyle="none", label="prediction and outcome differ"
        )
    )
    handles.append(Line2D([], [], color=_AGREE, label="runs that agree: median, central 80 %"))
    handles.append(Line2D([], [], color=_DISAGREE, label="runs that differ"))
    return handles
