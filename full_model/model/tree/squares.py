"""Squared length of each prefix's ∂f/∂θ, for the trace of the Gauss-Newton matrix.

Over the positions m ≤ n of a prefix, with attention A_m, a = (W_O W_V)ᵀg, κ = W_Kᵀq/√d and

    D_m = ∂f/∂(score of m) = A_m(⟨a, X_m⟩ − ⟨a, S⟩),  ξ = Σ_m D_m X_m,  h = g + W_QᵀW_Kξ/√d,

∂f/∂X_m is A_m a + D_m κ, and h more at m = n, in all h + a since Σ D_m = 0. Positions that move
together move N times slower: they count with |h + a|²/N, as in the rank-one model, and with
|κ|² Σ D_m² for what tells them apart. The other derivatives are products of two vectors:
g Vᵀ for W_O, W_Oᵀg Sᵀ for W_V, q ξᵀ/√d for W_K, W_Kξ X_nᵀ/√d for W_Q, (W_2ᵀu ∘ [H > 0]) Yᵀ for
W_1, u Hᵀ for W_2; u itself gets z = Y + W_2 H. Own derivation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import add_all, inner, product
from full_model.model.tree.prefixes import BLOCK
from full_model.model.tree.shares import columns_of
from full_model.model.tree.tree_weights import add_applied, transposed


class Fixed(NamedTuple):
    """What is the same for all prefixes of a model; ``kappa`` has a row for each place.

    ``sizes`` has three: |κ|², |q|²/d and |X_n|²/d of each place. ``positions`` ends with e, and
    ``query_t`` is divided by √d.
    """

    out_t: Any
    value_t: Any
    query_t: Any
    positions: Any
    positions_t: Any
    kappa: Any
    sizes: Any
    read_square: Any
    reader_square: Any


class SquareRoom(NamedTuple):
    """A block's numbers, as ``prefixes.Room``: vectors (d, BLOCK), by position (N, BLOCK), rows."""

    z: Any
    inner_g: Any
    a: Any
    kappa: Any
    xi: Any
    looked: Any
    h: Any
    share: Any
    slope: Any
    own: Any
    one: Any
    factor: Any
    line: Any
    total: Any


@compiled(internal=True, makes_arrays=True)
def new_square_room(d, length):
    """A room for d dimensions and N positions."""
    vector, share, slope, row = (d, BLOCK), (length, BLOCK), (length + 1, BLOCK), BLOCK
    return SquareRoom(
        np.zeros(vector), np.zeros(vector), np.zeros(vector), np.zeros(vector),
        np.zeros(vector), np.zeros(vector), np.zeros(vector), np.zeros(share), np.zeros(slope),
        np.zeros((3, BLOCK)), np.zeros((1, BLOCK)), np.zeros(row), np.zeros(row), np.zeros(row),
    )  # fmt: skip


@compiled(internal=True, makes_arrays=True)
def _sizes(kappa, places):
    """Squared lengths of κ, of q/√d and of X/√d of every place."""
    out = np.zeros((3, kappa.shape[0]))
    for s in range(kappa.shape[0]):
        for i in range(kappa.shape[1]):
            out[0, s] += kappa[s, i] * kappa[s, i]
            out[1, s] += places.queries[s, i] * places.queries[s, i]
            out[2, s] += places.symbols[s, i] * places.symbols[s, i] / kappa.shape[1]
    return out


@compiled(internal=True, makes_arrays=True)
def fixed_parts(layer, places, length):
    """The tables of a model."""
    d, wide = layer.embedding.shape[0], length + 1
    positions, scaled = np.empty((wide, d)), transposed(layer.query)
    for i in range(d):
        for n in range(length):
            positions[n, i] = layer.positions[n, i]
        positions[length, i] = layer.embedding[i]
        for k in range(d):
            scaled[i, k] /= math.sqrt(d)
    square, kappa = np.empty(layer.read.shape), np.zeros(places.queries.shape)
    for k in range(square.shape[1]):
        square[0, k] = layer.read[0, k] * layer.read[0, k]
    reader = 0.0
    for i in range(layer.u.shape[1]):
        reader += layer.u[0, i] * layer.u[0, i]
    add_applied(transposed(layer.key), places.queries, 1.0, kappa)
    return Fixed(
        transposed(layer.out), transposed(layer.value), scaled, positions,
        transposed(positions), kappa, _sizes(kappa, places), square, reader,
    )  # fmt: skip


@compiled(internal=True)
def _start(weight, fixed, start, count, room, out):
    """κ and sizes of every prefix's place; out.share[m] = A_m, zero for positions it has not."""
    for q in range(fixed.kappa.shape[0]):
        low, high = columns_of(q, out.share.shape[0], start, count)
        if low >= high:
            continue
        for i in range(3):
            for j in range(low, high):
                out.own[i, j] = fixed.sizes[i, q]
        for i in range(fixed.kappa.shape[1]):
            for j in range(low, high):
                out.kappa[i, j] = fixed.kappa[q, i]
        n = q // 2
        for m in range(out.share.shape[0]):
            s = 2 * m if m < n else q
            zero, one = weight[q, s], weight[q, s + 1] if m < n else weight[q, s]
            if m > n:
                zero = one = 0.0
            row = out.share[m]
            for j in range(low, high):
                picked = one if ((start + j + 2) >> m) & 1 else zero
                row[j] = picked * room.inverse[j]


@compiled(reordered=True, internal=True)
def _slopes(fixed, start, count, room, out):
    """out.slope[m] = D_m, behind them the sum over the positions with a one, and out.xi."""
    length = out.share.shape[0]
    product(fixed.out_t, room.g, out.inner_g, count)
    product(fixed.value_t, out.inner_g, out.a, count)
    product(fixed.positions, out.a, out.slope, count)
    inner(out.a, room.mixture, out.line, count)
    through_e = out.slope[length]
    for m in range(length):
        slope, share = out.slope[m], out.share[m]
        for j in range(count):
            more = through_e[j] if ((start + j + 2) >> m) & 1 else 0.0
            slope[j] = share[j] * (slope[j] + more - out.line[j])
    _over_ones(out.slope, length, start, count, through_e)
    product(fixed.positions_t, out.slope, out.xi, count)


@compiled(reordered=True, internal=True)
def _over_ones(x, length, start, count, out):
    """out_j = Σ_m x_mj over the positions of prefix j whose symbol is one."""
    for j in range(count):
        out[j] = 0.0
    for m in range(length):
        row = x[m]
        for j in range(count):
            out[j] += row[j] if ((start + j + 2) >> m) & 1 else 0.0


@compiled(reordered=True, internal=True)
def _add(x, y, factor, count, out):
    """out.total += factor · ⟨x, y⟩, column by column."""
    inner(x, y, out.line, count)
    for j in range(count):
        out.total[j] += factor[j] * out.line[j]


@compiled(reordered=True, internal=True)
def _add_positions(layer, fixed, length, count, room, out):
    """|h + a|²/N + |κ|² Σ D_m², and what W_K and W_Q get."""
    product(layer.key, out.xi, out.looked, count)
    product(fixed.query_t, out.looked, out.h, count)
    add_all(room.g, out.h, out.h)
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


@compiled(reordered=True, internal=True, makes_arrays=True)
def _add_embedding(layer, tied, start, count, room, out):
    """|∂f/∂e|², and where untied |∂f/∂u|²."""
    product(layer.down, room.hidden, out.z, count)
    add_all(out.z, room.y, out.z)
    if not tied:
        inner(out.z, out.z, out.line, count)
        for j in range(count):
            out.total[j] += out.line[j]
        rest = out.z.ravel()
        for j in range(rest.shape[0]):
            rest[j] = 0.0
    length = out.share.shape[0]
    _over_ones(out.share, length, start, count, out.factor)
    slope = out.slope[length]
    for i in range(out.z.shape[0]):
        z, h, a, kappa = out.z[i], out.h[i], out.a[i], out.kappa[i]
        for j in range(count):
            z[j] += out.factor[j] * a[j] + slope[j] * kappa[j] + room.symbol[j] * h[j]
    inner(out.z, out.z, out.line, count)
    for j in range(count):
        out.total[j] += out.line[j]


@compiled(reordered=True, internal=True)
def trace(layer, fixed, places, length, tied, law, start, count, room, out):
    """Σ law·s·|∂f/∂θ|² over a block, s = max(σ′(f), t(1 − t))."""
    for j in range(count):
        out.total[j] = 1.0
    _start(places.weight, fixed, start, count, room, out)
    _slopes(fixed, start, count, room, out)
    _add_positions(layer, fixed, length, count, room, out)
    _add_embedding(layer, tied, start, count, room, out)
    for j in range(count):
        out.factor[j] = fixed.reader_square
    _add(room.hidden, room.hidden, out.factor, count, out)
    product(fixed.read_square, room.open, out.one, count)
    _add(room.y, room.y, out.one[0], count, out)
    inner(room.g, room.g, out.factor, count)
    _add(room.values, room.values, out.factor, count, out)
    inner(room.mixture, room.mixture, out.factor, count)
    _add(out.inner_g, out.inner_g, out.factor, count, out)
    found = 0.0
    for j in range(count):
        chance, target = room.chance[j], room.target[j]
        spread = max(chance * (1.0 - chance), target * (1.0 - target))
        found += law[start + j] * spread * out.total[j]
    return found
