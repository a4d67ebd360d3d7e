"""The optimal bias where it has no closed form: one monotone equation for each row (compiled).

With Σ weight·t = π₁ by stationarity, the loss is stationary in the bias where the mean predicted
probability is π₁. Written without cancellation (own derivation), that is

    Σ₀ weight σ(f) = Σ₁ weight σ(−f)          or, with π₀ − π₁ = δ,
    Σ₀ weight σ(−f) = Σ₁ weight σ(f) + δ,     f = h + β, Σₓ the sum over the law given x,

all terms positive. The second is for logits that fall with x where π₀ ≈ π₁: there both sides of the
first are close to π₀. The difference of the logs of both sides is close to linear in β, also where
all probabilities are saturated. The sums go over the ranges in a row's memory
(``models.uniform.table``).
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.elementary import clipped, exponential
from flowsim.models.gap_family.compiled import optimal_logit
from flowsim.models.uniform.table import COUNT, FIRST, PI0, PI1, RANGE, P, Q, range_at

#: A step this small ends Halley's method, which leaves an error of its third power.
_LAST_STEP, _MOST_STEPS = 3e-6, 200


@compiled
def optimal_shift(square, gamma, a, low, high, reals, memory):
    """Return the β that minimises the loss, between ``low`` and ``high``.

    By Halley's method inside a shrinking bracket, over the ranges in memory.
    """
    p, q = reals[P], reals[Q]
    mean0 = mean_logit(square, gamma, a, 0, reals, memory) / reals[PI0]
    mean1 = mean_logit(square, gamma, a, 1, reals, memory) / reals[PI1]
    delta = (q - p) / (q + p)
    # only with a falling logit and about as many zeros as ones can the first form saturate
    direct = mean1 >= mean0 or abs(delta) >= 0.1
    sign = 1.0 if direct else -1.0
    extra0, extra1 = (0.0, 0.0) if direct else (max(0.0, -delta), max(0.0, delta))
    if not direct:
        low, high = -high, -low
    y = sign * (optimal_logit(reals[PI0], reals[PI1], delta, mean1 - mean0) - mean0)
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


@compiled
def mean_logit(square, gamma, a, x, reals, memory):
    """Return Σ weight·h over the law given x, h being the logit without β."""
    return _log_sum(square, gamma, a, x, 1.0, 0.0, 0.0, reals, memory)[3]


@compiled(reassoc=True, no_cpython_wrapper=True)
def _sigmoid_power_sums(points, weights, level, steep, sign):
    """Return Σ weight·u, u² and u³, u = σ(level + steep·m), and Σ weight·sign·(level + steep·m)."""
    s1 = s2 = s3 = s4 = 0.0
    for j in range(points.shape[0]):
        f = level + steep * points[j]
        u = 1.0 / (1.0 + exponential(-clipped(f)))
        s1 += weights[j] * u
        s2 += weights[j] * (u * u)
        s3 += weights[j] * (u * u) * u
        s4 += weights[j] * f
    return s1, s2, s3, sign * s4


@compiled(no_cpython_wrapper=True)
def _log_sum(square, gamma, a, x, sign, y, extra, reals, memory):
    """Return log(Σ weight·σ(sign·h + y) + extra) given x, its two derivatives by y, and a mean.

    The last is Σ weight·(h + sign·y).
    """
    s1 = s2 = s3 = s4 = 0.0
    for n in range(int(memory[COUNT])):
        given, _, points, weights, count, level, steep = range_at(n, square, gamma, a, memory)
        if given == x:
            t1, t2, t3, t4 = _sigmoid_power_sums(
                reals[points : points + count],
                reals[weights : weights + count],
                sign * level + y,
                sign * steep,
                sign,
            )
            s1, s2, s3, s4 = s1 + t1, s2 + t2, s3 + t3, s4 + t4
    total = s1 + extra
    slope = (s1 - s2) / total
    return math.log(total), slope, (s1 - 3 * s2 + 2 * s3) / total - slope * slope, s4


@compiled(no_cpython_wrapper=True)
def _log_exponentials(square, gamma, a, x, sign, reals, memory):
    """Return log Σ weight·exp(sign·h) over the law given x."""
    top, total = -np.inf, 0.0
    for n in range(int(memory[COUNT])):
        given, _, points, weights, count, level, steep = range_at(n, square, gamma, a, memory)
        if given == x:
            for j in range(count):
                if reals[weights + j] > 0:
                    f = sign * (level + steep * reals[points + j]) + math.log(reals[weights + j])
                    if f > top:
                        total, top = total * math.exp(top - f) + 1.0, f
                    else:
                        total += math.exp(f - top)
    return top + math.log(total)


@compiled(nrt=True)
def best_shifts(logits, weights, p, q, found):
    """Write the optimal β of each of n rows of logits to ``found`` (n,); NaN where not finite.

    ``logits`` (n, 2, J) and ``weights`` (2, J) are given x = 0 and x = 1.
    """
    n, _, count = logits.shape
    pi1 = p / (p + q)
    reals, memory = np.empty(4 + 4 * count), np.zeros(FIRST + 2 * RANGE)
    reals[P], reals[Q], reals[PI0], reals[PI1] = p, q, 1.0 - pi1, pi1
    memory[COUNT] = 2.0
    for x in range(2):
        points = 4 + 2 * x * count
        reals[points + count : points + 2 * count] = weights[x]
        place = memory[FIRST + RANGE * x : FIRST + RANGE * (x + 1)]
        place[0], place[1], place[2], place[3], place[4] = x, 0, points, points + count, count
    centre = math.log(p / q)
    for i in range(n):
        top, bottom = logits[i].max(), logits[i].min()
        if not (abs(top) < math.inf and abs(bottom) < math.inf):
            found[i] = math.nan
            continue
        for x in range(2):  # the ranges' logits are x + m
            reals[4 + 2 * x * count : 4 + (2 * x + 1) * count] = logits[i, x] - x
        low, high = centre - top - 1.0, centre - bottom + 1.0
        found[i] = optimal_shift(1.0, 0.0, 1.0, low, high, reals, memory)
