"""The two figures of the agreement study, from its records and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr
from agreement_variants import VARIANTS, canonical_labels

from flowsim.chain import BinaryChain
from flowsim.landscape.basins import SADDLE_ENERGY, SADDLE_W

COLOURS = {"global": "#7fb6da", "local": "#e8965a"}


def draw_maps(
    found: dict[Any, xr.Dataset],
    chains: Sequence[tuple[float, float]],
    columns: Sequence[tuple[int, float]],
    path: Path,
) -> None:
    """Where training goes, with the canonical and the rank-one model's misses marked.

    A row for each of four chains (p, q), a column for each of four (N, noise); ``found`` has the
    records of the cases.
    """
    figure, axes = plt.subplots(4, 4, figsize=(11, 11.6), sharex=True, sharey=True,
                                layout="constrained")  # fmt: skip
    for i, (p, q) in enumerate(chains):
        for j, (length, noise) in enumerate(columns):
            ax = axes[i, j]
            record = next(
                (r for c, r in found.items()
                 if (c.p, c.q, c.length, c.noise, c.trainer) == (p, q, length, noise, "gd")), None,
            )  # fmt: skip
            if record is None:
                ax.set_axis_off()
                continue
            w, e = record["w"].to_numpy(), record["e"].to_numpy()
            outcome, rank_one = record["outcome"].to_numpy(), record["predicted"].to_numpy()
            points = torch.from_numpy(np.stack([e, w], -1))
            canonical = canonical_labels(BinaryChain(p, q), points)
            side = 118 / np.sqrt(len(w))
            for label, colour in ((1, "global"), (2, "local")):
                on = outcome == label
                ax.scatter(w[on], e[on], s=side**2, marker="s", c=COLOURS[colour], linewidths=0)
            on = outcome == 0
            ax.scatter(w[on], e[on], s=side**2, marker="s", c="#888888", linewidths=0)
            miss = (outcome != 0) & (canonical != outcome)
            ax.scatter(w[miss], e[miss], s=side**2 * 0.6, marker="x", c="#111111", linewidths=0.8)
            miss_1 = (outcome != 0) & (rank_one != outcome)
            ax.scatter(w[miss_1], e[miss_1], s=side**2 * 1.4, marker="o", facecolors="none",
                       edgecolors="#7a1fa2", linewidths=1.4)  # fmt: skip
            _separatrix(ax, BinaryChain(p, q))
            kept = outcome != 0
            ax.set_title(
                f"rank-one {np.mean((rank_one == outcome)[kept]):.1%}, "
                f"canonical {np.mean((canonical == outcome)[kept]):.1%}",
                fontsize=8.5,
            )
            ax.set(xlim=(-2, 2), ylim=(-2, 2))
            if i == 0:
                extra = f"\nnoise {noise:g} on every weight" if noise else "\nlifted starts"
                ax.annotate(f"$N$ = {length}{extra}", (0.5, 1.14), xycoords="axes fraction",
                            ha="center", fontsize=10)  # fmt: skip
            if j == 0:
                sign = ">" if p + q > 1 else "<"
                ax.set_ylabel(f"$p$ = {p:g}, $q$ = {q:g}  ($p+q$ {sign} 1)\nembedding $e$")
            if i == 3:
                ax.set_xlabel("feed-forward weight $w$")
    entries = [
        plt.Line2D([], [], marker="s", ls="", ms=9, color=COLOURS["global"]),
        plt.Line2D([], [], marker="s", ls="", ms=9, color=COLOURS["local"]),
        plt.Line2D([], [], marker="x", ls="", ms=6, color="#111111"),
        plt.Line2D([], [], marker="o", ls="", ms=8, mfc="none", mec="#7a1fa2", mew=1.4),
        plt.Line2D([], [], color="#111111", lw=1.2),
    ]
    names = ["training reaches the global minimum", "training is trapped at the unigram",
             "canonical model wrong", "rank-one model wrong", "canonical separatrix"]  # fmt: skip
    figure.legend(entries, names, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Gradient descent of the full transformer, and where the predictions fail")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _separatrix(ax: Any, chain: BinaryChain) -> None:
    w = np.linspace(-2, 0, 400)[:-1]
    w = w[w >= SADDLE_W] if chain.second_eigenvalue < 0 else w[w <= SADDLE_W]
    e = np.sqrt(np.maximum(w**2 - np.log(-w) + SADDLE_ENERGY, 0))
    for sign in (1, -1):
        ax.plot(w, sign * e, color="#111111", lw=1.2)


def draw_reasons(lines: list[dict[str, Any]], path: Path) -> None:
    """Agreement of every variant with full training."""
    rows = [line for line in lines if "variants" in line]
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), sharey=True, layout="constrained")
    colours = ["#8c8c8c", "#b5a642", "#d98032", "#4e9bc7", "#00537f"]
    for line, ax in zip(sorted(rows, key=lambda x: "N=1024" in x["case"]), axes.flat, strict=False):
        values = [line["variants"][v]["agreement"] for v in VARIANTS]
        bounds = np.array([line["variants"][v]["interval"] for v in VARIANTS])
        error = np.abs(bounds.T - np.array(values))
        for i, (value, reach, colour) in enumerate(zip(values, error.T, colours, strict=True)):
            ax.errorbar(value, i, xerr=reach[:, None], fmt="o", color=colour, capsize=3, ms=7)
            ax.text(0.565, i, f"{value:.1%}", va="center", fontsize=9)
        ax.set(xlim=(0.55, 1.02), yticks=range(len(VARIANTS)), yticklabels=VARIANTS)
        ax.grid(axis="x", color="#dddddd", lw=0.6)
        ax.set_title(
            line["case"].removeprefix("gd ").replace(" ", ", ").replace("=", " = "), fontsize=9.5
        )
    axes[0, 0].invert_yaxis()
    for ax in axes[1]:
        ax.set_xlabel("share of starts predicted right")
    figure.suptitle("Why the canonical model fails: one difference to the rank-one model at a time")
    figure.savefig(path, dpi=110)
    plt.close(figure)
