"""Loss, gradient and stiffness of many models, one after the other, over the tree of prefixes."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import weighted_sum
from full_model.model.tree.prefixes import (
    BLOCK,
    Sums,
    backward,
    chances,
    entropies,
    forward,
    new_room,
)
from full_model.model.tree.shares import first_prefix, laws, mix, unmix
from full_model.model.tree.squares import fixed_parts, new_square_room, trace
from full_model.model.tree.tree_weights import (
    applied,
    outer_sums,
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
        low = max(first_prefix(q) - start, 0)
        high = min(first_prefix(q + 1) - start, count)
        if low < high:
            x = q % 2
            room.symbol[low:high], room.target[low:high] = x, kernel[x, 1]
            for i in range(room.y.shape[0]):
                room.y[i, low:high] = places.symbols[q, i]


@compiled(internal=True)
def _end_block(length, start, count, room, sums):
    """∂L/∂X_n through the residual stream: Σ ωg over the prefixes that end in a place."""
    for q in range(2 * length):
        low = max(first_prefix(q) - start, 0)
        high = min(first_prefix(q + 1) - start, count)
        if low < high:
            for i in range(room.g.shape[0]):
                sums.places[q, i] += weighted_sum(room.omega, room.g[i], low, high)


@compiled(internal=True)
def _through_attention(layer, places, length, mixed, by_symbol):
    """Gradients by W_Q, W_K, W_V and W_O, (4, d, d); what reaches X_s is added to ``by_symbol``."""
    d, count = layer.u.shape[0], 2 * length
    by_move, by_key, by_query = np.zeros((count, d)), np.zeros((count, d)), np.zeros((count, d))
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
    by_query /= math.sqrt(d)
    through_out = applied(transposed(layer.out), by_move)
    by_symbol += applied(transposed(layer.value), through_out)
    by_symbol += applied(transposed(layer.query), by_query)
    by_symbol += applied(transposed(layer.key), by_key)
    values = applied(layer.value, places.symbols)
    found = np.empty((4, d, d))
    found[0] = outer_sums(by_query, places.symbols, d)
    found[1] = outer_sums(by_key, places.symbols, d)
    found[2] = outer_sums(through_out, places.symbols, d)
    found[3] = outer_sums(by_move, values, d)
    return found


@compiled(internal=True)
def _write(layer, sums, inner, hidden, tied, length, out):
    """The gradient by all weights, in their order."""
    d, context = layer.u.shape[0], layer.positions.shape[0]
    out[:] = 0.0
    for s in range(2 * length):
        for i in range(d):
            out[i] += (s % 2) * sums.places[s, i]
            out[d + s // 2 * d + i] += sums.places[s, i]
    at = d + context * d
    out[at : at + 4 * d * d] = inner.reshape(4 * d * d)
    at += 4 * d * d
    reader = 0 if tied else at + 2 * hidden * d
    for k in range(hidden):
        for i in range(d):
            out[at + k * d + i] = layer.read[k] * sums.up[k, i]
            out[at + hidden * d + i * hidden + k] = layer.u[i] * sums.read[k]
            out[reader + i] += layer.down[i, k] * sums.read[k]
    for i in range(d):
        out[reader + i] += sums.y[i]
    out[out.shape[0] - 1] = sums.bias[0]


@compiled(internal=True)
def _one(row, context, length, d, hidden, tied, kernel, law, what, mixed, rooms, out):
    """Loss and stiffness of one model, and its gradient into ``out``."""
    room, square_room = rooms
    layer = read_layer(row, context, d, hidden, tied)
    places = read_places(layer, length)
    wide = layer.read.shape[0]
    steep = transposed(layer.up)
    for k in range(wide):
        steep[:, k] *= layer.read[k]
    fixed = fixed_parts(layer, places, length)
    mix(places.weight, places.symbols, length, mixed)
    sums = Sums(np.zeros((wide, d)), np.zeros(wide), np.zeros(d), np.zeros((2 * length, d)),
                np.zeros(1))  # fmt: skip
    loss = stiffness = 0.0
    count = first_prefix(2 * length)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        _start_block(places, kernel, length, start, size, room)
        forward(layer, mixed, start, size, room)
        if what & LOSS:
            loss += entropies(law, start, size, room)
        if what & (GRADIENT | STIFFNESS):
            chances(law, start, size, room)
            backward(layer, steep, mixed, start, size, room, sums)
            _end_block(length, start, size, room, sums)
        if what & STIFFNESS:
            stiffness += trace(
                layer, fixed, places, length, tied, law, start, size, room, square_room
            )
    if what & GRADIENT:
        inner = _through_attention(layer, places, length, mixed, sums.places)
        _write(layer, sums, inner, hidden, tied, length, out)
    return loss, stiffness


@compiled
def evaluate(states, first, kernels, context, length, d, hidden, tied, what):
    """Loss (M,), gradient (M, K) and stiffness (M,) of models, each by itself.

    Args:
        states: (M, K) float64, weights in the order of ``Architecture.shapes``.
        first, kernels: (1 or M, 2) and (1 or M, 2, 2), stationary law and kernel of the chains.
        context, length: positions of a model, and how many of them sequences have.
        d, hidden: dimension and hidden units.
        tied: is the reader u the embedding.
        what: which of LOSS, GRADIENT and STIFFNESS to compute; the others are zero.
    """
    models = states.shape[0]
    loss, stiffness = np.zeros(models), np.zeros(models)
    gradient = np.zeros(states.shape)
    count = first_prefix(2 * length)
    law, mixed = np.empty(count), np.empty((d + 1, count))
    rooms = new_room(d, hidden + (-hidden) % 4), new_square_room(d, length)
    for i in range(models):
        chain = i if kernels.shape[0] > 1 else 0
        if i == 0 or kernels.shape[0] > 1:
            laws(first[chain], kernels[chain], length, law)
        loss[i], stiffness[i] = _one(
            states[i], context, length, d, hidden, tied, kernels[chain], law, what, mixed, rooms,
            gradient[i],
        )  # fmt: skip
    return loss, gradient, stiffness
