"""Sums over the law of the past for one row, its loss, and its optimal bias (compiled).

Sums over the law's classes, by the current symbol x and by o = 1 for an open ReLU; within a class
f = log(π₁/π₀) + β + C + K m with γ = 4w|w|, β = b − log(π₁/π₀) − e²/2, C = e²[x + (x − ½)γ o] and
K = e² a (1 + γ o). What counts is how far f is beyond the logit of its target t.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.elementary import clipped, excess_entropy, exponential_minus_one
from flowsim.models.bias import optimal_shift
from flowsim.models.uniform.table import BEYOND, COUNT, LAMBDA, UNIGRAM_LOGIT, P, Q, range_at

#: The place in a row's memory of five sums for each of the classes (0, 0), (0, 1), (1, 0), (1, 1):
#: Σω, Σωm, Σv, Σvm, Σvm², with ω = weight·(σ(f) − t) and v = weight·σ(f)σ(−f).
SUMS, EACH = 12, 5


@compiled(reassoc=True, no_cpython_wrapper=True)
def _five_sums(points, weights, level, steep, target, other):
    """Return Σω, Σωm, Σv, Σvm and Σvm² over nodes m, at f = logit t + level + steep·m.

    ``points`` are the m, ``other`` is 1 − t; by the formulas of ``elementary.residual``.
    """
    s0 = s1 = s2 = s3 = s4 = 0.0
    both = target * other
    for j in range(points.shape[0]):
        m = points[j]
        beyond = clipped(level + steep * m)
        rise = exponential_minus_one(abs(beyond))
        inverse = 1.0 / (1.0 + (target if beyond >= 0.0 else other) * rise)
        away = (both * rise) * inverse
        omega = weights[j] * (away if beyond >= 0.0 else -away)
        v = weights[j] * ((both * inverse) * ((1.0 + rise) * inverse))
        s0 += omega
        s1 += omega * m
        s2 += v
        s3 += v * m
        s4 += (v * m) * m
    return s0, s1, s2, s3, s4


@compiled
def class_sums(square, gamma, a, shift, reals, memory):
    """Write the five sums of each class at β = ``shift`` to memory, over the ranges in memory."""
    for i in range(4 * EACH):
        memory[SUMS + i] = 0.0
    for n in range(int(memory[COUNT])):
        x, o, points, weights, count, level, steep = range_at(n, square, gamma, a, memory)
        target, other = (1.0 - reals[Q], reals[Q]) if x else (reals[P], 1.0 - reals[P])
        s0, s1, s2, s3, s4 = _five_sums(
            reals[points : points + count],
            reals[weights : weights + count],
            shift + reals[BEYOND + x] + level,
            steep,
            target,
            other,
        )
        place = SUMS + EACH * (2 * x + o)
        memory[place] += s0
        memory[place + 1] += s1
        memory[place + 2] += s2
        memory[place + 3] += s3
        memory[place + 4] += s4


@compiled
def excess_of_ranges(square, gamma, a, shift, reals, memory):
    """Return the loss above the entropy rate, over the ranges gathered in memory, at β = ``shift``.

    A mean of relative entropies, none of which cancels.
    """
    total = 0.0
    for n in range(int(memory[COUNT])):
        x, _, points, weights, count, level, steep = range_at(n, square, gamma, a, memory)
        level += shift + reals[BEYOND + x]
        target, other = (1.0 - reals[Q], reals[Q]) if x else (reals[P], 1.0 - reals[P])
        for j in range(count):
            beyond = level + steep * reals[points + j]
            total += reals[weights + j] * excess_entropy(beyond, target, other)
    return total


#: Newton steps from a guess: one this small is the last, its rest below 1e-10, or, as residuals are
#: next to p + q = 1, a part of λ; one this large,
#: logits whose mean σ′ is this small, or more steps than this need the safe solver.
_SMALL_STEP, _LARGE_STEP, _SATURATED, _NEWTON_STEPS = 1e-5, 0.3, 1e-9, 6
#: The least step asked for; the slope from which a last step is sharper than the safe solver.
_LEAST, _STEEP = 1e-13, 1e-3


@compiled
def newton_shift(square, gamma, a, guess, reals, memory):
    """Return (β, step): the shift whose sums are left in memory, and Newton's last step from it.

    The optimal β is β + step, to 1e-10 of λ. ``guess`` of β is NaN for none.
    """
    shift, last = guess, _SMALL_STEP * min(1.0, 2.0 * math.sqrt(abs(reals[LAMBDA])))
    for _ in range(_NEWTON_STEPS if guess == guess else 0):
        class_sums(square, gamma, a, shift, reals, memory)
        residual, slope = _residual_and_slope(memory)
        step = -residual / slope
        if abs(step) <= max(last, _LEAST):
            return shift, step
        if not (abs(step) < _LARGE_STEP and slope > _SATURATED):
            break
        shift += step
    shift = best_shift(square, gamma, a, reals, memory)
    class_sums(square, gamma, a, shift, reals, memory)
    residual, slope = _residual_and_slope(memory)
    return shift, -residual / slope if slope > _STEEP else 0.0  # what rounding left


@compiled(inline=True, no_cpython_wrapper=True)
def _residual_and_slope(memory):
    """Return Σω and Σv of all four classes, from the sums in memory."""
    residual = slope = 0.0
    for c in range(4):
        residual += memory[SUMS + EACH * c]
        slope += memory[SUMS + EACH * c + 2]
    return residual, slope


@compiled
def best_shift(square, gamma, a, reals, memory):
    """Return the β that minimises the loss."""
    low, high = _bracket(square, gamma, a, reals[P], reals[Q])
    return optimal_shift(square, gamma, a, low, high, reals, memory) - reals[UNIGRAM_LOGIT]


@compiled(no_cpython_wrapper=True)
def _bracket(square, gamma, a, p, q):
    """Return the lower and upper bound of the optimal β.

    h = f − β has its extremes at the ends of the law of m or at its kink.
    """
    top = bottom = square * 0.5
    for corner in range(4):
        s = (corner // 2 - 0.5) + a * (corner % 2 - 0.5)
        h = square * (s + 0.5 + gamma * max(s, 0.0))
        top, bottom = max(top, h), min(bottom, h)
    return math.log(p / q) - top - 1.0, math.log(p / q) - bottom + 1.0
