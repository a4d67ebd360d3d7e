"""The optimal bias of one row as β = b − log(π₁/π₀) − e²/2 (compiled): from a guess, or safely."""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.models.bias import optimal_shift
from flowsim.models.uniform.sums import EACH, SUMS, class_sums
from flowsim.models.uniform.table import LAMBDA, UNIGRAM_LOGIT, P, Q

#: Newton steps from a guess: one this small is the last, its rest below 1e-10, or, as residuals are
#: next to p + q = 1, a part of λ; one this large,
#: logits whose mean σ′ is this small, or more steps than this need the safe solver.
_SMALL_STEP, _LARGE_STEP, _SATURATED, _NEWTON_STEPS = 1e-5, 0.3, 1e-9, 6
#: The least step asked for; the slope from which a last step is sharper than the safe solver.
_LEAST, _STEEP = 1e-13, 1e-3


@compiled
def newton_shift(square, gamma, a, guess, reals, memory):
    """(β, step): a shift at which the sums are left in memory, and Newton's last step from it.

    The optimum is β + step, to 1e-10 of λ. ``guess`` is NaN for none.
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
    """Σω and Σv of all classes."""
    residual = slope = 0.0
    for c in range(4):
        residual += memory[SUMS + EACH * c]
        slope += memory[SUMS + EACH * c + 2]
    return residual, slope


@compiled
def best_shift(square, gamma, a, reals, memory):
    """β that minimises the loss."""
    low, high = _bracket(square, gamma, a, reals[P], reals[Q])
    return optimal_shift(square, gamma, a, low, high, reals, memory) - reals[UNIGRAM_LOGIT]


@compiled(no_cpython_wrapper=True)
def _bracket(square, gamma, a, p, q):
    """β lies between these; h = f − β has its extremes at the ends of the law or at its kink."""
    top = bottom = square * 0.5
    for corner in range(4):
        s = (corner // 2 - 0.5) + a * (corner % 2 - 0.5)
        h = square * (s + 0.5 + gamma * max(s, 0.0))
        top, bottom = max(top, h), min(bottom, h)
    return math.log(p / q) - top - 1.0, math.log(p / q) - bottom + 1.0
