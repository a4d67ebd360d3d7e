"""Weight tying against loss and predicted probability, both chains (AM Fig. 3).

The paper shows: at (0.5, 0.8) tied weights stay at the unigram loss and predict π₁ after
either symbol, untied ones reach the bigram; at (0.2, 0.3) both reach the bigram.

    python experiments/am_fig3_tying.py [--papers]     about one minute on one core
"""

import papers
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, GREEN, experiment

from flowsim.drawing.comparison import mark_level
from full_model import Architecture, Recipe, papers_recipe

DESCENT_LENGTH = 6
PANELS = ("AdamW, d = 4", "AdamW, d = 8", "population gradient descent, d = 8")
STYLES = {"tied": (BLUE, "-", 2.6, 0.45), "untied": (GREEN, "--", 1.0, 0.9)}


def compute(seeds: int = 4, length: int = 64, steps: int = 4000, descent_steps: int = 400,
            device: str = "cpu") -> xr.Dataset:  # fmt: skip
    """Loss and predicted probabilities over training, tied and untied, by both trainers."""
    adamw = papers_recipe(steps=steps)
    descent = Recipe("gd", steps=descent_steps, learning_rate=0.5)
    runs = ((4, length, adamw), (8, length, adamw), (8, DESCENT_LENGTH, descent))
    cases = {
        f"{panel}; {kind}": papers.ensemble(
            Architecture(d, n, tied=kind == "tied"), recipe, (ABOVE, BELOW), seeds, device=device
        )
        for panel, (d, n, recipe) in zip(PANELS, runs, strict=True)
        for kind in STYLES
    }
    return papers.trained(cases)


def numbers(record: xr.Dataset) -> dict[str, object]:
    """Per trainer, tying and chain: where it ends, and the last predicted P(1 | 0), P(1 | 1)."""
    found: dict[str, object] = {}
    for name, chain, part in papers.by_chain(record, (ABOVE, BELOW)):
        predicted = papers.last(part.probability)
        found[name] = papers.outcome(part) | {
            "predicted_after_0": papers.spread(predicted[:, 0]),
            "predicted_after_1": papers.spread(predicted[:, 1]),
            "bigram_probabilities": [chain.p, 1 - chain.q],
            "unigram_probability": chain.stationary[1],
        }
    return found


def draw(record: xr.Dataset) -> Figure:
    """Columns: trainers; rows: loss and predicted probabilities on either chain."""
    figure = Figure(figsize=(12, 11), layout="constrained")
    grid = figure.subplots(4, 3, sharex="col", sharey="row")
    for column, panel in enumerate(PANELS):
        for row, chain in ((0, ABOVE), (2, BELOW)):
            above, below = grid[row, column], grid[row + 1, column]
            for kind, (colour, line, width, alpha) in STYLES.items():
                part = papers.chain_part(record.sel(case=f"{panel}; {kind}"), chain)
                style = {"color": colour, "ls": line, "lw": width, "alpha": alpha}
                papers.draw_losses(above, part, kind, **style)
                for symbol in (0, 1):
                    below.plot(part.step, part.probability.sel(symbol=symbol), **style)
            papers.draw_levels(above, chain)
            for text, level in {
                f"after 0: $p$ = {chain.p:g}": chain.p,
                f"after 1: $1-q$ = {1 - chain.q:g}": 1 - chain.q,
                f"unigram $\\pi_1$ = {chain.stationary[1]:.3f}": chain.stationary[1],
            }.items():
                mark_level(below, level, text)
            below.set_ylim(0.1, 0.8)
            above.set_title(f"{panel}\n{papers.caption(chain)}", fontsize=9.5)
        grid[-1, column].set_xlabel("step")
    for row in (0, 2):
        grid[row, 0].set_ylabel("next-symbol loss (nats)")
        grid[row + 1, 0].set_ylabel("mean predicted P(next = 1)\nafter a zero and after a one")
    papers.legend_below(grid[0, 0], 2)
    figure.suptitle(
        "At $p + q > 1$ tied weights linger at the unigram and untied ones do not; "
        "at $p + q < 1$ both learn the chain", fontsize=11
    )  # fmt: skip
    return figure


main = experiment(__name__, compute, numbers, draw, papers={"length": 1024, "steps": 8000})
