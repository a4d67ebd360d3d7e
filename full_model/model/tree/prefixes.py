"""Loss, gradient and stiffness of one block of prefixes: the feed-forward layer and the logit.

With S a mixture of the symbols that a prefix looks at,

    V = W_V S,  A = W_O V,  Y = X_n + A,  H = ReLU(W_1 Y),  f = ⟨u, Y⟩ + ⟨W_2ᵀu, H⟩ + b,

and g = ∂f/∂Y = u + W_1ᵀ(W_2ᵀu ∘ [H > 0]). A block's numbers lie in rooms, a prefix in each column,
that one core's cache holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from flowsim.models.elementary import clipped, exponential
from full_model.model.tree.columns import add_all, add_moments, inner, product, weighted_sum

#: Prefixes in a block.
BLOCK = 64


class Room(NamedTuple):
    """A block's numbers, each (…, BLOCK): see the module; ``open`` is [H > 0]."""

    mixture: Any
    values: Any
    moved: Any
    y: Any
    hidden: Any
    open: Any
    g: Any
    chance: Any
    target: Any
    omega: Any
    inverse: Any
    symbol: Any
    logit: Any
    line: Any
    ones: Any


class Sums(NamedTuple):
    """What all blocks add to: by W_1 without W_2ᵀu, by that, by u through Y, by places, by b."""

    up: Any
    read: Any
    y: Any
    places: Any
    bias: Any


@compiled(internal=True, makes_arrays=True)
def new_room(d, wide):
    """A room for d dimensions and ``wide`` hidden units."""
    vectors, hidden, line = (d, BLOCK), (wide, BLOCK), (1, BLOCK)
    return Room(
        np.zeros(vectors), np.zeros(vectors), np.zeros(vectors), np.zeros(vectors),
        np.zeros(hidden), np.zeros(hidden), np.zeros(vectors), np.zeros(BLOCK), np.zeros(BLOCK),
        np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(line), np.zeros(line),
        np.ones(line),
    )  # fmt: skip


@compiled(internal=True, makes_arrays=True)
def new_sums(d, wide, length):
    """Sums of nothing."""
    return Sums(
        np.zeros((wide, d)), np.zeros((wide, 1)), np.zeros(d), np.zeros((2 * length, d)),
        np.zeros(1),
    )  # fmt: skip


@compiled(internal=True)
def _round_off(hidden, opened, rounding):
    """ReLU with its kink rounded off, and its derivative (2 + 3t − t³)/4, t = input/rounding."""
    for j in range(hidden.shape[0]):
        t = hidden[j] / rounding
        if t >= 1.0:
            opened[j] = 1.0
        elif t <= -1.0:
            opened[j] = hidden[j] = 0.0
        else:
            opened[j] = (2.0 + t * (3.0 - t * t)) / 4.0
            hidden[j] = rounding * (3.0 + t * (8.0 + t * (6.0 - t * t))) / 16.0


@compiled(reordered=True, internal=True, makes_arrays=True)
def forward(layer, mixed, start, count, room):
    """Logits and all on the way to them; y and target are there already."""
    d = layer.embedding.shape[0]
    total = mixed[d]
    for j in range(count):
        room.inverse[j] = 1.0 / total[start + j]
    for i in range(d):
        row, out = mixed[i], room.mixture[i]
        for j in range(count):
            out[j] = row[start + j] * room.inverse[j]
    product(layer.value, room.mixture, room.values, count)
    product(layer.out, room.values, room.moved, count)
    add_all(room.y, room.moved, room.y)
    product(layer.up, room.y, room.hidden, count)
    hidden, opened = room.hidden.ravel(), room.open.ravel()
    if layer.rounding > 0.0:
        _round_off(hidden, opened, layer.rounding)
    else:
        for j in range(hidden.shape[0]):
            opened[j] = 1.0 if hidden[j] > 0.0 else 0.0
            hidden[j] = 0.0 if hidden[j] <= 0.0 else hidden[j]
    product(layer.u, room.y, room.logit, count)
    product(layer.read, room.hidden, room.line, count)
    for j in range(count):
        room.logit[0, j] += room.line[0, j] + layer.bias


@compiled(internal=True)
def entropies(law, start, count, room):
    """Σ law·H(t, σ(f)) of the logits, without loss of digits at either end."""
    total = 0.0
    for j in range(count):
        f, target = room.logit[0, j], room.target[j]
        missed = (1.0 - target) * f if f > 0.0 else -target * f
        total += law[start + j] * (missed + np.log1p(np.exp(-abs(f))))
    return total


@compiled(reordered=True, internal=True)
def chances(law, start, count, room):
    """From logits f to σ(f) and ω = law·(σ(f) − t)."""
    for j in range(count):
        room.chance[j] = 1.0 / (1.0 + exponential(-clipped(room.logit[0, j])))
    for j in range(count):
        room.omega[j] = law[start + j] * (room.chance[j] - room.target[j])


@compiled(reordered=True, internal=True)
def backward(layer, mixed, start, count, room, sums):
    """Add the block to ``sums`` and leave in ``mixed`` what attention passes back.

    Of ∂L/∂A = ωg the numerators of the mixture
    get ωg/D and its denominator D gets −⟨ωg, A⟩/D, both still to be multiplied by W_O W_V.
    """
    d, line = layer.embedding.shape[0], room.line[0]
    product(layer.steep, room.open, room.g, count)
    for i in range(d):
        g, u = room.g[i], layer.u[0, i]
        for j in range(count):
            g[j] += u
    add_moments(room.open, room.y, room.omega, line, sums.up, count)
    add_moments(room.hidden, room.ones, room.omega, line, sums.read, count)
    for i in range(d):
        sums.y[i] += weighted_sum(room.omega, room.y[i], 0, count)
    inner(room.g, room.moved, line, count)
    last = mixed[d]
    for j in range(count):
        scale = room.omega[j] * room.inverse[j]
        last[start + j] = -scale * line[j]
        line[j] = scale
    for i in range(d):
        row, g = mixed[i], room.g[i]
        for j in range(count):
            row[start + j] = line[j] * g[j]
    for j in range(count):
        sums.bias[0] += room.omega[j]
