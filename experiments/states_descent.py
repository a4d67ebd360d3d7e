"""Gradient descent of one attention-free layer with S logits, and losses of states in blocks."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numba import njit
from scipy.linalg import block_diag, circulant
from scipy.optimize import minimize

Weights = list[np.ndarray]
#: Number of states, and the rank of their embeddings.
Block = tuple[int, int]
Blocks = tuple[Block, ...]


@njit(fastmath=True)
def descend(e, p, up, down, b, kernel, rate, steps):  # type: ignore[no-untyped-def]
    """Gradient descent in place; the loss and the size of its gradient at the end.

    One position: y_s = e_s + p, z_s = y_s + Σ_j ReLU(up_j·y_s) down_j, logits ⟨e_t, z_s⟩ + b_t,
    and the loss is the mean cross-entropy over the current state s, whose next law is ``law[s]``.

    Args:
        e, p, up, down, b: embeddings (S, d), position (d,), W_1 (r, d), W_2ᵀ (r, d), bias (S,).
        law: (S, S), rows sum to one.
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


def symmetric_law(states: int, p: float) -> np.ndarray:
    """The next state's law in every state: stay with 1 − p, any other alike."""
    kernel = np.full((states, states), p / (states - 1))
    np.fill_diagonal(kernel, 1 - p)
    return kernel


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


def turns(block: Block) -> np.ndarray:
    """Cosines of a state's embedding with those of its block, itself first; 0 of a lone state."""
    size, among = block
    if among == 2:
        return np.cos(2 * np.pi * np.arange(size) / size)
    return np.array([float(size > 1), *[-1 / max(size - 1, 1)] * (size - 1)])


def cosines_of(blocks: Blocks) -> np.ndarray:
    """The cosines between all embeddings, (S, S); NaN of lone states, whose embedding is 0."""
    found = block_diag(*(circulant(turns(block)) for block in blocks))
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
    k, cosines = np.array([size for size, _ in blocks], dtype=float), [*map(turns, blocks)]
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
    kernel, rng, found = symmetric_law(states, p), np.random.default_rng(0), set()
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


def rank(e: np.ndarray) -> int:
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
    across = right[rank(e) :]
    if not len(across):
        return float("nan")
    v = np.random.default_rng(0).normal(size=(draws, len(across))) @ across
    v /= np.linalg.norm(v, axis=1)[:, None]
    inputs, along = (e + p) @ up.T, v @ up.T
    open_ = (inputs[:, None] > 1e-3) | ((abs(inputs[:, None]) <= 1e-3) & (along > 0))
    return float((1 + (open_ * (along * (v @ down.T))).sum(-1)).mean(0).max())
