"""Noise that empties the trap of the canonical model, compared with the noise of batches.

Chain (0.5, 0.8), three starts that the flow leads into the trap. Langevin noise acts on (e, w) of
the canonical model at four temperatures T; at times with T·t from 0.01 to 3 it is asked where the
flow without noise would lead from there. Gradient descent on sampled batches acts on the weights of
the rank-one model, N = 8, d = 8, from the same starts lifted: batches of 1, 4 and 16 sequences,
three learning rates; a run is decided by the flow from its last weights.

    python experiments/critical_noise.py      minutes on one core
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from papers import experiment
from torch import Tensor

import flowsim
from flowsim.noise import diffuse
from flowsim.scan.follow import to_model
from flowsim.scan.record import wilson_interval

STARTS = ((0.3, -0.3), (0.5, 0.5), (1.0, 1.5))
#: Temperatures, and steps in time that its paths are followed by.
TEMPERATURES = {3e-4: 0.1, 1e-3: 0.1, 1e-2: 0.1, 1e-1: 0.02}
PRODUCTS = tuple(np.geomspace(0.01, 3, 8))
RATES, BATCHES = (0.1, 1.0, 3.0), (1, 4, 16)
LEARNED = int(flowsim.Label.GLOBAL_MINIMUM)


def count_langevin(paths: int) -> np.ndarray:
    """Paths that have learned, over (temperature, product, start)."""
    model = flowsim.model("canonical", 0.5, 0.8)
    starts = torch.tensor(STARTS, dtype=torch.float64).repeat_interleave(paths, 0)
    found = np.zeros((len(TEMPERATURES), len(PRODUCTS), len(STARTS)), int)
    for i, (warmth, step) in enumerate(TEMPERATURES.items()):
        generator, theta, done = torch.Generator().manual_seed(i), starts, 0.0
        for j, product in enumerate(PRODUCTS):
            theta = diffuse(model, theta, warmth, product / warmth - done, generator, step)
            done = product / warmth
            label = flowsim.find_limits(model, theta).label.reshape(len(STARTS), paths)
            found[i, j] = (label == LEARNED).sum(1)
    return found


def count_batches(seeds: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs that have learned and that diverged over (rate, batch, start), and |e| of the others."""
    model = flowsim.model("rank-one", 0.5, 0.8, length=8)
    theta = to_model(model, ["e", "w"], np.array(STARTS))
    at = model.coordinates.index("e")
    learned = np.zeros((len(RATES), len(BATCHES), len(STARTS)), int)
    diverged, left = np.zeros_like(learned), np.full(learned.shape, np.nan)
    for i, rate in enumerate(RATES):
        for j, batch in enumerate(BATCHES):
            ends = torch.stack(
                [descend_on_batches(model, theta, rate, batch, steps, s) for s in range(seeds)]
            )
            known = ends.isfinite().all(-1)
            label = torch.zeros(known.shape, dtype=torch.int8)
            label[known] = flowsim.find_limits(model, ends[known]).label
            learned[i, j], diverged[i, j] = (label == LEARNED).sum(0), (~known).sum(0)
            for k in range(len(STARTS)):
                stay = ends[(label[:, k] != LEARNED) & known[:, k], k, at].abs()
                left[i, j, k] = float(stay.median()) if len(stay) else np.nan
    return learned, diverged, left


def descend_on_batches(
    model: flowsim.Model, theta: Tensor, rate: float, batch: int, steps: int, seed: int
) -> Tensor:
    """Ends of descent on sampled batches."""
    choice = flowsim.OptimizerChoice.named(
        "gd", 8, seed, loss="sampled", batch=batch, learning_rate=rate, steps=steps
    )
    return torch.as_tensor(flowsim.descend(model, theta, choice).theta)


def compute(paths: int = 200, seeds: int = 60, steps: int = 8000) -> xr.Dataset:
    """Counts of both kinds of noise."""
    learned, diverged, left = count_batches(seeds, steps)
    return xr.Dataset(
        {
            "langevin_learned": (("temperature", "product", "start"), count_langevin(paths)),
            "descent_learned": (("rate", "batch", "start"), learned),
            "descent_diverged": (("rate", "batch", "start"), diverged),
            "descent_left": (("rate", "batch", "start"), left),
        },
        {"temperature": [*TEMPERATURES], "product": [*PRODUCTS], "rate": [*RATES],
         "batch": [*BATCHES], "start": [f"({e:g}, {w:g})" for e, w in STARTS]},
        {"paths": paths, "seeds": seeds, "steps": steps},
    )  # fmt: skip


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Shares by start, with Wilson's intervals, and by learning rate and batch."""
    paths, seeds = int(record.attrs["paths"]), int(record.attrs["seeds"])
    low, high = wilson_interval(record["langevin_learned"].to_numpy(), paths)
    share = record["langevin_learned"] / paths
    return {
        "langevin": {
            str(start): {
                f"T = {t:g}": {
                    "T·t": record["product"].to_numpy().tolist(),
                    "share": share.sel(start=start, temperature=t).to_numpy().tolist(),
                    "low": low[i, :, k].tolist(),
                    "high": high[i, :, k].tolist(),
                }
                for i, t in enumerate(record["temperature"].to_numpy())
            }
            for k, start in enumerate(record["start"].to_numpy())
        },
        "batches": [
            {"rate": float(rate), "batch": int(batch), "start": str(start),
             "learned": int(record["descent_learned"][i, j, k]), "of": seeds,
             "diverged": int(record["descent_diverged"][i, j, k]),
             "median |e| of the others": float(record["descent_left"][i, j, k])}
            for i, rate in enumerate(record["rate"].to_numpy())
            for j, batch in enumerate(record["batch"].to_numpy())
            for k, start in enumerate(record["start"].to_numpy())
        ],
    }  # fmt: skip


main = experiment(__name__, compute, numbers, None)
