"""One model's weights in a flat row, and what they make of every place (position and symbol)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.shares import exponentials


class Layer(NamedTuple):
    """Weights of one model; the hidden units filled up with zeros to a multiple of four.

    ``read`` is W_2ᵀu, a row like u, and all that a logit sees of W_2:
    f = ⟨u, Y⟩ + ⟨W_2ᵀu, ReLU(W_1Y)⟩ + b. ``steep`` is W_1ᵀ with column k times its k-th entry.
    ``rounding`` is half the width over which the kink of ReLU is rounded off, 0 for ReLU itself.
    """

    embedding: Any
    positions: Any
    query: Any
    key: Any
    value: Any
    out: Any
    up: Any
    down: Any
    u: Any
    bias: Any
    read: Any
    steep: Any
    rounding: Any


class Places(NamedTuple):
    """What there is for each of the 2N places s = 2n + x, one a row.

    symbols: X_s = p_n + x e, and a last column of ones; queries: W_Q X_s/√d; keys: W_K X_s; values:
    W_V X_s; moves: W_O W_V X_s; weight: attention of place q to place s, up to a factor of each q
    (see ``shares``).
    """

    symbols: Any
    queries: Any
    keys: Any
    values: Any
    moves: Any
    weight: Any


@compiled(internal=True, makes_arrays=True)
def transposed(matrix):
    """A transpose whose rows lie in one piece."""
    rows, columns = matrix.shape
    out = np.empty((columns, rows))
    for i in range(rows):
        for k in range(columns):
            out[k, i] = matrix[i, k]
    return out


@compiled(internal=True, makes_arrays=True)
def _matrix(row, begin, rows, columns, high, wide):
    """A matrix that lies in ``row``, filled up with zeros to ``high`` rows, ``wide`` columns."""
    out = np.zeros((high, wide))
    for i in range(rows):
        for k in range(columns):
            out[i, k] = row[begin + i * columns + k]
    return out


@compiled(internal=True, makes_arrays=True)
def read_layer(row, context, d, hidden, tied, rounding):
    """The weights in ``row``, in the order of ``Architecture.shapes``."""
    square, wide = d * d, hidden + (-hidden) % 4
    at = d + context * d
    query, key = _matrix(row, at, d, d, d, d), _matrix(row, at + square, d, d, d, d)
    at += 2 * square
    value, out = _matrix(row, at, d, d, d, d), _matrix(row, at + square, d, d, d, d)
    at += 2 * square
    up = _matrix(row, at, hidden, d, wide, d)
    down = _matrix(row, at + hidden * d, d, hidden, d, wide)
    u = _matrix(row, 0 if tied else at + 2 * hidden * d, 1, d, 1, d)
    read = np.zeros((1, wide))
    for i in range(d):
        for k in range(hidden):
            read[0, k] += u[0, i] * down[i, k]
    steep = np.zeros((d, wide))
    for k in range(hidden):
        for i in range(d):
            steep[i, k] = up[k, i] * read[0, k]
    positions = _matrix(row, d, context, d, context, d)
    bias = row[row.shape[0] - 1]
    return Layer(
        row[:d], positions, query, key, value, out, up, down, u, bias, read, steep, rounding
    )


@compiled(fused=True, internal=True)
def add_applied(matrix, rows, factor, out):
    """Add factor · matrix · row to ``out`` for every row."""
    for s in range(out.shape[0]):
        for i in range(matrix.shape[0]):
            total = 0.0
            for k in range(matrix.shape[1]):
                total += matrix[i, k] * rows[s, k]
            out[s, i] += factor * total


@compiled(fused=True, internal=True)
def add_outer(left, right, factor, out):
    """Add factor · Σ_s left_s right_sᵀ over the rows to ``out``."""
    for i in range(out.shape[0]):
        for s in range(left.shape[0]):
            one = factor * left[s, i]
            for k in range(out.shape[1]):
                out[i, k] += one * right[s, k]


@compiled(internal=True, makes_arrays=True)
def read_places(layer, length):
    """The tables of a model for sequences of that length."""
    d, count = layer.embedding.shape[0], 2 * length
    symbols, weight = np.ones((count, d + 1)), np.zeros((count, count))
    queries, keys = np.zeros((count, d)), np.zeros((count, d))
    values, moves = np.zeros((count, d)), np.zeros((count, d))
    for s in range(count):
        for i in range(d):
            symbols[s, i] = layer.positions[s // 2, i] + (s % 2) * layer.embedding[i]
    add_applied(layer.query, symbols, 1.0 / math.sqrt(d), queries)
    add_applied(layer.key, symbols, 1.0, keys)
    add_applied(layer.value, symbols, 1.0, values)
    add_applied(layer.out, values, 1.0, moves)
    add_applied(keys, queries, 1.0, weight)
    exponentials(weight, length)
    return Places(symbols, queries, keys, values, moves, weight)
