"""The share of lifted Gaussian starts that AdamW brings to the bigram, beside the flow's share.

The same starts (e, w) ~ N(0, σ²I), lifted to the rank-one model with N = 8, follow the flow and are
trained by the reduced map of AdamW at d = 8 (8 000 steps, constant rate, batches of 16, clipping at
1, relative displacement 1e-12 of the starts, as in optimizer_basins.py). All starts of one run see
the same batches, which decide as much as the starts do: each rate is run with several seeds of the
batches, and the bars reach from the least to the largest share among them.

What it shows: docs/results/escape.md.

    python experiments/gaussian_adamw.py [--overwrite] [--samples 64] [--seeds 4]
"""

import json
from typing import Any

import numpy as np
import papers
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, GREEN, GREY, ORANGE, PINK, experiment

from flowsim import BinaryChain, OptimizerChoice, gaussian_record, model

RATES, NUDGE = (3e-4, 1e-3, 3e-3), 1e-12
STYLES = ((GREEN, "s"), (ORANGE, "o"), (PINK, "^"))
FLOW = ("fraction", "fraction_low", "fraction_high")
BARS = {"ms": 4.5, "lw": 1, "capsize": 2, "zorder": 3}


def compute(length: int = 8, samples: int = 64, scales: int = 10, steps: int = 8000, d: int = 8,
            seeds: int = 4) -> xr.Dataset:  # fmt: skip
    """Flow and AdamW from the same starts, over chain, learning rate and seed of the batches."""
    sigmas = np.geomspace(0.03, 3, scales)

    def part(chain: BinaryChain, rate: float, seed: int) -> xr.Dataset:
        reduced = model("rank-one", chain.p, chain.q, length=length)
        adamw = OptimizerChoice.named(
            "adamw-papers", d=d, seed=seed, nudge=NUDGE, learning_rate=rate, steps=steps,
            schedule="constant", clip=1.0,
        )  # fmt: skip
        return gaussian_record(reduced, sigmas, samples, optimizer=adamw)

    chains = []
    for chain in (ABOVE, BELOW):
        runs = [[part(chain, rate, seed) for seed in range(seeds)] for rate in RATES]
        learned = [[run["learned"].values for run in same_rate] for same_rate in runs]
        record = runs[0][0][[*FLOW, "integral"]].drop_attrs()
        chains.append(record.assign(learned=(("rate", "batch_seed", "sigma"), np.array(learned))))
    record = xr.concat(chains, "chain")
    return record.assign_coords(rate=list(RATES), chain=["above", "below"])


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Every share with its interval."""
    found: dict[str, Any] = {"sigma": record["sigma"].values.tolist()}
    for chain, name in ((ABOVE, "above"), (BELOW, "below")):
        part = record.sel(chain=name)
        lines: dict[str, Any] = {name: part[name].values.tolist() for name in FLOW}
        for rate in RATES:
            lines[f"AdamW, rate {rate:g}, by seed"] = part["learned"].sel(rate=rate).values.tolist()
        found[f"p = {chain.p:g}, q = {chain.q:g}"] = lines
    return found


def draw(record: xr.Dataset) -> Figure:
    """Shares against the scale, a panel a chain."""
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    sigma = record["sigma"].to_numpy()
    for axes, chain, name in zip(
        figure.subplots(1, 2, sharey=True), (ABOVE, BELOW), ("above", "below"), strict=True
    ):
        part = record.sel(chain=name)
        axes.plot(sigma, part["integral"], color=GREY, ls="--", lw=1.4,
                  label="canonical model: integral over the basin")  # fmt: skip
        shares = (part[name].to_numpy() for name in FLOW)
        papers.draw_bars(axes, sigma, *shares, **BARS, fmt="D", color=BLUE,
                         label="gradient flow, rank-one model, 95 % interval")  # fmt: skip
        for i, (rate, (colour, marker)) in enumerate(zip(RATES, STYLES, strict=True), 1):
            beside = sigma * 1.05**i  # so that bars do not hide each other
            own = part["learned"].sel(rate=rate)
            shares = (f("batch_seed").to_numpy() for f in (own.mean, own.min, own.max))
            words = f"AdamW, learning rate {rate:g}, {len(own)} seeds of batches"
            papers.draw_bars(axes, beside, *shares, **BARS, fmt=marker, color=colour, label=words)
        axes.set(xscale="log", ylim=(-0.03, 1.03), title=papers.caption(chain),
                 xlabel=r"standard deviation $\sigma$ of $e$ and $w$")  # fmt: skip
        axes.grid(color=GREY, alpha=0.2)
    steps = json.loads(record.attrs["sizes"])["steps"]
    figure.axes[0].set_ylabel(
        f"share of starts that learn the bigram\n(AdamW: within {steps} steps)"
    )
    papers.legend_below(figure.axes[0], 2)
    return figure


main = experiment(__name__, compute, numbers, draw)
