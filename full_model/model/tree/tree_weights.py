"""One model's weights in a flat row, and what they make of every place (position and symbol)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.shares import exponentials


class Layer(NamedTuple):
    """Weights of one model; the hidden units filled up with zeros to a multiple of four.

    ``read`` is W_2ᵀu, all that a binary logit sees of W_2: f = ⟨u, Y⟩ + ⟨W_2ᵀu, ReLU(W_1Y)⟩ + b.
    A name ending in _t is a transpose.
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


class Places(NamedTuple):
    """What there is for each of the 2N places s = 2n + x, one a row.

    symbols: X_s = p_n + x e, and a last column of ones; queries: W_Q X_s/√d; keys: W_K X_s; moves:
    W_O W_V X_s; weight: attention of place q to place s, up to a factor of each q (see ``shares``).
    """

    symbols: Any
    queries: Any
    keys: Any
    moves: Any
    weight: Any


@compiled
def transposed(matrix):
    """A transpose whose rows lie in one piece."""
    return np.ascontiguousarray(matrix.T)


@compiled(internal=True)
def read_layer(row, context, d, hidden, tied):
    """The weights in ``row``, in the order of ``Architecture.shapes``."""
    square, at = d * d, d + context * d
    inner = row[at : at + 4 * square].reshape(4, d, d)
    at += 4 * square
    wide = hidden + (-hidden) % 4
    up, down = np.zeros((wide, d)), np.zeros((d, wide))
    up[:hidden] = row[at : at + hidden * d].reshape(hidden, d)
    at += hidden * d
    down[:, :hidden] = row[at : at + d * hidden].reshape(d, hidden)
    at += d * hidden
    embedding = row[:d]
    u = embedding if tied else row[at : at + d]
    positions = row[d : d + context * d].reshape(context, d)
    read = np.zeros(wide)
    for i in range(d):
        for k in range(hidden):
            read[k] += u[i] * down[i, k]
    bias = row[row.shape[0] - 1]
    return Layer(
        embedding, positions, inner[0], inner[1], inner[2], inner[3], up, down, u, bias, read
    )


@compiled(fused=True, internal=True)
def applied(matrix, rows):
    """matrix · row for every row."""
    out = np.zeros((rows.shape[0], matrix.shape[0]))
    for s in range(rows.shape[0]):
        for i in range(matrix.shape[0]):
            for k in range(matrix.shape[1]):
                out[s, i] += matrix[i, k] * rows[s, k]
    return out


@compiled(fused=True, internal=True)
def outer_sums(left, right, count):
    """Σ_s left_s right_sᵀ over the rows, of the first ``count`` columns of ``right``."""
    out = np.zeros((left.shape[1], count))
    for s in range(left.shape[0]):
        for i in range(left.shape[1]):
            for k in range(count):
                out[i, k] += left[s, i] * right[s, k]
    return out


@compiled(internal=True)
def read_places(layer, length):
    """The tables of a model for sequences of that length."""
    d = layer.embedding.shape[0]
    symbols = np.ones((2 * length, d + 1))
    for s in range(2 * length):
        for i in range(d):
            symbols[s, i] = layer.positions[s // 2, i] + (s % 2) * layer.embedding[i]
    queries = applied(layer.query, symbols) / math.sqrt(d)
    keys = applied(layer.key, symbols)
    moves = applied(layer.out, applied(layer.value, symbols))
    weight = applied(keys, queries)
    exponentials(weight, length)
    return Places(symbols, queries, keys, moves, weight)
