"""Below the threshold too, full training of S states can end between the two losses: where.

Symmetric chain of S states with the second eigenvalue λ = 0.16, so p is below (S − 1)/S. One layer
without attention, tied, S logits, one position, m hidden units for each state, gradient descent on
the exact loss. Starts: points of the plane (e, w) with 0 < e < 2 and −2 < w < 0 that the plane
traps, lifted, with noise 0.02 on every weight; and Gaussian ones of deviation 0.02, 0.5 and 1.

Such ends split the states into blocks. The embeddings of a block are a simplex or, from five
states on, a ring (a regular polygon); those of different blocks are orthogonal; a lone state's is
0. ``split_loss`` is their loss (docs/derivations/13.md). Criteria: a run has learned below 1 % of
the gap; it is at a split within 0.2 % of the gap from that loss, if its embeddings have that rank,
and cosines within 0.1 of that split's; the others are open. Runs near such a loss are moved by 1e-3
in every weight, four times, and return if they are then within 0.2 % of the loss that they had.
The use of cosines was decided after these runs: by the loss alone 22 ends were misnamed.

    python experiments/states_ends.py      about five minutes on one core
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import torch
import xarray as xr
from numba import njit
from papers import experiment, timed
from scipy.linalg import block_diag, circulant
from scipy.optimize import minimize

from flowsim import MarkovChain
from full_model import Architecture, initial_weights, lift_states, wilson

Weights = list[np.ndarray]
#: Number of states, and the rank of their embeddings.
Block = tuple[int, int]
Blocks = tuple[Block, ...]

#: S and p above the threshold, where experiments/states_agreement.py leaves runs open.
ABOVE = ((3, 0.8), (5, 0.95))
EIGENVALUE, NOISE, NEAR, ALIKE, RATE = 0.16, 0.02, 0.002, 0.1, 0.1
LIFTED = "trapped by the plane"
GAUSSIAN = (0.02, 0.5, 1.0)
#: S, d, m, start.
SETTINGS = (
    *((6, d, m, LIFTED) for m in (1, 2, 3, 4) for d in range(5, 12)),
    *((s, d, 3, LIFTED) for s in (3, 4, 5, 7) for d in range(s - 1, 2 * s - 1)),
    *((6, d, 3, f"N(0, {x:g}²)") for x in GAUSSIAN for d in (5, 6, 7, 8)),
)


def leaving_probability(states: int) -> float:
    """p at the second eigenvalue."""
    return (1 - EIGENVALUE) * (states - 1) / states


def open_share(states: int, loss: float, p: float | None = None) -> float:
    """The open share of the gap between unigram and bigram, at p or at the second eigenvalue."""
    chain = MarkovChain.symmetric(states, leaving_probability(states) if p is None else p)
    return (loss - chain.entropy_rate) / (chain.stationary_entropy - chain.entropy_rate)


def compute(runs: int = 16, steps: int = 20_000) -> xr.Dataset:
    """Results of every run: open share, gradient, rank, kinks, gain, copies that return."""
    names = ("share", "gradient", "rank", "at_kinks", "gain", "returned")
    found = np.full((len(names), len(SETTINGS), runs), np.nan)
    grams = np.full((len(SETTINGS), runs, 7, 7), np.nan)
    for i, (states, d, m, start) in enumerate(timed(SETTINGS)):
        for k, weights in enumerate(starts(states, d, m, start, runs)):
            found[:, i, k] = measure_end(weights, steps)
            if not found[0, i, k] < 0.01:
                e = centred(weights[0])
                e /= np.linalg.norm(e, axis=1)[:, None] + 1e-9
                grams[i, k, :states, :states] = e @ e.T
    axes = ("setting", "run")
    record = xr.Dataset({n: (axes, x.astype("float32")) for n, x in zip(names, found, strict=True)})
    record["cosine"] = ((*axes, "state", "other"), grams.astype("float32"))
    return record.assign_coords(setting=["; ".join(map(str, s)) for s in SETTINGS])


def starts(states: int, d: int, m: int, start: str, runs: int) -> Iterator[Weights]:
    """Weights of every run: embeddings, position, W_1, W_2ᵀ, bias."""
    arch = Architecture(d, 1, hidden=m * states, states=states, output="states", attention="none")
    for seed in range(runs):
        if start == LIFTED:
            rng = np.random.default_rng(seed)
            point = trapped_point(m, rng)
            weights = {n: x.numpy() for n, x in lift_states(point, arch).items()}
            weights = {n: x + NOISE * rng.normal(size=x.shape) for n, x in weights.items()}
        else:
            deviation = float(start[5:-2])
            drawn = initial_weights(arch, "gaussian", [seed], std=deviation)
            weights = {n: x[0].numpy() for n, x in drawn.items()}
        yield [np.ascontiguousarray(x) for x in (
            weights["embedding"], weights["positions"][0], weights["0.up"], weights["0.down"].T,
            weights["bias"])]  # fmt: skip


def trapped_point(m: int, rng: np.random.Generator) -> torch.Tensor:
    """A random (e, w) that the plane traps below the threshold."""
    while True:
        e, w = rng.uniform(0, 2), rng.uniform(-2, 0)
        omega = np.sqrt(m) * w
        if omega < -1 and e**2 < 2 * omega**2 - 2 - 4 * np.log(-omega):
            return torch.tensor([e, w], dtype=torch.float64)


def trained(weights: Weights, steps: int) -> tuple[float, float]:
    """Open share and size of the gradient after descent, in place, at the rate and then at 1/10."""
    states = len(weights[0])
    law = MarkovChain.symmetric(states, leaving_probability(states)).kernel
    for rate, count in ((RATE, steps), (RATE / 10, steps // 10)):
        loss, size = descend(*weights, law, rate, count)  # type: ignore[call-arg]
    return open_share(states, loss), size


def measure_end(weights: Weights, steps: int) -> tuple[float, ...]:
    """The numbers of one run, whose weights become those of its end."""
    share, size = trained(weights, steps)
    e, p, up, _, _ = weights
    at_kinks = int((abs((e + p) @ up.T).min(0) < 1e-3).sum())
    returned, among = np.nan, embedding_rank(e)
    if splits_near(len(e), among, share):
        rng, returned = np.random.default_rng(0), 0
        for _ in range(4):
            copy = [x + 1e-3 * rng.normal(size=x.shape) for x in weights]
            returned += abs(trained(copy, steps // 2)[0] - share) < NEAR
    return share, size, among, at_kinks, gain_across(weights), returned


def splits_near(states: int, among: int, share: float) -> list[Blocks]:
    """The splits of that rank whose loss is at that share."""
    return [blocks for blocks, value in partition_losses(states).items()
            if sum(rank for _, rank in blocks) == among and abs(value - share) < NEAR]  # fmt: skip


def splits_of_runs(states: int, lines: xr.Dataset) -> np.ndarray:
    """The split at which each run is, "" of none, in the shape of the runs."""
    found = np.full(lines.share.shape, "", dtype=object)
    for at in np.ndindex(found.shape):
        cosine = lines.cosine.values[at][:states, :states]
        for blocks in splits_near(
            states, int(lines["rank"].values[at]), float(lines.share.values[at])
        ):
            if distance_from_split(cosine, blocks) < ALIKE:
                found[at] = split_name(blocks)
    return found.astype(str)


def distance_from_split(cosine: np.ndarray, blocks: Blocks) -> float:
    """Distance of cosines (S, S) from a split's, in the best order of states."""
    order = np.array(list(permutations(range(len(cosine)))))
    off = abs(cosine[order[:, :, None], order[:, None, :]] - cosines_of(blocks))
    return float(np.nanmax(off, (1, 2)).min())


def split_name(blocks: Blocks) -> str:
    """Name of a split in figure and table."""
    return " + ".join(str(k) if among == k - 1 else f"ring of {k}" for k, among in blocks)


@cache
def partition_losses(states: int) -> dict[Blocks, float]:
    """Open shares of all splits between the bigram, rank S − 1, and the unigram, rank 0."""
    return {blocks: open_share(states, split_loss(blocks, leaving_probability(states)))
            for blocks in splits(states)
            if 0 < sum(rank for _, rank in blocks) < states - 1}  # fmt: skip


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per setting: how many learn, are at a split, are open; and the splits' losses."""
    found: dict[str, Any] = {}
    for (states, d, m, start), name in zip(SETTINGS, record.setting.values, strict=True):
        line = record.sel(setting=name)
        share = line.share.values
        kinds = splits_of_runs(states, line)
        at = kinds != ""
        learned = share < 0.01
        rest = ~at & ~learned
        found[str(name)] = {
            "states": states, "d": d, "m": m, "start": start, "runs": len(share),
            "learned": int(learned.sum()), "at splits": dict(Counter(kinds[at].tolist())),
            "interval": wilson(int(at.sum()), len(share)), "open": int(rest.sum()),
            "open_share": sorted(float(x) for x in share[rest]),
            "largest gradient at splits": float(line.gradient.values[at].max(initial=0)),
            "copies that return": [int(line.returned.values[at].sum()), 4 * int(at.sum())],
            "units at kinks": sorted(int(x) for x in line.at_kinks.values[at]),
            "gain across at splits": sorted(float(x) for x in line.gain.values[at]),
            "gain across where open": sorted(float(x) for x in line.gain.values[rest]),
        }  # fmt: skip
    found["levels"] = {
        f"S = {s}": {split_name(blocks): x for blocks, x in partition_losses(s).items()}
        for s in (3, 4, 5, 6, 7)
    }
    found["minima of rank K above the threshold"] = {
        f"S = {s}, p = {p}": {
            f"K = {k}": [open_share(s, loss, p) for loss in rank_losses(s, p, k)]
            for k in range(1, s - 1)
        }
        for s, p in ABOVE
    }
    return found


@njit(fastmath=True)
def descend(e, p, up, down, b, kernel, rate, steps):  # type: ignore[no-untyped-def]
    """Gradient descent in place; the loss and the size of its gradient at the end.

    One position: y_s = e_s + p, z_s = y_s + Σ_j ReLU(up_j·y_s) down_j, logits ⟨e_t, z_s⟩ + b_t,
    and the loss is the mean cross-entropy over the current state s, which ``kernel[s]`` follows.

    Args:
        e, p, up, down, b: embeddings (S, d), position (d,), W_1 (r, d), W_2ᵀ (r, d), bias (S,).
        kernel: (S, S), rows sum to one.
        rate: of every step.
        steps: how many.
    """
    states, d = e.shape
    units = up.shape[0]
    read, z, error = np.empty(units), np.empty((states, d)), np.empty((states, states))
    ge, gp, gb = np.zeros_like(e), np.zeros_like(p), np.zeros_like(b)
    gu, gd = np.zeros_like(up), np.zeros_like(down)
    y, gz, loss = np.empty(d), np.empty(d), 0.0
    for step in range(steps + 1):
        ge[:] = 0
        gp[:] = 0
        gu[:] = 0
        gd[:] = 0
        gb[:] = 0
        loss = 0.0
        for s in range(states):
            y[:] = e[s] + p
            z[s] = y
            for j in range(units):
                read[j] = 0.0
                for k in range(d):
                    read[j] += up[j, k] * y[k]
                if read[j] > 0:
                    for k in range(d):
                        z[s, k] += read[j] * down[j, k]
            for t in range(states):
                error[s, t] = b[t]
                for k in range(d):
                    error[s, t] += e[t, k] * z[s, k]
            top = error[s].max()
            total = top + np.log(np.exp(error[s] - top).sum())
            gz[:] = 0
            for t in range(states):
                loss += kernel[s, t] * (total - error[s, t]) / states
                error[s, t] = (np.exp(error[s, t] - total) - kernel[s, t]) / states
                gb[t] += error[s, t]
                for k in range(d):
                    gz[k] += error[s, t] * e[t, k]
                    ge[t, k] += error[s, t] * z[s, k]
            gp += gz
            ge[s] += gz
            for j in range(units):
                if read[j] > 0:
                    slope = 0.0
                    for k in range(d):
                        slope += gz[k] * down[j, k]
                        gd[j, k] += gz[k] * read[j]
                    for k in range(d):
                        gu[j, k] += slope * y[k]
                        gp[k] += slope * up[j, k]
                        ge[s, k] += slope * up[j, k]
        if step < steps:
            e -= rate * ge
            p -= rate * gp
            up -= rate * gu
            down -= rate * gd
            b -= rate * gb
    size = (ge**2).sum() + (gp**2).sum() + (gu**2).sum() + (gd**2).sum() + (gb**2).sum()
    return loss, np.sqrt(size)


def partitions(total: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as a sum, the largest part first."""
    if total == 0:
        yield ()
    for first in range(min(total, largest or total), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def splits(total: int) -> list[Blocks]:
    """The ways to split states into blocks, each a simplex or, from five states on, a ring."""
    shapes = (product(*({(k, k - 1), (k, 2 if k > 4 else k - 1)} for k in sizes))
              for sizes in partitions(total))  # fmt: skip
    return sorted({tuple(sorted(blocks, reverse=True)) for some in shapes for blocks in some})


def block_cosines(block: Block) -> np.ndarray:
    """Cosines of a state's embedding with those of its block, itself first; 0 of a lone state."""
    size, among = block
    if among == 2:
        return np.cos(2 * np.pi * np.arange(size) / size)
    return np.array([float(size > 1), *[-1 / max(size - 1, 1)] * (size - 1)])


def cosines_of(blocks: Blocks) -> np.ndarray:
    """The cosines between all embeddings, (S, S); NaN of lone states, whose embedding is 0."""
    found = block_diag(*(circulant(block_cosines(block)) for block in blocks))
    found[np.diag(found) == 0] = np.nan
    return found + 0 * found.T


def split_loss(blocks: Blocks, p: float) -> float:
    """The least loss where the embeddings of every block have the block's shape.

    From a state of block i the logits are a_i times the cosine, plus b_i, in its block, and b_j in
    block j. No logits whose sum is 0 in every block, but for a bias, are better than those of
    simplices (docs/derivations/13.md).

    Args:
        blocks: of the states; a ring has rank 2, a simplex of k states k − 1.
        p: the chance to leave a state.
    """
    k, cosines = np.array([size for size, _ in blocks], dtype=float), [*map(block_cosines, blocks)]
    other = p / (k.sum() - 1)

    def loss(x: np.ndarray) -> float:
        a, b = x[: len(k)], x[len(k) :]
        own = [ai * c + bi for ai, c, bi in zip(a, cosines, b, strict=True)]
        outside, log = (k * np.exp(b)).sum() - k * np.exp(b), (k * b).sum() - k * b
        total = np.log([np.exp(f).sum() for f in own] + outside)
        expected = [(1 - p) * f[0] + other * f[1:].sum() for f in own] + other * log
        return float((k / k.sum() * (total - expected)).sum())

    return float(minimize(loss, np.zeros(2 * len(k)), method="BFGS", options={"gtol": 1e-9}).fun)


def rank_losses(states: int, p: float, among: int, tries: int = 30) -> list[float]:
    """The local minima of the loss over all logits of rank ``among``, plus a bias, that we find.

    Descent from ``tries`` random factors; losses to six digits, in increasing order.
    """
    kernel, rng, found = MarkovChain.symmetric(states, p).kernel, np.random.default_rng(0), set()
    cut = states * among

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        e, z, b = x[:cut].reshape(states, -1), x[cut : 2 * cut].reshape(states, -1), x[2 * cut :]
        logits = z @ e.T + b
        total = np.log(np.exp(logits).sum(1, keepdims=True))
        error = (np.exp(logits - total) - kernel) / states
        slope = np.concatenate([(error.T @ z).ravel(), (error @ e).ravel(), error.sum(0)])
        return float((total[:, 0] - (kernel * logits).sum(1)).mean()), slope

    for _ in range(tries):
        first = 0.5 * rng.normal(size=2 * cut + states)
        end = minimize(loss, first, jac=True, method="BFGS", options={"gtol": 1e-9})
        found.add(round(float(end.fun), 6))
    return sorted(found)


def centred(e: np.ndarray) -> np.ndarray:
    """Embeddings without their mean, which only shifts the position."""
    return e - e.mean(0)


def embedding_rank(e: np.ndarray) -> int:
    """Rank of the embeddings' differences: singular values above 5 % of the largest."""
    sizes = np.linalg.svd(centred(e), compute_uv=False)
    return int((sizes > 0.05 * max(sizes[0], 1e-9)).sum())


def gain_across(weights: Weights, draws: int = 2000) -> float:
    """The largest mean gain of the layer across the embeddings' span, over random directions.

    The gain is v·(z(y + v) − z(y)) for a small v, averaged over the states; a unit at its kink is
    open if v opens it. NaN where the embeddings span everything.
    """
    e, p, up, down, _ = weights
    _, _, right = np.linalg.svd(centred(e))
    across = right[embedding_rank(e) :]
    if not len(across):
        return float("nan")
    v = np.random.default_rng(0).normal(size=(draws, len(across))) @ across
    v /= np.linalg.norm(v, axis=1)[:, None]
    inputs, along = (e + p) @ up.T, v @ up.T
    open_ = (inputs[:, None] > 1e-3) | ((abs(inputs[:, None]) <= 1e-3) & (along > 0))
    return float((1 + (open_ * (along * (v @ down.T))).sum(-1)).mean(0).max())


main = experiment(__name__, compute, numbers, None)
