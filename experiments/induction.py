"""The plane of the reduced induction head, and what rules it at several lengths and priors.

    python experiments/induction.py

draws figures/induction.png, the plane at T = 12 with Dirichlet(1) kernels (the same as `flowsim
portrait --model induction --length 12`, whose record it is), and writes figures/induction.json: for
each length and prior the losses of the plateau, of both ends and of Bayes's predictor, and where on
the plateau the saddle lies. Everything is exact up to rounding; nothing is drawn at random but the
16 cells of the plane that torchdiffeq decides again.
"""

import math
from typing import Any

import torch
import xarray as xr
from papers import experiment

from flowsim import (
    DirichletPrior,
    DoublyStochasticPrior,
    InductionModel,
    MixturePrior,
    draw,
    induction_landscape,
    portrait_record,
    summarize,
)

LENGTHS = (6, 9, 12, 16)
PRIORS = {
    "Dirichlet(1)": DirichletPrior(2),
    "75 % doubly stochastic, 25 % Dirichlet(1)": MixturePrior(
        [DoublyStochasticPrior(2), DirichletPrior(2)], [0.75, 0.25]
    ),
    "doubly stochastic": DoublyStochasticPrior(2),
}


def compute(length: int = 12) -> xr.Dataset:
    """The plane at that length."""
    return portrait_record(InductionModel(length))


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """What the plane shows, and what rules it at other lengths and priors."""
    lines = [landscape(name, length) for name in PRIORS for length in LENGTHS]
    return {"plane": summarize(record), "landscapes": lines}


def landscape(name: str, length: int) -> dict[str, Any]:
    """The losses of one length and prior, and the saddle."""
    model = InductionModel(length, PRIORS[name])
    found = induction_landscape(model)
    (saddle,) = found.saddles
    learned, trapped = found.ends[found.best], found.ends[-found.best]
    return {
        "prior": name,
        "length": length,
        "plateau": found.plateau,
        "bayes": model.bayes,
        "learned": learned.loss,
        "learned_at": [learned.share, learned.beta],
        "trapped": trapped.loss,
        "trapped_at": [trapped.share, trapped.beta],
        "saddle_share": 1 / (1 + math.exp(-saddle)),
        "fastest_departure": float(-model.gradient(torch.tensor([40.0, 0.0]))[1]),
    }


main = experiment(__name__, compute, numbers, draw, record=False)
