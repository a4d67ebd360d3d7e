"""The rank-one model with attention for the rows engine: field and loss of one row.

y = (e, ρ_1 … ρ_N, w₁, w₂, o, v, b[, c]); with X_i = e x_i + ρ_i, M = (1/n) Σ_{i≤n} X_i and
Y = X_n + o v M the logit is f = u[Y + 4w₂ R(w₁Y)] + b, u = e or c. There are N(N + 1) values of
(n, x, S), each with a kink of its own, and orbits that slide along many at once. So R is the ReLU
with its kink rounded off over a width δ, R(z) = (z + δ)²/(4δ) for |z| < δ, which turns sliding into
a stiff motion inside the rounded part; what is found is said to hold for this width.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.models.elementary import clipped, cross_entropy, exponential
from flowsim.models.on_chain import levels_told
from flowsim.models.past_law import joint_law

#: The ReLU's kink is rounded off over this width of w₁Y, to both sides, where orbits are followed
#: to limits, paths and times; the model's ``loss`` is exact.
RELU_WIDTH = 1e-4
#: Places in ``reals``: the chain, δ, entropy rate, h(π₁) and λ; then the weight of each value.
P, Q, WIDTH, ENTROPY_RATE, UNIGRAM, LAMBDA, WEIGHTS = 0, 1, 2, 3, 4, 5, 8
#: Places in ``ints``.
LENGTH, UNTIED = 0, 1
#: Values per (n, x, S) in a row's memory: f, σ(f), σ′(f), Y, R and R′.
EACH = 6
#: Numbers in memory before them, for ``attention_verdict``, and behind them, for the Jacobian.
FIRST, ROOM = 64, 16


def constants(
    chain: BinaryChain, length: int, tied: bool, width: float = RELU_WIDTH
) -> tuple[np.ndarray, np.ndarray, int]:
    """``reals``, ``ints`` and the size of a row's memory."""
    law = joint_law(chain, length) / length
    weights = [law[n - 1, x, x : n + x] for n in range(1, length + 1) for x in (0, 1)]
    head = np.zeros(WEIGHTS)
    head[[P, Q, WIDTH]] = chain.p, chain.q, width
    head[[ENTROPY_RATE, UNIGRAM, LAMBDA]] = levels_told(chain)
    memory = FIRST + EACH * length * (length + 1) + 2 * length + ROOM
    ints = np.array([length, not tied], dtype=np.int64)
    return np.concatenate([head, *weights]), ints, memory


@compiled(internal=True)
def _rounded(z, width):
    """R(z) and R′(z)."""
    if z <= -width:  # with width 0 the ReLU itself, R′(0) = 0
        return 0.0, 0.0
    if z >= width:
        return z, 1.0
    return (z + width) * (z + width) / (4.0 * width), (z + width) / (2.0 * width)


@compiled(reordered=True, internal=True)
def _probabilities(logit, chance, slope):
    """σ(f) and σ′(f) of all logits."""
    for j in range(logit.shape[0]):
        inverse = exponential(-clipped(logit[j]))
        chance[j] = 1.0 / (1.0 + inverse)
        slope[j] = (inverse * chance[j]) * chance[j]


@compiled
def evaluate(y, reals, ints, memory):
    """Write the values of every (n, x, S) to memory, in this order; whether all are finite."""
    length = ints[LENGTH]
    count = length * (length + 1)
    e, w1, w2 = y[0], y[length + 1], y[length + 2]
    product, bias = y[length + 3] * y[length + 4], y[length + 5]
    u = y[length + 6] if ints[UNTIED] == 1 else e
    at, total, sum_of_rho = FIRST, 0.0, 0.0
    for n in range(1, length + 1):
        sum_of_rho += y[n]
        for x in range(2):
            for s in range(x, n + x):
                mean = (e * s + sum_of_rho) / n
                inner = e * x + y[n] + product * mean
                relu, opened = _rounded(w1 * inner, reals[WIDTH])
                memory[at] = u * (inner + 4.0 * w2 * relu) + bias
                memory[at + 3 * count] = inner
                memory[at + 4 * count] = relu
                memory[at + 5 * count] = opened
                total += memory[at]
                at += 1
    _probabilities(
        memory[FIRST : FIRST + count],
        memory[FIRST + count : FIRST + 2 * count],
        memory[FIRST + 2 * count : FIRST + 3 * count],
    )
    return math.isfinite(total)


@compiled
def velocity(y, reals, ints, memory, out):
    """−G⁻¹∇L into ``out``; 0, or −1 where it is not finite."""
    if not evaluate(y, reals, ints, memory):
        return -1
    length, untied = ints[LENGTH], ints[UNTIED] == 1
    count = length * (length + 1)
    e, w1, w2 = y[0], y[length + 1], y[length + 2]
    o, v = y[length + 3], y[length + 4]
    u = y[length + 6] if untied else e
    by_e = by_relu = by_inner = by_mean = by_bias = by_u = sum_of_rho = 0.0
    at = FIRST
    for n in range(1, length + 1):
        sum_of_rho += y[n]
        by_y = 0.0
        for x in range(2):
            target = 1.0 - reals[Q] if x else reals[P]
            for s in range(x, n + x):
                omega = reals[WEIGHTS + at - FIRST] * (memory[at + count] - target)
                inner, relu = memory[at + 3 * count], memory[at + 4 * count]
                opened = memory[at + 5 * count]
                here = omega * u * (1.0 + 4.0 * w1 * w2 * opened)
                by_y += here
                by_e += here * (x + o * v * (s / n))
                by_mean += here * (e * s + sum_of_rho) / n
                by_inner += omega * opened * inner
                by_relu += omega * relu
                by_bias += omega
                by_u += omega * (inner + 4.0 * w2 * relu)
                at += 1
        out[n] = -by_y
    later = 0.0  # Σ_{k≥n} of dY_k/dρ_n through the mean
    for n in range(length, 0, -1):
        later += out[n] / n
        out[n] += o * v * later
    out[length + 1], out[length + 2] = -u * w2 * by_inner, -u * by_relu
    out[length + 3], out[length + 4] = -v * by_mean, -o * by_mean
    out[length + 5] = -by_bias
    out[0] = -by_e if untied else -by_e - by_u
    if untied:
        out[length + 6] = -by_u
    return 0


@compiled
def loss(y, reals, ints, memory):
    """The loss in nats, with R for the ReLU."""
    if not evaluate(y, reals, ints, memory):
        return math.nan
    total, at = 0.0, FIRST
    for n in range(1, ints[LENGTH] + 1):
        for x in range(2):
            target, other = (1.0 - reals[Q], reals[Q]) if x else (reals[P], 1.0 - reals[P])
            for _ in range(n):
                total += reals[WEIGHTS + at - FIRST] * cross_entropy(memory[at], target, other)
                at += 1
    return total
