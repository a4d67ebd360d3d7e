"""Logits of one block of prefixes, and derivatives back: the feed-forward layer and the reader.

With S a mixture of the symbols that a prefix looks at,

    V = W_V S,  A = W_O V,  Y = X_n + A,  H = ReLU(W_1 Y),  f = U Y + U W_2 H + b,

and of φ = Σ gains_a f_a, g = ∂φ/∂Y = Uᵀgains + W_1ᵀ((U W_2)ᵀgains ∘ [H > 0]). A block's
arrays have a prefix in each column and fit into one core's cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.columns import add_all, add_moments, inner, product, weighted_sum
from full_model.model.tree.outputs import new_outputs

#: Prefixes in a block.
BLOCK = 64


class Workspace(NamedTuple):
    """Arrays of a block, each (…, BLOCK): S, V, A, Y, H, [H > 0] and more, in this order.

    ``back`` is (U W_2)ᵀgains ∘ [H > 0] and, in its last rows, the gains; ``inverse`` is 1 over the
    sum of a prefix's attention weights, and ``line`` is scratch.
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
    """The loss's derivatives by W_1, by U W_2, by U through Y, by each place's X and by b."""

    up: Any
    read: Any
    y: Any
    places: Any
    bias: Any


@compiled(no_cpython_wrapper=True, nrt=True)
def new_workspace(d, wide, logits, columns):
    """Make a ``Workspace`` of zeros: d dimensions, ``wide`` hidden units, ``columns`` prefixes."""
    vectors, hidden, back = (d, columns), (wide, columns), np.zeros((wide + logits, columns))
    return Workspace(
        np.zeros(vectors), np.zeros(vectors), np.zeros(vectors), np.zeros(vectors),
        np.zeros(hidden), np.zeros(hidden), back, np.zeros(vectors), np.zeros(columns),
        np.zeros(columns), new_outputs(back[wide:]),
    )  # fmt: skip


@compiled(no_cpython_wrapper=True, nrt=True)
def new_sums(d, wide, logits, count):
    """Make ``Sums`` of zeros for ``count`` places."""
    return Sums(
        np.zeros((wide, d)), np.zeros((wide, logits)), np.zeros((logits, d)), np.zeros((count, d)),
        np.zeros(logits),
    )  # fmt: skip


@compiled(no_cpython_wrapper=True)
def _round_off(hidden, opened, rounding):
    """Replace inputs in ``hidden`` by a ReLU of them with its kink rounded off.

    ``opened`` gets its derivative: (2 + 3t − t³)/4 for |t| < 1, t = input/rounding, else 0 or 1.
    """
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
def forward(layer, mixed, start, count, workspace):
    """Fill the workspace with S, V, A, Y, H and the logits of a block; ``y`` holds X_n before.

    ``mixed`` (d + 1, prefixes) has each prefix's Σ weight·symbol and, in its last row, Σ weight.
    """
    d, out = workspace.y.shape[0], workspace.outputs
    total = mixed[d]
    for j in range(count):
        workspace.inverse[j] = 1.0 / total[start + j]
    for i in range(d):
        row, mixture = mixed[i], workspace.mixture[i]
        for j in range(count):
            mixture[j] = row[start + j] * workspace.inverse[j]
    product(layer.value, workspace.mixture, workspace.values, count)
    product(layer.out, workspace.values, workspace.moved, count)
    add_all(workspace.y, workspace.moved, workspace.y)
    product(layer.up, workspace.y, workspace.hidden, count)
    hidden, opened = workspace.hidden.ravel(), workspace.open.ravel()
    if layer.rounding > 0.0:
        _round_off(hidden, opened, layer.rounding)
    else:
        for j in range(hidden.shape[0]):
            opened[j] = 1.0 if hidden[j] > 0.0 else 0.0
            hidden[j] = 0.0 if hidden[j] <= 0.0 else hidden[j]
    product(layer.reader, workspace.y, out.logit, count)
    product(layer.reads, workspace.hidden, out.chance, count)
    for a in range(layer.bias.shape[0]):
        logit, through, bias = out.logit[a], out.chance[a], layer.bias[a]
        for j in range(count):
            logit[j] += through[j] + bias


@compiled(reassoc=True, no_cpython_wrapper=True)
def backward(layer, count, workspace):
    """Set the workspace's ``back`` and g = ∂φ/∂Y from its gains."""
    for k in range(workspace.open.shape[0]):
        back, opened = workspace.back[k], workspace.open[k]
        for a in range(layer.reads.shape[0]):
            read, gains = layer.reads[a, k], workspace.outputs.gains[a]
            for j in range(count):
                part = opened[j] * (read * gains[j])
                back[j] = back[j] + part if a else part
    product(layer.back, workspace.back, workspace.g, count)


@compiled(reassoc=True, no_cpython_wrapper=True, nrt=True)
def add_gradient(mixed, start, count, workspace, sums):
    """Add the block's part of ∇L = Σ ω∇φ to ``sums``, and prepare what goes back to attention.

    A prefix looks at S = (Σ weight·symbol)/D, and A = W_O W_V S. Its column of ``mixed`` held the
    sum and D, and gets, from ∂L/∂A = ωg, what their derivatives are made of: ωg/D, to be multiplied
    by (W_O W_V)ᵀ, and −⟨ωg, A⟩/D = ∂L/∂D.
    """
    d, line, out = workspace.y.shape[0], workspace.line, workspace.outputs
    add_moments(
        workspace.back[: workspace.open.shape[0]], workspace.y, out.omega, line, sums.up, count
    )
    add_moments(workspace.hidden, out.gains, out.omega, line, sums.read, count)
    for a in range(sums.bias.shape[0]):
        gains = out.gains[a]
        for j in range(count):
            line[j] = out.omega[j] * gains[j]
            sums.bias[a] += line[j]
        for i in range(d):
            sums.y[a, i] += weighted_sum(line, workspace.y[i], 0, count)
    inner(workspace.g, workspace.moved, line, count)
    last = mixed[d]
    for j in range(count):
        scale = out.omega[j] * workspace.inverse[j]
        last[start + j] = -scale * line[j]
        line[j] = scale
    for i in range(d):
        row, g = mixed[i], workspace.g[i]
        for j in range(count):
            row[start + j] = line[j] * g[j]
