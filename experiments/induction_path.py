"""Trained two-layer transformers on the plane of the reduced induction head.

    python experiments/induction_path.py

draws figures/induction_path.png: the plane at T = 8 with Dirichlet(1) kernels, and over it the way
of three transformers (two layers of attention alone, d = 8, relative positions, not tied, normal
weights of deviation 0.2, seeds 0, 1, 2; none is left out) under gradient descent on the exact
population loss of sequences of 8 symbols, read off by ``full_model.fit_induction``; and writes
figures/induction_path.json. Where a symbol is drawn, β explains at least half of what in the second
layer's log attention depends on symbols; small dots are where it does not. The json also holds, at
two lengths, the least loss of a logit that is affine in the share that a perfect match finds, which
is how attention alone reads its logits.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from papers import GREEN, experiment
from scipy.optimize import minimize
from torch.nn.functional import logsigmoid

from flowsim import DirichletPrior, InductionModel, baselines, draw, portrait_record
from flowsim.chains.exact_losses import count_classes
from flowsim.drawing.style import TRAINED
from full_model import (
    Architecture,
    PriorSource,
    Recipe,
    Trainer,
    all_sequences,
    fit_induction,
    initial_weights,
)

LENGTH, SEEDS, DIMENSION, STD, RATE, LOOK = 8, (0, 1, 2), 8, 0.2, 2.0, 20
AFFINE = (LENGTH, 40)
#: What is read off a transformer at every look.
NAMES = ("loss", "alpha", "beta", "explained", "previous")
MARKS, COLOURS = ("o", "^", "s"), (TRAINED, GREEN, "black")


Found = tuple[dict[str, np.ndarray], xr.Dataset]


def compute(steps: int = 2000, resolution: int = 48, confirm: int = 16) -> Found:
    """The ways of the trained transformers, and the plane."""
    plane = portrait_record(InductionModel(LENGTH), resolution=resolution, confirm=confirm)
    return trained(steps), plane


def numbers(found: Found) -> dict[str, Any]:
    """Where the ways end, and what an affine logit can reach."""
    settings = {"length": LENGTH, "d": DIMENSION, "std": STD, "rate": RATE, "seeds": SEEDS}
    return {"settings": settings, "baselines": baselines(DirichletPrior(2), LENGTH),
            "affine": [affine_readout(length) for length in AFFINE],
            "ends": [{"seed": seed, **{name: float(found[0][name][-1, i]) for name in NAMES},
                      **{f"first_{name}": float(found[0][name][0, i]) for name in NAMES[:3]}}
                     for i, seed in enumerate(SEEDS)]}  # fmt: skip


def drawn(found: Found) -> Figure:
    """The ways over the plane, from their starts, where β explains the attention and where not."""
    way, plane = found
    figure = draw(plane)
    ax = figure.axes[0]
    x, y = ax.get_xlim(), ax.get_ylim()
    handles = []
    for i, (seed, mark, colour) in enumerate(zip(SEEDS, MARKS, COLOURS, strict=True)):
        alpha, beta, fits = (way[name][:, i] for name in ("alpha", "beta", "explained"))
        ax.plot(alpha, beta, color=colour, linewidth=1.2, zorder=6)
        poor = fits < 0.5
        ax.plot(alpha[poor], beta[poor], ".", color=colour, markersize=2, zorder=6)
        good = np.flatnonzero(~poor)[:: max(1, len(fits) // 20)]
        ax.plot(alpha[good], beta[good], mark, color=colour, markersize=4, zorder=7)
        ax.plot(alpha[:1], beta[:1], mark, color="white", markeredgecolor=colour, markersize=7,
                zorder=8)  # fmt: skip
        handles.append(Line2D([], [], color=colour, marker=mark, markersize=4,
                              label=f"trained transformer, seed {seed} (start white)"))  # fmt: skip
    ax.set(xlim=x, ylim=y)
    ax.legend(handles=handles, loc="upper right", fontsize=8)
    return figure


def affine_readout(length: int) -> dict[str, float]:
    """The least loss of the logit a(2r − 1) + b(2x_n − 1), Dirichlet(1) kernels, exactly.

    r is the share of ones among what followed x_n so far, one half where nothing did.
    """
    parts = []
    for classes in count_classes(DirichletPrior(2), length, 1):
        counts, context = classes.counts_of(1), classes.context_of(1)
        row = counts[torch.arange(len(context)), context]
        difference = (row[:, 1] - row[:, 0]) / row.sum(-1).clamp(min=1)
        one = (row[:, 1] + 1) / (row.sum(-1) + 2)
        own = 2.0 * context.double() - 1
        parts.append(torch.stack([difference, own, one, classes.weight / length]))
    difference, own, one, weight = torch.cat(parts, dim=1)

    def loss(ab: np.ndarray) -> float:
        logit = ab[0] * difference + ab[1] * own
        each = -one * logsigmoid(logit) - (1 - one) * logsigmoid(-logit)
        return float((weight * each).sum())

    found = minimize(loss, [2.0, 0.0], method="Nelder-Mead", options={"fatol": 1e-12})
    known = baselines(DirichletPrior(2), length)
    return {"length": length, "affine": float(found.fun), "a": float(found.x[0]),
            **{name: known[name] for name in ("unigram", "bigram")}}  # fmt: skip


def trained(steps: int) -> dict[str, np.ndarray]:
    """Steps (T,), and loss, alpha, beta, explained and previous, (T, seeds)."""
    arch = Architecture(
        DIMENSION, LENGTH, 2, hidden=0, states=2, output="states", tied=False, positions="relative"
    )
    weights = initial_weights(arch, "gaussian", SEEDS, std=STD)
    recipe = Recipe("gd", steps=steps, learning_rate=RATE)
    trainer = Trainer(arch, weights, PriorSource(DirichletPrior(2)), recipe)
    tokens, looks = all_sequences(LENGTH), []
    while True:
        fit = fit_induction(arch, trainer.weights, tokens)
        loss = trainer.population(trainer.weights)
        looks.append(torch.stack([loss, *vars(fit).values()]).numpy())
        if trainer.step >= steps:
            break
        trainer.advance(min(LOOK, steps - trainer.step))
    every = np.stack(looks, axis=1)
    return {"step": np.arange(every.shape[1]) * LOOK, **dict(zip(NAMES, every, strict=True))}


main = experiment(__name__, compute, numbers, drawn, record=False)
