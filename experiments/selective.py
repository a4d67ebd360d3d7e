"""Does a convolution let one layer count in context? A selective recurrence and attention."""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from papers import BLUE, GREY, ORANGE, experiment, timed

from flowsim.chains.priors import DirichletPrior
from full_model import Architecture, Recipe, RunSettings, forward, initial_weights, train
from full_model.model.transformer import cross_entropy
from full_model.training.settings import source_of

D, LENGTH, BATCH, RATE = 8, 32, 32, 1e-2
SELECTIVE: dict[str, Any] = {"attention": "selective", "positions": "none"}
#: Order k of the chains, and what mixes the positions.
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "selective, no convolution": (1, SELECTIVE),
    "selective, w = 2": (1, {**SELECTIVE, "convolution": 2}),
    "selective, w = 2, ReLU": (1, {**SELECTIVE, "convolution": 2, "channel_activation": "relu"}),
    "two selective layers": (1, {**SELECTIVE, "layers": 2}),
    "attention, no convolution": (1, {}),
    "attention, w = 2": (1, {"convolution": 2}),
    "order 2: selective, w = 2": (2, {**SELECTIVE, "convolution": 2}),
    "order 2: selective, w = 3": (2, {**SELECTIVE, "convolution": 3}),
}
#: Decays of the recurrence at the start, as a raw number: 0.98.
KEPT = 4.0


def compute(seeds: int = 5, steps: int = 600, fresh: int = 1024) -> xr.Dataset:
    """KL divergence from Bayes's predictor at every position, of every case and seed."""
    gaps = []
    for name in timed(CASES):
        order, mixer = CASES[name]
        prior = DirichletPrior(2, order)
        arch = Architecture(
            D, LENGTH, states=2, output="states", tied=False, layer_norm=True, **mixer
        )
        recipe = Recipe("adamw", steps=steps, learning_rate=RATE, batch=BATCH, loss="sampled",
                        schedule="cosine", weight_decay=1e-3)  # fmt: skip
        settings = RunSettings(arch, recipe, data=prior, seeds=tuple(range(seeds)), init="given",
                               telemetry_every=steps, checkpoint_every=steps,
                               dtype="float32")  # fmt: skip
        first = initial_weights(arch, "gaussian", settings.seeds, std=0.3)
        for key in first:
            if key.endswith(".decay"):
                first[key] = torch.full_like(first[key], KEPT)
        _, weights = train(settings, initial=first)
        draws = torch.Generator().manual_seed(1)
        tokens, laws = source_of(prior).held_out(fresh, LENGTH, draws)
        with torch.no_grad():
            logits = forward(arch, {k: w.double() for k, w in weights.items()}, tokens[0])
            lost = cross_entropy(arch, logits, laws[0].double())
        least = -torch.xlogy(laws[0], laws[0]).sum(-1)
        gaps.append((lost - least).mean(-2).numpy())
    return xr.Dataset({"gap": (("case", "seed", "position"), np.array(gaps))},
                      {"case": list(CASES), "position": np.arange(1, LENGTH + 1)})  # fmt: skip


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Mean over positions of the gap to Bayes's predictor, by case: all seeds, median."""
    found = {}
    for case in record.case.values:
        part = record.gap.sel(case=case).mean("position").values
        found[case] = {"median": float(np.median(part)), "seeds": [float(x) for x in np.sort(part)],
                       "at_last": float(np.median(record.gap.sel(case=case)[:, -1]))}  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """The gap of every seed by case, and by position."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    cases = list(record.case.values)
    for i, case in enumerate(cases):
        gap = record.gap.sel(case=case).mean("position").values
        left.plot(gap, np.full(len(gap), i), "o", c=BLUE, ms=4, alpha=0.7)
        if case in ("selective, no convolution", "selective, w = 2"):
            colour = ORANGE if "no" in case else BLUE
            right.plot(record.position, record.gap.sel(case=case).T, c=colour, lw=0.9)
            right.plot([], [], c=colour, label=case)
    left.set_yticks(range(len(cases)), cases)
    left.invert_yaxis()
    left.axvline(0, color=GREY, lw=0.7)
    left.set(xlabel="nats above Bayes's predictor, mean over positions", xscale="log")
    left.xaxis.set_minor_formatter(NullFormatter())
    right.set(xlabel="position", ylabel="nats above Bayes's predictor", yscale="log")
    right.legend(fontsize=8)
    figure.suptitle("Counting in context: a convolution lets one layer count")
    return figure


main = experiment(__name__, compute, numbers, draw)
