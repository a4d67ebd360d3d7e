"""At which random weights the unigram is a trap: the sign of S over scale, width and rank.

At e = 0 a single-layer model with tied weights predicts the unigram and is critical; it traps
gradient flow where the matrix S of docs/derivations/12.md is positive definite. Here W_1,
W_2, the positions and, in one column, the attention are Gaussian, every entry of deviation s, with
r = 4d hidden units and N = 16, and S comes from its closed form. docs/results/escape.md says what
we find; here is why:

Descent on the exact loss (d = 3, N = 4, with attention, from |e| = 1e-4 and the best bias) stands
beside the sign of S: a run stays if e falls a hundredfold and the loss never comes below h(π₁); it
leaves if the loss does, after which it cannot come back. What does neither in 6 000 steps is open:
where the mean of z_n is large, e and b move together and slowly.

    python experiments/trap_map.py [--draws 400] [--seed 0]      minutes on one core
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, experiment
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.drawing.style import FILL, INK
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Weights,
    forward,
    trap_matrix,
    wilson,
)

FREE, TRAP = "global_minimum", "local_minimum"
CHAINS, LENGTH = (ABOVE, BELOW), 16
#: Scales and first |e| of the descents, and how far below h(π₁) a loss is surely below.
TRIED, START, ROUNDING = (0.3, 0.5, 0.7, 1.0), 1e-4, 1e-13
SCALES = 10 ** np.linspace(-1.5, 0.5, 21)
#: Positions and attention of a draw, and what a panel calls them.
LAYOUTS = {
    "equal": "all positions equal",
    "own": "positions drawn one by one",
    "attention": "one by one, with softmax attention",
}


def random_weights(arch: Architecture, layout: str, scale: float, rank: int, draws: int,
          generator: torch.Generator) -> Weights:  # fmt: skip
    """Gaussian weights; W_1 and W_2 act on, and write into, a random subspace of that rank each.

    Their entries keep the deviation ``scale``, averaged over subspaces.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn((draws, *shape), dtype=torch.float64, generator=generator)

    weights = {name: scale * normal(*shape) for name, shape in arch.shapes.items()}
    if layout == "equal":
        weights["positions"] = weights["positions"][:, :1].expand(-1, arch.length, -1)
    if rank < arch.d:
        for name in ("0.up", "0.down"):
            basis, _ = torch.linalg.qr(normal(arch.d, rank))
            onto = (arch.d / rank) ** 0.5 * basis @ basis.mT
            weight = weights[name]
            weights[name] = weight @ onto if name == "0.up" else onto @ weight
    return weights


def compute(
    draws: int = 400, seed: int = 0, widest: int = 8, runs: int = 32, steps: int = 6000
) -> xr.Dataset:
    """Share of draws with S positive definite, by chain, layout, d, rank and scale; descents."""
    generator = torch.Generator().manual_seed(seed)
    widths = range(1, widest + 1)
    count = np.full((len(CHAINS), len(LAYOUTS), widest, widest, len(SCALES)), np.nan)
    for k, layout in enumerate(LAYOUTS):
        attention = "softmax" if layout == "attention" else "none"
        for d in widths:
            arch = Architecture(d, LENGTH, attention=attention)
            for rank in [d] if layout == "attention" else range(1, d + 1):
                for i, scale in enumerate(SCALES):
                    weights = random_weights(arch, layout, float(scale), rank, draws, generator)
                    for c, chain in enumerate(CHAINS):
                        values = torch.linalg.eigvalsh(trap_matrix(arch, weights, chain))
                        count[c, k, d - 1, rank - 1, i] = int((values[:, 0] > 0).sum())
    axes = ("chain", "layout", "d", "rank", "scale")
    words = {"long_name": "draws with S positive definite", "units": "1"}
    scales = ("scale", SCALES, {"long_name": "deviation of every entry of the weights"})
    record = xr.Dataset(
        {"trapped": (axes, count, words)},
        {"chain": [f"p = {c.p}, q = {c.q}" for c in CHAINS], "layout": list(LAYOUTS),
         "d": list(widths), "rank": list(widths), "scale": scales},
        {"draws": draws, "seed": seed, "length": LENGTH, "hidden": "4d"},
    )  # fmt: skip
    return record.merge(descents(runs, seed + 1, steps), combine_attrs="override")


def descents(runs: int, seed: int, steps: int) -> xr.Dataset:
    """Gradient descent from a small embedding: S's smallest eigenvalue, and what the run does."""
    arch = Architecture(3, 4)
    generator = torch.Generator().manual_seed(seed)
    parts = [random_weights(arch, "own", scale, 3, runs, generator) for scale in TRIED]
    weights = {name: torch.cat([part[name] for part in parts]) for name in arch.shapes}
    small = torch.nn.functional.normalize(weights["embedding"], dim=-1) * START
    lowest, ends = [], []
    for chain in CHAINS:
        matrix = trap_matrix(arch, weights, chain)
        lowest.append(torch.linalg.eigvalsh(matrix)[:, 0])
        start = {**weights, "embedding": small}
        ends.append(follow(chain, arch, start, matrix, steps))
    shape = (len(CHAINS), len(TRIED), runs)
    return xr.Dataset(
        {name: (("chain", "tried_scale", "run"), torch.stack(rows).reshape(shape).numpy())
         for name, rows in (("smallest", lowest), ("end", ends))},
        {"tried_scale": list(TRIED)},
    )  # fmt: skip


def follow(chain: BinaryChain, arch: Architecture, weights: Weights, matrix: Tensor,
           steps: int) -> Tensor:  # fmt: skip
    """1 where e falls a hundredfold, −1 where the loss falls below h(π₁), 0 where neither (M,).

    The step is the inverse of a bound on the Hessian in (b, e), π₀π₁ (1 + |z̄|² + |S|): after zeros
    only, the logit that a unit vector reads is that component of z_n.
    """
    pi0, pi1 = chain.stationary
    tokens = torch.zeros(1, arch.length, dtype=torch.uint8)
    still = {**weights, "bias": 0 * weights["bias"]}
    mean = torch.stack([
        forward(arch, {**still, "embedding": unit.expand_as(weights["embedding"])}, tokens).mean(-1)
        for unit in torch.eye(arch.d, dtype=torch.float64)
    ])  # fmt: skip
    size = 1 + mean.square().sum(0)[:, 0] + torch.linalg.matrix_norm(matrix, 2)
    rate = 1 / (pi0 * pi1 * size)
    loss = PopulationLoss(arch, MarkovSource.of(chain))
    now = {**weights, "bias": loss.optimal_bias(weights)}
    left = torch.zeros(len(rate), dtype=torch.bool)
    for _ in range(steps):
        value, slope = loss.value_and_gradient(now)
        left |= value < chain.stationary_entropy - ROUNDING
        now = {k: w - rate.reshape(-1, *[1] * (w.ndim - 1)) * slope[k] for k, w in now.items()}
    fallen = now["embedding"].norm(dim=-1) < START / 100
    return torch.where(left, -1, (fallen & ~left).to(torch.int8)).to(torch.int8)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Trapped shares of full rank at four scales, with intervals; what the theorem rules out."""
    draws = record.attrs["draws"]
    shown = [int(np.abs(record.scale.values - s).argmin()) for s in (0.1, 0.3, 1.0, 3.0)]
    found: dict[str, Any] = {}
    for chain in record.chain.values:
        for layout in record.layout.values:
            part = record.trapped.sel(chain=chain, layout=layout)
            lines = {}
            for d in record.d.values:
                counts = part.sel(d=d, rank=d)
                lines[f"d = {d}"] = [
                    {"scale": float(record.scale[i]), "trapped": int(counts[i]),
                     "share": int(counts[i]) / draws, "interval": wilson(int(counts[i]), draws)}
                    for i in shown
                ]  # fmt: skip
            found[f"{chain}; {layout}"] = lines
    below = record.trapped.isel(chain=1).sel(layout="equal")
    short = below.where(below["rank"] < below["d"])
    found["p + q < 1, equal positions, rank < d"] = {
        "draws": int(short.notnull().sum()) * draws, "trapped": int(short.sum()),
    }  # fmt: skip
    for chain in record.chain.values:
        part = record.sel(chain=chain)
        for word, chosen in (("trap", part.smallest > 0), ("saddle", part.smallest <= 0)):
            ends = part.end.values[chosen.values]
            found[f"{chain}; descent where S says {word}"] = {
                "runs": len(ends), "stay": int((ends == 1).sum()),
                "leave": int((ends == -1).sum()), "open": int((ends == 0).sum()),
            }  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """Shares over scale and d, of full rank, for each layout, and over scale and rank."""
    figure = Figure(figsize=(13.5, 6.4), layout="constrained")
    grid = figure.subplots(2, 4, sharex=True)
    widest, draws = int(record.d[-1]), record.attrs["draws"]
    colours = LinearSegmentedColormap.from_list("trap", [FILL[FREE], FILL[TRAP], INK[TRAP]])
    for c, row in enumerate(grid):
        panels = [
            (title, np.stack([record.trapped.values[c, k, d, d] for d in range(widest)]))
            for k, title in enumerate(LAYOUTS.values())
        ]
        panels.append((f"one by one, $d$ = {widest}, lower rank", record.trapped.values[c, 1, -1]))
        for column, (axes, (title, count)) in enumerate(zip(row, panels, strict=True)):
            mesh = axes.pcolormesh(
                record.scale.values, record.d.values, count / draws,
                cmap=colours, vmin=0, vmax=1, shading="nearest",
            )  # fmt: skip
            axes.set_xscale("log")
            axes.set_xticks([0.1, 1.0], ["0.1", "1"])
            axes.set_yticks(record.d.values)
            axes.set_ylabel("dimension $d$" if column < 3 else "rank of $W_1$ and of $W_2$")
            if c == 0:
                axes.set_title(title, fontsize=10)
            else:
                axes.set_xlabel("deviation $s$ of all entries")
        row[0].annotate(
            f"${record.chain.values[c].replace(', ', '$, $')}$:  $p + q$ {'><'[c]} 1", (-0.24, 0.5),
            xycoords="axes fraction", rotation=90, ha="center", va="center", fontsize=11,
        )  # fmt: skip
    d = np.linspace(0.5, widest + 0.5, 100)
    grid[0, 0].plot((4 * d * d) ** -0.25, d, color="k", lw=1.6, ls="--")
    grid[0, 0].text(0.045, 6.2, "$s = (rd)^{-1/4}$", color="k", fontsize=10)
    bar = figure.colorbar(mesh, ax=grid, aspect=40, pad=0.01)
    bar.set_label("share of weights at which $e = 0$ traps gradient flow ($S$ positive definite)")
    figure.suptitle(
        "When is the unigram a trap?  Gaussian $W_1$, $W_2$ and positions, one tied layer, "
        f"$r = 4d$ hidden units, $N$ = {record.attrs['length']}, {draws} draws a cell",
        fontsize=11,
    )
    return figure


main = experiment(__name__, compute, numbers, draw)
