"""Loss, gradient and stiffness of many models with S logits, over all prefixes of symbols.

    L = (1/N) Σ_n Σ_prefix π(x_0) Π P(x_m | x_{m−1}) H(P(· | x_n), softmax f_prefix).

Without attention the last symbol alone is seen, and a prefix is that symbol with its π.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.symbols.one_prefix import backward, forward, new_room
from full_model.model.symbols.symbol_squares import new_square_room, square
from full_model.model.symbols.symbol_weights import (
    add_outer,
    add_scaled,
    add_transposed,
    apply,
    apply_transposed,
    read_places,
    read_weights,
)

#: What to compute, as bits.
LOSS, GRADIENT, STIFFNESS = 1, 2, 4


class Sums(NamedTuple):
    """Sums over prefixes: by X, W_O W_V X and scores of places; reads of z, hidden units and b."""

    x: Any
    move: Any
    score: Any
    reader: Any
    hidden: Any
    bias: Any


@compiled(internal=True)
def _read_prefix(number, span, position, symbols, first, kernel, places):
    """Write the places of a prefix, its last symbol varying fastest; its probability."""
    left, chance = number, 1.0
    for i in range(span - 1, -1, -1):
        x, left = left % symbols, left // symbols
        places[i] = (position - (span - 1) + i) * symbols + x
        before = left % symbols
        chance *= kernel[before, x] if i else first[x]
    return chance


@compiled(internal=True)
def _add_gradient(tables, span, law, gains, room, sums, out_up):
    """Add a prefix's part to the sums, and to the gradient by W_1."""
    last = room.places[span - 1]
    add_outer(law, gains, room.z, sums.reader)
    add_outer(law, gains, room.hidden, sums.hidden)
    add_outer(law, room.back, room.y, out_up)
    add_scaled(law, gains, sums.bias)
    add_scaled(law, room.g, sums.x[last])
    if tables.score.shape[0]:
        for i in range(span):
            s = room.places[i]
            add_scaled(law * room.share[i], room.g, sums.move[s])
            sums.score[last, s] += law * room.slope[i]


@compiled(internal=True, makes_arrays=True)
def _attention_gradient(weights, tables, sums, inner):
    """From the sums over places to W_Q, W_K, W_V, W_O, (4, d, d), and on to ``sums.x``."""
    count, d = sums.x.shape
    root, room = 1.0 / math.sqrt(d), np.empty(d)
    query, key, value = np.zeros((count, d)), np.zeros((count, d)), np.empty((count, d))
    for q in range(count):
        add_outer(root, sums.score[q], tables.query[q], key)
        add_transposed(tables.key, sums.score[q], query[q])
        apply_transposed(weights.inner[3], sums.move[q], value[q])
    for s in range(count):
        add_outer(root, query[s], tables.x[s], inner[0])
        add_outer(1.0, key[s], tables.x[s], inner[1])
        add_outer(1.0, value[s], tables.x[s], inner[2])
        add_outer(1.0, sums.move[s], tables.value[s], inner[3])
        apply_transposed(weights.inner[0], query[s], room)
        add_scaled(root, room, sums.x[s])
        add_transposed(weights.inner[1], key[s], sums.x[s])
        add_transposed(weights.inner[2], value[s], sums.x[s])


@compiled(internal=True)
def _write(weights, tables, sums, out):
    """The gradient by all weights but W_1, which is there already."""
    symbols = weights.embedding.shape[0]
    if tables.score.shape[0]:
        _attention_gradient(weights, tables, sums, out.inner)
    for s in range(sums.x.shape[0]):
        add_scaled(1.0, sums.x[s], out.embedding[s % symbols])
        add_scaled(1.0, sums.x[s], out.positions[s // symbols])
    for a in range(symbols):
        add_scaled(1.0, sums.reader[a], out.embedding[a])
        add_outer(1.0, weights.embedding[a], sums.hidden[a], out.down)
    add_scaled(1.0, sums.bias, out.bias)


@compiled(internal=True, makes_arrays=True)
def _one(weights, out, first, kernel, length, attention, what, rounding):
    """Loss and stiffness of one model; its gradient is added to ``out``."""
    symbols, d = weights.embedding.shape
    count, hidden = weights.positions.shape[0], weights.up.shape[0]
    tables, room = read_places(weights, attention), new_room(symbols, d, hidden, length)
    squares, gains = new_square_room(symbols, d), np.empty(symbols)
    rows = symbols * count
    seen = rows if attention else 0
    sums = Sums(np.zeros((rows, d)), np.zeros((seen, d)), np.zeros((seen, seen)),
                np.zeros((symbols, d)), np.zeros((symbols, hidden)), np.zeros(symbols))  # fmt: skip
    loss = stiffness = 0.0
    for n in range(count):
        span = n + 1 if attention else 1
        for number in range(symbols**span):
            law = _read_prefix(number, span, n, symbols, first, kernel, room.places) / count
            whole = forward(weights, tables, span, rounding, room)
            wanted = kernel[number % symbols]
            if what & LOSS:
                apply(weights.embedding, room.z, gains)
                for a in range(symbols):
                    loss += law * wanted[a] * (whole - gains[a] - weights.bias[a])
            if what & GRADIENT:
                for a in range(symbols):
                    gains[a] = room.chance[a] - wanted[a]
                backward(weights, tables, span, gains, room)
                _add_gradient(tables, span, law, gains, room, sums, out.up)
            if what & STIFFNESS:
                for c in range(symbols):
                    for a in range(symbols):
                        gains[a] = (1.0 if a == c else 0.0) - room.chance[a]
                    backward(weights, tables, span, gains, room)
                    size = square(weights, tables, span, length, gains, room, squares)
                    stiffness += law * max(room.chance[c], wanted[c]) * size
    if what & GRADIENT:
        _write(weights, tables, sums, out)
    return loss, stiffness


@compiled(makes_arrays=True)
def evaluate_symbols(
    states, first, kernel, count, length, d, hidden, attention, what, rounding
):  # fmt: skip
    """Loss (M,), gradient (M, K) and stiffness (M,) of models, each by itself.

    The stiffness is the trace of the Gauss-Newton matrix Σ law Σ_c h_c ∇(f_c − f̄) ∇(f_c − f̄)ᵀ, f̄
    the mean of the logits under the model's chances and h_c the larger of its chance and its
    target: it is no less than the trace with the one or with the other.

    Args:
        states: (M, K) float64, weights in the order of ``Architecture.shapes``.
        first, kernel: (S,) and (S, S), stationary law and kernel of the chain.
        count: positions in a state; without attention each stands for ``length``/``count``.
        length, d, hidden: N, dimension and hidden units.
        attention: does the state have the attention's weights.
        what: which of LOSS, GRADIENT and STIFFNESS to compute; the others are zero.
        rounding: half the width over which the kink of ReLU is rounded off, 0 for ReLU itself.
    """
    models, symbols = states.shape[0], first.shape[0]
    loss, stiffness = np.zeros(models), np.zeros(models)
    gradient = np.zeros(states.shape)
    for m in range(models):
        weights = read_weights(states[m], symbols, count, d, hidden, attention)
        out = read_weights(gradient[m], symbols, count, d, hidden, attention)
        found = _one(weights, out, first, kernel, length, attention, what, rounding)
        loss[m], stiffness[m] = found
    return loss, gradient, stiffness
