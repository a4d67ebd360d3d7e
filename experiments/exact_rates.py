"""AdamW without noise: at which rates it leaves the unigram on the exact loss.

experiments/adamw_escape.py trains on the exact loss at the rate 0.001 alone, where no run escapes
that has no b to learn: b known from the start, or equal shares of the symbols. Here such runs have
other rates too. What we find: within 3 000 steps none escapes at 0.002 or below, every one from
0.005 on. In every escape λ_min(S) < 0 is seen at the same look or before. So neither noise nor a b
to learn is needed, but large steps are.

N = 6, weights from N(0, 0.02²), b known, constant rate, every ten steps looked at. A run escapes at
the first look with less than half of the gap between unigram and bigram open, by the exact loss; it
crosses at the first look with λ_min(S) < 0 (docs/derivations.md, 12).

    python experiments/exact_rates.py [--quick]      about two minutes on one core

--quick takes 4 seeds and 600 steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, ORANGE, PINK, experiment, timed

from flowsim import BinaryChain, Recipe
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Trainer,
    initial_weights,
    trap_matrix,
    wilson,
)

RATES = (5e-4, 1e-3, 2e-3, 2.5e-3, 3e-3, 4e-3, 5e-3, 1e-2)
LENGTH, LOOK = 6, 10
#: p, q, d, r.
SETTINGS = ((0.9, 0.9, 8, 32), (0.9, 0.9, 4, 16), (0.7, 0.7, 8, 32), (0.7, 0.7, 4, 16),
            (0.5, 0.8, 8, 32))  # fmt: skip
COLOURS = (BLUE, GREEN, ORANGE, PINK, GREY)


def compute(seeds: int = 24, steps: int = 3000) -> xr.Dataset:
    """The steps at which runs escape and cross (setting, rate, seed); NaN of those that do not."""
    found = np.full((2, len(SETTINGS), len(RATES), seeds), np.nan)
    for i, setting in enumerate(timed(SETTINGS)):
        for j, rate in enumerate(RATES):
            found[:, i, j] = first_steps(setting, rate, seeds, steps)
    axes = ("setting", "rate", "seed")
    return xr.Dataset(
        {"escape": (axes, found[0]), "crossing": (axes, found[1])},
        {"setting": [named(s) for s in SETTINGS], "rate": list(RATES)},
        {"steps": steps, "length": LENGTH},
    )


def named(setting: tuple[float, float, int, int]) -> str:
    """What figure and table call a setting."""
    p, q, d, r = setting
    return f"({p}, {q}), d = {d}, r = {r}"


def first_steps(
    setting: tuple[float, float, int, int], rate: float, seeds: int, steps: int,
    epsilon: float = 1e-8,
) -> np.ndarray:  # fmt: skip
    """When every run escapes and crosses, (2, seeds)."""
    p, q, d, r = setting
    chain, arch = BinaryChain(p, q), Architecture(d, LENGTH, hidden=r)
    weights = initial_weights(arch, "gaussian", range(seeds))
    weights["bias"] = weights["bias"] + np.log(p / q)
    recipe = Recipe("adamw", steps, learning_rate=rate, schedule="constant", loss="population",
                    epsilon=epsilon, beta2=0.95, weight_decay=1e-3)  # fmt: skip
    source = MarkovSource.of(chain)
    trainer, loss = Trainer(arch, weights, source, recipe), PopulationLoss(arch, source)
    half = (chain.entropy_rate + chain.stationary_entropy) / 2
    found = np.full((2, seeds), np.nan)
    for step in range(LOOK, steps + 1, LOOK):
        trainer.advance(LOOK)
        with torch.no_grad():
            left = (loss(trainer.weights) < half).numpy()
            crossed = torch.linalg.eigvalsh(trap_matrix(arch, trainer.weights, chain))[:, 0] < 0
        for row, now in zip(found, (left, crossed.numpy()), strict=True):
            row[now & np.isnan(row)] = step
        if np.isfinite(found).all():
            break
    return found


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per setting and rate: runs, how many escape and cross, and the median steps."""
    found: dict[str, Any] = {}
    for setting in record.setting.values.tolist():
        found[setting] = {}
        for rate in RATES:
            escape, crossing = (record[name].sel(setting=setting, rate=rate).values
                                for name in ("escape", "crossing"))  # fmt: skip
            left = np.isfinite(escape)
            found[setting][f"{rate:g}"] = {
                "runs": left.size, "escaped": int(left.sum()),
                "interval": wilson(int(left.sum()), left.size),
                "crossed": int(np.isfinite(crossing).sum()),
                "crossed_first": int((crossing[left] <= escape[left]).sum()),
                "escape_median": float(np.median(escape[left])) if left.any() else None,
            }  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """How many of the runs escape against the rate."""
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    share = np.isfinite(record.escape).mean("seed")
    for setting, colour in zip(record.setting.values.tolist(), COLOURS, strict=True):
        axes.plot(record.rate, share.sel(setting=setting), "o-", color=colour, label=setting)
    axes.set_xscale("log")
    axes.set_xticks(RATES, [f"{rate:g}" for rate in RATES], rotation=45)
    axes.minorticks_off()
    axes.set(xlabel="learning rate of AdamW", ylabel="share of the runs that escape")
    steps, runs = record.attrs["steps"], record.sizes["seed"]
    axes.set_title(f"Large steps leave the unigram without noise\n(exact loss, b known, {runs} "
                   f"seeds, {steps} steps)", fontsize=10.5)  # fmt: skip
    axes.legend(fontsize=8)
    return figure


main = experiment(__name__, compute, numbers, draw, quick={"seeds": 4, "steps": 600})
