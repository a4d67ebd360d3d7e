"""S states with uniform attention for the rows engine: field, Jacobian, loss and verdict.

The rows' coordinates are y = (log|e|, log|w|, log|v|); the signs of w and v are kept in a row's
memory. With A, B, a, u and z as in ``models.states.states_attention``, c = S/(S − 1), the sums
L_A, L_B, L_a, and γ = c m w|w|,

    y₁′ = −(2c/S)(L_A + γ L_B),   y₂′ = −(c/S) c sign(w) e² L_B,   y₃′ = −sign(v) L_a/(S − 1).

With g = ∂z, second derivatives are Σ weight [Cov(g) + Σ δ ∂²z], where ∂²z is f_t − 1/S for (A, a),
and where u_t > 0 for (B, a). Source: own derivation.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.rows.codes import GOING, MINIMA, REST, TRAPPED
from flowsim.flow.rows.vectors import copy
from flowsim.models.states.states_attention import StatesAttentionModel

#: Places in ``reals``, before the law.
STATES, UNITS, CHANCE, ENTROPY_RATE, UNIGRAM, LAMBDA, _LAW = range(7)
#: Places in a row's memory: the signs of w and v, whether e is 0 for ever; then L, its three
#: slopes by (A, B, a) and its six second derivatives (AA, AB, Aa, BB, Ba, aa).
SIGN_W, SIGN_V, HELD, LOSS, SLOPES, SECONDS, MEMORY = 0, 1, 2, 3, 4, 7, 13
#: As for uniform attention (``uniform_verdict``).
_TRAPPED, _STATIONARY, _NEAR_PLANE = 1e-13, 1e-12, math.log(1e-6)


def constants(model: StatesAttentionModel) -> tuple[np.ndarray, np.ndarray, int]:
    """``reals``, ``ints`` (classes, and shares in each) and the size of a row's memory."""
    chain, law = model.chain, model.law
    entropies = chain.entropy_rate, chain.stationary_entropy, chain.second_eigenvalue
    first = np.array([chain.states, model.hidden_per_state, chain.p, *entropies])
    reals = np.concatenate([first, law.weight, law.share.ravel(), law.many.ravel()])
    return reals, np.array(law.share.shape, dtype=np.int64), MEMORY


@compiled(internal=True)
def _weigh(big_a, big_b, a, reals, ints, memory, second):
    """Write L, its slopes and, where ``second``, its second derivatives to memory."""
    states, chance = reals[STATES], reals[CHANCE]
    classes, width = ints[0], ints[1]
    shares = _LAW + classes
    others = shares + classes * width
    memory[LOSS:] = 0.0
    for i in range(classes):
        place, top = shares + i * width, -math.inf
        for j in range(width):
            if reals[others + i * width + j] > 0.0:
                u = (1.0 if j == 0 else 0.0) - 1.0 / states + a * (reals[place + j] - 1.0 / states)
                top = max(top, big_a * u + big_b * max(u, 0.0))
        total = aim = mean_a = mean_b = mean_s = aim_a = aim_b = aim_s = 0.0
        aa = ab = a_s = bb = bs = ss = open_s = all_s = aim_open = aim_all = 0.0
        for j in range(width):
            many = reals[others + i * width + j]
            if many > 0.0:
                beyond = reals[place + j] - 1.0 / states
                u = (1.0 if j == 0 else 0.0) - 1.0 / states + a * beyond
                opened = max(u, 0.0)
                below = big_a * u + big_b * opened - top
                mass = many * math.exp(below)
                wanted = 1.0 - chance if j == 0 else many * chance / (states - 1.0)
                slope = (big_a + big_b * (u > 0.0)) * beyond
                total, aim = total + mass, aim + wanted * below
                mean_a, aim_a = mean_a + mass * u, aim_a + wanted * u
                mean_b, aim_b = mean_b + mass * opened, aim_b + wanted * opened
                mean_s, aim_s = mean_s + mass * slope, aim_s + wanted * slope
                if second:
                    aa, ab, a_s = aa + mass * u * u, ab + mass * u * opened, a_s + mass * u * slope
                    bb, bs = bb + mass * opened * opened, bs + mass * opened * slope
                    ss, all_s = ss + mass * slope * slope, all_s + mass * beyond
                    open_s += mass * beyond * (u > 0.0)
                    aim_all, aim_open = (
                        aim_all + wanted * beyond,
                        aim_open + wanted * beyond * (u > 0.0),
                    )
        weight, inverse = reals[_LAW + i], 1.0 / total
        mean_a, mean_b, mean_s = mean_a * inverse, mean_b * inverse, mean_s * inverse
        memory[LOSS] += weight * (math.log(total) - aim)
        memory[SLOPES] += weight * (mean_a - aim_a)
        memory[SLOPES + 1] += weight * (mean_b - aim_b)
        memory[SLOPES + 2] += weight * (mean_s - aim_s)
        if second:
            memory[SECONDS] += weight * (aa * inverse - mean_a * mean_a)
            memory[SECONDS + 1] += weight * (ab * inverse - mean_a * mean_b)
            across = a_s * inverse - mean_a * mean_s + all_s * inverse - aim_all
            memory[SECONDS + 2] += weight * across
            memory[SECONDS + 3] += weight * (bb * inverse - mean_b * mean_b)
            across = bs * inverse - mean_b * mean_s + open_s * inverse - aim_open
            memory[SECONDS + 4] += weight * across
            memory[SECONDS + 5] += weight * (ss * inverse - mean_s * mean_s)


@compiled(internal=True)
def _place(y, reals, memory):
    """e², γ and a at y."""
    states = reals[STATES]
    square = 0.0 if memory[HELD] == 1.0 else math.exp(2.0 * y[0])
    gamma = states / (states - 1.0) * reals[UNITS] * memory[SIGN_W] * math.exp(2.0 * y[1])
    return square, gamma, memory[SIGN_V] * math.exp(2.0 * y[2])


@compiled
def expand(y, reals, ints, memory, out, jacobian, second):
    """dy/dt into ``out``, where ``second`` is 1.0 its derivative into ``jacobian``; 0 or −1."""
    states = reals[STATES]
    ratio = states / (states - 1.0)
    square, gamma, a = _place(y, reals, memory)
    big_a = ratio * square
    big_b = gamma * big_a
    if not (big_a < 1e150 and abs(big_b) < 1e150 and abs(a) < 1e150):
        return -1
    _weigh(big_a, big_b, a, reals, ints, memory, second)
    by_a, by_b, by_share = memory[SLOPES], memory[SLOPES + 1], memory[SLOPES + 2]
    rate_e = -2.0 * ratio / states * (memory[HELD] == 0.0)
    rate_w = -ratio * ratio / states * memory[SIGN_W] * square
    rate_v = -memory[SIGN_V] / (states - 1.0)
    out[0] = rate_e * (by_a + gamma * by_b)
    out[1], out[2] = rate_w * by_b, rate_v * by_share
    if not (math.isfinite(out[0]) and math.isfinite(out[1]) and math.isfinite(out[2])):
        return -1
    if second:
        for j in range(3):
            # ∂A, ∂B and ∂a along y_j
            d_a = 2.0 * big_a if j == 0 else 0.0
            d_b = 2.0 * big_b if j < 2 else 0.0
            d_s = 2.0 * a if j == 2 else 0.0
            of_a = memory[SECONDS] * d_a + memory[SECONDS + 1] * d_b + memory[SECONDS + 2] * d_s
            of_b = memory[SECONDS + 1] * d_a + memory[SECONDS + 3] * d_b + memory[SECONDS + 4] * d_s
            of_s = memory[SECONDS + 2] * d_a + memory[SECONDS + 4] * d_b + memory[SECONDS + 5] * d_s
            jacobian[0, j] = rate_e * (of_a + gamma * of_b)
            jacobian[1, j], jacobian[2, j] = rate_w * of_b, rate_v * of_s
        jacobian[0, 1] += rate_e * 2.0 * gamma * by_b
        jacobian[1, 0] += 2.0 * out[1]
    return 0


@compiled
def loss(y, reals, ints, memory):
    """The loss in nats."""
    square, gamma, a = _place(y, reals, memory)
    big_a = reals[STATES] / (reals[STATES] - 1.0) * square
    _weigh(big_a, gamma * big_a, a, reals, ints, memory, False)
    return memory[LOSS]


@compiled
def verdict(y, velocity, jacobian, reals, ints, memory, work):
    """GOING, or the rule that ends the row at y, where ``velocity`` is dy/dt."""
    others = moving = 0.0
    for i in range(1, 3):
        others = max(others, abs(velocity[i]))
        moving = max(moving, abs(velocity[i]) * min(1.0, math.exp(y[i])))
    if velocity[0] < 0.0 and others <= _TRAPPED * velocity[0] * velocity[0]:
        point, rate = work[0, 0], work[0, 1]
        copy(y, point)
        point[0] = min(y[0], _NEAR_PLANE)
        if expand(point, reals, ints, memory, rate, work[1], 0.0) == 0 and rate[0] < 0.0:
            return TRAPPED
    # with λ = 0 the plane e = 0 attracts ever more slowly
    if reals[LAMBDA] == 0.0 and loss(y, reals, ints, memory) - reals[ENTROPY_RATE] <= 1e-15:
        return MINIMA
    if max(abs(velocity[0]), moving) > _STATIONARY:
        return GOING
    excess = loss(y, reals, ints, memory) - reals[ENTROPY_RATE]
    if excess <= 1e-9 * (reals[UNIGRAM] - reals[ENTROPY_RATE]) + 1e-15:
        return MINIMA
    return REST
