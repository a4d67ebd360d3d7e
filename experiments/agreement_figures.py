"""The two figures of the agreement study, from its record and numbers."""

from typing import Any

import numpy as np
import torch
import xarray as xr
from agreement_variants import VARIANTS, canonical_labels
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from papers import caption, draw_ends, legend_below

from flowsim.chain import BinaryChain
from flowsim.drawing.style import basin_dots
from flowsim.models.canonical.basins import SADDLE_ENERGY, SADDLE_W

#: The chains of the two maps, and the setting on both.
MAPS = (BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3))
SETTING, SAID = "d=4 N=6 noise 0.1 on all weights", "$d$ = 4, $N$ = 6, noise 0.1 on all weights"
NOISES = (0.0, 0.02, 0.1)
WRONG, LINE = "#7b1161", "#111111"


def draw(record: xr.Dataset, numbers: dict[str, Any]) -> dict[str, Figure]:
    """Both figures."""
    lines = numbers["lines"]
    return {"agreement": draw_maps(record, lines), "agreement_reasons": draw_reasons(lines)}


def draw_maps(record: xr.Dataset, lines: list[dict[str, Any]]) -> Figure:
    """Share of starts that both models miss, by side and noise; and a map at the largest noise."""
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    bars, *maps = figure.subplots(1, 3, width_ratios=(1.1, 1, 1))
    _draw_shares(bars, lines)
    cases = list(record.attrs["cases"])
    for ax, chain in zip(maps, MAPS, strict=True):
        name = f"p={chain.p:g} q={chain.q:g} {SETTING}"
        if name not in cases:
            ax.set_axis_off()
            continue
        _panel(
            ax, record.isel(point=record["case_of_point"].to_numpy() == cases.index(name)), chain
        )
        ax.set_title(f"{caption(chain)}\n{SAID}", fontsize=10)
        ax.set(xlabel="feed-forward weight $w$", ylabel="embedding $e$")
    figure.legend(handles=_entries(), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(
        "Five numbers (rank-one) say where whole transformers end, two (canonical) err more often",
        fontsize=11,
    )
    return figure


def _draw_shares(ax: Axes, lines: list[dict[str, Any]]) -> None:
    """The share of runs whose end each model names wrongly, noise being on all weights."""
    rows: list[tuple[str, dict[str, float]]] = []
    for side, above in (("p + q > 1", True), ("p + q < 1", False)):
        for noise in NOISES:
            own = [line for line in lines if line["noise"] == noise and line["noise_on"] == "all"
                   and (_excess(line) > 0) == above]  # fmt: skip
            runs = sum(line["points"] for line in own)
            wrong = {model: sum(line[model]["decided"] - line[model]["agree"] for line in own)
                     for model in ("canonical", "rank-one")}  # fmt: skip
            if runs:
                shares = {model: 100 * count / runs for model, count in wrong.items()}
                rows.append(
                    (f"${side}$, noise {noise:g}" if noise else f"${side}$, no noise", shares)
                )
    for k, (model, colour) in enumerate((("canonical", LINE), ("rank-one", WRONG))):
        at, values = np.arange(len(rows)) + 0.36 * (k - 0.5), [row[model] for _, row in rows]
        ax.bar_label(ax.barh(at, values, 0.34, color=colour), [f"{x:.1f}" for x in values],
                     padding=3, fontsize=9)  # fmt: skip
    ax.set_yticks(range(len(rows)), [word for word, _ in rows])
    ax.invert_yaxis()
    ax.margins(x=0.14)
    ax.set_xlabel("runs whose end is named wrongly, %")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(
        "canonical (black) and rank-one model (purple),\nall chains and sizes", fontsize=10
    )


def _excess(line: dict[str, Any]) -> float:
    """p + q − 1 of a line's chain."""
    p, q = (float(part[2:]) for part in line["case"].split()[:2])
    return p + q - 1


def _panel(ax: Axes, own: xr.Dataset, chain: BinaryChain) -> None:
    """The starts of one ensemble."""
    w, e = own["w"].to_numpy(), own["e"].to_numpy()
    outcome, rank_one = own["outcome"].to_numpy(), own["predicted"].to_numpy()
    canonical = canonical_labels(chain, torch.from_numpy(np.stack([e, w], -1)))
    size = (120 / len(np.unique(w))) ** 2
    draw_ends(ax, e, w, outcome, size, 0.5)
    off = (outcome != 0) & (canonical != outcome)
    ax.scatter(w[off], e[off], s=1.3 * size, marker="x", c=LINE, linewidths=0.9)
    off = (outcome != 0) & (rank_one != outcome)
    ax.scatter(w[off], e[off], s=3 * size, marker="o", facecolors="none", edgecolors=WRONG,
               linewidths=1.4, clip_on=False, zorder=3)  # fmt: skip
    at = np.linspace(-2, 0, 400)[:-1]
    at = at[at >= SADDLE_W] if chain.second_eigenvalue < 0 else at[at <= SADDLE_W]
    ax.plot(at, np.sqrt(np.maximum(at**2 - np.log(-at) + SADDLE_ENERGY, 0)), color=LINE, lw=1.2)
    ax.set(xlim=(-2, 2), ylim=(0, 2))


def _entries() -> list[Artist]:
    words = {"global_minimum": "training reaches the global minimum",
             "local_minimum": "training is trapped at the unigram"}  # fmt: skip
    return [
        *basin_dots(words, words, 6),
        Line2D([], [], marker="x", ms=6, color=LINE, ls="", label="canonical model wrong"),
        Line2D([], [], marker="o", ms=9, mec=WRONG, mew=1.8, ls="", mfc="none",
               label="rank-one model wrong"),
        Line2D([], [], color=LINE, lw=1.2, label="canonical separatrix"),
    ]  # fmt: skip


def draw_reasons(lines: list[dict[str, Any]]) -> Figure:
    """Share of training that every variant predicts: a panel for each N, a mark for each chain."""
    rows = [line for line in lines if "variants" in line]
    lengths = sorted({line["length"] for line in rows})
    figure = Figure(figsize=(9.6, 4.3), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(lengths), sharey=True))
    styles = [("o", "#00537f"), ("s", "#7fb6da"), ("^", "#00694c"), ("v", "#8fd0b8")]
    for ax, length in zip(axes, lengths, strict=True):
        own = [line for line in rows if line["length"] == length]
        for k, (line, (marker, colour)) in enumerate(zip(own, styles, strict=False)):
            p, q = (part[2:] for part in line["case"].split()[:2])
            shares = [100 * line["variants"][v]["agreement"] for v in VARIANTS]
            ax.plot(
                shares, np.arange(len(VARIANTS)) + 0.15 * (k - 1.5), marker, color=colour, ms=7,
                mec="#333333", mew=0.5, label=f"$p$ = {p}, $q$ = {q}",
            )  # fmt: skip
        ax.set(yticks=range(len(VARIANTS)), yticklabels=VARIANTS, xlim=(70, 102),
               xlabel="starts predicted right, %")  # fmt: skip
        ax.grid(axis="x", color="#dddddd", lw=0.6)
        ax.set_title(f"$d$ = 8, $N$ = {length}, {own[0]['points']} starts, no noise", fontsize=10)
    axes[0].invert_yaxis()
    legend_below(axes[0], 4)
    figure.suptitle(
        "The canonical model with one difference to the rank-one model switched on at a time,\n"
        "against training of the whole transformer from lifted starts",
        fontsize=11,
    )
    return figure
