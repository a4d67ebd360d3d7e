"""The optimal bias of one row as β = b − e²/2 (compiled).

The equation and its two forms without cancellation are those of ``models.bias``.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.models.elementary import clipped, exponential
from flowsim.models.uniform.ranges import COUNT, FIRST, RANGE
from flowsim.models.uniform.sums import EACH, SUMS, class_sums
from flowsim.models.uniform.table import PI0, PI1, P, Q

#: Newton steps from a guess: one this small is the last, its rest below 1e-10; one this large,
#: logits whose mean σ′ is this small, or more steps than this need the safe solver.
_SMALL_STEP, _LARGE_STEP, _SATURATED, _NEWTON_STEPS = 1e-5, 0.3, 1e-9, 6
#: A step this small ends Halley's method, which leaves an error of its third power.
_LAST_STEP, _MOST_STEPS = 3e-6, 200


@compiled
def newton_shift(square, gamma, a, guess, reals, memory):
    """(β, step): a shift at which the sums are left in memory, and Newton's last step from it.

    The optimum is β + step, to 1e-10. ``guess`` is NaN where there is none.
    """
    shift = guess
    for _ in range(_NEWTON_STEPS if guess == guess else 0):
        class_sums(square, gamma, a, shift, reals, memory)
        residual = slope = 0.0
        for c in range(4):
            residual += memory[SUMS + EACH * c]
            slope += memory[SUMS + EACH * c + 2]
        step = -residual / slope
        if abs(step) <= _SMALL_STEP:
            return shift, step
        if not (abs(step) < _LARGE_STEP and slope > _SATURATED):
            break
        shift += step
    shift = optimal_shift(square, gamma, a, reals, memory)
    class_sums(square, gamma, a, shift, reals, memory)
    return shift, 0.0


@compiled
def optimal_shift(square, gamma, a, reals, memory):
    """β that minimises the loss, by Halley's method inside a shrinking bracket."""
    p, q = reals[P], reals[Q]
    mean0 = _log_sum(square, gamma, a, 0, 1.0, 0.0, 0.0, reals, memory)[3] / reals[PI0]
    mean1 = _log_sum(square, gamma, a, 1, 1.0, 0.0, 0.0, reals, memory)[3] / reals[PI1]
    delta = (q - p) / (q + p)
    # only with a falling logit and about as many zeros as ones can the first form saturate
    direct = mean1 >= mean0 or abs(delta) >= 0.1
    sign = 1.0 if direct else -1.0
    extra0, extra1 = (0.0, 0.0) if direct else (max(0.0, -delta), max(0.0, delta))
    low, high = _bracket(square, gamma, a, p, q)
    if not direct:
        low, high = -high, -low
    y = sign * (_optimal_logit(reals, mean1 - mean0) - mean0)
    if not low <= y <= high:
        y = (low + high) / 2
    for _ in range(_MOST_STEPS):
        log0, slope0, bend0, _ = _log_sum(square, gamma, a, 0, sign, y, extra0, reals, memory)
        log1, slope1, bend1, _ = _log_sum(square, gamma, a, 1, -sign, -y, extra1, reals, memory)
        if max(log0, log1) < -100:  # pure exponentials up to the root
            log0 = _log_exponentials(square, gamma, a, 0, sign, reals, memory)
            return sign * (_log_exponentials(square, gamma, a, 1, -sign, reals, memory) - log0) / 2
        value, slope = log0 - log1, slope0 + slope1
        newton = value / slope
        halley = 1.0 - newton * (bend0 - bend1) / (2.0 * slope)
        trial = y - newton / min(max(halley, 0.5), 2.0)
        low, high = (max(low, y), high) if value < 0 else (low, min(high, y))
        if not low <= trial <= high:
            trial = (low + high) / 2
        if value == 0:
            trial = y
        done = abs(trial - y) <= _LAST_STEP or not high - low > 1e-15 * abs(high)
        y = trial
        if done:
            break
    return sign * y


@compiled(internal=True)
def _bracket(square, gamma, a, p, q):
    """β lies between these; h = f − β has its extremes at the ends of the law or at its kink."""
    top = bottom = square * 0.5
    for corner in range(4):
        s = (corner // 2 - 0.5) + a * (corner % 2 - 0.5)
        h = square * (s + 0.5 + gamma * max(s, 0.0))
        top, bottom = max(top, h), min(bottom, h)
    return math.log(p / q) - top - 1.0, math.log(p / q) - bottom + 1.0


@compiled(internal=True)
def _optimal_logit(reals, gap):
    """The optimal logit after a zero where the one after a one is larger by ``gap`` (gap_loss)."""
    pi0, pi1 = reals[PI0], reals[PI1]
    difference = (reals[Q] - reals[P]) / (reals[Q] + reals[P])
    half = 0.5 * (gap + math.log(4 * pi0 * pi1))
    if difference == 0:
        return math.log(2 * pi1) - half
    own = math.log(abs(difference))
    total = np.logaddexp(own, np.logaddexp(2 * own, 2 * half) / 2)
    if difference > 0:
        return math.log(2 * pi1) - total
    return total - gap - math.log(2 * pi0)


@compiled(reordered=True, internal=True)
def _powers(points, weights, level, steep, sign):
    """Σ weight·(u, u², u³) with u = σ(level + steep·m), and Σ weight·sign·(level + steep·m)."""
    s1 = s2 = s3 = s4 = 0.0
    for j in range(points.shape[0]):
        f = level + steep * points[j]
        u = 1.0 / (1.0 + exponential(-clipped(f)))
        s1 += weights[j] * u
        s2 += weights[j] * (u * u)
        s3 += weights[j] * (u * u) * u
        s4 += weights[j] * f
    return s1, s2, s3, sign * s4


@compiled(internal=True)
def _log_sum(square, gamma, a, x, sign, y, extra, reals, memory):
    """log(Σ weight·σ(sign·h + y) + extra) given x, its two derivatives in y, and Σ weight·h + …."""
    s1 = s2 = s3 = s4 = 0.0
    for n in range(int(memory[COUNT])):
        at = FIRST + RANGE * n
        if int(memory[at]) == x:
            o = int(memory[at + 1])
            points, weights, count = int(memory[at + 2]), int(memory[at + 3]), int(memory[at + 4])
            t1, t2, t3, t4 = _powers(
                reals[points : points + count],
                reals[weights : weights + count],
                sign * square * (x + (x - 0.5) * gamma * o) + y,
                sign * square * a * (1.0 + gamma * o),
                sign,
            )
            s1, s2, s3, s4 = s1 + t1, s2 + t2, s3 + t3, s4 + t4
    total = s1 + extra
    slope = (s1 - s2) / total
    return math.log(total), slope, (s1 - 3 * s2 + 2 * s3) / total - slope * slope, s4


@compiled(internal=True)
def _log_exponentials(square, gamma, a, x, sign, reals, memory):
    """log Σ weight·exp(sign·h) given x."""
    top, total = -np.inf, 0.0
    for n in range(int(memory[COUNT])):
        at = FIRST + RANGE * n
        if int(memory[at]) == x:
            o = int(memory[at + 1])
            points, weights, count = int(memory[at + 2]), int(memory[at + 3]), int(memory[at + 4])
            level, steep = square * (x + (x - 0.5) * gamma * o), square * a * (1.0 + gamma * o)
            for j in range(count):
                if reals[weights + j] > 0:
                    f = sign * (level + steep * reals[points + j]) + math.log(reals[weights + j])
                    if f > top:
                        total, top = total * math.exp(top - f) + 1.0, f
                    else:
                        total += math.exp(f - top)
    return top + math.log(total)
