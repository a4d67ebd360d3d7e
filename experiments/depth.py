"""Depth at (p, q) = (0.5, 0.8): the curvature at the unigram beside when runs leave it.

With e = 0 and b = log(π₁/π₀) a tied transformer of any depth predicts the unigram, whatever its
other weights, and the gradient vanishes; so all second derivatives but those in (b, e) vanish too.
Untied weights have that point at e = u = 0, with the block in (b, e, u). The smallest eigenvalue of
the whole Hessian is then that of the block, or 0 where this is positive: the unigram traps. Both
are computed, the block by differentiating twice and the whole, at the start and the end of every
run, from products of the Hessian with vectors (scipy's eigsh).

L = 1 … 6 layers, softmax attention, d = 8, N = 4, tied and untied, are trained from N(0, 0.02²)
(W_O and W_2 smaller by √(2L)) on the exact population loss, by gradient descent at the rate 0.5 and
by AdamW (rate 1e-3, betas 0.9 and 0.95, weight decay 1e-3): no noise of batches is in either. Every
20 steps the block is computed at the run's own weights with b, e and u put to the unigram. A run
leaves the unigram at the step from which on half of the gap to the bigram's loss is closed; the
plateau is how many steps before that its loss is within a tenth of the gap of the unigram's; the
overlap is the share of (e, u) there, as lengths, in the span of what the eigenvectors, whose
eigenvalues were negative when the first of them was found so, have in (e, u): one direction tied,
half of all untied. Their b is left out, since b only follows.

    python experiments/depth.py [--full]      five minutes on one core

--full takes ten times the steps.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, ORANGE, PINK, experiment, legend_below, span, stacked, timed
from scipy.sparse.linalg import LinearOperator, eigsh
from states_threshold import TRAINERS, adamw, descent
from torch import Tensor

from flowsim import BinaryChain
from full_model import Architecture, MarkovSource, PopulationLoss, Weights, initial_weights

CHAIN = BinaryChain(0.5, 0.8)
#: Steps that are drawn.
SHOWN = 600
DIMENSION, LENGTH, EVERY, RATE, STD = 8, 4, 20, 0.5, 0.02
#: What reads and writes symbols: all of it vanishes at the unigram.
READ = ("embedding", "unembedding")
COLOURS = (BLUE, ORANGE, GREEN, PINK, "#56B4E9", "black")
TYING = {True: "tied", False: "untied"}


def compute(layers: int = 6, seeds: int = 16, steps: int = 600) -> xr.Dataset:
    """Losses, smallest eigenvalues and directions of every run, over case, look and seed."""
    cases = itertools.product(TYING, range(1, layers + 1), TRAINERS)
    parts = {}
    for tied, depth, trainer in timed(cases):
        part = followed(depth, trainer, seeds, steps, tied)
        parts[f"L = {depth}, {TYING[tied]}, {TRAINERS[trainer]}"] = part
    return stacked(parts).assign_coords(step=range(0, steps + 1, EVERY))


def followed(depth: int, trainer: str, seeds: int, steps: int, tied: bool = True) -> xr.Dataset:
    """Runs of one depth and trainer, looked at every ``EVERY`` steps.

    ``embedding`` holds 0, e and of untied weights u, like the block; ``value`` and ``vector`` are
    the block's eigenvalues, ascending, and eigenvectors, by ``which``.
    """
    arch = Architecture(DIMENSION, LENGTH, layers=depth, tied=tied)
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))
    weights = initial_weights(arch, "gaussian", range(seeds), std=STD)
    whole = [[smallest_of_all(loss, weights, seed) for seed in range(seeds)]]
    step = adamw(weights) if trainer == "adamw" else descent(weights, RATE)
    looks = []
    for count in range(steps + 1):
        value, gradient = loss.value_and_gradient(weights)
        if count % EVERY == 0:
            read = [weights[name].detach() for name in READ if name in weights]
            entries = joined([read[0].new_zeros(seeds), *read]).clone()
            looks.append((value, entries, *torch.linalg.eigh(block(loss, weights))))
        if count < steps:
            step(gradient)
    whole.append([smallest_of_all(loss, weights, seed) for seed in range(seeds)])
    losses, embedding, values, vectors = (torch.stack(x).numpy() for x in zip(*looks, strict=True))
    axes, which = ("step", "seed"), range(values.shape[-1])
    return xr.Dataset({
        "loss": (axes, losses), "embedding": ((*axes, "entry"), embedding),
        "vector": ((*axes, "entry", "which"), vectors), "value": ((*axes, "which"), values),
        "smallest": (axes, values[..., 0]), "smallest_of_all": (("when", "seed"), whole),
    }, {"entry": which, "which": which})  # fmt: skip


def at_unigram(weights: Weights) -> Weights:
    """The same weights with e = 0, u = 0 and b = log(π₁/π₀)."""
    point = {name: weight.detach().clone() for name, weight in weights.items()}
    for name in READ:
        if name in point:
            point[name].zero_()
    point["bias"].fill_(math.log(CHAIN.p / CHAIN.q))
    return point


def block(loss: PopulationLoss, weights: Weights) -> Tensor:
    """Second derivatives in (b, e), or (b, e, u), at the unigram of every model, (M, k, k)."""
    point = at_unigram(weights)
    ends = [point[name].requires_grad_() for name in ("bias", *READ) if name in point]
    slopes = torch.autograd.grad(loss(point).sum(), ends, create_graph=True)
    columns = [
        joined(torch.autograd.grad(part.sum(), ends, retain_graph=True, materialize_grads=True))
        for part in joined(slopes).unbind(-1)
    ]
    return torch.stack(columns, dim=-1).detach()


def joined(parts: Iterable[Tensor]) -> Tensor:
    """(b, e), or (b, e, u), of every model in one axis."""
    bias, *rest = parts
    return torch.cat([bias.unsqueeze(-1), *rest], dim=-1)


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
    return {str(name): counted(record.sel(case=name)) for name in record.case.values}


def counted(case: xr.Dataset) -> dict[str, Any]:
    """Counts and spans of one case's runs."""
    left, opened, overlap, plateau = leaving(case)
    away = np.isfinite(left)
    return {
        "runs": len(left), "left": int(away.sum()), "opened": int(np.isfinite(opened).sum()),
        "opened_no_later": int((opened[away] <= left[away]).sum()),
        "smallest_at_start": span(case.smallest.values[0]),
        "whole_hessian_off": float(np.abs(
            case.smallest_of_all.values - np.minimum(case.smallest.values[[0, -1]], 0)).max()),
        "smallest_at_end": span(case.smallest.values[-1]), "plateau_steps": span(plateau),
        "opened_step": span(opened), "left_step": span(left), "overlap": span(overlap),
        "final_loss": span(case.loss.values[-1]),
    }  # fmt: skip


def leaving(case: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps at which runs leave the unigram and the smallest eigenvalue its sign, overlaps, and
    the steps spent at the unigram before: to the end, where they never leave.
    """
    middle = (CHAIN.entropy_rate + CHAIN.stationary_entropy) / 2
    steps, count = case.step.values, case.sizes["seed"]
    left, opened, overlap = (np.full(count, np.nan) for _ in range(3))
    near = np.abs(case.loss.values - CHAIN.stationary_entropy) <= 0.1 * CHAIN.mutual_information
    for i in range(count):
        above = np.flatnonzero(case.loss.values[:, i] > middle)
        if len(above) and above[-1] + 1 < len(steps):
            left[i] = steps[above[-1] + 1]
        negative = np.flatnonzero(case.smallest.values[:, i] < 0)
        if len(negative):
            opened[i] = steps[negative[0]]
            if np.isfinite(left[i]):
                e = np.nan_to_num(case.embedding.values[above[-1] + 1, i])  # NaN: no such entry
                opens = case.value.values[negative[0], i] < 0
                ways = np.nan_to_num(case.vector.values[negative[0], i][1:, opens])
                into = e[1:] @ np.linalg.qr(ways)[0]
                overlap[i] = np.linalg.norm(into) / np.linalg.norm(e)
    before = ~(steps[:, None] >= left)
    return left, opened, overlap, EVERY * (near & before).sum(0).astype(float)


def draw(record: xr.Dataset) -> Figure:
    """A column for each trainer, tied and untied: losses above, smallest eigenvalues below."""
    figure = Figure(figsize=(15, 6.6), layout="constrained")
    grid = figure.subplots(2, 4, sharex=True, sharey="row")
    columns = list(itertools.product(TYING.values(), TRAINERS.values()))
    for column, (tying, trainer) in enumerate(columns):
        for name in record.case.values:
            if not str(name).endswith(f", {tying}, {trainer}"):
                continue
            case, depth = record.sel(case=name), int(str(name)[4])
            colour = COLOURS[depth - 1]
            before = ~(case.step.values[:, None] > leaving(case)[0])  # later at the unigram no more
            curves = case.loss, case.smallest.where(xr.DataArray(before, dims=("step", "seed")))
            for axes, values in zip(grid[:, column], curves, strict=True):
                low, middle, high = _quartiles(values.transpose("step", "seed").values)
                axes.plot(record.step, middle, color=colour, linewidth=1.3,
                          label=f"{depth} layer{'s' * (depth > 1)}")  # fmt: skip
                axes.fill_between(record.step, low, high, color=colour, alpha=0.2, linewidth=0)
        grid[0, column].set_title(f"{tying}, {trainer}", fontsize=10)
        grid[1, column].set(xlim=(0, SHOWN), xlabel="step")
        for row, level in ((1, 0), (0, CHAIN.entropy_rate), (0, CHAIN.stationary_entropy)):
            grid[row, column].axhline(level, color="k", linewidth=0.8, linestyle=":")
    low, high, gap = CHAIN.entropy_rate, CHAIN.stationary_entropy, CHAIN.mutual_information
    grid[0, 0].set(ylim=(low - 0.2 * gap, high + 0.4 * gap),
                   ylabel="loss (nats); dotted: unigram, bigram")  # fmt: skip
    start = float(record.smallest.isel(step=0).max())
    grid[1, 0].set(
        ylim=(-2.5 * start, 1.6 * start),
        ylabel="smallest eigenvalue of the block\nat the unigram, until a run leaves",
    )
    legend_below(grid[0, 0], 6)
    figure.suptitle(
        "Runs leave the unigram once the smallest eigenvalue is negative, under AdamW deeper ones "
        "sooner; tied ones under gradient descent stay\n"
        f"$p$ = 0.5, $q$ = 0.8, $d$ = {DIMENSION}, $N$ = {LENGTH}, {record.sizes['seed']} seeds a "
        f"depth (medians and quartiles), exact loss, {SHOWN} steps", fontsize=11
    )  # fmt: skip
    return figure


def _quartiles(values: np.ndarray) -> np.ndarray:
    """Of the seeds at every step, (3, steps); NaN once half of them have left."""
    some = np.isfinite(values).mean(1) > 0.5
    found = np.full((3, len(values)), np.nan)
    found[:, some] = np.nanquantile(values[some], [0.25, 0.5, 0.75], axis=1)
    return found


main = experiment(__name__, compute, numbers, draw, record=False, full={"steps": 6000})
