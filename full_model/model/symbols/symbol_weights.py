"""The weights of one model with S logits, and the tables that its prefixes share.

Position n with symbol x is *place* S n + x. Its vector X = e_x + p_n, with attention also W_V X,
W_O W_V X and its scores beside every other place, are the same in all prefixes that hold it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled


class Weights(NamedTuple):
    """One model's weights, views of a row of numbers; the attention's are empty without it.

    ``reads`` is E W_2, shape (S, r).
    """

    embedding: Any
    positions: Any
    inner: Any
    up: Any
    down: Any
    bias: Any
    reads: Any


class Places(NamedTuple):
    """Tables over places: X, W_Q X, W_K X, W_V X, W_O W_V X, and scores."""

    x: Any
    query: Any
    key: Any
    value: Any
    move: Any
    score: Any


@compiled(reordered=True, inline=True, internal=True)
def add_scaled(factor, x, out):
    """out += factor · x."""
    for i in range(x.shape[0]):
        out[i] += factor * x[i]


@compiled(reordered=True, inline=True, internal=True)
def apply(matrix, x, out):
    """out = M x."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * x[j]
        out[i] = total


@compiled(reordered=True, inline=True, internal=True)
def apply_transposed(matrix, x, out):
    """out = Mᵀ x."""
    for j in range(matrix.shape[1]):
        out[j] = 0.0
    add_transposed(matrix, x, out)


@compiled(reordered=True, inline=True, internal=True)
def add_transposed(matrix, x, out):
    """out += Mᵀ x."""
    for i in range(matrix.shape[0]):
        factor = x[i]
        if factor != 0.0:
            for j in range(matrix.shape[1]):
                out[j] += factor * matrix[i, j]


@compiled(reordered=True, inline=True, internal=True)
def add_outer(factor, a, b, out):
    """out += factor · a bᵀ."""
    for i in range(a.shape[0]):
        part = factor * a[i]
        if part != 0.0:
            for j in range(b.shape[0]):
                out[i, j] += part * b[j]


@compiled(reordered=True, inline=True, internal=True)
def add_rows(factors, rows, table, out):
    """out += Σ_i factors_i · table[rows_i]."""
    for i in range(rows.shape[0]):
        for j in range(out.shape[0]):
            out[j] += factors[i] * table[rows[i], j]


@compiled(inline=True, internal=True)
def copy(x, out):
    """out = x."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@compiled(reordered=True, inline=True, internal=True)
def squared(x):
    total = 0.0
    for value in x:
        total += value * value
    return total


@compiled(internal=True, makes_arrays=True)
def read_weights(row, symbols, count, d, hidden, attention):
    """Views of a row in the order of ``Architecture.shapes``."""
    a = symbols * d
    b = a + count * d
    heads = 4 if attention else 0
    c = b + heads * d * d
    e = c + hidden * d
    f = e + d * hidden
    embedding = row[:a].reshape(symbols, d)
    down = row[e:f].reshape(d, hidden)
    reads = np.zeros((symbols, hidden))
    for s in range(symbols):
        add_transposed(down, embedding[s], reads[s])
    return Weights(
        embedding, row[a:b].reshape(count, d), row[b:c].reshape(heads, d, d),
        row[c:e].reshape(hidden, d), down, row[f:], reads,
    )  # fmt: skip


@compiled(internal=True, makes_arrays=True)
def read_places(weights, attention):
    """The tables of all places; without attention those of X alone."""
    symbols, d = weights.embedding.shape
    count = weights.positions.shape[0] * symbols
    x = np.empty((count, d))
    for s in range(count):
        for i in range(d):
            x[s, i] = weights.embedding[s % symbols, i] + weights.positions[s // symbols, i]
    rows = count if attention else 0
    query, key, value = np.empty((rows, d)), np.empty((rows, d)), np.empty((rows, d))
    move, score = np.empty((rows, d)), np.empty((rows, rows))
    for s in range(rows):
        apply(weights.inner[0], x[s], query[s])
        apply(weights.inner[1], x[s], key[s])
        apply(weights.inner[2], x[s], value[s])
        apply(weights.inner[3], value[s], move[s])
    for q in range(rows):
        apply(key, query[q], score[q])
        for s in range(rows):
            score[q, s] /= math.sqrt(d)
    return Places(x, query, key, value, move, score)
