"""The Jacobian of the rank-one flow with attention, from one pass over the law (own derivation).

With F(Y; u, w₁, w₂) the logit without b, the loss's second derivatives are Σ v ∂f ∂f + Σ ω ∂²f. All
coordinates but ρ enter f directly or through Y, with ∂Y = x + o v S/n by e, v M by o and o M by v;
the positions enter through Y alone, ∂Y_n/∂ρ_i = 1{i = n} + (o v/n) 1{i ≤ n}. So what is summed for
every n is ∂²L/∂Y_n∂j, which is then passed on to the positions up to n.
"""

from __future__ import annotations

from flowsim.compiled import compiled
from flowsim.models.rank_one.attention.field import (
    EACH,
    FIRST,
    LENGTH,
    UNTIED,
    WEIGHTS,
    WIDTH,
    velocity,
)

#: Coordinates other than ρ, in their order here: e, w₁, w₂, o, v, b, c.
_OTHERS = 7


@compiled
def linearise(y, reals, ints, memory, out, jacobian):
    """dy/dt into ``out`` and its derivative into ``jacobian``; 0, or −1 where not finite."""
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
                f_y, f_yy = _add_bends(
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
    _spread(y, length, by_y, by_yy, jacobian)
    for i in range(k):
        metric = 4.0 if i == length + 1 or i == length + 2 else 1.0
        for j in range(k):
            jacobian[i, j] /= -metric
    return 0


@compiled(no_cpython_wrapper=True)
def _add_bends(y, x, share, mean, omega, values, reals, ints, first, mixed, jacobian):
    """Add ω ∂²f of one value to the lower triangle and return F_Y and F_YY.

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
def _spread(y, length, by_y, by_yy, jacobian):
    """Pass the derivatives by Y_n on to the positions, and make the matrix symmetric."""
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
