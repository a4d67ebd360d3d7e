"""The rank-one model with attention for the rows engine: field, Jacobian and loss of one row.

y = (e, ρ_1 … ρ_N, w₁, w₂, o, v, b[, c]); with X_i = e x_i + ρ_i, M = (1/n) Σ_{i≤n} X_i and
Y = X_n + o v M the logit is f = u[Y + 4w₂ R(w₁Y)] + b, u = e or c. What counts is how far f is
beyond the logit of its target, f − logit t; rows are followed with b − log(π₁/π₀) for b, so that
next to p + q = 1, where the targets differ by rounding from one another, nothing cancels.

There are N(N + 1) values of (n, x, S), each with a kink of its own, and orbits that slide along
many at once. So R is the ReLU with its kink rounded off over a width δ,
R(z) = (z + δ)²/(4δ) for |z| < δ, which turns sliding into a stiff motion inside the rounded part;
results hold for this width.

With F(Y; u, w₁, w₂) the logit without b, the loss's second derivatives are Σ v ∂f ∂f + Σ ω ∂²f. All
coordinates but ρ enter f directly or through Y, with ∂Y = x + o v S/n by e, v M by o and o M by v;
the positions enter through Y alone, ∂Y_n/∂ρ_i = 1{i = n} + (o v/n) 1{i ≤ n}. So what is summed for
every n is ∂²L/∂Y_n∂j, which is then passed on to the positions up to n. Own derivation.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.elementary import clipped, excess_entropy, exponential_minus_one
from flowsim.models.on_chain import beyond_targets, unigram_logit
from flowsim.models.past_law import joint_law

#: The ReLU's kink is rounded off over this width of w₁Y, to both sides, where orbits are followed
#: to limits, paths and times; the model's ``loss`` is exact.
RELU_WIDTH = 1e-4
#: Places in ``reals``: λ, δ, entropy rate, mutual information, what b is counted from beside
#: log(π₁/π₀), and by how much that is beyond the logits of both targets; then of each value the
#: weight, the target t and 1 − t.
LAMBDA, WIDTH, ENTROPY_RATE, INFORMATION, ORIGIN, BEYOND, WEIGHTS = 0, 1, 2, 3, 4, 5, 8
#: Places in ``ints``.
LENGTH, UNTIED = 0, 1
#: Values per (n, x, S) in a row's memory: f − logit t, σ(f) − t, σ′(f), Y, R and R′.
EACH = 6
#: Numbers in memory before them, for ``termination``, and behind them, for the Jacobian.
FIRST, ROOM = 64, 16
#: Coordinates other than ρ, in their order here: e, w₁, w₂, o, v, b, c.
_OTHERS = 7


def constants(
    chain: BinaryChain, length: int, tied: bool, width: float = RELU_WIDTH, origin: float = 0.0
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the arrays ``reals`` and ``ints`` for the hooks, and the length of a row's memory.

    The row's coordinate for the bias is b − ``origin``; ``width`` is δ of the rounded ReLU.
    """
    law = joint_law(chain, length) / length
    weights = [law[n - 1, x, x : n + x] for n in range(1, length + 1) for x in (0, 1)]
    head, count = np.zeros(WEIGHTS), np.tile([0, 1], length)
    head[[LAMBDA, WIDTH]] = chain.second_eigenvalue, width
    head[[ENTROPY_RATE, INFORMATION]] = chain.entropy_rate, chain.mutual_information
    head[ORIGIN] = unigram_logit(chain) - origin
    head[[BEYOND, BEYOND + 1]] = beyond_targets(chain)
    symbol = np.repeat(count, np.repeat(np.arange(1, length + 1), 2))
    target, other = np.array([chain.p, 1 - chain.q]), np.array([1 - chain.p, chain.q])
    weights += [target[symbol], other[symbol]]
    memory = FIRST + EACH * length * (length + 1) + 2 * length + ROOM
    ints = np.array([length, not tied], dtype=np.int64)
    return np.concatenate([head, *weights]), ints, memory


@compiled(no_cpython_wrapper=True)
def _rounded_relu(z, width):
    """Return R(z) and R′(z) of the ReLU whose kink is rounded off over ±``width``."""
    if z <= -width:  # with width 0 the ReLU itself, R′(0) = 0
        return 0.0, 0.0
    if z >= width:
        return z, 1.0
    return (z + width) * (z + width) / (4.0 * width), (z + width) / (2.0 * width)


@compiled(reassoc=True, no_cpython_wrapper=True)
def _residuals(beyond, target, other, omega, slope):
    """Write σ(f) − t to ``omega`` and σ′(f) to ``slope``, ``beyond`` being f − logit t.

    By the formulas of ``elementary.residual``; one entry for each logit, ``other`` is 1 − t.
    """
    for j in range(beyond.shape[0]):
        rise = exponential_minus_one(abs(clipped(beyond[j])))
        both = target[j] * other[j]
        inverse = 1.0 / (1.0 + (target[j] if beyond[j] >= 0.0 else other[j]) * rise)
        away = both * rise * inverse
        omega[j] = away if beyond[j] >= 0.0 else -away
        slope[j] = (both * inverse) * ((1.0 + rise) * inverse)


@compiled
def evaluate(y, reals, ints, memory):
    """Write six values of every (n, x, S) at y to memory; return whether all logits are finite."""
    length = ints[LENGTH]
    count = length * (length + 1)
    e, w1, w2 = y[0], y[length + 1], y[length + 2]
    product, bias = y[length + 3] * y[length + 4], y[length + 5] - reals[ORIGIN]
    u = y[length + 6] if ints[UNTIED] == 1 else e
    at, total, sum_of_rho = FIRST, 0.0, 0.0
    for n in range(1, length + 1):
        sum_of_rho += y[n]
        for x in range(2):
            beyond = bias + reals[BEYOND + x]
            for s in range(x, n + x):
                mean = (e * s + sum_of_rho) / n
                inner = e * x + y[n] + product * mean
                relu, opened = _rounded_relu(w1 * inner, reals[WIDTH])
                memory[at] = u * (inner + 4.0 * w2 * relu) + beyond
                memory[at + 3 * count] = inner
                memory[at + 4 * count] = relu
                memory[at + 5 * count] = opened
                total += memory[at]
                at += 1
    _residuals(
        memory[FIRST : FIRST + count],
        reals[WEIGHTS + count : WEIGHTS + 2 * count],
        reals[WEIGHTS + 2 * count : WEIGHTS + 3 * count],
        memory[FIRST + count : FIRST + 2 * count],
        memory[FIRST + 2 * count : FIRST + 3 * count],
    )
    return math.isfinite(total)


@compiled
def velocity(y, reals, ints, memory, out):
    """Write dy/dt = −G⁻¹∇L to ``out`` (k,); return 0, or −1 where it is not finite."""
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
            for s in range(x, n + x):
                omega = reals[WEIGHTS + at - FIRST] * memory[at + count]
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
    """Return the loss in nats at y, with the rounded ReLU R."""
    return reals[ENTROPY_RATE] + excess(y, reals, ints, memory)


@compiled
def excess(y, reals, ints, memory):
    """Return the loss above the entropy rate: a mean of relative entropies, so nothing cancels."""
    if not evaluate(y, reals, ints, memory):
        return math.nan
    total, count = 0.0, ints[LENGTH] * (ints[LENGTH] + 1)
    for j in range(WEIGHTS, WEIGHTS + count):
        beyond = memory[FIRST + j - WEIGHTS]
        total += reals[j] * excess_entropy(beyond, reals[j + count], reals[j + 2 * count])
    return total


@compiled
def linearise(y, reals, ints, memory, out, jacobian):
    """Write dy/dt to ``out`` and its derivative to ``jacobian``; return 0, or −1 if not finite."""
    status = velocity(y, reals, ints, memory, out)
    if status != 0:
        return status
    length, k = ints[LENGTH], len(y)
    count = length * (length + 1)
    jacobian[:, :] = 0.0
    place = FIRST + EACH * count
    by_y, by_yy = memory[place : place + length], memory[place + length : place + 2 * length]
    by_y[:], by_yy[:] = 0.0, 0.0
    first = memory[place + 2 * length : place + 2 * length + _OTHERS]
    mixed = memory[place + 2 * length + _OTHERS : place + 2 * length + 2 * _OTHERS]
    at, sum_of_rho = FIRST, 0.0
    for n in range(1, length + 1):
        sum_of_rho += y[n]
        for x in range(2):
            for s in range(x, n + x):
                weight = reals[WEIGHTS + at - FIRST]
                omega = weight * memory[at + count]
                slope = weight * memory[at + 2 * count]
                values = memory[at + 3 * count], memory[at + 4 * count], memory[at + 5 * count]
                mean = (y[0] * s + sum_of_rho) / n
                f_y, f_yy = _add_second_derivatives(
                    y, x, s / n, mean, omega, values, reals, ints, first, mixed, jacobian
                )
                by_y[n - 1] += omega * f_y
                by_yy[n - 1] += slope * f_y * f_y + omega * f_yy
                for i in range(k - length):
                    row = length + i if i else 0
                    share = slope * first[i]
                    jacobian[n, row] += share * f_y + omega * mixed[i]
                    for j in range(i + 1):
                        jacobian[row, length + j if j else 0] += share * first[j]
                at += 1
    _add_positions(y, length, by_y, by_yy, jacobian)
    for i in range(k):
        metric = 4.0 if i == length + 1 or i == length + 2 else 1.0
        for j in range(k):
            jacobian[i, j] /= -metric
    return 0


@compiled(no_cpython_wrapper=True)
def _add_second_derivatives(y, x, share, mean, omega, values, reals, ints, first, mixed, jacobian):
    """Add ω ∂²f of one (n, x, S) to the lower triangle of ``jacobian``; return ∂f/∂Y and ∂²f/∂Y².

    Writes ∂f/∂j to ``first`` and ∂²f/∂Y∂j, without the change of ∂Y/∂j, to ``mixed``.
    """
    inner, relu, opened = values
    length, untied = ints[LENGTH], ints[UNTIED]
    e, w1, w2, o, v = y[0], y[length + 1], y[length + 2], y[length + 3], y[length + 4]
    u, tied = (y[length + 6], 0.0) if untied == 1 else (e, 1.0)
    bend = 0.5 / reals[WIDTH] if 0.0 < opened < 1.0 else 0.0
    gain = 1.0 + 4.0 * w1 * w2 * opened
    f_y, f_yy = u * gain, 4.0 * u * w1 * w1 * w2 * bend
    f_u, u_1, u_2 = inner + 4.0 * w2 * relu, 4.0 * w2 * opened * inner, 4.0 * relu
    y_1, y_2 = 4.0 * u * w2 * (opened + w1 * inner * bend), 4.0 * u * w1 * opened
    y_e, y_o, y_v = x + o * v * share, v * mean, o * mean
    first[0], first[1], first[2] = f_y * y_e + tied * f_u, u * u_1, u * u_2
    first[3], first[4], first[5], first[6] = f_y * y_o, f_y * y_v, 1.0, f_u
    mixed[0], mixed[1], mixed[2] = f_yy * y_e + tied * gain, y_1, y_2
    mixed[3], mixed[4], mixed[5], mixed[6] = f_yy * y_o, f_yy * y_v, 0.0, gain
    i1, i2, io, iv = length + 1, length + 2, length + 3, length + 4
    jacobian[0, 0] += omega * (f_yy * y_e * y_e + tied * 2.0 * gain * y_e)
    jacobian[i1, 0] += omega * (y_1 * y_e + tied * u_1)
    jacobian[i2, 0] += omega * (y_2 * y_e + tied * u_2)
    jacobian[io, 0] += omega * (f_yy * y_e * y_o + f_y * v * share + tied * gain * y_o)
    jacobian[iv, 0] += omega * (f_yy * y_e * y_v + f_y * o * share + tied * gain * y_v)
    jacobian[i1, i1] += omega * 4.0 * u * w2 * bend * inner * inner
    jacobian[i2, i1] += omega * 4.0 * u * opened * inner
    jacobian[io, i1] += omega * y_1 * y_o
    jacobian[iv, i1] += omega * y_1 * y_v
    jacobian[io, i2] += omega * y_2 * y_o
    jacobian[iv, i2] += omega * y_2 * y_v
    jacobian[io, io] += omega * f_yy * y_o * y_o
    jacobian[iv, io] += omega * (f_yy * y_o * y_v + f_y * mean)
    jacobian[iv, iv] += omega * f_yy * y_v * y_v
    if untied == 1:
        ic = length + 6
        jacobian[ic, 0] += omega * gain * y_e
        jacobian[ic, i1] += omega * u_1
        jacobian[ic, i2] += omega * u_2
        jacobian[ic, io] += omega * gain * y_o
        jacobian[ic, iv] += omega * gain * y_v
    return f_y, f_yy


@compiled(no_cpython_wrapper=True)
def _add_positions(y, length, by_y, by_yy, jacobian):
    """Pass the derivatives by Y_n on to the positions ρ, and make ``jacobian`` symmetric.

    ``by_y`` and ``by_yy`` (N,) are the first and second derivatives of the loss by Y_n.
    """
    o, v = y[length + 3], y[length + 4]
    product, k = o * v, len(y)
    for j in range(k):
        if j == 0 or j > length:
            later = 0.0
            for n in range(length, 0, -1):
                later += jacobian[n, j] / n
                jacobian[n, j] += product * later
    later = squares = 0.0
    for n in range(length, 0, -1):
        later += by_y[n - 1] / n
        jacobian[n, length + 3] += v * later
        jacobian[n, length + 4] += o * later
        own = product * by_yy[n - 1] / n
        squares += product * own / n
        jacobian[n, n] = by_yy[n - 1] + 2.0 * own + squares
        for i in range(1, n):
            jacobian[n, i] = jacobian[i, n] = own + squares
    for n in range(1, length + 1):
        jacobian[0, n] = jacobian[n, 0]
        for j in range(length + 1, k):
            jacobian[j, n] = jacobian[n, j]
    for i in range(length + 1, k):
        jacobian[0, i] = jacobian[i, 0]
        for j in range(length + 1, i):
            jacobian[j, i] = jacobian[i, j]
