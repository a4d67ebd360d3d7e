"""Does the transformer with S logits go where the plane of S states says, noise on every weight?

The plane (e, w) of S states is a set that training without noise never leaves (docs/derivations.md,
13). Starts of a 20 × 20 grid over |e|, |w| ≤ 2, of which −e is the same run and 0 < e ≤ 2 is
trained, are lifted into whole transformers: one layer, softmax attention, S logits, m = 4 hidden
units for each state, d = 8; N = 4, 3, 2 for S = 2, 3, 5. Normal noise of deviation 0, 0.02 or 0.1
is added to every weight, the seed of start i being i. Gradient descent on the exact population
loss, each step 0.8 over the run's own bound on the curvature, until loss and curvature decide, or
5 000 steps are used up. p lies 0.13 to 0.17 to both sides of the threshold (S − 1)/S. What is left
open is counted with its reason, and how much of the gap between unigram and bigram is open there.

    python experiments/states_agreement.py [--overwrite] [--side 20]     minutes on one core
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from papers import experiment, stacked, timed

from flowsim.drawing.style import DIFFER, FILL, INK, MARKER, basin_dots
from flowsim.labels import BASINS, Label
from full_model import Comparison, compare, grid_points, wilson
from full_model.comparison.outcome import EndReason

#: N by S: with noise all S^N sequences are summed over.
LENGTHS = {2: 4, 3: 3, 5: 2}
#: S and p on both sides of every threshold.
CHAINS = ((2, 0.65), (2, 0.35), (3, 0.8), (3, 0.5), (5, 0.95), (5, 0.65))
NOISE, DIMENSION = (0.0, 0.02, 0.1), 8
KEPT = ("predicted", "outcome", "end_reason", "open_share", "steps")
NAMES = list(BASINS)


def compute(side: int = 20, steps: int = 5000) -> xr.Dataset:
    """Every comparison, over case and point."""
    parts = {}
    points = grid_points(side, side // 2, e_range=(0.0, 2.0))
    for (states, p), noise in timed(product(CHAINS, NOISE)):
        settings = Comparison(
            p, None, "states", d=DIMENSION, length=LENGTHS[states], noise=noise, steps=steps,
            states=states,
        )  # fmt: skip
        found = compare(settings, points)[list(KEPT)].reset_coords(drop=True)
        found = found.assign(states=states, p=p, noise=noise)
        parts[f"S = {states}, p = {p:g}, noise {noise:g}"] = found
    whole = stacked(parts)
    whole["e"], whole["w"] = ("point", points[:, 0].numpy()), ("point", points[:, 1].numpy())
    return whole


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Of every case: decided, agreeing, where the others are, what is open and why."""
    return {str(name): counted(record.sel(case=name)) for name in record.case.values}


def counted(case: xr.Dataset) -> dict[str, Any]:
    """The counts of one case."""
    predicted, outcome = case.predicted.values, case.outcome.values
    decided = outcome != Label.UNRESOLVED
    agree = int((predicted == outcome)[decided].sum())
    drawn = float(case.noise) > 0
    table = Counter(zip(predicted.tolist(), outcome.tolist(), strict=True))
    reasons = Counter(case.end_reason.values[~decided].tolist())
    share = case.open_share.values[~decided]
    return {
        "states": int(case.states), "p": float(case.p), "noise": float(case.noise),
        "length": LENGTHS[int(case.states)], "starts": len(outcome),
        "decided": int(decided.sum()), "agree": agree,
        **({"interval": wilson(agree, int(decided.sum()))} if drawn else {}),
        "found": {NAMES[p]: {NAMES[o]: n for (q, o), n in sorted(table.items()) if q == p}
                  for p in sorted(set(predicted.tolist()))},
        "open": {EndReason(code).name.lower(): n for code, n in sorted(reasons.items())},
        "open_between": int(((share > 0.05) & (share < 0.95)).sum()),
        "open_share": sorted(share.tolist()),
        "steps": [int(x) for x in np.quantile(case.steps.values, [0.5, 1.0])],
    }  # fmt: skip


def draw(record: xr.Dataset) -> Figure:
    """A column per chain, a row per noise: where every start ends, and where not as predicted."""
    figure = Figure(figsize=(15, 7.4), layout="constrained")
    grid = figure.subplots(len(NOISE), len(CHAINS), sharex=True, sharey=True)
    grid[0, 0].set(xlim=(-2.1, 2.1), ylim=(0, 2))
    for column, (states, p) in enumerate(CHAINS):
        for row, noise in enumerate(NOISE):
            name = f"S = {states}, p = {p:g}, noise {noise:g}"
            panel(grid[row, column], record.sel(case=name), record.e.values, record.w.values)
            if column == 0:
                grid[row, 0].set_ylabel(f"noise {noise:g}\nembedding $e$")
        sign = ">" if p > (states - 1) / states else "<"
        grid[0, column].set_title(
            f"$S$ = {states}, $p$ = {p:g} ${sign}$ {states - 1}/{states}\n"
            + grid[0, column].get_title(), fontsize=9.5
        )  # fmt: skip
        grid[-1, column].set_xlabel("feed-forward weight $w$")
    present = {NAMES[code] for code in np.unique(record.outcome.values)}
    handles = [
        *basin_dots([name for name in FILL if name in present]),
        Line2D([], [], color=DIFFER, marker="o", markersize=8, markerfacecolor="none",
               linestyle="none", label="learned or trapped, not as predicted"),
        Line2D([], [], color="k", linestyle="--", label="boundary in the plane"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    starts = len(record.e)
    figure.suptitle(
        f"Where {starts} transformers with $S$ logits end (gradient descent, $d$ = {DIMENSION}, "
        "$m$ = 4, noise on every weight), beside the plane of $S$ states", fontsize=11
    )  # fmt: skip
    return figure


def panel(axes: Axes, case: xr.Dataset, e: np.ndarray, w: np.ndarray) -> None:
    """The outcomes of one case; rings where they are decided otherwise than predicted."""
    predicted, outcome = case.predicted.values, case.outcome.values
    for code in np.unique(outcome):
        name, on = NAMES[code], outcome == code
        axes.scatter(w[on], e[on], s=14, c=FILL[name], marker=MARKER[name],
                     edgecolors=INK[name], linewidths=0.4)  # fmt: skip
    decided = outcome != Label.UNRESOLVED
    off = decided & (predicted != outcome) & (outcome != Label.SADDLE)
    axes.scatter(w[off], e[off], s=34, facecolors="none", edgecolors=DIFFER, linewidths=0.8)
    above = float(case.p) > (int(case.states) - 1) / int(case.states)
    omega = np.linspace(-1, -0.01, 400) if above else np.linspace(-4.2, -1, 400)  # ω = √m w
    square = 2 * omega**2 - 2 - 4 * np.log(-omega)
    axes.plot(omega / 2, np.sqrt(np.maximum(square, 0)), "k--", linewidth=0.8)
    agree = int((predicted == outcome)[decided].sum())
    axes.set_title(f"{agree} of {int(decided.sum())} decided as predicted", fontsize=8.5)


main = experiment(__name__, compute, numbers, draw, full={"side": 40})
