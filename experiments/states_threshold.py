"""At which p is training on S states trapped at the unigram? Ensembles beside the prediction.

AM Sec. 4.3 leaves the threshold open. For tied weights the library predicts a trap where the second
eigenvalue λ = 1 − pS/(S − 1) is negative, p > (S − 1)/S (docs/derivations/14.md); for untied
weights none. Here one layer with softmax attention and S logits (N = 2, d = S + 1, 4 hidden units
for each state) is trained from N(0, 0.02²) on the exact population loss, tied and untied, by
gradient descent at the rate 0.2 S and by AdamW on the same loss (rate 1e-3, betas 0.9 and 0.95,
weight decay 1e-3), at λ(S − 1) = ±0.1 … ±0.8, ten states at ±0.1 and ±0.4. A run is trapped if more
than 95 % of the gap between unigram and bigram is open at the end, has learned if less than 5 % is;
the rest is in between.

    python experiments/states_threshold.py      about ten minutes on one core
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from papers import ends, experiment, stacked, timed

from flowsim import MarkovChain
from full_model import Architecture, MarkovSource, PopulationLoss, Weights, initial_weights, wilson

#: λ(S − 1), from −1 where p = 1 to S − 1 where p = 0.
OFFSETS = (-0.8, -0.6, -0.4, -0.2, -0.1, 0.1, 0.2, 0.4, 0.6, 0.8)
#: Settings for ten states, whose runs take longest.
FEWER = {10: (-0.4, -0.1, 0.1, 0.4)}
LENGTH, RATE, STD = 2, 0.2, 0.02
TRAINERS = {"gd": "gradient descent", "adamw": "AdamW"}
STATES = (2, 3, 5, 10)


def chance(states: int, offset: float) -> float:
    """p at λ = offset/(S − 1)."""
    return (1 - offset / (states - 1)) * (states - 1) / states


def compute(largest: int = 10, seeds: int = 10, steps: int = 2000) -> xr.Dataset:
    """The open share of every run at its end, over case, offset and seed; NaN: not trained."""
    parts, several = {}, (s for s in STATES if s <= largest)
    for states, tied, trainer in timed(product(several, (True, False), TRAINERS)):
        offsets = FEWER.get(states, OFFSETS)
        share = np.full((len(OFFSETS), seeds), np.nan)
        on = [OFFSETS.index(x) for x in offsets]
        share[on] = trained(states, tied, trainer, seeds, steps, offsets)
        part = xr.Dataset({"open_share": (("offset", "seed"), share)})
        part = part.assign(states=states, tied=int(tied), trainer=trainer)
        parts[f"S = {states}, {'tied' if tied else 'untied'}, {TRAINERS[trainer]}"] = part
    whole = stacked(parts).assign_coords(offset=list(OFFSETS), seed=range(seeds))
    return whole.assign_attrs(steps=steps)


def trained(
    states: int, tied: bool, trainer: str, seeds: int, steps: int, offsets: tuple[float, ...]
) -> np.ndarray:
    """Open shares (offset, seed) after that many steps; seed i starts alike at every offset."""
    arch = Architecture(
        states + 1, LENGTH, hidden=4 * states, states=states, output="states", tied=tied
    )
    chains = [MarkovChain.symmetric(states, chance(states, x)) for x in offsets]
    source = MarkovSource.of([chain for chain in chains for _ in range(seeds)])
    loss = PopulationLoss(arch, source)
    weights = initial_weights(arch, "gaussian", list(range(seeds)) * len(chains), std=STD)
    step = adamw(weights) if trainer == "adamw" else descent(weights, RATE * states)
    for _ in range(steps):
        step(loss.value_and_gradient(weights)[1])
    with torch.no_grad():
        share = (loss(weights) - source.entropy_rate) / (
            source.stationary_entropy - source.entropy_rate
        )
    return share.reshape(len(chains), seeds).numpy()


def descent(weights: Weights, rate: float) -> Callable[[Weights], None]:
    """A step of gradient descent, in place."""

    def step(gradient: Weights) -> None:
        for name, value in gradient.items():
            weights[name] -= rate * value

    return step


def adamw(weights: Weights) -> Callable[[Weights], None]:
    """A step of AdamW with the papers' numbers and a constant rate, in place."""
    for weight in weights.values():
        weight.requires_grad_()
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-3)

    def step(gradient: Weights) -> None:
        for name, value in gradient.items():
            weights[name].grad = value
        optimizer.step()

    return step


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Counts for every case and p: trapped, learned, in between."""
    found: dict[str, Any] = {}
    for name in record.case.values:
        case = record.sel(case=name)
        states = int(case.states)
        found[str(name)] = {
            "states": states,
            "threshold": (states - 1) / states,
            "lines": [_counted(states, float(x), case.open_share.sel(offset=x).values)
                      for x in FEWER.get(states, OFFSETS)],
        }  # fmt: skip
    return found


def _counted(states: int, offset: float, share: np.ndarray) -> dict[str, Any]:
    at = ends(share)
    return {
        "p": chance(states, offset), "lambda": offset / (states - 1), "runs": len(share),
        "trapped": at["unigram"], "interval": wilson(at["unigram"], len(share)),
        "learned": at["bigram"], "between": at["between"],
        "open_share": [float(x) for x in np.quantile(share, [0.0, 0.5, 1.0])],
    }  # fmt: skip


main = experiment(__name__, compute, numbers, None)
