"""The plane of five states on both sides of its threshold, with full training from noisy starts.

    python experiments/states.py

draws figures/portrait_states.png, S = 5 at p = 0.9 and p = 0.7 (threshold 4/5), and writes
figures/states.json: gradient descent of the full transformer with S logits (no attention, d = 8,
m = 4) on the exact population loss, from 20 x 20 lifted starts with -1.5 < e < 1.5, -1 < w < 0.5,
without noise and with normal noise on every weight, each beside what the plane predicts. A run has
learned when less than 5 % of the gap between the two losses is open at the end, and is at the
unigram when more than 95 % is. What we find: docs/results/states.md.
"""

from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import experiment, timed

from flowsim import MarkovChain, find_limits, portrait
from flowsim.drawing import draw_models_side_by_side
from flowsim.labels import Label
from flowsim.models import StatesModel
from full_model import Architecture, MarkovSource, PopulationLoss, Weights, lift_states

STATES, CHANCES, NOISE = 5, (0.9, 0.7), (0.0, 0.02)
HIDDEN, DIMENSION, SIDE, RATE, SEED = 4, 8, 20, 0.2, 0


Found = tuple[list[xr.Dataset], list[dict[str, Any]]]


def compute(steps: int = 10_000) -> Found:
    """The planes on both sides, and the runs from the grid."""
    planes = [StatesModel(MarkovChain.symmetric(STATES, p), HIDDEN) for p in CHANCES]
    records = [portrait(plane, (-1.5, 1.5), (-3.0, 3.0)) for plane in planes]
    return records, [trained(*case, steps) for case in timed(product(planes, NOISE))]


def numbers(found: Found) -> dict[str, Any]:
    """The settings and the runs."""
    return {"states": STATES, "hidden_per_state": HIDDEN, "d": DIMENSION, "grid": SIDE,
            "learning_rate": RATE, "seed": SEED, "runs": found[1]}  # fmt: skip


def figure_of(found: Found) -> dict[str, Figure]:
    """Both planes beside each other."""
    return {"portrait_states": draw_models_side_by_side(found[0])}


def descended(
    loss: PopulationLoss, weights: Weights, noise: float, rate: float, steps: int
) -> torch.Tensor:
    """The loss (M,) before the last step of descent from the weights with noise on each."""
    generator = torch.Generator().manual_seed(SEED)
    weights = {
        name: part + noise * torch.randn(part.shape, dtype=part.dtype, generator=generator)
        for name, part in weights.items()
    }
    value = torch.zeros(0)
    for _ in range(steps):
        value, gradient = loss.value_and_gradient(weights)
        weights = {name: part - rate * gradient[name] for name, part in weights.items()}
    return value


def trained(plane: StatesModel, noise: float, steps: int) -> dict[str, Any]:
    """Share of full training that ends as the plane predicts, by counts."""
    arch = Architecture(DIMENSION, 1, hidden=HIDDEN * STATES, states=STATES, output="states",
                        attention="none")  # fmt: skip
    loss = PopulationLoss(arch, MarkovSource.of(plane.chain))
    e, w = (low + (np.arange(SIDE) + 0.5) / SIDE * (high - low)
            for low, high in ((-1.5, 1.5), (-1.0, 0.5)))  # fmt: skip
    theta = torch.from_numpy(np.stack(np.meshgrid(e, w, indexing="ij"), -1).reshape(-1, 2))
    value = descended(loss, lift_states(theta, arch), noise, RATE, steps)
    open_share = (value - plane.chain.entropy_rate) / plane.chain.mutual_information
    learned, stays = (open_share < 0.05).numpy(), (open_share > 0.95).numpy()
    predicted = (find_limits(plane, theta).label == Label.GLOBAL_MINIMUM).numpy()
    return {
        "p": plane.chain.p, "noise": noise, "runs": len(theta),
        "predicted to learn": int(predicted.sum()),
        "learned as predicted": int((predicted & learned).sum()),
        "at the unigram as predicted": int((~predicted & stays).sum()),
        "learned against prediction": int((~predicted & learned).sum()),
        "at the unigram against prediction": int((predicted & stays).sum()),
        "between": int((~learned & ~stays).sum()),
    }  # fmt: skip


main = experiment(__name__, compute, numbers, figure_of, record=False)
