"""Does the transformer with S logits go where the plane of S states says, noise on every weight?

The plane (e, w) of S states is a set that training without noise never leaves
(docs/derivations/13.md). Starts of a 20 × 20 grid over |e|, |w| ≤ 2, of which −e is the same run
and 0 < e ≤ 2 is trained, are lifted into whole transformers: one layer, softmax attention, S
logits, m = 4 hidden units for each state, d = 8; N = 4, 3, 2 for S = 2, 3, 5. Normal noise of
deviation 0, 0.02 or 0.1 is added to every weight, the seed of start i being i. Gradient descent on
the exact population loss, each step 0.8 over the run's own bound on the curvature, until loss and
curvature decide, or 5 000 steps are used up.

    python experiments/states_agreement.py [--overwrite] [--side 20]     minutes on one core
"""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from papers import draw_ends, experiment, stacked, timed

from flowsim.drawing.style import FILL, basin_dots
from flowsim.labels import BASINS, Label
from full_model import Comparison, compare, grid_points, wilson
from full_model.comparison.outcome import EndReason

#: N by S: with noise all S^N sequences are summed over.
LENGTHS = {2: 4, 3: 3, 5: 2}
#: S and p on both sides of every threshold.
CHAINS = ((2, 0.65), (2, 0.35), (3, 0.8), (3, 0.5), (5, 0.95), (5, 0.65))
NOISE, DIMENSION = (0.0, 0.02, 0.1), 8
#: The S that is drawn.
SHOWN = 3
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
    """Counts for every case: decided, agreeing, the ends of the others, open runs and why."""
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
    """S = 3 on both sides of its threshold, a column per noise; the table has the other S."""
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    grid = figure.subplots(2, len(NOISE), sharex=True, sharey=True)
    grid[0, 0].set(xlim=(-2.1, 2.1), ylim=(0, 2))
    chains = [(states, p) for states, p in CHAINS if states == SHOWN]
    for row, (states, p) in zip(grid, chains, strict=True):
        for axes, noise in zip(row, NOISE, strict=True):
            name = f"S = {states}, p = {p:g}, noise {noise:g}"
            panel(axes, record.sel(case=name), record.e.values, record.w.values)
        sign, side = (">", "above") if p > (states - 1) / states else ("<", "below")
        row[0].set_ylabel(f"$p$ = {p:g} ${sign}$ {states - 1}/{states}, {side}\nembedding $e$")
    for axes in grid[-1]:
        axes.set_xlabel("feed-forward weight $w$")
    shown = record.isel(case=(record.states == SHOWN).values)
    present = {NAMES[code] for code in np.unique(shown.outcome.values)}
    handles = [
        *basin_dots([name for name in FILL if name in present]),
        Line2D([], [], color="k", linestyle="--", label="boundary in the plane: trapped beyond"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        "Above the threshold whole transformers end where the plane says; below, its trap is a "
        f"saddle that noise leaves\n{len(record.e)} starts, $S$ = {SHOWN} logits, gradient "
        f"descent, $d$ = {DIMENSION}, $m$ = 4, noise on every weight", fontsize=11
    )  # fmt: skip
    return figure


def panel(axes: Axes, case: xr.Dataset, e: np.ndarray, w: np.ndarray) -> None:
    """The outcomes of one case, and what became of those that the plane traps."""
    predicted, outcome = case.predicted.values, case.outcome.values
    draw_ends(axes, e, w, outcome, 14, 0.4)
    above = float(case.p) > (int(case.states) - 1) / int(case.states)
    omega = np.linspace(-1, -0.01, 400) if above else np.linspace(-4.2, -1, 400)  # ω = √m w
    square = 2 * omega**2 - 2 - 4 * np.log(-omega)
    axes.plot(omega / 2, np.sqrt(np.maximum(square, 0)), "k--", linewidth=0.8)
    trapped = predicted == Label.LOCAL_MINIMUM
    stay, learn = (int((outcome[trapped] == end).sum())
                   for end in (Label.LOCAL_MINIMUM, Label.GLOBAL_MINIMUM))  # fmt: skip
    axes.set_title(
        f"noise {float(case.noise):g}: of {int(trapped.sum())} called trapped\n"
        f"{stay} are, {learn} learn", fontsize=10
    )  # fmt: skip


main = experiment(__name__, compute, numbers, draw, full={"side": 40})
