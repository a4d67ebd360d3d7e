"""|∂φ/∂θ|² of one prefix's φ = Σ g_a f_a, for the trace of the Gauss-Newton matrix.

With a = (W_O W_V)ᵀG, κ = W_Kᵀ q/√d, ξ = Σ D_i X_i and h = G + W_Qᵀ W_K ξ/√d, ∂φ/∂X_i is
A_i a + D_i κ, and h more at the last place. Positions that move together count with |h + a|²/N, and
with |κ|² Σ D_i² for what tells them apart, as for the binary logit. Own derivation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.symbols.symbol_weights import (
    add_rows,
    add_scaled,
    apply,
    apply_transposed,
    copy,
    squared,
)


class SquareRoom(NamedTuple):
    """Rows (4, d) and the sums at each symbol's embedding, (S, d)."""

    mean_x: Any
    mean_value: Any
    inner_g: Any
    a: Any
    kappa: Any
    xi: Any
    looked: Any
    h: Any
    embedding: Any


@compiled(internal=True, makes_arrays=True)
def new_square_room(symbols, d):
    return SquareRoom(
        np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d),
        np.empty(d), np.empty(d), np.empty((symbols, d)),
    )  # fmt: skip


@compiled(internal=True)
def square(weights, tables, span, length, gains, room, out):
    """|∂φ/∂θ|² over all weights, in the metric of N positions that move together."""
    symbols, last = weights.embedding.shape[0], room.places[span - 1]
    for a in range(symbols):
        for i in range(room.z.shape[0]):
            out.embedding[a, i] = gains[a] * room.z[i]
    total = squared(gains) + squared(room.u) * squared(room.hidden)
    total += squared(room.back) * squared(room.y)
    copy(room.g, out.h)
    if tables.score.shape[0]:
        total += _through_attention(weights, tables, span, length, room, out)
    else:
        total += squared(room.g) / length
    add_scaled(1.0, out.h, out.embedding[last % symbols])
    for a in range(symbols):
        total += squared(out.embedding[a])
    return total


@compiled(internal=True)
def _through_attention(weights, tables, span, length, room, out):
    """What the attention's weights and the positions get; h and the embeddings' sums are set."""
    symbols, d = weights.embedding.shape
    places, share, slope = room.places[:span], room.share[:span], room.slope[:span]
    root, query = 1.0 / math.sqrt(d), tables.query[places[span - 1]]
    apply_transposed(weights.inner[3], room.g, out.inner_g)
    apply_transposed(weights.inner[2], out.inner_g, out.a)
    apply_transposed(weights.inner[1], query, out.kappa)
    for i in range(d):
        out.mean_x[i] = out.mean_value[i] = out.xi[i] = 0.0
    add_rows(share, places, tables.x, out.mean_x)
    add_rows(share, places, tables.value, out.mean_value)
    add_rows(slope, places, tables.x, out.xi)
    for i in range(span):
        x = places[i] % symbols
        for j in range(d):
            out.embedding[x, j] += share[i] * out.a[j] + slope[i] * root * out.kappa[j]
    apply(weights.inner[1], out.xi, out.looked)
    apply_transposed(weights.inner[0], out.looked, out.h)
    total = squared(slope) * squared(out.kappa) / d
    for i in range(d):
        out.h[i] = room.g[i] + root * out.h[i]
        total += (out.h[i] + out.a[i]) ** 2 / length
    total += squared(room.g) * squared(out.mean_value) + squared(out.inner_g) * squared(out.mean_x)
    last = tables.x[places[span - 1]]
    return total + (squared(query) * squared(out.xi) + squared(out.looked) * squared(last)) / d
