"""Standard against LG's recommended initialization at p = 0.5, q = 0.8, tied weights (LG).

The paper shows: from standard weights, N(0, 0.02²), training ends at the unigram; from the
recommended ones, W_1 = 1 and W_2 = −1 in every entry, which lie in the good basin of the canonical
flow, it reaches the bigram.

We differ: the recommendation does not always work, and the side of the embedding says when.
W_1 has one sign, so the symbol one opens the ReLU only if ε = Σᵢeᵢ/√d is positive at the start,
which is a coin toss. Under gradient descent 8 of 8 starts with ε > 0 reach the bigram and 1 of 8
with ε < 0. A third start, our own, has W_1 and W_2 times the sign of ε.

    python experiments/lg_initialization.py [--papers]     about two minutes on one core

--papers takes N = 1 024 and 8 000 steps: hours on one core, or --device cuda. Gradient descent runs
at rate 0.02: the recommended feed-forward layer is so steep that 0.1 overshoots.
"""

from dataclasses import replace
from typing import Any

import papers
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BLUE, GREEN, PINK, experiment
from torch import Tensor

from full_model import Architecture, Recipe, Weights, papers_recipe, starting_weights

DESCENT_LENGTH = 6
DESCENT_RATE = 0.02
STYLES = {
    "gaussian": (BLUE, "-", "gaussian, N(0, 0.02²)"),
    "recommended": (PINK, "--", "recommended"),
    "matched": (GREEN, ":", "matched: recommended, with the sign of $\\varepsilon$"),
}


def compute(seeds: int = 16, length: int = 64, steps: int = 4000, descent_steps: int = 4000,
            device: str = "cpu") -> xr.Dataset:  # fmt: skip
    """Loss curves from the initializations, by AdamW at d = 4 and 8 and by gradient descent."""
    adamw = papers_recipe(steps=steps)
    descent = Recipe("gd", steps=descent_steps, learning_rate=DESCENT_RATE)
    panels = {
        "AdamW, d = 4": (4, length, adamw),
        "AdamW, d = 8": (8, length, adamw),
        "population gradient descent, d = 8": (8, DESCENT_LENGTH, descent),
    }
    runs, initial = {}, {}
    for panel, (d, n, recipe) in panels.items():
        for start in STYLES:
            name = f"{panel}; {start}"
            init = "gaussian" if start == "gaussian" else "recommended"
            runs[name] = papers.ensemble(
                Architecture(d, n), recipe, [ABOVE], seeds, init=init, test_batch=16, device=device
            )
            if start == "matched":
                initial[name] = matched(starting_weights(runs[name]))
                runs[name] = replace(runs[name], init="given")
    sides = [side(initial.get(name) or starting_weights(run)) for name, run in runs.items()]
    record = papers.trained(runs, initial=initial)
    return record.assign(side=(("case", "model"), torch.stack(sides).numpy()))


def side(weights: Weights) -> Tensor:
    """ε = Σᵢ eᵢ/√d, the embedding along the recommended W_1's own direction, (M,).

    W_1 has equal positive rows, and the symbol one opens the ReLU if ε > 0.
    """
    e = weights["embedding"]
    return e.sum(-1) / e.shape[-1] ** 0.5


def matched(weights: Weights) -> Weights:
    """The recommended weights with W_1 and W_2 times sign(ε), as the canonical point has them."""
    sign = side(weights).sign()[:, None, None]
    return weights | {name: sign * weights[name] for name in ("0.up", "0.down")}


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per trainer and start: how many seeds reach the bigram, with the interval, and when.

    Also by the side ε of the embedding at the start; see ``side``.
    """
    found = {}
    for name in record.case.values:
        case = record.sel(case=name)
        reached, side = papers.open_share(case) < 0.05, case.side.values
        found[str(name)] = papers.outcome(case) | {
            f"ε {sign} 0 at the start": {
                "models": int(where.sum()), "bigram": int(reached[where].sum())
            }
            for sign, where in ((">", side > 0), ("<", side < 0))
        }  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """A panel per trainer, a colour per start, a curve per seed."""
    panels = list(dict.fromkeys(str(name).split("; ")[0] for name in record.case.values))
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        reached = []
        for start, (colour, dash, word) in STYLES.items():
            case = record.sel(case=f"{panel}; {start}")
            wide = 2.4 if start == "recommended" else 0.9  # it lies under the matched ones
            papers.draw_losses(axes, case, word, ls=dash, color=colour, lw=wide, alpha=0.6)
            reached.append(f"{start} {papers.outcome(case)['bigram']}")
        papers.draw_levels(axes, ABOVE)
        axes.set_ylim(top=ABOVE.stationary_entropy + 0.7 * ABOVE.mutual_information)
        axes.set(xlabel="step")
        count = record.sizes["model"]
        axes.set_title(f"{panel}, of {count} at the bigram\n{', '.join(reached)}", fontsize=9)
    figure.axes[0].set_ylabel("next-symbol loss (nats)")
    papers.legend_below(figure.axes[0], 3)
    figure.suptitle(
        "Not every run from LG's recommended start reaches the bigram; more do with the sign of "
        f"$\\varepsilon$ matched ({papers.caption(ABOVE)})", fontsize=11
    )  # fmt: skip
    return figure


main = experiment(__name__, compute, numbers, draw, papers={"length": 1024, "steps": 8000})
