"""One prefix of symbols through a model with S logits, and derivatives of its logits back.

With attention's weights A_i over the places i of a prefix, y = X_n + Σ A_i W_O W_V X_i,
z = y + W_2 ReLU(W_1 y), f = E z + b. Backwards, of φ = Σ_a g_a f_a: u = Eᵀg, the hidden units get
back = (W_2ᵀu) ∘ [W_1 y > 0], y gets G = u + W_1ᵀ back, the score of i gets
D_i = A_i (⟨G, W_O W_V X_i⟩ − Σ_j A_j ⟨G, W_O W_V X_j⟩).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.attention_free import hidden_units
from full_model.model.symbols.symbol_weights import (
    add_rows,
    add_scaled,
    add_transposed,
    apply,
    apply_transposed,
    copy,
)


class Room(NamedTuple):
    """Numbers of one prefix: its places and A; y, hidden units, z; chances; u, back, G and D."""

    places: Any
    share: Any
    y: Any
    hidden: Any
    opened: Any
    z: Any
    chance: Any
    u: Any
    back: Any
    g: Any
    slope: Any


@compiled(internal=True, makes_arrays=True)
def new_room(symbols, d, hidden, length):
    return Room(
        np.zeros(length, np.int64), np.empty(length), np.empty(d), np.empty(hidden),
        np.empty(hidden), np.empty(d), np.empty(symbols), np.empty(d), np.empty(hidden),
        np.empty(d), np.empty(length),
    )  # fmt: skip


@compiled(internal=True)
def forward(weights, tables, span, rounding, room):
    """Fill the room for the prefix of ``span`` places, the last one its own; log of Σ exp f.

    Without tables of attention the last place alone is read.
    """
    last = room.places[span - 1]
    copy(tables.x[last], room.y)
    if tables.score.shape[0]:
        _attend(tables, last, room.places[:span], room.share[:span], room.y)
    hidden_units(weights.up, room.y, rounding, room.hidden, room.opened)
    apply(weights.down, room.hidden, room.z)
    add_scaled(1.0, room.y, room.z)
    apply(weights.embedding, room.z, room.chance)
    add_scaled(1.0, weights.bias, room.chance)
    most, total = -math.inf, 0.0
    for a in range(room.chance.shape[0]):
        most = max(most, room.chance[a])
    for a in range(room.chance.shape[0]):
        total += math.exp(room.chance[a] - most)
    whole = most + math.log(total)
    for a in range(room.chance.shape[0]):
        room.chance[a] = math.exp(room.chance[a] - whole)
    return whole


@compiled(internal=True)
def _attend(tables, last, places, share, y):
    """A of the places, and Σ A_i W_O W_V X_i added to y."""
    most = -math.inf
    for i in range(places.shape[0]):
        share[i] = tables.score[last, places[i]]
        most = max(most, share[i])
    total = 0.0
    for i in range(places.shape[0]):
        share[i] = math.exp(share[i] - most)
        total += share[i]
    for i in range(places.shape[0]):
        share[i] /= total
    add_rows(share, places, tables.move, y)


@compiled(reordered=True, internal=True)
def _slopes(move, span, room):
    """D of every place."""
    mean = 0.0
    for i in range(span):
        total = 0.0
        for j in range(room.g.shape[0]):
            total += room.g[j] * move[room.places[i], j]
        room.slope[i] = total
        mean += room.share[i] * total
    for i in range(span):
        room.slope[i] = room.share[i] * (room.slope[i] - mean)


@compiled(internal=True)
def backward(weights, tables, span, gains, room):
    """u, back, G and D of φ = Σ gains_a f_a."""
    apply_transposed(weights.embedding, gains, room.u)
    apply_transposed(weights.reads, gains, room.back)
    for k in range(room.back.shape[0]):
        room.back[k] *= room.opened[k]
    copy(room.u, room.g)
    add_transposed(weights.up, room.back, room.g)
    if tables.score.shape[0]:
        _slopes(tables.move, span, room)
