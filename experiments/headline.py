"""Does the transformer leave the unigram? Gradient descent and AdamW, tied and untied, two depths.

What AM and LG report: a single-layer transformer with tied weights stays at the unigram loss where
p + q > 1 and reaches the bigram loss where p + q < 1; untied, or with two layers, it reaches the
bigram loss in both (AM Figs. 1 and 3).

What this script does: eight seeds of each case from Gaussian weights of deviation 0.02, d = 8,
r = 32, trained twice over: by gradient descent on the exact population loss (N = 8, all 256
sequences), and by AdamW with the numbers of AM Table 2 on fresh batches of 16 sequences.

What differs from the papers: sequences of N = 64 instead of 1 024 for AdamW (--length 1024 is the
papers' size) and of N = 8 for gradient descent, which the papers do not use; no layer norm, ReLU
and float64, as in the papers' theory, where their code has layer norm, GELU and half precision; a
correct stationary start and correct last targets (their code draws P(x₁ = 1) = q/(p + q) and ends
every sequence with the target 0); the loss shown is the entropy rate plus the divergence from the
chain on 64 held-out sequences per model (exact for gradient descent), not the training batch's.

What we find: docs/results/escape.md, and headline.json with every number.

    python experiments/headline.py [--seeds 8] [--length 64] [--steps 8000] [--overwrite]
"""

import json
from typing import Any

import numpy as np
import papers
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, ORANGE, experiment

from full_model import Architecture, Recipe, papers_recipe

CHAINS = (ABOVE, BELOW)
TRAINERS = {"gd": "population gradient descent", "adamw": "AdamW, batches of 16"}
#: Colour, dashes, width and strength of a curve: one layer as a pale band under two, so that both
#: are seen where they coincide.
STYLES = {
    "tied": (BLUE, "-", 5.0, 0.09),
    "untied": (ORANGE, "--", 1.0, 0.9),
    "two layers, tied": ("#000000", "-.", 1.2, 0.9),
}


def compute(seeds: int = 8, length: int = 64, steps: int = 8000, descent_length: int = 8,
            descent_steps: int = 1600) -> xr.Dataset:  # fmt: skip
    """All cases trained, over case, line (of telemetry) and model."""
    recipes = {
        "gd": (descent_length, Recipe("gd", steps=descent_steps, learning_rate=0.5)),
        "adamw": (length, papers_recipe(steps=steps)),
    }
    cases = {
        f"{trainer}, {name}": papers.ensemble(
            Architecture(8, n, layers=1 + name.startswith("two"), tied=name != "untied"),
            recipe, CHAINS, seeds, dtype="float64",
        )
        for trainer, (n, recipe) in recipes.items()
        for name in STYLES
    }  # fmt: skip
    kept = ("train_loss", "canonical", "relative_distance", "attention_share")
    return papers.trained(cases, keep=kept)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per case and chain: final losses, and plateau and escape in steps."""
    lines = [
        summary(papers.chain_part(record.sel(case=f"{trainer}, {name}"), chain), trainer, name)
        for trainer in TRAINERS for name in STYLES for chain in CHAINS
    ]  # fmt: skip
    return {"results": lines}


def summary(part: xr.Dataset, trainer: str, name: str) -> dict[str, Any]:
    """The numbers of one case and chain."""
    final, left = papers.last(part.loss), papers.finite(part.escape)
    return {
        "trainer": trainer, "model": name, "p": float(part.p[0]), "q": float(part.q[0]),
        "seeds": len(final),
        "unigram": float(part.stationary_entropy[0]), "bigram": float(part.entropy_rate[0]),
        "final_loss_median": papers.median(final),
        "final_loss_min": float(final.min()), "final_loss_max": float(final.max()),
        "left_the_unigram": len(left),
        "escape_step_min": float(left.min()) if len(left) else None,
        "escape_step_median": papers.median(left),
        "escape_step_max": float(left.max()) if len(left) else None,
        "plateau_steps_median": papers.median(part.plateau_length[np.isfinite(part.escape.values)]),
        "attention_share_median": papers.median(papers.last(part.attention_share)),
    }  # fmt: skip


def draw(record: xr.Dataset) -> Figure:
    """Loss curves: a row per trainer, a column per chain."""
    figure = Figure(figsize=(10, 6.6), layout="constrained")
    grid = figure.subplots(2, 2, sharex="row", width_ratios=(1.5, 1))
    runs = json.loads(record.attrs["settings"])
    for row, (trainer, words) in zip(grid, TRAINERS.items(), strict=True):
        arch = runs[f"{trainer}, tied"]["arch"]
        for axes, chain in zip(row, CHAINS, strict=True):
            for name, (colour, dash, width, alpha) in STYLES.items():
                part = papers.chain_part(record.sel(case=f"{trainer}, {name}"), chain)
                papers.draw_losses(axes, part, name, ls=dash, color=colour, lw=width, alpha=alpha)
            papers.draw_levels(axes, chain)
            sizes = f"$d$ = {arch['d']}, $N$ = {arch['length']}, {part.sizes['model']} seeds"
            axes.set_title(f"{words}: {sizes}\n{papers.caption(chain)}", fontsize=9)
            axes.set(xlabel="step", ylabel="next-symbol loss (nats)")
    for handle in filter(None, papers.legend_below(grid[0, 0], 3).legend_handles):
        handle.set_alpha(0.8)
    figure.suptitle(
        "At $p + q > 1$ tied weights stay at the unigram: to the end under gradient descent,\n"
        "for a while under AdamW; untied weights do not, and at $p + q < 1$ none does", fontsize=10
    )  # fmt: skip
    return figure


main = experiment(__name__, compute, numbers, draw)
