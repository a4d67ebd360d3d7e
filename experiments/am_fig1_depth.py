"""Depth against the loss at which training is stuck, p = 0.5, q = 0.8, tied weights (AM Fig. 1).

The paper shows: a single layer with tied weights stays at the unigram loss, deeper models
reach the bigram.

We differ: the papers' Fig. 1 has the plateau as an end; at d = 8 we see its end within their
number of steps. With layer norm, GELU and two logits our tied layer of d = 4 leaves in 222 to 333
steps. Half precision was not tried.

    python experiments/am_fig1_depth.py [--papers]     about three minutes on one core
"""

from typing import Any

import numpy as np
import papers
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BLUE, GREEN, GREY, PINK, experiment

from full_model import Architecture, Recipe, papers_recipe

DESCENT_LENGTH = 6
CODE = "AdamW, d = 4, layer norm, GELU"
GRADIENT_DESCENT = "population gradient descent, d = 8"
STYLES = ((BLUE, "-"), (GREY, "--"), (GREEN, "-."), (PINK, ":"))


def compute(doublings: int = 2, seeds: int = 4, length: int = 64, steps: int = 3000,
            descent_steps: int = 400, device: str = "cpu") -> xr.Dataset:  # fmt: skip
    """Loss curves of depth 1, 2, … 2^doublings, by AdamW (d = 4, 8) and gradient descent."""
    adamw = papers_recipe(steps=steps)
    descent = Recipe("gd", steps=descent_steps, learning_rate=0.5)
    depths = [2**i for i in range(doublings + 1)]
    plain: dict[str, Any] = {"layer_norm": False, "activation": "relu", "output": "binary"}
    code: dict[str, Any] = {"layer_norm": True, "activation": "gelu", "output": "states"}
    panels = {
        "AdamW, d = 4": (4, plain, length, adamw, depths),
        "AdamW, d = 8": (8, plain, length, adamw, depths),
        CODE: (4, code, length, adamw, [1]),
        GRADIENT_DESCENT: (8, plain, DESCENT_LENGTH, descent, depths),
    }
    return papers.trained({
        f"{panel}; {layers}": papers.ensemble(
            Architecture(d, n, layers=layers, **choices), recipe, [ABOVE], seeds, device=device
        )
        for panel, (d, choices, n, recipe, layered) in panels.items()
        for layers in layered
    })  # fmt: skip


def numbers(record: xr.Dataset) -> dict[str, object]:
    """End of every depth, and the step at which it left the unigram."""
    return {str(name): papers.outcome(record.sel(case=name)) for name in record.case.values}


def draw(record: xr.Dataset) -> Figure:
    """A panel per trainer, a colour per depth, a curve per seed."""
    panels = list(dict.fromkeys(str(name).split("; ")[0] for name in record.case.values))
    figure = Figure(figsize=(13, 4.0), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        names = [str(name) for name in record.case.values if str(name).startswith(f"{panel};")]
        for name, (colour, line) in zip(names, STYLES, strict=False):
            case, depth = record.sel(case=name), int(name.split("; ")[1])
            # the shallower under the deeper: all are seen where they coincide
            width = {1: 5.0, 2: 2.4}.get(depth, 0.9)
            style = {"color": colour, "ls": line, "lw": width, "alpha": 0.4 if depth == 1 else 0.9}
            papers.draw_losses(axes, case, f"{depth} layer{'s' * (depth > 1)}", **style)
        papers.draw_levels(axes, ABOVE)
        steps, seeds = int(np.nanmax(case.step)), record.sizes["model"]
        axes.set(title=f"{panel}\n{steps} steps, {seeds} seeds a depth", xlabel="step")
        axes.title.set_fontsize(10)
        if panel == GRADIENT_DESCENT:
            axes.text(0.5, 0.45, "all depths coincide", transform=axes.transAxes, ha="center",
                      fontsize=9)  # fmt: skip
    figure.axes[0].set_ylabel("next-symbol loss (nats)")
    papers.legend_below(figure.axes[0], 4)
    figure.suptitle(
        "Deeper tied models leave the unigram earlier under AdamW; under gradient descent none "
        f"does ({papers.caption(ABOVE)})", fontsize=11
    )  # fmt: skip
    return figure


main = experiment(
    __name__, compute, numbers, draw, papers={"doublings": 3, "length": 1024, "steps": 8000}
)
