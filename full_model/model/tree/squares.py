"""A bound on the squared length of each prefix's ∂φ/∂θ, φ = Σ gains_a f_a.

With a prefix's mixture S, V = W_V S, g = ∂φ/∂Y, a = (W_O W_V)ᵀg and attention A_m, the derivatives
by the scores are D_m = A_m⟨a, X_m − S⟩. With r² = Σ A_m |X_m − S|², by Cauchy and Schwarz Σ D_m² is
at most |a|²r², and ξ = Σ D_m X_m is at most |a|r² long. ∂φ/∂p is h + a in all, h = g + W_QᵀW_Kξ/√d,
and positions that move together move N times slower. The embedding of symbol x gets
Σ A_m a + D_m κ over the places of x, κ = W_KᵀW_Q X_n/√d, and h more where it is the last. The other
derivatives are products of two vectors: g Vᵀ for W_O, W_Oᵀg Sᵀ for W_V, W_Q X_n ξᵀ/√d for W_K,
W_Kξ X_nᵀ/√d for W_Q, u = Uᵀgains and (W_2ᵀu ∘ [H > 0]) Yᵀ for W_1, u Hᵀ for W_2; U gets gains zᵀ,
z = Y + W_2 H. Norms of W_Q and W_K are Frobenius'. Where both are 0 the bound is the length itself.
Own derivation.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import add_all, inner, product, weighted_sum
from full_model.model.tree.shares import attend, columns_of


@compiled(no_cpython_wrapper=True, nrt=True)
def attended(places, first, states, logits):
    """Sum each prefix's attention weights over each of the last R symbols, and times |X|².

    Returns (R + 1, prefixes), not normalised: Σ weight over the places of each symbol, and in the
    last row Σ weight·|X|² over all places.
    """
    shown, found = np.zeros((len(places.symbols), logits + 1)), np.empty((logits + 1, first[-1]))
    for q in range(len(shown)):
        if q % states >= states - logits:
            shown[q, q % states - states + logits] = 1.0
        for x in places.symbols[q, :-1]:
            shown[q, logits] += x * x
    attend(places.weight, shown, first, states, found)
    return found


@compiled(no_cpython_wrapper=True)
def sizes(layer, places):
    """Return the squared Frobenius norms |W_Q|²/d and |W_K|², and the largest |X|² of a place."""
    d, query, key, longest = layer.query.shape[0], 0.0, 0.0, 0.0
    for i in range(d):
        for k in range(d):
            query += layer.query[i, k] ** 2 / d
            key += layer.key[i, k] ** 2
    for q in range(places.symbols.shape[0]):
        length = 0.0
        for i in range(d):
            length += places.symbols[q, i] ** 2
        longest = max(longest, length)
    return query, key, longest


@compiled(reassoc=True, no_cpython_wrapper=True)
def _add(x, y, factor, count, line, total):
    """total_j += factor_j Σ_i x_ij y_ij for each column j; ``line`` is scratch."""
    inner(x, y, line, count)
    for j in range(count):
        total[j] += factor[j] * line[j]


@compiled(reassoc=True, no_cpython_wrapper=True, nrt=True)
def trace(
    layer, out_t, value_t, gram, size, shares, first, states, length, tied, start, count, workspace
):
    """Return the module's bound of Σ spread·|∂φ/∂θ|² over a block's prefixes, a number.

    ``out_t`` and ``value_t`` are W_Oᵀ and W_Vᵀ, ``gram`` is U Uᵀ, ``size`` what ``sizes`` returns
    and ``shares`` what ``attended`` does; the block has ``count`` prefixes from ``start`` on.
    """
    gains, g, y, vectors = workspace.outputs.gains, workspace.g, workspace.y, workspace.y.shape
    columns = vectors[1]
    inner_g, a, both, z = np.zeros(vectors), np.zeros(vectors), np.zeros(vectors), np.zeros(vectors)
    line, factor, total = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    through, slope, look = np.zeros(gains.shape), np.zeros(columns), np.zeros(columns)
    inner(gains, gains, total, count)
    product(out_t, g, inner_g, count)
    product(value_t, inner_g, a, count)
    add_all(g, a, both)
    query, key, longest = size
    kappa = math.sqrt(query * key * longest)
    inner(a, a, slope, count)
    inner(workspace.mixture, workspace.mixture, factor, count)
    inner(both, both, line, count)
    for j in range(count):
        spread = max(shares[gains.shape[0], start + j] * workspace.inverse[j] - factor[j], 0.0)
        xi = slope[j] * spread * spread
        slope[j], look[j] = math.sqrt(slope[j] * spread), math.sqrt(query * key * xi)
        total[j] += (math.sqrt(line[j]) + look[j]) ** 2 / length + (kappa * slope[j]) ** 2
        total[j] += (query + key / y.shape[0]) * longest * xi
    product(layer.down, workspace.hidden, z, count)
    add_all(z, y, z)
    if not tied:
        inner(gains, gains, factor, count)
        _add(z, z, factor, count, line, total)
    for x in range(gains.shape[0]):
        line[:] = 0.0
        for q in range(x + states - gains.shape[0], first.shape[0] - 1, states):
            low, high = columns_of(first, q, start, count)
            for j in range(low, high):
                line[j] = 1.0
        gain, share = gains[x], through[x]
        for j in range(count):
            share[j] = shares[x, start + j] * workspace.inverse[j]
            factor[j] = 0.0
        for i in range(y.shape[0]):
            zi, ai, gi = z[i], a[i], g[i]
            for j in range(count):
                part = share[j] * ai[j] + line[j] * gi[j] + (gain[j] * zi[j] if tied else 0.0)
                factor[j] += part * part
        for j in range(count):
            total[j] += (math.sqrt(factor[j]) + line[j] * look[j] + slope[j] * kappa) ** 2
    product(gram, gains, through, count)
    inner(through, gains, factor, count)
    hidden = workspace.hidden[: layer.down.shape[1]]
    _add(hidden, hidden, factor, count, line, total)
    units = workspace.back[: workspace.open.shape[0]]
    inner(units, units, factor, count)
    _add(y, y, factor, count, line, total)
    inner(g, g, factor, count)
    _add(workspace.values, workspace.values, factor, count, line, total)
    inner(workspace.mixture, workspace.mixture, factor, count)
    _add(inner_g, inner_g, factor, count, line, total)
    return weighted_sum(workspace.outputs.spread, total, 0, count)
