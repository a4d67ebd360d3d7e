"""Common compiled functions of the gap family: ℓ(Δ) of binary chains, and w.

A compiled model gives its orbits as functions of the logit gap Δ, in coordinates x, y and z of its
own (``flow.gap``); y is |w|, or log|w| in the chart of rows that are far. The hooks of that engine
are documented in ``flow.gap.hooks``.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.elementary import cross_entropy

#: Arguments of ℓ besides Δ: of binary chains Δ*, p, q, π₀, π₁ and numbers of the slope at
#: every call, d, P* and x* of ``slope``.
LossParameters = tuple[float, ...]
#: x, y, z; or their derivatives.
Point = tuple[float, float, float]

#: e² (or e² + u²) and |Δ*| beyond which y is log|w|.
_FAR_AWAY = 40.0


def loss_parameters(chain: BinaryChain) -> LossParameters:
    """Return the arguments of ``loss`` and ``slope`` for a chain; the first is Δ*."""
    p, q = chain.p, chain.q
    pi0, pi1 = chain.stationary
    last = 4.0 * (1.0 - p) * (1.0 - q) / (p + q) ** 2
    difference, end = (q - p) / (q + p), 2.0 * pi0 * (1.0 - q) / q
    return chain.target_logit_gap, p, q, pi0, pi1, difference, last, end


@compiled
def slope(params: LossParameters, beyond: float) -> float:
    """Return ℓ′ at Δ = Δ* + ``beyond``, with the sign of ``beyond`` and right to rounding.

    With d = π₀ − π₁ and the positive root x of x² + 2dx = P, P = 4π₀π₁ e^Δ, it is
    π₁ q (x − x*)/(x + 2π₀), and (x − x*)(x* + P/x) = P − P*. Where |Δ − Δ*| ≥ 600 it has its
    limit. Source: docs/derivations/02.md and 13.md.
    """
    _, _, q, pi0, pi1, d, last, end = params
    beyond = min(max(beyond, -600.0), 600.0)
    if abs(beyond) < 0.5:
        rise = math.expm1(beyond)
        factor = 1.0 + rise
    else:
        factor = math.exp(beyond)
        rise = factor - 1.0
    product = last * factor
    big = math.sqrt(product + d * d) + abs(d)
    small = product / big  # x and P/x are these two
    x, inverse = (small, big) if d > 0.0 else (big, small)
    return pi1 * q * last * rise / ((x + 2.0 * pi0) * (end + inverse))


@compiled(no_cpython_wrapper=True)
def log_add(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@compiled
def optimal_logit(pi0: float, pi1: float, difference: float, gap: float) -> float:
    """Return the logit f₀ after a zero that minimises the loss at logit gap Δ = ``gap``.

    ``difference`` is π₀ − π₁. exp(f₀) is the positive root z of π₀ e^Δ z² + (π₀ − π₁) z = π₁, the
    zero of the loss's derivative in the bias. Of the root's two forms the one without cancellation
    is taken, in log space: Δ reaches ±10⁴ on ordinary grids. Source: docs/derivations/01.md.
    """
    half_root = 0.5 * (gap + math.log(4.0 * pi0 * pi1))
    if difference == 0:
        return math.log(2.0 * pi1) - half_root
    log_abs = math.log(abs(difference))
    log_sum = log_add(log_abs, log_add(2.0 * log_abs, 2.0 * half_root) / 2.0)
    if difference > 0:
        return math.log(2.0 * pi1) - log_sum
    return log_sum - gap - math.log(2.0 * pi0)


@compiled
def loss(params: LossParameters, gap: float) -> float:
    """Return ℓ(Δ) in nats: the cross-entropy at the logits f₀ and f₀ + Δ with the best f₀."""
    _, p, q, pi0, pi1, difference, _, _ = params
    logit = optimal_logit(pi0, pi1, difference, gap)
    after_zero = cross_entropy(logit, p, 1.0 - p)
    return pi0 * after_zero + pi1 * cross_entropy(logit + gap, 1.0 - q, q)


@compiled(no_cpython_wrapper=True)
def curvature(params: LossParameters, beyond: float) -> float:
    """Return ℓ″ at Δ = Δ* + ``beyond``; 0 where ℓ′ has its limit.

    It is π₀π₁ P/((x + 2π₀)² √(P + d²)), in the letters of ``slope``.
    """
    _, _, _, pi0, pi1, d, last, _ = params
    if not abs(beyond) < 600.0:
        return beyond - beyond  # NaN stays
    product = last * math.exp(beyond)
    root = math.sqrt(product + d * d)
    x = product / (root + d) if d > 0.0 else root - d
    return pi0 * pi1 * product / ((x + 2.0 * pi0) ** 2 * root)


@compiled
def derivatives(order: int, params: LossParameters, gaps: np.ndarray, found: np.ndarray) -> None:
    """Write ℓ (order 0), ℓ′ (1) or ℓ″ (2) at each of the ``gaps`` (n,) to ``found`` (n,)."""
    for i in range(len(gaps)):
        if order == 0:
            found[i] = loss(params, gaps[i])
        elif order == 1:
            found[i] = slope(params, gaps[i] - params[0])
        else:
            found[i] = curvature(params, gaps[i] - params[0])


@compiled
def optimal_logits(
    pi0: float, pi1: float, difference: float, gaps: np.ndarray, found: np.ndarray
) -> None:
    """Write f₀ of ``optimal_logit`` at each of the ``gaps`` (n,) to ``found`` (n,)."""
    for i in range(len(gaps)):
        found[i] = optimal_logit(pi0, pi1, difference, gaps[i])


@compiled(no_cpython_wrapper=True)
def far_away(x: float, w: float, target: float) -> bool:
    """Return whether a row begins or ends so far out that w may run over many decades."""
    return max(x, abs(target)) > _FAR_AWAY and w != 0.0


@compiled(no_cpython_wrapper=True)
def is_far(e: float, w: float, third: float, target: float) -> bool:
    """Return whether y is log|w|: e² or |Δ*| is large, and w is not 0."""
    return far_away(e * e, w, target)


@compiled(no_cpython_wrapper=True)
def split(far: bool, w: float) -> tuple[float, float]:
    """Return the sign of w, and y: log|w| if ``far``, else |w|."""
    return -1.0 if w < 0 else 1.0, math.log(abs(w)) if far else abs(w)


@compiled(no_cpython_wrapper=True)
def joined(far: bool, sign: float, y: float) -> float:
    """Return w, from its sign and y; the inverse of ``split``."""
    return sign * math.exp(y) if far else sign * y


@compiled(no_cpython_wrapper=True)
def weight(far: bool, y: float) -> tuple[float, float]:
    """Return w² and dy/dlog|w| at y."""
    if far:
        return math.exp(2.0 * y), 1.0
    return y * y, y


@compiled(no_cpython_wrapper=True)
def gain(far: bool, sign: float, y: float) -> float:
    """Return g = 1 + 2w|w| at y."""
    return 1.0 + 2.0 * sign * weight(far, y)[0]


@compiled(no_cpython_wrapper=True)
def no_gain(far: bool, sign: float, y: float) -> bool:
    """Return whether g = 0, within rounding."""
    return abs(gain(far, sign, y)) <= 4e-16 * gain(far, 1.0, y)
