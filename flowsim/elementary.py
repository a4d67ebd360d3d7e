"""Elementary functions for compiled code; loops over the first two use vectors."""

from __future__ import annotations

from math import exp, expm1, log1p

import numpy as np

from flowsim.compiled import compiled

#: 1/log 2, and log 2 as a number with few digits and the rest.
_PER_LOG2, _LOG2_HIGH, _LOG2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
#: Adding 1.5 · 2⁵² rounds to an integer, which then fills the lowest bits.
_ROUNDING = 6755399441055744.0
#: Beyond this the argument counts as this: exp stays a normal number.
LARGEST = 700.0


@compiled(contract=True)
def exponential(x):
    """exp(x) for |x| ≤ 700 to two units in the last place.

    x = n log 2 + r with |r| ≤ ½ log 2; exp(r) is the polynomial of degree 11 that agrees with it at
    the Chebyshev points (relative error 4e-18), and 2ⁿ is made of its bits.
    Source: Cody and Waite, Software Manual for the Elementary Functions (1980); own coefficients.
    """
    shifted = x * _PER_LOG2 + _ROUNDING
    n = shifted - _ROUNDING
    r = (x - n * _LOG2_HIGH) - n * _LOG2_LOW
    power = (np.float64(shifted).view(np.int64) + 1023) << 52
    return (_rising(r) * r + 1.0) * np.int64(power).view(np.float64)


@compiled(contract=True)
def exponential_minus_one(x):
    """exp(x) − 1 for |x| ≤ 700, right relative to itself also next to 0; as ``exponential``."""
    shifted = x * _PER_LOG2 + _ROUNDING
    n = shifted - _ROUNDING
    r = (x - n * _LOG2_HIGH) - n * _LOG2_LOW
    power = (np.float64(shifted).view(np.int64) + 1023) << 52
    factor = np.int64(power).view(np.float64)
    return _rising(r) * r * factor + (factor - 1.0)


@compiled(contract=True, inline=True)
def _rising(r):
    """(exp(r) − 1)/r for |r| ≤ ½ log 2."""
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
    return s * r + 1.0


@compiled(contract=True)
def clipped(x):
    """Return x clipped to [−700, 700]."""
    x = -LARGEST if x < -LARGEST else x
    return LARGEST if x > LARGEST else x


@compiled(no_cpython_wrapper=True)
def cross_entropy(logit, target, other):
    """Return −t log σ(f) − (1 − t) log σ(−f) in nats, a sum without cancellation.

    f is ``logit``, t is ``target``, ``other`` is 1 − t.
    """
    rest = log1p(exp(-abs(logit)))
    return rest + other * logit if logit >= 0.0 else rest - target * logit


@compiled(inline=True, no_cpython_wrapper=True)
def residual(beyond, target, other):
    """Return σ(f) − t at f = logit(t) + ``beyond``, right relative to itself.

    t is ``target`` and ``other`` is 1 − t.

    With A = exp|beyond| − 1 it is ± t(1 − t) A/(1 + cA), c = t on the upper side, else 1 − t.
    """
    rise = exponential_minus_one(clipped(abs(beyond)))
    away = target * other * rise / (1.0 + (target if beyond >= 0.0 else other) * rise)
    return away if beyond >= 0.0 else -away


@compiled(inline=True, no_cpython_wrapper=True)
def spread(beyond, target, other):
    """Return σ(f)σ(−f), the slope of σ, at the logit f = logit(t) + ``beyond``.

    t is ``target`` and ``other`` is 1 − t.
    """
    rise = exponential_minus_one(clipped(abs(beyond)))
    inverse = 1.0 / (1.0 + (target if beyond >= 0.0 else other) * rise)
    return target * other * (1.0 + rise) * inverse * inverse


@compiled(no_cpython_wrapper=True)
def excess_entropy(beyond, target, other):
    """Return the relative entropy of t to σ(f), f = logit(t) + ``beyond``, in nats.

    t is ``target`` and ``other`` is 1 − t.

    It is log(1 + t(exp(beyond) − 1)) − t·beyond. Next to 0, where that cancels, it is the sum
    (1 − t)ψ(t(exp(beyond) − 1)) + tψ((1 − t)(exp(−beyond) − 1)), ψ(d) = log(1 + d) − d/(1 + d) ≥ 0.
    """
    if beyond < 0.0:  # the same of the other symbol
        beyond, target, other = -beyond, other, target
    if beyond < 1.0:
        up, down = target * expm1(beyond), other * expm1(-beyond)
        return other * _log_excess(up) + target * _log_excess(down)
    if target < other and beyond < LARGEST:
        return log1p(target * expm1(beyond)) - target * beyond
    return other * beyond + log1p(other * expm1(-beyond))


@compiled(no_cpython_wrapper=True)
def _log_excess(d):
    """log(1 + d) − d/(1 + d), by its series in d/(1 + d) where the difference would cancel."""
    part = d / (1.0 + d)
    if abs(part) > 0.1:
        return log1p(d) - part
    total = 0.0
    for k in range(18, 1, -1):
        total = total * part + 1.0 / k
    return total * part * part


@compiled
def excess_entropies(beyond, target, other, found):
    """Write ``excess_entropy`` of every number in ``beyond`` (n,) into ``found`` (n,)."""
    for i in range(len(beyond)):
        found[i] = excess_entropy(beyond[i], target, other)
