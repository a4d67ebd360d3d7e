"""Gradient and stiffness of the exact loss of a transformer without attention, compiled.

Position n sees its own symbol only, Y_{n,x} = p_n + E_x, and f = U(Y + W_2 ReLU(W_1 Y)) + b:
the sum runs over the pairs (n, x), one model after the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from full_model.model.tree.outputs import chances, new_outputs, set_cotangent


class _Weights(NamedTuple):
    """One model's weights, or its gradient, as views of a row of numbers."""

    embedding: Any
    positions: Any
    up: Any
    down: Any
    reader: Any
    bias: Any


class _Workspace(NamedTuple):
    """Arrays of one pair: Y, z, u, ∂φ/∂Y, hidden units; U W_2, and the sum of ω gains Hᵀ."""

    y: Any
    z: Any
    u: Any
    slope: Any
    hidden: Any
    opened: Any
    back: Any
    reads: Any
    read: Any
    outputs: Any
    logit: Any
    gains: Any


@compiled(no_cpython_wrapper=True, nrt=True)
def _new_workspace(d, width, logits):
    outputs = new_outputs(np.zeros((logits, 1)))
    return _Workspace(
        np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(width), np.zeros(width),
        np.zeros(width), np.zeros((logits, width)), np.zeros((logits, width)), outputs,
        outputs.logit.reshape(logits), outputs.gains.reshape(logits),
    )  # fmt: skip


@compiled(inline=True, no_cpython_wrapper=True, nrt=True)
def _read(row, count, d, width, logits, tied):
    """Views of a row in the order of ``Architecture.shapes``."""
    a = logits * d
    b = a + count * d
    c = b + width * d
    e = c + d * width
    reader = 0 if tied else e
    return _Weights(
        row[:a].reshape(logits, d), row[a:b].reshape(count, d), row[b:c].reshape(width, d),
        row[c:e].reshape(d, width), row[reader : reader + a].reshape(logits, d),
        row[row.shape[0] - logits :],
    )  # fmt: skip


@compiled(reassoc=True, inline=True, no_cpython_wrapper=True)
def _apply(matrix, x, out):
    """out = M x."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * x[j]
        out[i] = total


@compiled(reassoc=True, inline=True, no_cpython_wrapper=True)
def _apply_transposed(matrix, x, out):
    """out = Mᵀ x."""
    for j in range(matrix.shape[1]):
        out[j] = 0.0
    for i in range(matrix.shape[0]):
        factor = x[i]
        if factor != 0.0:
            for j in range(matrix.shape[1]):
                out[j] += factor * matrix[i, j]


@compiled(reassoc=True, inline=True, no_cpython_wrapper=True)
def _add_outer(factor, a, b, out):
    """out += factor · a bᵀ."""
    for i in range(a.shape[0]):
        part = factor * a[i]
        if part != 0.0:
            for j in range(b.shape[0]):
                out[i, j] += part * b[j]


@compiled(reassoc=True, inline=True, no_cpython_wrapper=True)
def _squared(vector):
    total = 0.0
    for value in vector:
        total += value * value
    return total


@compiled(no_cpython_wrapper=True)
def _hidden_units(up, y, rounding, hidden, opened):
    """ReLU of W_1 Y and its derivative, its kink rounded off over ``rounding`` to both sides."""
    for k in range(up.shape[0]):
        total = 0.0
        for i in range(y.shape[0]):
            total += up[k, i] * y[i]
        hidden[k] = opened[k] = 0.0
        if total >= rounding and total > 0.0:
            hidden[k], opened[k] = total, 1.0
        elif total > -rounding:
            t = total / rounding
            opened[k] = (2.0 + t * (3.0 - t * t)) / 4.0
            hidden[k] = rounding * (3.0 + t * (8.0 + t * (6.0 - t * t))) / 16.0


@compiled(inline=True, no_cpython_wrapper=True)
def _squares(row, tied, length, workspace):
    """|∇φ|² in the metric of N positions, of which each sees 1/N of the sequences."""
    own, read = _squared(workspace.gains), _squared(workspace.u) * _squared(workspace.hidden)
    found = (
        own
        + read
        + _squared(workspace.slope) / length
        + _squared(workspace.back) * _squared(workspace.y)
    )
    for a in range(workspace.gains.shape[0]):
        gain, here = workspace.gains[a] if tied else 0.0, 1.0 if a == row else 0.0
        for i in range(workspace.z.shape[0]):
            found += (gain * workspace.z[i] + here * workspace.slope[i]) ** 2
    return found if tied else found + own * _squared(workspace.z)


@compiled(inline=True, no_cpython_wrapper=True)
def _add(row, n, omega, workspace, out):
    """Add a pair's part to the gradient, and ω gains Hᵀ to ``read``."""
    _add_outer(omega, workspace.gains, workspace.z, out.reader)
    _add_outer(omega, workspace.gains, workspace.hidden, workspace.read)
    _add_outer(omega, workspace.back, workspace.y, out.up)
    for i in range(workspace.y.shape[0]):
        out.positions[n, i] += omega * workspace.slope[i]
        if row >= 0:
            out.embedding[row, i] += omega * workspace.slope[i]
    for a in range(workspace.gains.shape[0]):
        out.bias[a] += omega * workspace.gains[a]


@compiled(inline=True, no_cpython_wrapper=True)
def _forward(weights, row, n, rounding, workspace):
    """From Y to the chances of one pair."""
    for i in range(workspace.y.shape[0]):
        workspace.y[i] = weights.positions[n, i]
        workspace.y[i] += weights.embedding[row, i] if row >= 0 else 0.0
    _hidden_units(weights.up, workspace.y, rounding, workspace.hidden, workspace.opened)
    _apply(weights.down, workspace.hidden, workspace.z)
    for i in range(workspace.y.shape[0]):
        workspace.z[i] += workspace.y[i]
    _apply(weights.reader, workspace.z, workspace.logit)
    for a in range(workspace.logit.shape[0]):
        workspace.logit[a] += weights.bias[a]
    chances(1, workspace.outputs)


@compiled(inline=True, no_cpython_wrapper=True)
def _backward(weights, workspace):
    """From the gains to u, ``back`` and ∂φ/∂Y."""
    _apply_transposed(weights.reader, workspace.gains, workspace.u)
    _apply_transposed(workspace.reads, workspace.gains, workspace.back)
    for k in range(workspace.back.shape[0]):
        workspace.back[k] *= workspace.opened[k]
    _apply_transposed(weights.up, workspace.back, workspace.slope)
    for i in range(workspace.u.shape[0]):
        workspace.slope[i] += workspace.u[i]


@compiled(inline=True, no_cpython_wrapper=True)
def _one(weights, out, probability, kernel, length, tied, rounding, workspace):
    """Stiffness of one model; its gradient is added to ``out``."""
    symbols, logits, stiffness = kernel.shape[0], workspace.gains.shape[0], 0.0
    for a in range(logits):
        _apply_transposed(weights.down, weights.reader[a], workspace.reads[a])
        for k in range(workspace.hidden.shape[0]):
            workspace.read[a, k] = 0.0
    for n in range(weights.positions.shape[0]):
        for x in range(symbols):
            row = x - (symbols - logits)
            _forward(weights, row, n, rounding, workspace)
            for a in range(logits):
                workspace.outputs.target[a, 0] = kernel[x, symbols - logits + a]
            for which in range(1 if logits == 1 else 1 + logits):
                set_cotangent(which, probability, x, 1, workspace.outputs)
                _backward(weights, workspace)
                if which == 0:
                    _add(row, n, workspace.outputs.omega[0], workspace, out)
                if which > 0 or logits == 1:
                    stiffness += workspace.outputs.spread[0] * _squares(
                        row, tied, length, workspace
                    )
    for a in range(logits):
        _add_outer(1.0, weights.reader[a], workspace.read[a], out.down)
    return stiffness


@compiled(nrt=True)
def without_attention(states, initial, kernel, count, length, d, width, logits, tied, rounding):
    """Gradient (M, K) and stiffness (M,) of models, each by itself; see ``set_cotangent``.

    Args:
        states: (M, K) float64: embedding, positions, W_1, W_2, the reader if untied, bias.
        initial, kernel: (S,) and (S, S), stationary law and kernel of the chain.
        count: positions in a state, each of them standing for ``length``/``count``.
        length, d, width: N, dimension and hidden units.
        logits: 1 for S = 2 symbols with the embeddings 0 and e, or S.
        tied: is the reader the embedding.
        rounding: half the width over which the kink of ReLU is rounded off, 0 for ReLU itself.
    """
    gradient, stiffness = np.zeros(states.shape), np.zeros(states.shape[0])
    workspace, probability = _new_workspace(d, width, logits), initial / count
    for m in range(states.shape[0]):
        weights = _read(states[m], count, d, width, logits, tied)
        out = _read(gradient[m], count, d, width, logits, tied)
        stiffness[m] = _one(weights, out, probability, kernel, length, tied, rounding, workspace)
    return gradient, stiffness
