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
from papers import draw_ends, legend_below

from flowsim.chain import BinaryChain
from flowsim.drawing.style import basin_dots
from flowsim.models.canonical.basins import SADDLE_ENERGY, SADDLE_W

#: The chains of the rows: the lines of the others are in the table of docs/results/tables.md.
ROWS = (BinaryChain(0.5, 0.8), BinaryChain(0.9, 0.9), BinaryChain(0.2, 0.3))
#: d, N and noise of the columns.
COLUMNS = (
    ("d=8 N=8", "$d$ = 8, $N$ = 8, no noise"),
    ("d=8 N=8 noise 0.02 on all weights", "$d$ = 8, $N$ = 8, noise 0.02 on all weights"),
    ("d=4 N=6 noise 0.02 on all weights", "$d$ = 4, $N$ = 6, noise 0.02 on all weights"),
    ("d=4 N=6 noise 0.02 on attention", "$d$ = 4, $N$ = 6, noise 0.02 on attention"),
    ("d=4 N=6 noise 0.1 on all weights", "$d$ = 4, $N$ = 6, noise 0.1 on all weights"),
)
WRONG, LINE = "#7b1161", "#111111"


def draw(record: xr.Dataset, numbers: dict[str, Any]) -> dict[str, Figure]:
    """Both figures."""
    lines = numbers["lines"]
    return {"agreement": draw_maps(record, lines), "agreement_reasons": draw_reasons(lines)}


def draw_maps(record: xr.Dataset, lines: list[dict[str, Any]]) -> Figure:
    """Ends of training, with the canonical and the rank-one model's misses marked."""
    figure = Figure(figsize=(15.5, 7.2), layout="constrained")
    axes = figure.subplots(len(ROWS), len(COLUMNS), sharex=True, sharey=True)
    cases = list(record.attrs["cases"])
    by_name = {line["case"]: line for line in lines}
    for i, (row, chain) in enumerate(zip(axes, ROWS, strict=True)):
        for ax, (size, title) in zip(row, COLUMNS, strict=True):
            name = f"p={chain.p:g} q={chain.q:g} {size}"
            if name not in by_name:
                ax.set_axis_off()
                continue
            own = record.isel(point=record["case_of_point"].to_numpy() == cases.index(name))
            _panel(ax, own, chain)
            text = ", ".join(f"{model} {{agree}} of {{decided}}".format(**by_name[name][model])
                             for model in ("rank-one", "canonical"))  # fmt: skip
            ax.set_title(f"{title}\n{text}" if i == 0 else text, fontsize=9)
        row[0].set_ylabel(
            f"$p$ = {chain.p:g}, $q$ = {chain.q:g}  (${chain.regime}$)\nembedding $e$", fontsize=9
        )
    for ax in axes[-1]:
        ax.set_xlabel("feed-forward weight $w$")
    figure.legend(handles=_entries(), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(
        "Training of the whole transformer (one layer with softmax attention, tied weights, "
        "hidden width $4d$; exact loss) from lifted starts $e > 0$, and where predictions fail\n"
        "one run a start; noise of start $i$ from seed $i$; from $-e$ the run is the same, with "
        "noise the same in law",
        fontsize=11,
    )
    return figure


def _panel(ax: Axes, own: xr.Dataset, chain: BinaryChain) -> None:
    """The starts of one ensemble."""
    w, e = own["w"].to_numpy(), own["e"].to_numpy()
    outcome, rank_one = own["outcome"].to_numpy(), own["predicted"].to_numpy()
    canonical = canonical_labels(chain, torch.from_numpy(np.stack([e, w], -1)))
    size = (110 / len(np.unique(w))) ** 2
    draw_ends(ax, e, w, outcome, size, 0.5)
    off = (outcome != 0) & (canonical != outcome)
    ax.scatter(w[off], e[off], s=1.5 * size, marker="x", c=LINE, linewidths=0.9)
    off = (outcome != 0) & (rank_one != outcome)
    ax.scatter(w[off], e[off], s=5 * size, marker="o", facecolors="none", edgecolors=WRONG,
               linewidths=1.8, clip_on=False, zorder=3)  # fmt: skip
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
