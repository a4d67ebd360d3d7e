"""One model's weights in a flat row, and what they make of every place (position and symbol)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.shares import exponentials


class Layer(NamedTuple):
    """Weights of one model; hidden units are filled up with zeros to a multiple of four."""

    embedding: Any  # a row each of the last R = 1 or S of S symbols; the first of R = 1 has 0
    positions: Any
    query: Any
    key: Any
    value: Any
    out: Any
    up: Any
    down: Any  # not filled up
    reader: Any  # a row for each of R logits
    bias: Any
    reads: Any  # U W_2, all that logits see of W_2: f = U Y + U W_2 ReLU(W_1 Y) + b
    back: Any  # W_1ᵀ beside Uᵀ
    rounding: Any  # half the width over which the kink of ReLU is rounded off, 0 for ReLU itself


class Places(NamedTuple):
    """Values for each of the SN places s = Sn + x, one a row."""

    symbols: Any  # X_s = p_n + E_x, and a last column of ones
    queries: Any  # W_Q X_s/√d
    keys: Any  # W_K X_s
    values: Any  # W_V X_s
    moves: Any  # W_O W_V X_s
    weight: Any  # attention of place q to place s, up to a factor of each q (see ``shares``)


@compiled(no_cpython_wrapper=True, nrt=True)
def transposed(matrix):
    """Return the transpose as a new, contiguous array."""
    rows, columns = matrix.shape
    out = np.empty((columns, rows))
    for i in range(rows):
        for k in range(columns):
            out[k, i] = matrix[i, k]
    return out


@compiled(no_cpython_wrapper=True, nrt=True)
def stacked(above, below):
    """Return a new matrix: the rows of one, and under them those of the other."""
    out = np.empty((above.shape[0] + below.shape[0], above.shape[1]))
    for k in range(out.shape[1]):
        for i in range(above.shape[0]):
            out[i, k] = above[i, k]
        for i in range(below.shape[0]):
            out[above.shape[0] + i, k] = below[i, k]
    return out


@compiled(no_cpython_wrapper=True, nrt=True)
def _matrix(row, begin, rows, columns, high, wide):
    """Read a matrix (rows, columns) out of a flat ``row``, from ``begin`` on.

    It is filled up with zeros to shape (high, wide).
    """
    out = np.zeros((high, wide))
    for i in range(rows):
        for k in range(columns):
            out[i, k] = row[begin + i * columns + k]
    return out


@compiled(no_cpython_wrapper=True, nrt=True)
def read_layer(row, context, d, hidden, logits, tied, rounding, attends):
    """Unpack a model's flat weights, in the order of ``Architecture.shapes``, into a ``Layer``."""
    wide, symbols, k = hidden + (-hidden) % 4, logits * d, d if attends else 0
    square = k * k
    embedding = _matrix(row, 0, logits, d, logits, d)
    positions = _matrix(row, symbols, context, d, context, d)
    at = symbols + context * d
    query, key = _matrix(row, at, k, k, k, k), _matrix(row, at + square, k, k, k, k)
    at += 2 * square
    value, out = _matrix(row, at, k, k, k, k), _matrix(row, at + square, k, k, k, k)
    at += 2 * square
    up = _matrix(row, at, hidden, d, wide, d)
    down = _matrix(row, at + hidden * d, d, hidden, d, hidden)
    reader = _matrix(row, 0 if tied else at + 2 * hidden * d, logits, d, logits, d)
    reads = np.zeros((logits, wide))
    add_applied(transposed(down), reader, 1.0, reads)
    back = transposed(stacked(up, reader))
    return Layer(
        embedding, positions, query, key, value, out, up, down, reader,
        row[row.shape[0] - logits :], reads, back, rounding,
    )  # fmt: skip


@compiled(contract=True, no_cpython_wrapper=True)
def add_applied(matrix, rows, factor, out):
    """Add factor · matrix · rows[s] to out[s] for every s."""
    for s in range(out.shape[0]):
        for i in range(matrix.shape[0]):
            total = 0.0
            for k in range(matrix.shape[1]):
                total += matrix[i, k] * rows[s, k]
            out[s, i] += factor * total


@compiled(contract=True, no_cpython_wrapper=True)
def add_outer(left, right, factor, out):
    """Add factor · Σ_s left[s] right[s]ᵀ, outer products of rows, to ``out``."""
    for i in range(out.shape[0]):
        for s in range(left.shape[0]):
            one = factor * left[s, i]
            for k in range(out.shape[1]):
                out[i, k] += one * right[s, k]


@compiled(no_cpython_wrapper=True, nrt=True)
def read_places(layer, states, length, attends):
    """Compute the ``Places`` of a layer for sequences of that length.

    Without attention only ``symbols`` is filled; the others are zero.
    """
    (logits, d), count = layer.embedding.shape, states * length
    symbols, seen = np.ones((count, d + 1)), count if attends else 0
    weight = np.zeros((seen, seen))
    queries, keys = np.zeros((count, d)), np.zeros((count, d))
    values, moves = np.zeros((count, d)), np.zeros((count, d))
    for s in range(count):
        row = s % states - (states - logits)
        for i in range(d):
            symbols[s, i] = layer.positions[s // states, i]
            if row >= 0:
                symbols[s, i] += layer.embedding[row, i]
    if not attends:
        return Places(symbols, queries, keys, values, moves, weight)
    add_applied(layer.query, symbols, 1.0 / math.sqrt(d), queries)
    add_applied(layer.key, symbols, 1.0, keys)
    add_applied(layer.value, symbols, 1.0, values)
    add_applied(layer.out, values, 1.0, moves)
    add_applied(keys, queries, 1.0, weight)
    exponentials(weight, states)
    return Places(symbols, queries, keys, values, moves, weight)
