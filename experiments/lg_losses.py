"""The loss along the canonical flow against full training from the lifted point (LG).

The paper shows: the loss of the canonical parametrization follows that of the full
transformer started at the same rank-one weights.

We differ, and why: the canonical coordinates tie the positions to −e/2 and give every
coordinate the metric 1. In the full weights positions are free, and N times slower than the
embedding if moved together; W_1 and W_2 count r/d = 4 times; the bias is not at its optimum. Where
the ReLU's side depends on e + ρ, that decides the outcome. The flow of the rank-one coordinates
with the induced metric (flowsim.models.RankOneModel) has none of these errors.

    python experiments/lg_losses.py [--papers]     about a minute on one core
"""

import json
from typing import Any

import numpy as np
import papers
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, GREEN, PINK, experiment
from torch import Tensor

from flowsim import BinaryChain, Label, find_limits
from flowsim.models import CanonicalModel
from flowsim.reference import integrate
from full_model import Architecture, Recipe, RunSettings, Trainer, starting_weights

SHORT = 8
#: Starts (e, w): inside the canonical basin of the global minima, between, and in the bad basin.
STARTS = {
    ABOVE: ((0.5, -1.2), (1.5, -0.2), (1.0, 0.5)),
    BELOW: ((0.5, 1.0), (1.0, -0.5), (0.5, -1.2)),
}


def compute(d: int = 4, horizon: float = 400.0, step: float = 0.1, long: int = 64) -> xr.Dataset:
    """Losses (chain, time, start) of the canonical flow and of full gradient flow at two N."""
    parts = []
    for chain, starts in STARTS.items():
        theta = torch.tensor(starts, dtype=torch.float64)
        model = CanonicalModel(chain)
        part = xr.Dataset()
        for n in (SHORT, long):
            time, losses = full_flow(chain, starts, d, n, horizon, step)
            part[f"full, N = {n}"] = (("time", "start"), losses.numpy())
        part["canonical"] = (("time", "start"), model.loss(integrate(model, theta, time)).numpy())
        part["label"] = ("start", find_limits(model, theta).label.numpy())
        parts.append(part.assign_coords(time=time.numpy()))
    record = xr.concat(parts, dim="chain")
    record.attrs = {"starts": json.dumps([list(points) for points in STARTS.values()])}
    return record


def full_flow(
    chain: BinaryChain, starts: tuple[tuple[float, float], ...], d: int, length: int,
    horizon: float, step: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradient flow of the full weights from the lifted starts: times (T,) and losses (T, starts).

    RK4 with a fixed step, on the exact population loss of the model without attention, which
    nothing switches on from W_V = W_O = 0. The times are steps 0, 1, 2, …, ever further apart.
    """
    steps = round(horizon / step)
    recipe = Recipe("flow", steps=steps, horizon=horizon, method="rk4", step_size=step)
    settings = RunSettings(
        Architecture(d, length, attention="none"), recipe, p=(chain.p,), q=(chain.q,),
        seeds=tuple(range(len(starts))), init="lifted", theta=starts,
    )  # fmt: skip
    trainer = Trainer(settings.arch, starting_weights(settings), settings.source(), settings.recipe)
    stops = np.unique(np.geomspace(1, steps, 120).round().astype(int))
    losses = [trainer.population(trainer.weights)]
    losses += [trainer.advance(int(stop) - trainer.step) for stop in stops]
    time = torch.from_numpy(np.concatenate([[0], stops])) * (horizon / steps)
    return time, torch.stack(losses)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per start: where the canonical flow ends, and the final losses."""
    found: dict[str, Any] = {}
    models = [str(name) for name in record.data_vars if name != "label"]
    for i, (chain, starts) in enumerate(STARTS.items()):
        for j, (e, w) in enumerate(starts):
            part = record.isel(chain=i, start=j)
            found[f"p = {chain.p}, q = {chain.q}; e = {e}, w = {w}"] = {
                "canonical_limit": Label(int(part.label)).name.lower(),
                "final_loss": {name: float(part[name][-1]) for name in models},
            }
    return found


def draw(record: xr.Dataset) -> Figure:
    """A row per chain, a panel per start."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey="row")
    models = [str(name) for name in record.data_vars if name != "label"]
    styles = dict(
        zip(models, ((BLUE, "-", 3.0), (PINK, "--", 1.4), (GREEN, ":", 1.8)), strict=True)
    )
    for i, (chain, starts) in enumerate(STARTS.items()):
        for j, (e, w) in enumerate(starts):
            part, axes = record.isel(chain=i, start=j), grid[i, j]
            for name, (colour, line, width) in styles.items():
                axes.plot(
                    part.time, part[name], line, color=colour, linewidth=width, alpha=0.8,
                    label=name.replace("full,", "full model without attention,"),
                )  # fmt: skip
            papers.draw_levels(axes, chain)
            highest = float(record.isel(chain=i)[models].to_array().max())
            high, gap = chain.stationary_entropy, chain.mutual_information
            top = min(highest + 0.1 * gap, high + 2.5 * gap)
            axes.set_ylim(chain.entropy_rate - 0.1 * (top - chain.entropy_rate), top)
            axes.set_title(f"{papers.caption(chain)}, start ({e:g}, {w:g})", fontsize=9)
            axes.set_xscale("symlog", linthresh=0.1)
            axes.set_xlim(0, float(part.time[-1]))
        grid[i, 0].set_ylabel("population loss (nats)")
    for axes in grid[1]:
        axes.set_xlabel("time of the gradient flow (linear up to 0.1)")
    papers.legend_below(grid[0, 0], 3)
    figure.suptitle(
        "The canonical flow ends where full gradient flow does from four of six starts $(e, w)$; "
        "$d$ = 4",
        fontsize=11,
    )
    return figure


main = experiment(
    __name__, compute, numbers, draw, papers={"horizon": 2000.0, "step": 0.05, "long": 1024}
)
