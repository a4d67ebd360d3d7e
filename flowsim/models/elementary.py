"""Elementary functions for compiled code; loops over the first two use vectors."""

from __future__ import annotations

from math import exp, log1p

import numpy as np

from flowsim.compiled import compiled

#: 1/log 2, and log 2 as a number with few digits and the rest.
_PER_LOG2, _LOG2_HIGH, _LOG2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
#: Adding 1.5 · 2⁵² rounds to an integer, which then fills the lowest bits.
_ROUNDING = 6755399441055744.0
#: Beyond this the argument counts as this: exp stays a normal number.
LARGEST = 700.0


@compiled(fused=True)
def exponential(x):
    """exp(x) for |x| ≤ 700 to two units in the last place.

    x = n log 2 + r with |r| ≤ ½ log 2; exp(r) is the polynomial of degree 11 that agrees with it at
    the Chebyshev points (relative error 4e-18), and 2ⁿ is made of its bits.
    Source: Cody and Waite, Software Manual for the Elementary Functions (1980); own coefficients.
    """
    shifted = x * _PER_LOG2 + _ROUNDING
    n = shifted - _ROUNDING
    r = (x - n * _LOG2_HIGH) - n * _LOG2_LOW
    s = 2.5110037605963778e-08
    s = s * r + 2.7632639639041030e-07
    s = s * r + 2.7557240918578970e-06
    s = s * r + 2.4801485482328492e-05
    s = s * r + 1.9841269890047114e-04
    s = s * r + 1.3888888952314775e-03
    s = s * r + 8.3333333333196006e-03
    s = s * r + 4.1666666666488095e-02
    s = s * r + 1.6666666666666681e-01
    s = s * r + 5.0000000000000184e-01
    s = s * r + 1.0
    s = s * r + 1.0
    power = (np.float64(shifted).view(np.int64) + 1023) << 52
    return s * np.int64(power).view(np.float64)


@compiled(fused=True)
def clipped(x):
    """x, or ±700 beyond that."""
    x = -LARGEST if x < -LARGEST else x
    return LARGEST if x > LARGEST else x


@compiled(internal=True)
def cross_entropy(logit, target, other):
    """−t log σ(f) − (1 − t) log σ(−f) in nats, a sum without cancellation; ``other`` is 1 − t."""
    rest = log1p(exp(-abs(logit)))
    return rest + other * logit if logit >= 0.0 else rest - target * logit
