"""Logits of one block of prefixes, and derivatives back: the feed-forward layer and the reader.

With S a mixture of the symbols that a prefix looks at,

    V = W_V S,  A = W_O V,  Y = X_n + A,  H = ReLU(W_1 Y),  f = U Y + U W_2 H + b,

and of φ = Σ gains_a f_a, g = ∂φ/∂Y = Uᵀgains + W_1ᵀ((U W_2)ᵀgains ∘ [H > 0]). A block's numbers lie
in rooms, a prefix in each column, that one core's cache holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import add_all, add_moments, inner, product, weighted_sum
from full_model.model.tree.outputs import new_outputs

#: Prefixes in a block.
BLOCK = 64


class Room(NamedTuple):
    """A block's numbers, each (…, BLOCK): see the module; ``open`` is [H > 0].

    ``back`` is (U W_2)ᵀgains ∘ [H > 0] and, in its last rows, the gains.
    """

    mixture: Any
    values: Any
    moved: Any
    y: Any
    hidden: Any
    open: Any
    back: Any
    g: Any
    inverse: Any
    line: Any
    outputs: Any


class Sums(NamedTuple):
    """What all blocks add to: by W_1, by U W_2, by U through Y, by places, by b."""

    up: Any
    read: Any
    y: Any
    places: Any
    bias: Any


@compiled(no_cpython_wrapper=True, nrt=True)
def new_room(d, wide, logits):
    """A room for d dimensions and ``wide`` hidden units."""
    vectors, hidden, back = (d, BLOCK), (wide, BLOCK), np.zeros((wide + logits, BLOCK))
    return Room(
        np.zeros(vectors), np.zeros(vectors), np.zeros(vectors), np.zeros(vectors),
        np.zeros(hidden), np.zeros(hidden), back, np.zeros(vectors), np.zeros(BLOCK),
        np.zeros(BLOCK), new_outputs(back[wide:]),
    )  # fmt: skip


@compiled(no_cpython_wrapper=True, nrt=True)
def new_sums(d, wide, logits, count):
    """Sums of nothing, for so many places."""
    return Sums(
        np.zeros((wide, d)), np.zeros((wide, logits)), np.zeros((logits, d)), np.zeros((count, d)),
        np.zeros(logits),
    )  # fmt: skip


@compiled(no_cpython_wrapper=True)
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


@compiled(reassoc=True, no_cpython_wrapper=True, nrt=True)
def forward(layer, mixed, start, count, room):
    """Logits and all on the way to them; y and target are there already."""
    d, out = room.y.shape[0], room.outputs
    total = mixed[d]
    for j in range(count):
        room.inverse[j] = 1.0 / total[start + j]
    for i in range(d):
        row, mixture = mixed[i], room.mixture[i]
        for j in range(count):
            mixture[j] = row[start + j] * room.inverse[j]
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
    product(layer.reader, room.y, out.logit, count)
    product(layer.reads, room.hidden, out.chance, count)
    for a in range(layer.bias.shape[0]):
        logit, through, bias = out.logit[a], out.chance[a], layer.bias[a]
        for j in range(count):
            logit[j] += through[j] + bias


@compiled(reassoc=True, no_cpython_wrapper=True)
def backward(layer, count, room):
    """From the gains to ``back`` and g."""
    for k in range(room.open.shape[0]):
        back, opened = room.back[k], room.open[k]
        for a in range(layer.reads.shape[0]):
            read, gains = layer.reads[a, k], room.outputs.gains[a]
            for j in range(count):
                part = opened[j] * (read * gains[j])
                back[j] = back[j] + part if a else part
    product(layer.back, room.back, room.g, count)


@compiled(reassoc=True, no_cpython_wrapper=True, nrt=True)
def add_gradient(mixed, start, count, room, sums):
    """Add ω∇φ of the block to ``sums`` and leave in ``mixed`` what attention passes back.

    Of ∂L/∂A = ωg the numerators of the mixture
    get ωg/D and its denominator D gets −⟨ωg, A⟩/D, both still to be multiplied by W_O W_V.
    """
    d, line, out = room.y.shape[0], room.line, room.outputs
    add_moments(room.back[: room.open.shape[0]], room.y, out.omega, line, sums.up, count)
    add_moments(room.hidden, out.gains, out.omega, line, sums.read, count)
    for a in range(sums.bias.shape[0]):
        gains = out.gains[a]
        for j in range(count):
            line[j] = out.omega[j] * gains[j]
            sums.bias[a] += line[j]
        for i in range(d):
            sums.y[a, i] += weighted_sum(line, room.y[i], 0, count)
    inner(room.g, room.moved, line, count)
    last = mixed[d]
    for j in range(count):
        scale = out.omega[j] * room.inverse[j]
        last[start + j] = -scale * line[j]
        line[j] = scale
    for i in range(d):
        row, g = mixed[i], room.g[i]
        for j in range(count):
            row[start + j] = line[j] * g[j]
