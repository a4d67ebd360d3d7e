"""Squared length of each prefix's ∂φ/∂θ, φ = Σ gains_a f_a, for the trace of the stiffness.

Over the positions m ≤ n of a prefix, with attention A_m, a = (W_O W_V)ᵀg, κ = W_Kᵀq/√d and

    D_m = ∂φ/∂(score of m) = A_m(⟨a, X_m⟩ − ⟨a, S⟩),  ξ = Σ_m D_m X_m,  h = g + W_QᵀW_Kξ/√d,

∂φ/∂X_m is A_m a + D_m κ, and h more at m = n, in all h + a since Σ D_m = 0. Positions that move
together move N times slower: they count with |h + a|²/N, as in the rank-one model, and with
|κ|² Σ D_m² for what tells them apart. The other derivatives are products of two vectors:
g Vᵀ for W_O, W_Oᵀg Sᵀ for W_V, q ξᵀ/√d for W_K, W_Kξ X_nᵀ/√d for W_Q, u = Uᵀgains and
(W_2ᵀu ∘ [H > 0]) Yᵀ for W_1, u Hᵀ for W_2; U itself gets gains zᵀ, z = Y + W_2 H. Own derivation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import add_all, inner, product, weighted_sum
from full_model.model.tree.prefixes import BLOCK
from full_model.model.tree.shares import columns_of
from full_model.model.tree.tree_weights import add_applied, stacked, transposed


class Fixed(NamedTuple):
    """Values common to all prefixes of a model; ``kappa`` has a row for each place.

    ``sizes`` has three: |κ|², |q|²/d and |X_n|²/d of each place. ``positions`` ends with the
    embeddings, ``query_t`` is divided by √d, and ``gram`` is U Uᵀ.
    """

    out_t: Any
    value_t: Any
    query_t: Any
    positions: Any
    positions_t: Any
    kappa: Any
    sizes: Any
    gram: Any


class SquareRoom(NamedTuple):
    """A block's numbers, as ``prefixes.Room``: vectors (d, BLOCK), by position (N, BLOCK), rows.

    ``slope`` has a row for each embedding behind the positions, ``by_symbol`` for the shares.
    """

    z: Any
    inner_g: Any
    a: Any
    kappa: Any
    xi: Any
    looked: Any
    h: Any
    share: Any
    slope: Any
    by_symbol: Any
    own: Any
    factor: Any
    line: Any
    total: Any


@compiled(no_cpython_wrapper=True, nrt=True)
def new_square_room(d, length, logits):
    """Buffers for d dimensions and N positions."""
    vector, share, by_symbol, row = (d, BLOCK), (length, BLOCK), (logits, BLOCK), BLOCK
    return SquareRoom(
        np.zeros(vector), np.zeros(vector), np.zeros(vector), np.zeros(vector),
        np.zeros(vector), np.zeros(vector), np.zeros(vector), np.zeros(share),
        np.zeros((length + logits, BLOCK)), np.zeros(by_symbol), np.zeros((3, BLOCK)),
        np.zeros(row), np.zeros(row), np.zeros(row),
    )  # fmt: skip


@compiled(no_cpython_wrapper=True, nrt=True)
def _sizes(kappa, places):
    """Squared lengths of κ, of q/√d and of X/√d of every place."""
    out = np.zeros((3, kappa.shape[0]))
    for s in range(kappa.shape[0]):
        for i in range(kappa.shape[1]):
            out[0, s] += kappa[s, i] * kappa[s, i]
            out[1, s] += places.queries[s, i] * places.queries[s, i]
            out[2, s] += places.symbols[s, i] * places.symbols[s, i] / kappa.shape[1]
    return out


@compiled(no_cpython_wrapper=True, nrt=True)
def fixed_parts(layer, places, length):
    """The tables of a model."""
    logits, d = layer.embedding.shape
    positions, scaled = stacked(layer.positions[:length], layer.embedding), transposed(layer.query)
    for i in range(d):
        for k in range(d):
            scaled[i, k] /= math.sqrt(d)
    gram, kappa = np.zeros((logits, logits)), np.zeros(places.queries.shape)
    add_applied(layer.reader, layer.reader, 1.0, gram)
    add_applied(transposed(layer.key), places.queries, 1.0, kappa)
    return Fixed(
        transposed(layer.out), transposed(layer.value), scaled, positions,
        transposed(positions), kappa, _sizes(kappa, places), gram,
    )  # fmt: skip


@compiled(no_cpython_wrapper=True)
def _start(weight, fixed, first, symbols, start, workspace, out, count):
    """κ and sizes of every prefix's place; out.share[m] = A_m, zero for positions it has not."""
    places, length = fixed.kappa.shape[0], out.share.shape[0]
    states = places // length
    for q in range(places):
        low, high = columns_of(first, q, start, count)
        if low >= high:
            continue
        for i in range(3):
            for j in range(low, high):
                out.own[i, j] = fixed.sizes[i, q]
        for i in range(fixed.kappa.shape[1]):
            for j in range(low, high):
                out.kappa[i, j] = fixed.kappa[q, i]
        n, logits = q // states, symbols.shape[0]
        for m in range(length):
            row, s, more = out.share[m], states * m if m < n else q, 1 if m < n else 0
            zero, one = weight[q, s], weight[q, s + more]
            if m > n:
                zero = one = 0.0
            is_one = symbols[logits - states + 1, m]
            for j in range(low, high):
                row[j] = (one if is_one[start + j] != 0.0 else zero) * workspace.inverse[j]
            for x in range(2, states if m < n else 0):
                known, is_x = weight[q, s + x], symbols[logits - states + x, m]
                for j in range(low, high):
                    row[j] = known * workspace.inverse[j] if is_x[start + j] != 0.0 else row[j]


@compiled(reassoc=True, no_cpython_wrapper=True)
def _slopes(fixed, symbols, start, count, workspace, out):
    """out.slope[m] = D_m, behind them the sums over the positions with a symbol, and out.xi."""
    length, logits = out.share.shape[0], symbols.shape[0]
    product(fixed.out_t, workspace.g, out.inner_g, count)
    product(fixed.value_t, out.inner_g, out.a, count)
    product(fixed.positions, out.a, out.slope, count)
    inner(out.a, workspace.mixture, out.line, count)
    through = out.slope[length:]
    for m in range(length):
        slope, share = out.slope[m], out.share[m]
        for x in range(logits - 1):
            more, is_x = through[x], symbols[x, m]
            for j in range(count):
                slope[j] += more[j] * is_x[start + j]
        more, is_x = through[logits - 1], symbols[logits - 1, m]
        for j in range(count):
            slope[j] = share[j] * (slope[j] + more[j] * is_x[start + j] - out.line[j])
    _by_symbol(out.slope, symbols, start, count, through)
    product(fixed.positions_t, out.slope, out.xi, count)


@compiled(reassoc=True, no_cpython_wrapper=True)
def _by_symbol(x, symbols, start, count, out):
    """out_yj = Σ_m x_mj over the positions of prefix j whose symbol has embedding y."""
    for y in range(out.shape[0]):
        total = out[y]
        for j in range(count):
            total[j] = 0.0
        for m in range(symbols.shape[1] - 1):
            row, is_y = x[m], symbols[y, m]
            for j in range(count):
                total[j] += row[j] * is_y[start + j]


@compiled(reassoc=True, no_cpython_wrapper=True)
def _add(x, y, factor, count, out):
    """out.total += factor · ⟨x, y⟩, column by column."""
    inner(x, y, out.line, count)
    for j in range(count):
        out.total[j] += factor[j] * out.line[j]


@compiled(reassoc=True, no_cpython_wrapper=True)
def _add_positions(layer, fixed, length, count, workspace, out):
    """|h + a|²/N + |κ|² Σ D_m², and what W_K and W_Q get."""
    product(layer.key, out.xi, out.looked, count)
    product(fixed.query_t, out.looked, out.h, count)
    add_all(workspace.g, out.h, out.h)
    add_all(out.h, out.a, out.z)
    share = 1.0 / length
    inner(out.z, out.z, out.line, count)
    for j in range(count):
        out.total[j] += share * out.line[j]
    for m in range(length):
        slope = out.slope[m]
        for j in range(count):
            out.total[j] += out.own[0, j] * slope[j] * slope[j]
    _add(out.xi, out.xi, out.own[1], count, out)
    _add(out.looked, out.looked, out.own[2], count, out)


@compiled(reassoc=True, no_cpython_wrapper=True, nrt=True)
def _add_embedding(layer, symbols, tied, start, count, workspace, out):
    """|∂φ/∂E|², and where untied |∂φ/∂U|²."""
    product(layer.down, workspace.hidden, out.z, count)
    add_all(out.z, workspace.y, out.z)
    gains, last = workspace.outputs.gains, symbols.shape[1] - 1
    if not tied:
        inner(gains, gains, out.factor, count)
        _add(out.z, out.z, out.factor, count, out)
    _by_symbol(out.share, symbols, start, count, out.by_symbol)
    for x in range(gains.shape[0]):
        share, slope, own = out.by_symbol[x], out.slope[last + x], symbols[x, last]
        for j in range(count):
            out.line[j] = gains[x, j] if tied else 0.0
        for i in range(out.z.shape[0]):
            z, h, a, kappa = out.z[i], out.h[i], out.a[i], out.kappa[i]
            for j in range(count):
                part = out.line[j] * z[j] + share[j] * a[j] + slope[j] * kappa[j]
                part += own[start + j] * h[j]
                out.total[j] += part * part


@compiled(reassoc=True, no_cpython_wrapper=True)
def trace(layer, fixed, places, first, symbols, tied, start, count, workspace, out):
    """Σ spread·|∂φ/∂θ|² over a block."""
    gains, length = workspace.outputs.gains, out.share.shape[0]
    inner(gains, gains, out.total, count)
    _start(places.weight, fixed, first, symbols, start, workspace, out, count)
    _slopes(fixed, symbols, start, count, workspace, out)
    _add_positions(layer, fixed, length, count, workspace, out)
    _add_embedding(layer, symbols, tied, start, count, workspace, out)
    product(fixed.gram, gains, out.by_symbol, count)
    inner(out.by_symbol, gains, out.factor, count)
    hidden = workspace.hidden[: layer.down.shape[1]]
    _add(hidden, hidden, out.factor, count, out)
    units = workspace.back[: workspace.open.shape[0]]
    inner(units, units, out.factor, count)
    _add(workspace.y, workspace.y, out.factor, count, out)
    inner(workspace.g, workspace.g, out.factor, count)
    _add(workspace.values, workspace.values, out.factor, count, out)
    inner(workspace.mixture, workspace.mixture, out.factor, count)
    _add(out.inner_g, out.inner_g, out.factor, count, out)
    return weighted_sum(workspace.outputs.spread, out.total, 0, count)
