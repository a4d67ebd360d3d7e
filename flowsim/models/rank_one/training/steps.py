"""Steps of gradient descent, momentum and Adam in rank-one coordinates: loops over one row.

A row holds (e, ρ_1 … ρ_C, w1, w2[, o, v], b[, c]), C = N positions, or 1 that all share. The
derivation of the map is in docs/derivations/10.md.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.elementary import clipped, exponential
from flowsim.models.rank_one.point import WIDTH_RATIO

#: Places of an optimizer's numbers in ``reals``.
BETA1, BETA2, EPSILON, MOMENTUM, CLIP, GUARD = range(6)
#: Places of its choices in ``kinds``: positions C, attention, tied weights, whether Adam.
POSITIONS, ATTENTION, TIED, ADAM = range(4)


@compiled(reassoc=True, no_cpython_wrapper=True)
def _logits(row, kinds, place, values, low, high, means, logits):
    """Write Y, output and mean past X of the atoms low … high − 1 to logits[0], [1] and [2].

    The output is Y + 4w₂ ReLU(w₁Y). ``means`` (C,) is scratch.
    """
    count = kinds[POSITIONS]
    e, w1, w2 = row[0], row[1 + count], row[2 + count]
    inner = row[3 + count] * row[4 + count] if kinds[ATTENTION] else 0.0
    total = 0.0
    for n in range(count):
        total += row[1 + n]
        means[n] = total / (n + 1)
    for j in range(low, high):
        n = place[j]
        past = e * values[1, j] + means[n]
        y = values[0, j] * e + row[1 + n] + inner * past
        opened = w1 * y
        opened = opened if opened > 0.0 else 0.0
        logits[0, j - low] = y
        logits[1, j - low] = y + WIDTH_RATIO * w2 * opened
        logits[2, j - low] = past


@compiled(reassoc=True, no_cpython_wrapper=True)
def _residuals(u, b, values, low, high, logits):
    """Write weight·σ(f) − weight of ones of the same atoms, f = u·output + b, to logits[3]."""
    for j in range(high - low):
        chance = 1.0 / (1.0 + exponential(clipped(-(u * logits[1, j] + b))))
        logits[3, j] = values[2, low + j] * chance - values[3, low + j]


@compiled(reassoc=True, no_cpython_wrapper=True)
def _gradient(row, kinds, place, values, low, high, means, logits, gradient):
    """Write ∂L/∂row to ``gradient`` (k,), L being the loss of the atoms low … high − 1."""
    count, attended, tied = kinds[POSITIONS], kinds[ATTENTION], kinds[TIED]
    e, w1, w2 = row[0], row[1 + count], row[2 + count]
    at = 5 + count if attended else 3 + count
    u = e if tied else row[at + 1]
    inner = row[3 + count] * row[4 + count] if attended else 0.0
    _logits(row, kinds, place, values, low, high, means, logits)
    _residuals(u, row[at], values, low, high, logits)
    gradient[:] = 0.0
    by_e, by_w, by_mean, by_b, by_u = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(high - low):
        omega, y = logits[3, j], logits[0, j]
        by_relu = WIDTH_RATIO * u * omega if w1 * y > 0.0 else 0.0
        here = u * omega + w1 * w2 * by_relu
        by_w += by_relu * y
        by_b += omega
        by_u += omega * logits[1, j]
        by_mean += here * logits[2, j]
        by_e += here * (values[0, low + j] + inner * values[1, low + j])
        gradient[1 + place[low + j]] += here
    gradient[0] = by_e
    gradient[1 + count], gradient[2 + count] = w2 * by_w, w1 * by_w
    gradient[at] = by_b
    if tied:
        gradient[0] += by_u
    else:
        gradient[at + 1] = by_u
    if attended:
        gradient[3 + count] = row[4 + count] * by_mean
        gradient[4 + count] = row[3 + count] * by_mean
        later = 0.0  # Σ_{k≥n} of ∂L/∂Y_k / k
        for n in range(count - 1, -1, -1):
            later += gradient[1 + n] / (n + 1)
            gradient[1 + n] += inner * later


@compiled(contract=True, no_cpython_wrapper=True)
def _take_step(row, gradient, first, second, kinds, reals, scales, rate, by_first, by_second):
    """Take one step of the optimizer: change ``row``, its moments ``first`` and ``second``.

    ``scales`` (4, k) holds κ, κ/M, M and the decay; rate is the learning rate,
    by_first = rate/(1 − β₁ᵗ) and by_second = (1 − β₂ᵗ)^(−1/2).
    """
    k, shrink = len(row), 1.0
    for i in range(k):
        gradient[i] *= scales[1, i]  # of one entry
    if reals[CLIP] > 0.0:
        square = 0.0
        for i in range(k):
            square += scales[2, i] * gradient[i] * gradient[i]
        shrink = reals[CLIP] / (math.sqrt(square) + reals[GUARD])
        shrink = shrink if shrink < 1.0 else 1.0
    for i in range(k):
        g = shrink * gradient[i]
        kept = row[i] * (1.0 - rate * scales[3, i])
        if kinds[ADAM]:
            first[i] += (1.0 - reals[BETA1]) * (g - first[i])
            second[i] = reals[BETA2] * second[i] + (1.0 - reals[BETA2]) * g * g
            size = math.sqrt(second[i]) * by_second + reals[EPSILON]
            row[i] = kept - scales[0, i] * by_first * first[i] / size
        else:
            first[i] = reals[MOMENTUM] * first[i] + g
            row[i] = kept - scales[0, i] * rate * first[i]


@compiled
def advance(
    rows, first, second, kinds, reals, scales, rates, order, place, values, bounds, means, logits,
    gradient,
):  # fmt: skip
    """Take the steps of ``rates`` (steps, 3) with every row of weights ``rows`` (n, k), in place.

    A line of ``rates`` holds the learning rate, rate/(1 − β₁ᵗ) and (1 − β₂ᵗ)^(−1/2). The moments
    ``first`` and ``second`` (n, k) change too; ``scales`` are those of ``_take_step``.

    Step t of row i descends the loss order[0] + order[1]·t + order[2]·i. ``place``, ``values`` and
    ``bounds`` are those of ``sequences.Atoms``; ``means``, ``logits``, ``gradient`` are scratch.
    """
    for i in range(len(rows)):
        row = rows[i]
        for t in range(len(rates)):
            which = order[0] + order[1] * t + order[2] * i
            low, high = bounds[which], bounds[which + 1]
            _gradient(row, kinds, place, values, low, high, means, logits, gradient)
            _take_step(
                row, gradient, first[i], second[i], kinds, reals, scales,
                rates[t, 0], rates[t, 1], rates[t, 2],
            )  # fmt: skip


@compiled
def losses_of(rows, kinds, place, values, means, logits, found):
    """Write the loss of every row in nats to ``found`` (n,), all atoms being those of one loss."""
    count, size = kinds[POSITIONS], len(place)
    at = 5 + count if kinds[ATTENTION] else 3 + count
    for i in range(len(rows)):
        row = rows[i]
        u = row[0] if kinds[TIED] else row[at + 1]
        _logits(row, kinds, place, values, 0, size, means, logits)
        total = 0.0
        for j in range(size):
            f = u * logits[1, j] + row[at]
            softplus = (f if f > 0.0 else 0.0) + math.log1p(math.exp(-abs(f)))
            total += values[2, j] * softplus - values[3, j] * f
        found[i] = total
