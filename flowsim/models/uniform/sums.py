"""Sums over the law of the past for one row, and its loss (compiled).

Sums over the law's classes, by the current symbol x and by o = 1 for an open ReLU; within a class
f = log(π₁/π₀) + β + C + K m with γ = 4w|w|, β = b − log(π₁/π₀) − e²/2, C = e²[x + (x − ½)γ o] and
K = e² a (1 + γ o). What counts is how far f is beyond the logit of its target t.
"""

from __future__ import annotations

from flowsim.compiled import compiled
from flowsim.elementary import clipped, excess_entropy, exponential_minus_one
from flowsim.models.uniform.ranges import COUNT, FIRST, RANGE
from flowsim.models.uniform.table import BEYOND, ENTROPY_RATE, P, Q

#: The place in a row's memory of five sums for each of the classes (0, 0), (0, 1), (1, 0), (1, 1):
#: Σω, Σωm, Σv, Σvm, Σvm², with ω = weight·(σ(f) − t) and v = weight·σ(f)σ(−f).
SUMS, EACH = 12, 5


@compiled(reassoc=True, no_cpython_wrapper=True)
def _five_sums(points, weights, level, steep, target, other):
    """The sums of ω and v at f = logit t + level + steep·m, by ``elementary.residual``."""
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
    """The sums of all classes at β = ``shift``, over the ranges gathered in ``memory``."""
    for i in range(4 * EACH):
        memory[SUMS + i] = 0.0
    for n in range(int(memory[COUNT])):
        at = FIRST + RANGE * n
        x, o = int(memory[at]), int(memory[at + 1])
        points, weights, count = int(memory[at + 2]), int(memory[at + 3]), int(memory[at + 4])
        target, other = (1.0 - reals[Q], reals[Q]) if x else (reals[P], 1.0 - reals[P])
        s0, s1, s2, s3, s4 = _five_sums(
            reals[points : points + count],
            reals[weights : weights + count],
            shift + reals[BEYOND + x] + square * (x + (x - 0.5) * gamma * o),
            square * a * (1.0 + gamma * o),
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
def loss_of_ranges(square, gamma, a, shift, reals, memory):
    """The loss in nats at β = ``shift``, over the ranges gathered in ``memory``."""
    return reals[ENTROPY_RATE] + excess_of_ranges(square, gamma, a, shift, reals, memory)


@compiled
def excess_of_ranges(square, gamma, a, shift, reals, memory):
    """The loss above the entropy rate: a mean of relative entropies, none of which cancels."""
    total = 0.0
    for n in range(int(memory[COUNT])):
        at = FIRST + RANGE * n
        x, o = int(memory[at]), int(memory[at + 1])
        points, weights, count = int(memory[at + 2]), int(memory[at + 3]), int(memory[at + 4])
        level = shift + reals[BEYOND + x] + square * (x + (x - 0.5) * gamma * o)
        steep = square * a * (1.0 + gamma * o)
        target, other = (1.0 - reals[Q], reals[Q]) if x else (reals[P], 1.0 - reals[P])
        for j in range(count):
            beyond = level + steep * reals[points + j]
            total += reals[weights + j] * excess_entropy(beyond, target, other)
    return total
