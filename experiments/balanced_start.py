"""Four starts beside each other: what to do at p + q > 1, and where p + q is not known.

Starts: "gaussian", N(0, 0.02²); "recommended", W_1 = 1 and W_2 = −sign(p + q − 1); "matched", that
times the sign of the embedding's sum; "balanced". Softmax transformer, tied, 16 seeds on each of
four chains; population gradient descent (d = 8, N = 6; rate 0.1, and 0.02 for twice the steps where
W_1 = 1, which overshoots at 0.1) and AdamW as in AM Table 2 (d = 4 and 8, N = 16, fewer steps). A
run is at the bigram if less than 5 % of the gap is open at the end, at the unigram above 95 %.

    python experiments/balanced_start.py      minutes on one core
"""

from dataclasses import replace
from typing import Any

import papers
import xarray as xr
from lg_initialization import matched
from papers import experiment

from flowsim import BinaryChain
from full_model import Architecture, Recipe, papers_recipe, starting_weights

CHAINS = tuple(BinaryChain(*pair) for pair in ((0.5, 0.8), (0.9, 0.9), (0.7, 0.4), (0.2, 0.3)))
STARTS = ("gaussian", "recommended", "matched", "balanced")
PANELS = {
    "population gradient descent, d = 8, N = 6": (8, 6, "gd"),
    "AdamW, d = 4, N = 16": (4, 16, "adamw"),
    "AdamW, d = 8, N = 16": (8, 16, "adamw"),
}


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


main = experiment(__name__, compute, numbers, None)
