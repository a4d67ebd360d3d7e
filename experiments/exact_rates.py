"""AdamW without noise: at which rates it leaves the unigram on the exact loss.

experiments/adamw_escape.py trains on the exact loss at the rate 0.001 alone, where no run escapes
that has no b to learn: b known from the start, or equal shares of the symbols. Here such runs have
other rates too. What we find: docs/results/escape.md.

N = 6, weights from N(0, 0.02²), b known, constant rate, every ten steps looked at. A run escapes at
the first look with less than half of the gap between unigram and bigram open, by the exact loss; it
crosses at the first look with λ_min(S) < 0 (docs/derivations/12.md).

    python experiments/exact_rates.py [--quick]      about two minutes on one core

--quick takes 4 seeds and 600 steps.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, PINK, SKY, experiment, log_axis, median, timed

from flowsim import BinaryChain
from flowsim.training import Recipe
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
Setting = tuple[float, float, int, int]
SETTINGS = ((0.9, 0.9, 8, 32), (0.9, 0.9, 4, 16), (0.7, 0.7, 8, 32), (0.7, 0.7, 4, 16),
            (0.5, 0.8, 8, 32))  # fmt: skip
COLOURS = (BLUE, GREEN, SKY, PINK, GREY)


def compute(seeds: int = 24, steps: int = 3000) -> xr.Dataset:
    """The steps at which runs escape and cross (setting, rate, seed); NaN of those that do not."""
    runs = {named(s): [(s, rate) for rate in RATES] for s in SETTINGS}
    return followed(runs, {"rate": list(RATES)}, seeds, steps).assign_attrs(length=LENGTH)


def followed(runs: dict[str, list[Any]], axis: dict[str, list[float]], seeds: int,
             steps: int) -> xr.Dataset:  # fmt: skip
    """The steps at which runs escape and cross: of every setting, along an axis, and for each seed.

    Args:
        runs: what ``first_steps`` is given before seeds and steps.
    """
    found = np.array([[first_steps(seeds, steps, *run) for run in runs[name]]
                      for name in timed(runs)])  # fmt: skip
    axes = ("setting", *axis, "seed")
    return xr.Dataset({"escape": (axes, found[:, :, 0]), "crossing": (axes, found[:, :, 1])},
                      {"setting": list(runs), **axis}, {"steps": steps})  # fmt: skip


def named(setting: Setting) -> str:
    """Name of a setting in figure and table."""
    p, q, d, r = setting
    return f"({p}, {q}), d = {d}, r = {r}"


def first_steps(
    seeds: int, steps: int, setting: Setting, rate: float, epsilon: float = 1e-8
) -> np.ndarray:
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
                "escape_median": median(escape),
            }  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """Number of runs that escape against the rate."""
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    share = np.isfinite(record.escape).mean("seed")
    for setting, colour in zip(record.setting.values.tolist(), COLOURS, strict=True):
        axes.plot(record.rate, share.sel(setting=setting), "o-", color=colour, label=setting)
    log_axis(axes, "x", RATES, rotation=45)
    axes.set(xlabel="learning rate of AdamW", ylabel="share of the runs that escape")
    steps, runs = record.attrs["steps"], record.sizes["seed"]
    axes.set_title(f"Large steps leave the unigram without noise\n(exact loss, b known, {runs} "
                   f"seeds, {steps} steps)", fontsize=10.5)  # fmt: skip
    axes.legend(fontsize=8)
    return figure


main = experiment(__name__, compute, numbers, draw, quick={"seeds": 4, "steps": 600})
