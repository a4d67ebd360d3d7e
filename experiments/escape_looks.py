"""AdamW's growth rate κ from crossings that are interpolated, and the bias of looking seldom.

experiments/adamw_escape.py looks every 100 steps and interpolates. An earlier version took
κ = √μ/t at the first look with λ_min(S) < 0, by which √μ has gone too far. Here λ_min(S) is looked
at every 10 steps and its crossing of 0 interpolated: κ = √(λ₀/(2(p + q − 1)))/t with λ₀ its first
value. A run that never crosses has no κ and is counted. The same runs, read at every 10th look,
give what looking every 100 steps does to the exponents.

Batches of 16, N = 16, b known, N(0, 0.02²), constant rate, the three chains that adamw_escape fits.
A run lasts 3 000 steps at the rate 0.001, and (0.001/η)^1.5 times as many at η.

    python experiments/escape_looks.py [--quick]      about three minutes on one core

--quick takes 2 seeds a chain and a fifth of the steps.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from escape_cells import FITTED, Cell
from matplotlib.figure import Figure
from papers import BLUE, GREY, ORANGE, experiment, log_axis, timed

from full_model import Architecture, MarkovSource, Recipe, Trainer, initial_weights, trap_matrix

LOOK, SELDOM = 10, 10
RATES, WIDTHS, DIMENSIONS = (6e-4, 1e-3, 1.8e-3, 3e-3), (8, 32, 128), (4, 8, 16, 24)
#: d, r and rate; every sweep goes through d = 8, r = 32 and 0.001.
CELLS = (
    *((8, 32, rate) for rate in RATES), *((8, r, 1e-3) for r in WIDTHS if r != 32),
    *((d, 32, 1e-3) for d in DIMENSIONS if d != 8),
)  # fmt: skip
READINGS = ("every 10, interpolated", "every 100, interpolated", "every 10, first look",
            "every 100, first look")  # fmt: skip


def compute(seeds: int = 8, steps: int = 3000) -> xr.Dataset:
    """κ of every run by every reading (reading, cell, run), NaN of runs that never cross."""
    found = np.full((len(READINGS), len(CELLS), len(FITTED) * seeds), np.nan)
    for i, (d, r, rate) in enumerate(timed(CELLS)):
        count = int(steps * (1e-3 / rate) ** 1.5) // (LOOK * SELDOM) * LOOK * SELDOM
        smallest = looked(Cell("bias", d, r, rate=rate, unigram_bias=True), seeds, count)
        for k, word in enumerate(READINGS):
            every = SELDOM if "100" in word else 1
            found[k, i] = growth(smallest[:, ::every], LOOK * every, "interpolated" in word, seeds)
    axes = ("reading", "cell", "run")
    return xr.Dataset({"kappa": (axes, found)}, {"reading": list(READINGS)})


def looked(cell: Cell, seeds: int, steps: int) -> np.ndarray:
    """λ_min(S) (run, look) of the runs of all chains, every ten steps until all have crossed."""
    arch = Architecture(cell.d, cell.length, hidden=cell.r)
    chains = [chain for chain in FITTED for _ in range(seeds)]
    weights = initial_weights(arch, "gaussian", range(50_000, 50_000 + len(chains)))
    weights["bias"] += torch.tensor([np.log(c.p / c.q) for c in chains])
    weights = {name: w.float() for name, w in weights.items()}
    recipe = Recipe("adamw", steps, learning_rate=cell.rate, **cell.recipe_options)
    generator = torch.Generator().manual_seed(0)
    trainer = Trainer(arch, weights, MarkovSource.of(chains), recipe, generator)
    lines: list[np.ndarray] = []
    for step in range(0, steps + 1, LOOK):
        parts = [{name: w[k * seeds : (k + 1) * seeds].double()
                  for name, w in trainer.weights.items()} for k in range(len(FITTED))]  # fmt: skip
        lines.append(np.concatenate([
            torch.linalg.eigvalsh(trap_matrix(arch, part, chain))[:, 0].numpy()
            for part, chain in zip(parts, FITTED, strict=True)]))  # fmt: skip
        if step < steps and not (step % (LOOK * SELDOM) == 0 and (np.min(lines, 0) < 0).all()):
            trainer.advance(LOOK)
        else:
            break
    return np.stack(lines, 1)


def growth(smallest: np.ndarray, every: int, interpolated: bool, seeds: int) -> np.ndarray:
    """κ of every run from its values (run, look): at the crossing, or at the first look after."""
    excess = np.array([c.p + c.q - 1 for c in FITTED for _ in range(seeds)])
    below = smallest < 0
    at = np.where(below.any(1), below.argmax(1), 1)
    after, before = (np.take_along_axis(smallest, k[:, None], 1)[:, 0] for k in (at, at - 1))
    drop, steps = smallest[:, 0] - after, at * float(every)
    if interpolated:
        drop, steps = smallest[:, 0], every * (at - 1 + before / (before - after))
    root = np.sqrt(np.maximum(drop, 0) / (2 * excess))
    return np.where(below.any(1), root / steps, np.nan)


def derived(d: int, r: int, rate: float, seeds: int) -> np.ndarray:
    """κ₀ of every run (docs/derivations/18.md)."""
    strength = np.array([(c.p + c.q - 1) * np.sqrt(c.p * c.q) / (c.p + c.q)
                         for c in FITTED for _ in range(seeds)])  # fmt: skip
    spring = 2 * strength * np.sqrt(16 * 16) / 0.02
    return rate**1.5 * np.sqrt(spring) * np.sqrt(r / 2) * d**0.25 / 4


def exponent(values: np.ndarray, kappa: np.ndarray) -> dict[str, Any]:
    """The exponent of κ (cell, run) in what the cells vary, with a 95 % interval by drawing runs.

    Every chain has its own constant. Runs that never cross are left out.
    """
    blocks = np.arange(kappa.shape[1]).reshape(len(FITTED), -1)
    x = np.broadcast_to(np.log(values)[:, None], kappa.shape)

    def slope(runs: np.ndarray) -> float:
        over = under = 0.0
        for block in runs:
            y, z = np.log(kappa[:, block]), x[:, block]
            on = np.isfinite(y)
            z0 = z[on] - z[on].mean()
            over, under = over + (z0 * y[on]).sum(), under + (z0**2).sum()
        return over / under

    rng = np.random.default_rng(0)
    drawn = [slope(np.stack([rng.choice(b, len(b)) for b in blocks])) for _ in range(400)]
    return {"value": slope(blocks), "interval": np.quantile(drawn, [0.025, 0.975]).tolist()}


def sweeps() -> dict[str, tuple[np.ndarray, list[int]]]:
    """What is varied: its values and its cells."""
    chosen = {"rate": (RATES, [(8, 32, x) for x in RATES]),
              "r": (WIDTHS, [(8, x, 1e-3) for x in WIDTHS]),
              "d": (DIMENSIONS, [(x, 32, 1e-3) for x in DIMENSIONS])}  # fmt: skip
    return {name: (np.array(values, dtype=float), [*map(CELLS.index, cells)])
            for name, (values, cells) in chosen.items()}  # fmt: skip


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Exponents by reading, and of every cell κ/κ₀ and how many runs never cross."""
    found: dict[str, Any] = {"exponents": {}, "cells": []}
    for word in READINGS:
        kappa = record.kappa.sel(reading=word).values
        found["exponents"][word] = {name: exponent(values, kappa[cells])
                                    for name, (values, cells) in sweeps().items()}  # fmt: skip
    kappa = record.kappa.sel(reading=READINGS[0]).values
    for i, (d, r, rate) in enumerate(CELLS):
        ratio = kappa[i] / derived(d, r, rate, kappa.shape[1] // len(FITTED))
        found["cells"].append({
            "d": d, "r": r, "rate": rate, "runs": len(ratio),
            "never cross": int(np.isnan(ratio).sum()),
            "kappa over derived": np.nanquantile(ratio, [0.1, 0.5, 0.9]).tolist(),
        })  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """The exponents by reading, and κ/κ₀ against d."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = numbers(record)
    for k, (name, colour) in enumerate((("rate", BLUE), ("r", ORANGE))):
        for j, word in enumerate(READINGS):
            line = found["exponents"][word][name]
            low, high = line["interval"]
            left.errorbar(line["value"], j + 0.15 * (k - 0.5), color=colour, fmt="o", capsize=3,
                          xerr=[[line["value"] - low], [high - line["value"]]],
                          label=f"of {name}" if j == 0 else None)  # fmt: skip
    for value in (0.5, 1.5):
        left.axvline(value, color="k", lw=0.8, ls="--", zorder=0)
    left.set_yticks(range(len(READINGS)), READINGS)
    left.invert_yaxis()
    left.set(xlabel="exponent of κ (dashed: derived)", title="how often runs are looked at")
    left.legend(fontsize=8)
    values, cells = sweeps()["d"]
    spans = np.array([found["cells"][i]["kappa over derived"] for i in cells])
    right.fill_between(values, values**-0.25, values**0.25, color="0.9", label="its two ends")
    right.errorbar(values, spans[:, 1], np.abs(spans[:, [0, 2]].T - spans[:, 1]), fmt="o-",
                   color=GREY, capsize=3, label="median, 10 and 90 %")  # fmt: skip
    right.axhline(1, color="k", lw=0.8, ls="--")
    log_axis(right, "x", values.tolist())
    right.set(xlabel="d (r = 32, rate 0.001)", ylabel="κ over the derived κ₀",
              title="where the middle of the two ends holds")  # fmt: skip
    right.legend(fontsize=8)
    figure.suptitle("Looking seldom raises the exponents of AdamW's growth, and d raises κ/κ₀")
    return figure


main = experiment(__name__, compute, numbers, draw, quick={"seeds": 2, "steps": 600})
