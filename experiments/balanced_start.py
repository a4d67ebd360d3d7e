"""Four starts beside each other: what to do at p + q > 1, and where p + q is not known.

Starts: "gaussian", N(0, 0.02²); "recommended", W_1 = 1 and W_2 = −sign(p + q − 1); "matched", that
times the sign of the embedding's sum; "balanced". Softmax transformer, tied, 16 seeds on each of
four chains; population gradient descent (d = 8, N = 6; rate 0.1, and 0.02 for twice the steps where
W_1 = 1, which overshoots at 0.1) and AdamW as in AM Table 2 (d = 4 and 8, N = 16, fewer steps). A
run is at the bigram if less than 5 % of the gap is open at the end, at the unigram above 95 %.

    python experiments/balanced_start.py [--full]      minutes on one core
"""

from dataclasses import replace
from typing import Any

import numpy as np
import papers
import xarray as xr
from lg_initialization import matched
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, SKY, experiment

from flowsim import BinaryChain
from full_model import Architecture, Recipe, papers_recipe, starting_weights

CHAINS = tuple(BinaryChain(*pair) for pair in ((0.5, 0.8), (0.9, 0.9), (0.7, 0.4), (0.2, 0.3)))
STARTS = {
    "gaussian": (BLUE, "o", "Gaussian, N(0, 0.02²)"),
    "recommended": (SKY, "s", "recommended (LG)"),
    "matched": (GREY, "D", "recommended, sign of $e$"),
    "balanced": (GREEN, "^", "balanced"),
}
PANELS = {
    "population gradient descent, d = 8, N = 6": (8, 6, "gd"),
    "AdamW, d = 4, N = 16": (4, 16, "adamw"),
    "AdamW, d = 8, N = 16": (8, 16, "adamw"),
}
#: Below this share a run is drawn at the lower edge.
LOWEST = 1e-4


def compute(seeds: int = 16, steps: int = 1500, descent_steps: int = 2000) -> xr.Dataset:
    """Loss curves of all starts, chains and trainers."""
    cases, initial = {}, {}
    for panel, (d, n, trainer) in PANELS.items():
        for start in STARTS:
            steep = start in ("recommended", "matched")
            if trainer == "adamw":
                recipe = papers_recipe(steps=steps)
            else:
                rate, count = (0.02, 2 * descent_steps) if steep else (0.1, descent_steps)
                recipe = Recipe("gd", steps=count, learning_rate=rate)
            name = f"{panel}; {start}"
            init = "recommended" if steep else start
            cases[name] = papers.ensemble(
                Architecture(d, n), recipe, CHAINS, seeds, 20, init=init, test_batch=16
            )
            if start == "matched":
                initial[name] = matched(starting_weights(cases[name]))
                cases[name] = replace(cases[name], init="given")
    return papers.trained(cases, initial=initial)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per trainer, start and chain: how many seeds reach the bigram, with the interval."""
    return {name: papers.outcome(part) for name, _, part in papers.by_chain(record, CHAINS)}


def draw(record: xr.Dataset) -> Figure:
    """A panel per trainer: the open share of every run at its end, by chain and start."""
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    grid = figure.subplots(1, len(PANELS), sharey=True)
    rng = np.random.default_rng(0)
    for axes, panel in zip(grid, PANELS, strict=True):
        for s, (start, (colour, mark, word)) in enumerate(STARTS.items()):
            for c, chain in enumerate(CHAINS):
                share = papers.open_share(
                    papers.chain_part(record.sel(case=f"{panel}; {start}"), chain)
                )
                place = c + 0.21 * (s - 1.5)
                x = place + rng.uniform(-0.06, 0.06, len(share))
                axes.plot(x, np.maximum(share, LOWEST), mark, color=colour, ms=3.5, alpha=0.6,
                          mew=0, label=word if c == 0 else None)  # fmt: skip
                reached = str(papers.ends(share)["bigram"])
                axes.annotate(reached, (place, 2.3), ha="center", fontsize=8, color=colour)
        axes.axhline(0.05, color="k", lw=0.8, ls=":")
        axes.set_xticks(range(len(CHAINS)), [f"({c.p:g}, {c.q:g})" for c in CHAINS])
        axes.set(yscale="log", ylim=(LOWEST / 1.5, 4), xlabel="(p, q)")
        axes.set_title(panel, fontsize=10)
    grid[0].set_ylabel("open share of the gap at the end\n(bigram 0, unigram 1)")
    papers.legend_below(grid[0], 4, fontsize=9, markerscale=2)
    seeds = record.sizes["model"] // len(CHAINS)
    figure.suptitle(
        "No other of four starts reaches the bigram more often than the balanced one "
        f"({seeds} seeds each)\nnumbers above: how many end at the bigram, below the dotted line; "
        f"what is below {LOWEST:g} stands at {LOWEST:g}",
        fontsize=11,
    )
    return figure


main = experiment(
    __name__, compute, numbers, draw, full={"seeds": 64, "steps": 6000, "descent_steps": 8000}
)
