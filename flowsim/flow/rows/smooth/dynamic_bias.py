"""Gap models whose bias is a coordinate, for the rows engine: field, Jacobian, loss and verdict.

The logits are f_x = b + P(x − ½)(1 + γ o_x) with γ = 4w|w|, P = e² (canonical), e²(1 + a) (linear
attention) or e u (untied), and o_x = 1 for the symbol that opens the ReLU: a one, or a zero with
linear attention where a < −1. With ω_x = π_x(σ(f_x) − t(x)) the loss has

    A = ∂L/∂P = Σ ω_x (x − ½)(1 + γ o_x),   B = ∂L/∂γ = P Σ ω_x (x − ½) o_x,   ∂L/∂b = Σ ω_x,

and the rows' coordinates are (log|e|, log|w|, b), (log|e|, log|w|, a, b) or (e, u, log|w|, b).
Source: own derivation.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.flow.rows.codes import GOING, MINIMA, REST, TRAPPED
from flowsim.flow.rows.corners import ROOM, SLIDES, inside
from flowsim.flow.rows.vectors import copy

#: The model, in ``ints``.
CANONICAL, LINEAR, UNTIED = 0, 1, 2
#: Places in ``reals``.
P, Q, PI0, PI1, ENTROPY_RATE, UNIGRAM, LAMBDA = range(7)
#: Places in a row's memory: the sign of w, whether e is 0 for ever, then P, γ, a and the symbol
#: that opens the ReLU, then ω, v and (x − ½)(1 + γ o_x) of both symbols.
SIGN, HELD, PRODUCT, GAMMA, SHARE, OPENS, OMEGA, SLOPE, LEVEL = 0, 1, 2, 3, 4, 5, 6, 8, 10
MEMORY = 12 + ROOM
#: As for uniform attention (``uniform_verdict``).
_TRAPPED, _STATIONARY, _NEAR_PLANE = 1e-13, 1e-12, math.log(1e-6)
_ROUNDING = 1e-15


def constants(chain: BinaryChain, which: int) -> tuple[np.ndarray, np.ndarray, int]:
    """``reals``, ``ints`` and the size of a row's memory."""
    entropies = chain.entropy_rate, chain.stationary_entropy, chain.second_eigenvalue
    reals = np.array([chain.p, chain.q, *chain.stationary, *entropies])
    return reals, np.array([which], dtype=np.int64), MEMORY


@compiled(internal=True)
def _evaluate(y, reals, ints, memory):
    """Write what both logits need to memory; whether they are finite."""
    which, at_w = ints[0], 2 if ints[0] == UNTIED else 1
    share = y[2] if which == LINEAR else 0.0
    square = 0.0 if memory[HELD] == 1.0 else math.exp(2.0 * y[0])
    product = y[0] * y[1] if which == UNTIED else square * (1.0 + share)
    gamma = 4.0 * memory[SIGN] * math.exp(2.0 * y[at_w]) if memory[SIGN] != 0.0 else 0.0
    memory[PRODUCT], memory[GAMMA], memory[SHARE] = product, gamma, share
    memory[OPENS] = 0.0 if which == LINEAR and inside(share, memory) < -1.0 else 1.0
    for x in range(2):
        level = (x - 0.5) * (1.0 + gamma * (x == memory[OPENS]))
        f = y[len(y) - 1] + product * level
        if not abs(f) < 1e300:
            return False
        inverse = math.exp(-min(max(f, -700.0), 700.0))
        chance = 1.0 / (1.0 + inverse)
        weight = reals[PI1] if x else reals[PI0]
        target = 1.0 - reals[Q] if x else reals[P]
        memory[LEVEL + x] = level
        memory[OMEGA + x] = weight * (chance - target)
        memory[SLOPE + x] = weight * inverse * chance * chance
    return True


@compiled
def expand(y, reals, ints, memory, out, jacobian, second):
    """dy/dt into ``out``, where ``second`` is 1.0 its derivative into ``jacobian``; 0 or −1."""
    if not _evaluate(y, reals, ints, memory):
        return -1
    which, k = ints[0], len(y)
    at_w = 2 if which == UNTIED else 1
    product, gamma, share = memory[PRODUCT], memory[GAMMA], memory[SHARE]
    opens, sign = int(memory[OPENS]), memory[SIGN]
    by_product = memory[OMEGA] * memory[LEVEL] + memory[OMEGA + 1] * memory[LEVEL + 1]
    by_opened = memory[OMEGA + opens] * (opens - 0.5)  # ∂L/∂γ is P times this
    square = math.exp(2.0 * y[0]) if which != UNTIED and memory[HELD] == 0.0 else 0.0
    out[at_w] = -8.0 * sign * product * by_opened
    out[k - 1] = -memory[OMEGA] - memory[OMEGA + 1]
    if which == UNTIED:
        out[0], out[1] = -y[1] * by_product, -y[0] * by_product
    else:
        out[0] = -2.0 * (1.0 + share) * by_product * (memory[HELD] == 0.0)
        if which == LINEAR:
            out[2] = -square * by_product if memory[SLIDES] == 0.0 else 0.0
    if not second:
        return 0
    for j in range(k):
        d_product = d_gamma = d_bias = 0.0
        if j == k - 1:
            d_bias = 1.0
        elif j == at_w:
            d_gamma = 2.0 * gamma
        elif which == UNTIED:
            d_product = y[1 - j]
        else:
            d_product = 2.0 * product if j == 0 else square
        d_by_product, d_by_opened, d_total = by_opened * d_gamma, 0.0, 0.0
        for x in range(2):
            d_f = d_bias + memory[LEVEL + x] * d_product
            d_f += product * (x - 0.5) * d_gamma * (x == opens)
            d_by_product += memory[SLOPE + x] * memory[LEVEL + x] * d_f
            d_total += memory[SLOPE + x] * d_f
            if x == opens:
                d_by_opened = memory[SLOPE + x] * (x - 0.5) * d_f
        jacobian[at_w, j] = -8.0 * sign * (d_product * by_opened + product * d_by_opened)
        jacobian[k - 1, j] = -d_total
        if which == UNTIED:
            jacobian[0, j] = -y[1] * d_by_product - (by_product if j == 1 else 0.0)
            jacobian[1, j] = -y[0] * d_by_product - (by_product if j == 0 else 0.0)
        else:
            d_share = 1.0 if j == 2 and which == LINEAR else 0.0
            d_rate = (1.0 + share) * d_by_product + d_share * by_product
            jacobian[0, j] = -2.0 * d_rate * (memory[HELD] == 0.0)
            if which == LINEAR:
                d_share = -square * (d_by_product + (2.0 * by_product if j == 0 else 0.0))
                jacobian[2, j] = d_share if memory[SLIDES] == 0.0 else 0.0
    return 0


@compiled
def loss(y, reals, ints, memory):
    """The loss in nats; NaN where it is not finite."""
    if not _evaluate(y, reals, ints, memory):
        return math.nan
    total = 0.0
    for x in range(2):
        f = y[len(y) - 1] + memory[PRODUCT] * memory[LEVEL + x]
        target = 1.0 - reals[Q] if x else reals[P]
        other = reals[Q] if x else 1.0 - reals[P]
        entropy = math.log1p(math.exp(-abs(f))) + other * max(f, 0.0) + target * max(-f, 0.0)
        total += (reals[PI1] if x else reals[PI0]) * entropy
    return total


@compiled
def verdict(y, velocity, jacobian, reals, ints, memory, work):
    """GOING, or the rule that ends the row at y, where ``velocity`` is dy/dt."""
    which, at_w = ints[0], 2 if ints[0] == UNTIED else 1
    others = moving = 0.0
    for i in range(1, len(y)):
        size = min(1.0, math.exp(y[i])) if i == at_w else 1.0
        moving = max(moving, abs(velocity[i]) * size)
        if i < len(y) - 1 or abs(velocity[i]) > min(_ROUNDING, 1e-6 * abs(velocity[0])):
            others = max(others, abs(velocity[i]))
    falls = velocity[0] < 0 and others <= _TRAPPED * velocity[0] * velocity[0]
    if which != UNTIED and falls:
        point, rate = work[0, 0], work[0, 1]
        copy(y, point)
        point[0] = min(y[0], _NEAR_PLANE)
        if expand(point, reals, ints, memory, rate, work[1], 0.0) == 0 and rate[0] < 0.0:
            return TRAPPED
    excess = loss(y, reals, ints, memory) - reals[ENTROPY_RATE]
    if reals[LAMBDA] == 0.0 and excess <= 1e-15:
        return MINIMA
    if max(abs(velocity[0]), moving) > _STATIONARY:
        return GOING
    if excess <= 1e-9 * (reals[UNIGRAM] - reals[ENTROPY_RATE]) + 1e-15:
        return MINIMA
    return REST
