"""Depth at (p, q) = (0.5, 0.8), tied: the curvature at the unigram beside when runs leave it.

With e = 0 and b = log(π₁/π₀) a tied transformer of any depth predicts the unigram, whatever its
other weights, and the gradient vanishes; so all second derivatives but those in (b, e) vanish too.
The smallest eigenvalue of the whole Hessian is then that of the (d + 1)-square block, or 0 where
this is positive: the unigram traps. Both are computed, the block by differentiating twice and the
whole, at the start and the end of every run, from products of the Hessian with vectors (scipy's
eigsh).

L = 1 … 4 layers, softmax attention, d = 8, N = 4, are trained from N(0, 0.02²) (W_O and W_2 smaller
by √(2L)) on the exact population loss, by gradient descent at the rate 0.5 and by AdamW (rate 1e-3,
betas 0.9 and 0.95, weight decay 1e-3): no noise of batches is in either. Every 20 steps the block
is computed at the run's own weights with e and b put to the unigram. A run leaves the unigram at
the step from which on half of the gap to the bigram's loss is closed; the overlap is |cos| between
e there and the eigenvector of the smallest eigenvalue when this was first found negative.

    python experiments/depth.py [--full]      minutes on one core

--full takes L to 6, 16 seeds, and three times the steps.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, ORANGE, PINK, run_script
from scipy.sparse.linalg import LinearOperator, eigsh
from states_threshold import TRAINERS, adamw, descent
from torch import Tensor

from flowsim import BinaryChain
from full_model import Architecture, MarkovSource, PopulationLoss, Weights, initial_weights

NAME = "depth"
DEFAULT = {"layers": 4, "seeds": 8, "steps": 2000}
FULL = {"layers": 6, "seeds": 16, "steps": 6000}
CHAIN = BinaryChain(0.5, 0.8)
DIMENSION, LENGTH, EVERY, RATE, STD = 8, 4, 20, 0.5, 0.02
COLOURS = (BLUE, ORANGE, GREEN, PINK, "0.3", "0.6")


def compute(layers: int, seeds: int, steps: int) -> xr.Dataset:
    """Losses, smallest eigenvalues and directions of every run, over case, look and seed."""
    parts, names = [], []
    for depth in range(1, layers + 1):
        for trainer in TRAINERS:
            began = time.process_time()
            parts.append(followed(depth, trainer, seeds, steps))
            names.append(f"L = {depth}, {TRAINERS[trainer]}")
            print(f"{names[-1]}: {time.process_time() - began:.0f} s", file=sys.stderr)
    whole = xr.concat(parts, dim="case", combine_attrs="drop")
    return whole.assign_coords(case=names, step=range(0, steps + 1, EVERY))


def followed(depth: int, trainer: str, seeds: int, steps: int) -> xr.Dataset:
    """Runs of one depth and trainer, looked at every ``EVERY`` steps."""
    arch = Architecture(DIMENSION, LENGTH, layers=depth)
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))
    weights = initial_weights(arch, "gaussian", range(seeds), std=STD)
    whole = [[smallest_of_all(loss, weights, seed) for seed in range(seeds)]]
    step = adamw(weights) if trainer == "adamw" else descent(weights, RATE)
    looks: dict[str, list[np.ndarray]] = {
        name: [] for name in ("loss", "smallest", "direction", "embedding")
    }
    for count in range(steps + 1):
        value, gradient = loss.value_and_gradient(weights)
        if count % EVERY == 0:
            values, vectors = torch.linalg.eigh(block(loss, weights))
            looks["loss"].append(value.numpy())
            looks["smallest"].append(values[:, 0].numpy())
            looks["direction"].append(vectors[:, 1:, 0].numpy())
            looks["embedding"].append(weights["embedding"].detach().clone().numpy())
        if count < steps:
            step(gradient)
    whole.append([smallest_of_all(loss, weights, seed) for seed in range(seeds)])
    axes = ("step", "seed", "entry")
    columns = {name: np.stack(rows) for name, rows in looks.items()}
    record = xr.Dataset({name: (axes[: rows.ndim], rows) for name, rows in columns.items()})
    record["smallest_of_all"] = (("when", "seed"), np.array(whole))
    return record


def at_unigram(weights: Weights) -> Weights:
    """The same weights with e = 0 and b = log(π₁/π₀)."""
    point = {name: weight.detach().clone() for name, weight in weights.items()}
    point["embedding"].zero_()
    point["bias"].fill_(math.log(CHAIN.p / CHAIN.q))
    return point


def block(loss: PopulationLoss, weights: Weights) -> Tensor:
    """Second derivatives in (b, e) at the unigram of every model, (M, d + 1, d + 1)."""
    point = at_unigram(weights)
    ends = [point["bias"].requires_grad_(), point["embedding"].requires_grad_()]
    slopes = torch.autograd.grad(loss(point).sum(), ends, create_graph=True)
    slope = torch.cat([slopes[0].unsqueeze(-1), slopes[1]], dim=-1)
    columns = []
    for i in range(slope.shape[-1]):
        b, e = torch.autograd.grad(slope[:, i].sum(), ends, retain_graph=True)
        columns.append(torch.cat([b.unsqueeze(-1), e], dim=-1))
    return torch.stack(columns, dim=-1).detach()


def smallest_of_all(loss: PopulationLoss, weights: Weights, model: int) -> float:
    """The smallest eigenvalue of one model's whole Hessian at the unigram, by eigsh."""
    point = [part[model : model + 1].requires_grad_() for part in at_unigram(weights).values()]
    slopes = torch.autograd.grad(
        loss(dict(zip(weights, point, strict=True))).sum(), point, create_graph=True
    )
    flat = torch.cat([part.flatten() for part in slopes])

    def product(vector: np.ndarray) -> np.ndarray:
        along = flat @ torch.from_numpy(vector.reshape(-1))
        found = torch.autograd.grad(along, point, retain_graph=True)
        return torch.cat([part.flatten() for part in found]).numpy()

    operator = LinearOperator((len(flat),) * 2, matvec=product, dtype=np.float64)
    first = np.random.default_rng(0).standard_normal(len(flat))
    return float(eigsh(operator, k=1, which="SA", v0=first, tol=1e-8)[0][0])


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Of every case: eigenvalues, when they turn negative, when runs leave, overlaps."""
    return {str(name): _counted(record.sel(case=name)) for name in record.case.values}


def _counted(case: xr.Dataset) -> dict[str, Any]:
    left, opened, overlap = leaving(case)
    away = np.isfinite(left)
    return {
        "runs": len(left), "left": int(away.sum()), "opened": int(np.isfinite(opened).sum()),
        "opened_no_later": int((opened[away] <= left[away]).sum()),
        "smallest_at_start": _span(case.smallest.values[0]),
        "whole_hessian_off": float(np.abs(
            case.smallest_of_all.values - np.minimum(case.smallest.values[[0, -1]], 0)).max()),
        "smallest_at_end": _span(case.smallest.values[-1]),
        "opened_step": _span(opened), "left_step": _span(left), "overlap": _span(overlap),
        "final_loss": _span(case.loss.values[-1]),
    }  # fmt: skip


def leaving(case: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps at which runs leave the unigram and the smallest eigenvalue its sign, and overlaps."""
    middle = (CHAIN.entropy_rate + CHAIN.stationary_entropy) / 2
    steps, count = case.step.values, case.sizes["seed"]
    left, opened, overlap = (np.full(count, np.nan) for _ in range(3))
    for i in range(count):
        above = np.flatnonzero(case.loss.values[:, i] > middle)
        if len(above) and above[-1] + 1 < len(steps):
            left[i] = steps[above[-1] + 1]
        negative = np.flatnonzero(case.smallest.values[:, i] < 0)
        if len(negative):
            opened[i] = steps[negative[0]]
            if np.isfinite(left[i]):
                e = case.embedding.values[above[-1] + 1, i]
                v = case.direction.values[negative[0], i]
                overlap[i] = abs(e @ v) / (np.linalg.norm(e) * np.linalg.norm(v))
    return left, opened, overlap


def _span(values: np.ndarray) -> list[float] | None:
    """Median, least and largest of what is known."""
    known = values[np.isfinite(values)]
    return [float(x) for x in np.quantile(known, [0.5, 0.0, 1.0])] if len(known) else None


def draw(record: xr.Dataset) -> Figure:
    """A column for each trainer: losses above, smallest eigenvalues below."""
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, trainer in enumerate(TRAINERS.values()):
        for name in record.case.values:
            if not str(name).endswith(trainer):
                continue
            case, depth = record.sel(case=name), int(str(name)[4])
            style = {"color": COLOURS[depth - 1], "linewidth": 0.9, "alpha": 0.8}
            for axes, what in zip(grid[:, column], ("loss", "smallest"), strict=True):
                lines = axes.plot(record.step, case[what], **style)
                lines[0].set_label(f"{depth} layer{'s' * (depth > 1)}")
        grid[0, column].set_title(trainer, fontsize=10)
        grid[1, column].set_xlabel("step")
        grid[1, column].axhline(0, color="k", linewidth=0.8, linestyle=":")
        for level in (CHAIN.entropy_rate, CHAIN.stationary_entropy):
            grid[0, column].axhline(level, color="k", linewidth=0.8, linestyle=":")
    gap = CHAIN.mutual_information
    grid[0, 0].set_ylim(CHAIN.entropy_rate - 0.2 * gap, CHAIN.stationary_entropy + 0.4 * gap)
    grid[0, 0].set_ylabel("loss (nats); dotted: unigram, bigram")
    start = float(record.smallest.isel(step=0).max())
    grid[1, 0].set_ylim(-2.5 * start, 1.6 * start)
    grid[1, 0].set_ylabel("smallest eigenvalue in $(b, e)$\nat the unigram of the run's weights")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6,
                  frameon=False)  # fmt: skip
    figure.suptitle(
        f"Tied, $p$ = 0.5, $q$ = 0.8, $d$ = {DIMENSION}, $N$ = {LENGTH}, {record.sizes['seed']} "
        "seeds a depth, exact population loss", fontsize=11
    )  # fmt: skip
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Train and draw; the exit code."""
    return run_script(
        __doc__, NAME, compute, numbers, draw, DEFAULT, FULL, arguments, larger="full"
    )


if __name__ == "__main__":
    sys.exit(main())
