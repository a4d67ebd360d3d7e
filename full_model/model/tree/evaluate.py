"""Loss, gradient and stiffness of many models, one after the other, over the tree of prefixes."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import weighted_sum
from full_model.model.tree.prefixes import (
    BLOCK,
    backward,
    chances,
    entropies,
    forward,
    new_room,
    new_sums,
)
from full_model.model.tree.shares import columns_of, laws, mix, unmix
from full_model.model.tree.squares import fixed_parts, new_square_room, trace
from full_model.model.tree.tree_weights import (
    add_applied,
    add_outer,
    read_layer,
    read_places,
    transposed,
)

#: What to compute, as bits.
LOSS, GRADIENT, STIFFNESS = 1, 2, 4


@compiled(internal=True)
def _start_block(places, kernel, length, start, count, room):
    """Y = X_n, its symbol and target for every prefix of a block."""
    for q in range(2 * length):
        low, high = columns_of(q, length, start, count)
        if low < high:
            x = q % 2
            for j in range(low, high):
                room.symbol[j], room.target[j] = x, kernel[x, 1]
            for i in range(room.y.shape[0]):
                for j in range(low, high):
                    room.y[i, j] = places.symbols[q, i]


@compiled(internal=True)
def _end_block(length, start, count, room, sums):
    """∂L/∂X_n through the residual stream: Σ ωg over the prefixes that end in a place."""
    for q in range(2 * length):
        low, high = columns_of(q, length, start, count)
        if low < high:
            for i in range(room.g.shape[0]):
                sums.places[q, i] += weighted_sum(room.omega, room.g[i], low, high)


@compiled(internal=True, makes_arrays=True)
def _through_attention(layer, places, length, mixed, by_symbol, inner):
    """Gradients by W_Q, W_K, W_V and W_O, (4, d, d); what reaches X_s is added to ``by_symbol``."""
    d, count = layer.embedding.shape[0], 2 * length
    by_move, by_value = np.zeros((count, d)), np.zeros((count, d))
    by_key, by_query = np.zeros((count, d)), np.zeros((count, d))
    held = np.empty((count, d + 1))
    for q in range(count):
        unmix(length, mixed, q, held)
        for step in range(q // 2 * 2 + 1):
            s = q if step == q // 2 * 2 else step
            slope = held[s, d]
            for i in range(d):
                slope += held[s, i] * places.moves[s, i]
            slope *= places.weight[q, s]
            for i in range(d):
                by_move[s, i] += places.weight[q, s] * held[s, i]
                by_query[q, i] += slope * places.keys[s, i]
                by_key[s, i] += slope * places.queries[q, i]
    scale = 1.0 / math.sqrt(d)
    add_applied(transposed(layer.out), by_move, 1.0, by_value)
    add_applied(transposed(layer.value), by_value, 1.0, by_symbol)
    add_applied(transposed(layer.query), by_query, scale, by_symbol)
    add_applied(transposed(layer.key), by_key, 1.0, by_symbol)
    add_outer(by_query, places.symbols, scale, inner[0])
    add_outer(by_key, places.symbols, 1.0, inner[1])
    add_outer(by_value, places.symbols, 1.0, inner[2])
    add_outer(by_move, places.values, 1.0, inner[3])


@compiled(internal=True)
def _write(layer, sums, inner, hidden, tied, length, out):
    """The gradient by all weights, in their order."""
    d, context = layer.embedding.shape[0], layer.positions.shape[0]
    for s in range(2 * length):
        for i in range(d):
            out[i] += (s % 2) * sums.places[s, i]
            out[d + s // 2 * d + i] += sums.places[s, i]
    at = d + context * d
    for which in range(4):
        for i in range(d):
            for k in range(d):
                out[at] = inner[which, i, k]
                at += 1
    reader = 0 if tied else at + 2 * hidden * d
    for k in range(hidden):
        for i in range(d):
            out[at + k * d + i] = layer.read[0, k] * sums.up[k, i]
            out[at + hidden * d + i * hidden + k] = layer.u[0, i] * sums.read[k, 0]
            out[reader + i] += layer.down[i, k] * sums.read[k, 0]
    for i in range(d):
        out[reader + i] += sums.y[i]
    out[out.shape[0] - 1] = sums.bias[0]


@compiled(makes_arrays=True)
def evaluate(states, first, kernels, context, length, d, hidden, tied, what, rounding):
    """Loss (M,), gradient (M, K) and stiffness (M,) of models, each by itself.

    Args:
        states: (M, K) float64, weights in the order of ``Architecture.shapes``.
        first, kernels: (1 or M, 2) and (1 or M, 2, 2), stationary law and kernel of the chains.
        context, length: positions of a model, and how many of them sequences have.
        d, hidden: dimension and hidden units.
        tied: is the reader u the embedding.
        what: which of LOSS, GRADIENT and STIFFNESS to compute; the others are zero.
        rounding: half the width over which the kink of ReLU is rounded off, 0 for ReLU itself.
    """
    models, count, wide = states.shape[0], 2 << length, hidden + (-hidden) % 4
    loss, stiffness = np.zeros(models), np.zeros(models)
    gradient = np.zeros(states.shape)
    law, mixed = np.empty(count), np.empty((d + 1, count))
    room, square_room = new_room(d, wide), new_square_room(d, length)
    for i in range(models):
        chain = i if kernels.shape[0] > 1 else 0
        kernel = kernels[chain]
        if i == 0 or kernels.shape[0] > 1:
            laws(first[chain], kernel, length, law)
        layer = read_layer(states[i], context, d, hidden, tied, rounding)
        places = read_places(layer, length)
        mix(places.weight, places.symbols, length, mixed)
        fixed, sums = fixed_parts(layer, places, length), new_sums(d, wide, length)
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            _start_block(places, kernel, length, start, size, room)
            forward(layer, mixed, start, size, room)
            if what & LOSS:
                loss[i] += entropies(law, start, size, room)
            if what & (GRADIENT | STIFFNESS):
                chances(law, start, size, room)
                backward(layer, mixed, start, size, room, sums)
                _end_block(length, start, size, room, sums)
            if what & STIFFNESS:
                stiffness[i] += trace(
                    layer, fixed, places, length, tied, law, start, size, room, square_room
                )
        if what & GRADIENT:
            inner = np.zeros((4, d, d))
            _through_attention(layer, places, length, mixed, sums.places, inner)
            _write(layer, sums, inner, hidden, tied, length, gradient[i])
    return loss, gradient, stiffness
