"""Predicted probability over the square of all (p, q), tied and untied weights (AM Fig. 4).

The paper shows: with tied weights the model predicts p where p + q < 1 and the stationary
probability where p + q > 1; untied it predicts p everywhere.

A pair counts as bigram if less than 5 % of the gap between the two losses is open at the end, as
unigram if more than 95 % is. On p + q = 1 both predictions are the same and nothing is counted.

We differ: not in the figure; in what it means for AdamW. The faults of the authors' code
(last target 0, first symbol from the wrong law) move no prediction by more than about 1/N.

    python experiments/am_fig4_square.py [--papers]     about one minute on one core
"""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from papers import ends, experiment, last, open_share, trained

from full_model import Architecture, Recipe, RunSettings, papers_recipe

DESCENT_LENGTH = 4
ROWS = ("tied", "untied")


def compute(d: int = 4, cells: int = 9, length: int = 64, steps: int = 3000,
            descent_steps: int = 1000, device: str = "cpu") -> xr.Dataset:  # fmt: skip
    """One model per pair (p, q) of a grid, tied and untied, by gradient descent and by AdamW."""
    line = [round((i + 1) / (cells + 1), 6) for i in range(cells)]
    recipes = {
        "AdamW": (length, papers_recipe(steps=steps), "float32"),
        "GD": (DESCENT_LENGTH, Recipe("gd", steps=descent_steps, learning_rate=0.5), "float64"),
    }
    cases = {
        f"{trainer}; {kind}": RunSettings(
            Architecture(d, n, tied=kind == "tied"),
            recipe,
            p=tuple(p for _ in line for p in line),
            q=tuple(q for q in line for _ in line),
            seeds=tuple(range(cells**2)),
            telemetry_every=max(1, recipe.steps // 40),
            test_batch=16,
            dtype=dtype,
            device=device,
        )
        for trainer, (n, recipe, dtype) in recipes.items()
        for kind in ROWS
    }
    return trained(cases)


def regimes(case: xr.Dataset) -> dict[str, np.ndarray]:
    """Masks of the pairs with p + q below, at and above one."""
    sign = np.sign(np.round(case.p.values + case.q.values - 1, 9))
    return {"p + q < 1": sign < 0, "p + q = 1": sign == 0, "p + q > 1": sign > 0}


def numbers(record: xr.Dataset) -> dict[str, object]:
    """Per case and regime: pairs that end at the bigram, at the unigram, in between.

    At p + q = 1 both are the same and nothing is counted. The errors are the largest distances of
    the mean predicted probabilities from (p, 1 − q).
    """
    found: dict[str, object] = {}
    for name in record.case.values:
        case = record.sel(case=name)
        share, predicted = open_share(case), last(case.probability)
        error = np.abs(predicted - np.stack([case.p, 1 - case.q], axis=-1)).max(-1)
        lines: dict[str, Any] = {}
        for regime, where in regimes(case).items():
            lines[regime] = {"pairs": int(where.sum()), "largest_error": float(error[where].max())}
            if regime != "p + q = 1":
                lines[regime] |= ends(share[where])
        found[str(name)] = lines
    return found


def draw(record: xr.Dataset) -> Figure:
    """Predicted P(1 | 0) over (p, q) by both trainers, and when AdamW left the unigram."""
    side = round(record.sizes["model"] ** 0.5)
    line = np.unique(record.p.values)
    half = (line[1] - line[0]) / 2
    extent = (line[0] - half, line[-1] + half) * 2
    figure = Figure(figsize=(11, 7.2), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    level = regimes(record.isel(case=0))["p + q = 1"].reshape(side, side)
    titles = {"GD": "gradient descent", "AdamW": "AdamW"}
    left = np.concatenate([record.sel(case=f"AdamW; {kind}").escape.values for kind in ROWS])
    slowest = max(float(np.max(left, initial=0.0, where=np.isfinite(left))), 1.0)
    for row, kind in enumerate(ROWS):
        for column, trainer in enumerate(titles):
            case, axes = record.sel(case=f"{trainer}; {kind}"), grid[row, column]
            predicted = last(case.probability)[:, 0].reshape(side, side)
            image = axes.imshow(
                predicted, origin="lower", extent=extent, vmin=0, vmax=1, cmap="viridis"
            )
            stuck = np.argwhere(open_share(case).reshape(side, side) > 0.95)
            axes.plot(line[stuck[:, 1]], line[stuck[:, 0]], "x", color="white", markersize=5)
            axes.set_title(f"{kind}, {titles[trainer]}: predicted P(1 | 0)", fontsize=10)
        figure.colorbar(image, ax=grid[row, 1])
        case, axes = record.sel(case=f"AdamW; {kind}"), grid[row, 2]
        escape = np.where(level, np.nan, case.escape.values.reshape(side, side))
        image = axes.imshow(
            escape, origin="lower", extent=extent, vmin=0, vmax=slowest, cmap="Purples"
        )
        for i, j in np.argwhere(np.isnan(escape) & ~level):
            corner = (line[j] - half, line[i] - half)
            axes.add_patch(Rectangle(corner, 2 * half, 2 * half, fill=False, hatch="///", lw=0))
        figure.colorbar(image, ax=axes, label="step at which half the gap is closed")
        axes.set_title(f"{kind}, AdamW: escape from the unigram", fontsize=10)
    for axes in grid.flat:
        axes.plot([0, 1], [1, 0], color="black", linewidth=1.2, linestyle="--")
        axes.set(xlim=extent[:2], ylim=extent[2:], facecolor="0.75")
    for axes in grid[1]:
        axes.set_xlabel("$p$ = P(0 → 1)")
    for axes in grid[:, 0]:
        axes.set_ylabel("$q$ = P(1 → 0)")
    figure.suptitle(
        "Tied weights end at the unigram where $p + q$ > 1 (crosses), untied weights nowhere\n"
        "Dashed and grey: $p + q$ = 1, where unigram and bigram are the same. Hatched: never left. "
        "The chain's P(1 | 0) is $p$. One model a pair, $d$ = 4.",
        fontsize=10,
    )
    return figure


main = experiment(
    __name__, compute, numbers, draw, papers={"cells": 19, "length": 1024, "steps": 8000}
)
