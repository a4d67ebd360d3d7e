"""Gradient and stiffness of the exact loss of a transformer without attention, compiled.

Position n sees its own symbol only, Y_{n,x} = p_n + x·e, and f = ⟨u, Y⟩ + ⟨W_2ᵀu, ReLU(W_1 Y)⟩ + b:
the sum runs over the pairs (n, x), one model after the other.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled


@compiled(internal=True)
def hidden_units(up, y, rounding, hidden, opened):
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


@compiled(reordered=True, internal=True)
def _outputs(down, u, up, y, hidden, back, z, slope):
    """z = Y + W_2 H, and ∂f/∂Y; returns the reader's part of the logit, ⟨u, z⟩."""
    logit = 0.0
    for i in range(y.shape[0]):
        total = y[i]
        for k in range(hidden.shape[0]):
            total += down[i, k] * hidden[k]
        z[i] = total
        logit += u[i] * total
        slope[i] = u[i]
    for k in range(hidden.shape[0]):
        if back[k] != 0.0:
            for i in range(y.shape[0]):
                slope[i] += back[k] * up[k, i]
    return logit


@compiled(reordered=True, internal=True)
def _squared(vector):
    total = 0.0
    for value in vector:
        total += value * value
    return total


@compiled(internal=True)
def _squares(x, tied, length, u, y, z, slope, hidden, back):
    """|∇f|² in the metric of N positions, of which each sees 1/N of the sequences."""
    through = 0.0
    for i in range(y.shape[0]):
        part = x * slope[i] + (z[i] if tied else 0.0)
        through += part * part
    found = through + _squared(slope) / length + _squared(back) * _squared(y)
    found += _squared(u) * _squared(hidden) + 1.0
    return found if tied else found + _squared(z)


@compiled(internal=True)
def _add(x, omega, y, z, slope, hidden, back, tied, out_e, out_p, out_up, out_u, read):
    """Add a pair's part to the gradient."""
    for i in range(y.shape[0]):
        out_p[i] += omega * slope[i]
        out_e[i] += x * omega * slope[i]
        out_u[i] += omega * z[i]
    for k in range(hidden.shape[0]):
        read[k] += omega * hidden[k]
        scale = omega * back[k]
        if scale != 0.0:
            for i in range(y.shape[0]):
                out_up[k, i] += scale * y[i]


@compiled(makes_arrays=True)
def without_attention(states, stationary, targets, count, length, d, width, tied, rounding):
    """Gradient (M, K) and stiffness (M,), the trace of the Gauss-Newton matrix Σ law·s·∇f ∇fᵀ.

    s is the larger of σ′(f) and t(1 − t).

    Args:
        states: (M, K) float64: embedding, positions, W_1, W_2, the reader if untied, bias.
        stationary, targets: (2,), π and P(1 | x).
        count: positions in a state, each of them standing for ``length``/``count``.
        length, d, width: N, dimension and hidden units.
        tied: is the reader u the embedding.
        rounding: half the width over which the kink of ReLU is rounded off, 0 for ReLU itself.
    """
    gradient, stiffness = np.zeros(states.shape), np.zeros(states.shape[0])
    y, z, slope = np.empty(d), np.empty(d), np.empty(d)
    hidden, opened, back = np.empty(width), np.empty(width), np.empty(width)
    reads, read = np.empty(width), np.empty(width)
    a, b = d + count * d, width * d
    for m in range(states.shape[0]):
        row, out = states[m], gradient[m]
        up, out_up = row[a : a + b].reshape(width, d), out[a : a + b].reshape(width, d)
        down, out_down = row[a + b : a + 2 * b].reshape(d, width), out[a + b : a + 2 * b]
        start = 0 if tied else a + 2 * b
        u, out_u = row[start : start + d], out[start : start + d]
        reads[:] = 0.0
        read[:] = 0.0
        for i in range(d):
            for k in range(width):
                reads[k] += u[i] * down[i, k]
        for pair in range(2 * count):
            n, x = pair // 2, float(pair % 2)
            for i in range(d):
                y[i] = row[d + n * d + i] + x * row[i]
            hidden_units(up, y, rounding, hidden, opened)
            for k in range(width):
                back[k] = reads[k] * opened[k]
            f = _outputs(down, u, up, y, hidden, back, z, slope) + row[row.shape[0] - 1]
            chance = 1.0 / (1.0 + math.exp(-min(max(f, -700.0), 700.0)))
            law, target = stationary[pair % 2] / count, targets[pair % 2]
            omega = law * (chance - target)
            out_p = out[d + n * d : d + n * d + d]
            _add(x, omega, y, z, slope, hidden, back, tied, out[:d], out_p, out_up, out_u, read)
            out[out.shape[0] - 1] += omega
            steep = max(chance * (1.0 - chance), target * (1.0 - target))
            squares = _squares(x, tied, length, u, y, z, slope, hidden, back)
            stiffness[m] += law * steep * squares
        for i in range(d):
            for k in range(width):
                out_down[i * width + k] = u[i] * read[k]
    return gradient, stiffness
