"""Share of first weights that reach the bigram: five starts, fifteen models, two trainers, chains.

The base is a tied ReLU layer with learned positions and one logit, d = 8, without layer norm; each
variation changes one thing, or takes what GPT-2 has: layer norm, GELU, a logit for each symbol.
Starts, sixteen seeds of each:

- "Gaussian 0.02": every weight N(0, 0.02²); "Gaussian 1/√d": N(0, 1/d);
- "orthogonal": every matrix orthogonal (rows or columns, whichever are fewer); embedding and
  positions N(0, 1/d);
- "LG": W_1 = 1, W_2 = −sign(p + q − 1), the rest Gaussian 0.02;
- "balanced": hidden units of both signs, W_2 = −W_1ᵀ, the rest Gaussian 0.02.

Trainers: gradient descent on the exact loss at N = 4, 1 000 steps at the rate 0.1 (LG's start, as
steep as d², 2 000 at 0.02 (8/d)²); AdamW with the numbers of AM Table 2 at the rate 0.003, 1 000
steps on 8 sequences of N = 16. For N = 64, N = 256 and d = 64 both train on batches, of 4, 2 and 4
sequences; d = 64 takes half the steps. A run is at the bigram where less than 5 % of the gap
between unigram and bigram is open at the end, by the exact loss or on 512 held-out symbols, where
the divergence to the chain's own law is averaged; it got there at the first of 25 measurements
from which on that stays so.

    python experiments/first_weights.py      an hour on one core
"""

import math
from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, experiment, median, parts_folder, timed
from torch import Tensor

from flowsim import BinaryChain
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Recipe,
    Trainer,
    Weights,
    cross_entropy,
    forward,
    initial_weights,
    wilson,
)

GPT2 = {"layer_norm": True, "activation": "gelu", "output": "states"}
VARIATIONS: dict[str, dict[str, Any]] = {
    "base": {},
    "layer norm": {"layer_norm": True},
    "GELU": {"activation": "gelu"},
    "two logits": {"output": "states"},
    "untied": {"tied": False},
    "d = 4": {"d": 4},
    "d = 16": {"d": 16},
    "N = 64": {"length": 64},
    "N = 256": {"length": 256},
    "GPT-2's": GPT2,
    "GPT-2's, untied": {**GPT2, "tied": False},
    "d = 64": {"d": 64},
    "layer norm, d = 4": {"layer_norm": True, "d": 4},
    "layer norm, d = 16": {"layer_norm": True, "d": 16},
    "layer norm, d = 64": {"layer_norm": True, "d": 64},
}
STARTS = ("Gaussian 0.02", "Gaussian 1/√d", "orthogonal", "LG", "balanced")
TRAINERS = ("descent", "AdamW")
CHAINS = {"p + q > 1": ABOVE, "p + q < 1": BELOW}
D, SHORT, LONG, MEASURED, HELD_OUT, STD = 8, 4, 16, 25, 512, 0.02
AT_BIGRAM = 0.05


def compute(seeds: int = 16, steps: int = 1000) -> xr.Dataset:
    """Open share at the end, and the step of arrival (variation, trainer, chain, start, seed)."""
    cells = [
        train_cell(*case, seeds, steps) for case in timed([*product(VARIATIONS, TRAINERS, CHAINS)])
    ]
    shape = (len(VARIATIONS), len(TRAINERS), len(CHAINS), 2, len(STARTS), seeds)
    share, arrival = np.moveaxis(np.reshape(cells, shape).astype("float32"), 3, 0)
    axes = ("variation", "trainer", "chain", "start", "seed")
    return xr.Dataset(
        {"open_share": (axes, share), "arrival": (axes, arrival)},
        {"variation": list(VARIATIONS), "trainer": list(TRAINERS), "chain": list(CHAINS),
         "start": list(STARTS)},
    )  # fmt: skip


def train_cell(variation: str, trainer: str, chain: str, seeds: int, steps: int) -> np.ndarray:
    """Open shares at the end, and arrivals, of every start (2, start, seed); kept in a file."""
    options: dict[str, Any] = {"d": D, "length": SHORT if trainer == "descent" else LONG}
    options |= VARIATIONS[variation]
    small = trainer == "descent" and options["d"] < 64 and options["length"] == SHORT
    arch = Architecture(**options | ({} if small else {"length": max(LONG, options["length"])}))
    steps = steps // 2 if arch.d == 64 else steps
    alike = tuple(start for start in STARTS if start != "LG")
    recipes = {start: recipe_of(arch, trainer, steps, start) for start in ("balanced", "LG")}
    groups = [STARTS] if trainer == "AdamW" else [alike, ("LG",)]
    folder, name = parts_folder(), f"{variation}, {trainer}, {chain}, {seeds}, {steps}.npy"
    if folder and (folder / name).exists():
        return np.load(folder / name)
    found = np.full((2, len(STARTS), seeds), np.nan)
    for group in groups:
        weights = [starting_weights(arch, start, CHAINS[chain], seeds) for start in group]
        joined = {name: torch.cat([w[name] for w in weights]) for name in arch.shapes}
        lines, at = followed(arch, recipes[group[-1]], CHAINS[chain], joined)
        for start, part in zip(group, np.split(lines, len(group), axis=1), strict=True):
            found[:, STARTS.index(start)] = part[-1], arrival_steps(part, at)
    if folder:
        np.save(folder / name, found)
    return found


def recipe_of(arch: Architecture, trainer: str, steps: int, start: str) -> Recipe:
    """The trainer's settings for an architecture and a start."""
    batch = {LONG: 4 if arch.d == 64 else 8, 64: 4, 256: 2}.get(arch.length, 1)
    if trainer == "AdamW":
        return Recipe.named("adamw-papers", steps=steps, learning_rate=3e-3, batch=batch)
    steep = start == "LG"
    rate, count = (0.02 * (D / arch.d) ** 2, 2 * steps) if steep else (0.1, steps)
    name = "gd" if arch.length == SHORT else "sgd"
    return Recipe(name, count, learning_rate=rate, batch=batch)


def starting_weights(arch: Architecture, start: str, chain: BinaryChain, seeds: int) -> Weights:
    """The weights of one start, (seeds, *shape)."""
    each, wide = range(seeds), arch.d**-0.5
    if start in ("LG", "balanced"):
        kind = "recommended" if start == "LG" else start
        return initial_weights(arch, kind, each, STD, excess=chain.p + chain.q - 1)
    weights = initial_weights(arch, "gaussian", each, STD if start == "Gaussian 0.02" else wide)
    if start == "orthogonal":
        for name, part in weights.items():
            if "." in name and part.ndim == 3:
                weights[name] = orthogonal(part)
    return weights


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices with orthonormal rows or columns, drawn by Gaussian ones (seeds, m, n)."""
    tall = matrices if matrices.shape[1] >= matrices.shape[2] else matrices.mT
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    return (q if tall is matrices else q.mT).contiguous()


def followed(
    arch: Architecture, recipe: Recipe, chain: BinaryChain, weights: Weights
) -> tuple[np.ndarray, np.ndarray]:
    """Open shares (looks, models) in training, and their steps."""
    source = MarkovSource.of(chain)
    if recipe.loss == "sampled":
        weights = {name: part.float() for name, part in weights.items()}
    trainer = Trainer(arch, weights, source, recipe, torch.Generator().manual_seed(0))
    lines, at = [open_share(arch, source, trainer.weights)], [0]
    for _ in range(MEASURED):
        trainer.advance(max(1, recipe.steps // MEASURED))
        lines.append(open_share(arch, source, trainer.weights))
        at.append(trainer.step)
    return np.stack(lines), np.array(at)


def open_share(arch: Architecture, source: MarkovSource, weights: Weights) -> np.ndarray:
    """(L − entropy rate)/(unigram − entropy rate) of every model."""
    gap = float(source.stationary_entropy - source.entropy_rate)
    with torch.no_grad():
        if arch.length == SHORT:
            loss = PopulationLoss(arch, source)(weights)
            return ((loss - source.entropy_rate) / gap).numpy()
        generator = torch.Generator().manual_seed(1)
        tokens, law = source.held_out(HELD_OUT // arch.length, arch.length, generator)
        entropy = -torch.xlogy(law, law).sum(-1).mean()
        members = len(weights["bias"])
        tokens, law = (x.expand(members, *x.shape[1:]) for x in (tokens, law))
        targets = law[..., 1] if arch.output == "binary" else law
        each = cross_entropy(arch, forward(arch, weights, tokens), targets)
    return ((each.double().mean((-2, -1)) - entropy) / gap).numpy()


def arrival_steps(lines: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The first step from which on all looks (looks, models) are at the bigram; NaN if none."""
    away = ~(lines < AT_BIGRAM)
    since = np.where(away.any(0), len(lines) - np.argmax(away[::-1], axis=0), 0)
    return np.where(since < len(lines), at[np.minimum(since, len(lines) - 1)], math.nan)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per variation, trainer, chain and start: runs at the bigram, interval, median arrival."""
    found: dict[str, Any] = {}
    for variation, trainer, chain in product(VARIATIONS, TRAINERS, CHAINS):
        cell: dict[str, Any] = {}
        for start in STARTS:
            part = record.sel(variation=variation, trainer=trainer, chain=chain, start=start)
            count = int((part.open_share.values < AT_BIGRAM).sum())
            cell[start] = {
                "bigram": count, "runs": part.sizes["seed"],
                "interval": wilson(count, part.sizes["seed"]),
                "median step": median(part.arrival.values),
            }  # fmt: skip
        found[f"{variation}; {trainer}; {chain}"] = cell
    return found


def draw(record: xr.Dataset) -> Figure:
    """A panel per trainer and chain: runs at the bigram, by model and start."""
    figure = Figure(figsize=(13, 6.4), layout="constrained")
    grid = figure.subplots(1, 4, sharey=True)
    shades = LinearSegmentedColormap.from_list("share", ["#ffffff", BLUE])
    seeds = record.sizes["seed"]
    for axes, (trainer, chain) in zip(grid, product(TRAINERS, CHAINS), strict=True):
        part = record.sel(trainer=trainer, chain=chain)
        count = (part.open_share < AT_BIGRAM).sum("seed").values
        axes.imshow(count / seeds, cmap=shades, vmin=0, vmax=1.25, aspect="auto")
        for i, j in np.ndindex(count.shape):
            step = median(part.arrival[i, j].values)
            axes.text(j, i - 0.12, f"{count[i, j]}", ha="center", va="center", fontsize=9)
            if step is not None:
                axes.text(j, i + 0.28, f"{step:.0f}", ha="center", va="center", fontsize=6.5)
        axes.set_xticks(range(len(STARTS)), STARTS, rotation=40, ha="right", fontsize=9)
        axes.set_yticks(range(len(VARIATIONS)), VARIATIONS)
        law = CHAINS[chain]
        axes.set_title(f"{trainer}, (p, q) = ({law.p:g}, {law.q:g})", fontsize=10)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.suptitle(
        f"Runs of {seeds} that are at the bigram at the end (large) and their median step of "
        "arrival (small)", fontsize=11,
    )  # fmt: skip
    return figure


main = experiment(__name__, compute, numbers, draw)
