"""Excess loss and its derivatives, stiffness and logits of the rank-one model (compiled).

The formulas are those by which rows are followed: without attention inside a mode, with attention
with the ReLU itself, its width being 0.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.elementary import spread
from flowsim.models.rank_one import field as plain
from flowsim.models.rank_one import slow_manifold
from flowsim.models.rank_one.attention import field as attention
from flowsim.models.rank_one.attention.field import FIRST, WEIGHTS
from flowsim.models.rank_one.field import BEYOND0, BIAS, CLOSED, OPEN, OTHER0, PI0, TARGET0

#: Quantities that may be asked for.
EXCESS, GRADIENT, HESSIAN, STIFFNESS, LOGITS = range(5)

_velocity, _jacobian, _excess = plain.velocity, plain.jacobian, plain.excess
_logit_and_gradient = slow_manifold.logit_and_gradient
_LENGTH, _UNTIED = attention.LENGTH, attention.UNTIED
_evaluate, _attention_velocity = attention.evaluate, attention.velocity
_attention_excess, _attention_jacobian = attention.excess, attention.linearise


@compiled(nrt=True)
def plain_values(what, theta, metric, reals, found):
    """Write the quantity ``what`` of the model without attention at ``theta`` (n, k) to ``found``.

    ``found`` is (n, 1) for a number, (n, k) or (n, k²) for derivatives, (n, 2) for logits without
    b. Derivatives are written as dθ/dt and its derivative, which lack −G; ReLU'(0) = 0.
    """
    k = theta.shape[1]
    mode, rate = np.zeros(6, dtype=np.int64), np.zeros(k)
    for i in range(len(theta)):
        y = theta[i]
        mode[0] = OPEN if y[2] * y[1] > 0.0 else CLOSED
        mode[1] = OPEN if y[2] * (y[0] + y[1]) > 0.0 else CLOSED
        if what == EXCESS:
            found[i, 0] = _excess(y, mode, reals)
        elif what == GRADIENT:
            _velocity(y, mode, reals, found[i])
        elif what == HESSIAN:
            _jacobian(y, mode, reals, found[i].reshape((k, k)))
        else:
            total = 0.0
            for x in range(2):
                f = _logit_and_gradient(y, mode, x, rate)
                if what == LOGITS:
                    found[i, x] = f - y[4]
                    continue
                squares = 0.0
                for j in range(k):
                    squares += rate[j] * rate[j] / metric[j]
                target, other = reals[TARGET0 + x], reals[OTHER0 + x]
                steep = spread(f - reals[BIAS] + reals[BEYOND0 + x], target, other)
                total += reals[PI0 + x] * squares * max(steep, target * other)
            if what == STIFFNESS:
                found[i, 0] = total


@compiled(nrt=True)
def attention_values(what, theta, reals, ints, workspace, found):
    """Write the quantity ``what`` of the model with attention at ``theta`` (n, k) to ``found``.

    Shapes as in ``plain_values``, but N(N + 1) logits in the order (n, x, S). NaN where not finite.
    """
    k, memory = theta.shape[1], np.zeros(workspace)
    rate = np.zeros(k)
    length = ints[_LENGTH]
    for i in range(len(theta)):
        y = theta[i]
        found[i] = math.nan
        if what == EXCESS:
            found[i, 0] = _attention_excess(y, reals, ints, memory)
        elif what == GRADIENT:
            _attention_velocity(y, reals, ints, memory, found[i])
        elif what == HESSIAN:
            _attention_jacobian(y, reals, ints, memory, rate, found[i].reshape((k, k)))
        elif _evaluate(y, reals, ints, memory):
            if what == LOGITS:
                count, u = length * (length + 1), y[length + 6] if ints[_UNTIED] == 1 else y[0]
                for j in range(FIRST, FIRST + count):
                    inner, relu = memory[j + 3 * count], memory[j + 4 * count]
                    found[i, j - FIRST] = u * (inner + 4.0 * y[length + 2] * relu)
            else:
                found[i, 0] = _stiffness(y, reals, ints, memory)


@compiled(no_cpython_wrapper=True)
def _stiffness(y, reals, ints, memory):
    """Return Σ weight·max(σ′(f), t(1 − t))·|∇f|², all positions moving as one, from memory.

    |∇f| is in the metric; memory has what ``evaluate`` wrote at y.
    """
    length, untied = ints[_LENGTH], ints[_UNTIED] == 1
    count, e, w1, w2 = length * (length + 1), y[0], y[length + 1], y[length + 2]
    o, v = y[length + 3], y[length + 4]
    u = y[length + 6] if untied else e
    at, sum_of_rho, total = FIRST, 0.0, 0.0
    for n in range(1, length + 1):
        sum_of_rho += y[n]
        for x in range(2):
            for s in range(x, n + x):
                inner, relu = memory[at + 3 * count], memory[at + 4 * count]
                opened = memory[at + 5 * count]
                slope, output = u * (1.0 + 4.0 * w1 * w2 * opened), inner + 4.0 * w2 * relu
                mean = slope * (e * s + sum_of_rho) / n
                by_e = slope * (x + o * v * s / n) + (0.0 if untied else output)
                squares = 1.0 + by_e * by_e + (slope * (1.0 + o * v)) ** 2 / length
                squares += 4.0 * u * u * (relu * relu + (w2 * opened * inner) ** 2)
                squares += (o * o + v * v) * mean * mean + (output * output if untied else 0.0)
                place = WEIGHTS + at - FIRST
                target, other = reals[place + count], reals[place + 2 * count]
                total += reals[place] * max(memory[at + 2 * count], target * other) * squares
                at += 1
    return total
