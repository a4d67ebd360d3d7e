"""The rank-one energy over training, from random and from rank-one starts (LG).

The paper shows: started at random, the weight matrices become rank one as training goes on
(σ₁²/Σσᵢ² tends to one); started at rank one, they stay so.

We differ: the growth of the rank-one energy from small random weights is AdamW's, whose step
does not shrink with the gradient; the gradient flow that the theory is about does not show it.

    python experiments/lg_rank_one_energy.py [--papers]     about a minute on one core
"""

import numpy as np
import papers
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, GREEN, GREY, PINK, experiment

from full_model import Architecture, Recipe, papers_recipe

DESCENT_LENGTH = 6
STARTS = ("gaussian", "rank-one")
STYLES = {
    "positions": ("positions $p_n$", "#000000", "-"),
    "0.query": ("$W_Q$", "#56B4E9", "-."),
    "0.key": ("$W_K$", "#E69F00", ":"),
    "0.value": ("$W_V$", PINK, "-"),
    "0.out": ("$W_O$", GREEN, "--"),
    "0.up": ("$W_1$", BLUE, "-"),
    "0.down": ("$W_2$", GREY, "--"),
}


def compute(d: int = 8, seeds: int = 4, length: int = 64, steps: int = 4000,
            descent_steps: int = 2000, device: str = "cpu") -> xr.Dataset:  # fmt: skip
    """σ₁²/Σσ² of every weight matrix while tied single layers train, by both trainers."""
    recipes = {
        "AdamW": (length, papers_recipe(steps=steps)),
        "GD": (DESCENT_LENGTH, Recipe("gd", steps=descent_steps, learning_rate=0.5)),
    }
    cases = {
        f"{trainer}; {start}": papers.ensemble(
            Architecture(d, n), recipe, (ABOVE, BELOW), seeds, init=start, test_batch=16,
            device=device,
        )
        for trainer, (n, recipe) in recipes.items()
        for start in STARTS
    }  # fmt: skip
    return papers.trained(cases, keep=("leading_share", "relative_distance"))


def numbers(record: xr.Dataset) -> dict[str, object]:
    """Per case and chain: the energy of every matrix at the start and at the end, over seeds."""
    found: dict[str, object] = {}
    for name, _, part in papers.by_chain(record, (ABOVE, BELOW)):
        first, end = part.leading_share.isel(line=0).values, papers.last(part.leading_share)
        energy = {  # NaN, and None here, of matrices that are zero
            str(matrix): {
                "start_median": papers.median(first[:, i]),
                "end_median": papers.median(end[:, i]),
                "end_min": float(end[:, i].min()) if np.isfinite(end[:, i]).all() else None,
            }
            for i, matrix in enumerate(record.matrix.values)
        }
        far = papers.median(papers.last(part.relative_distance))
        found[name] = papers.outcome(part) | {"energy": energy, "relative_distance_median": far}
    return found


def draw(record: xr.Dataset) -> Figure:
    """Rows: trainer; columns: chain; by matrix the seeds' median and range, from Gaussian weights.

    Rank-one starts stay at 1 wherever a matrix is not zero; their least value is written.
    """
    figure = Figure(figsize=(10, 7.2), layout="constrained")
    grid = figure.subplots(2, 2, sharex="row", sharey=True)
    words = {"AdamW": "AdamW", "GD": "population gradient descent"}
    for row, trainer in zip(grid, words, strict=True):
        for axes, chain in zip(row, (ABOVE, BELOW), strict=True):
            part = papers.chain_part(record.sel(case=f"{trainer}; gaussian"), chain)
            for matrix, (label, colour, line) in STYLES.items():
                share = part.leading_share.sel(matrix=matrix)
                axes.plot(part.step, share.median("model"), color=colour, linestyle=line,
                          linewidth=1.4, label=label)  # fmt: skip
                axes.fill_between(part.step, share.min("model"), share.max("model"), color=colour,
                                  alpha=0.12, linewidth=0)  # fmt: skip
            other = papers.chain_part(record.sel(case=f"{trainer}; rank-one"), chain)
            least = float(other.leading_share.min())
            axes.set_title(
                f"{words[trainer]}, Gaussian start\n{papers.caption(chain)}\n"
                f"(least from a rank-one start: {least:.4f})", fontsize=9.5,
            )  # fmt: skip
            axes.set(ylim=(0, 1.03), xlabel="step")
        row[0].set_ylabel("rank-one energy $\\sigma_1^2/\\Sigma\\sigma_i^2$")
    papers.legend_below(grid[0, 0], 7)
    figure.suptitle(
        "From Gaussian weights AdamW makes most matrices nearly rank one; gradient descent does "
        "not\nlines: medians of the seeds; bands: all of them", fontsize=11
    )  # fmt: skip
    return figure


main = experiment(__name__, compute, numbers, draw, papers={"length": 1024, "steps": 8000})
