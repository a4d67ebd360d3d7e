"""The probability that a Gaussian initialization (e, w) lies in the canonical good basin."""

from __future__ import annotations

import math
from itertools import pairwise

from flowsim.errors import InputError
from flowsim.markov import GapChain

_SETTINGS = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 200}


def gaussian_probability(chain: GapChain, sigma: float) -> float:
    """Probability that (e, w) ~ N(0, σ²I) lies in the basin of the global minima.

    With φ the density of N(0, σ²) and e_s(w)² = w² − log|w| + E_s the separatrix, the weight of
    |e| > e_s(w) is erfc(e_s/(√2σ)), hence

        p + q > 1:  P = ½ erfc(1/(2σ)) + ∫ φ(w) erfc(e_s(w)/(√2σ)) dw  over −1/√2 < w < 0,
        p + q < 1:  P = 1 − ∫ φ(w) erf(e_s(w)/(√2σ)) dw  over w < −1/√2,
        p + q = 1:  P = 1.

    As σ → 0 these tend to 0 (as 2^(−1/(4σ²)), from around w = −1/2), 1 and 1; as σ → ∞ to 1/2,
    3/4 and 1. The first is computed to a relative 1e-11 however small it is.
    Source: docs/derivations.md, 3.

    Args:
        chain: the data; only the sign of 1 − p − q matters.
        sigma: standard deviation of e and of w, positive.

    Raises:
        InputError: ``sigma`` is not a positive finite number.
    """
    if not 0 < sigma < math.inf:
        raise InputError(f"sigma must be a positive finite number, not {sigma}")
    if chain.second_eigenvalue == 0:
        return 1.0
    sigma = min(sigma, 1e100)  # where both are at their limits within rounding
    if chain.second_eigenvalue > 0:
        return 1.0 - _trapped_below(sigma)
    return _reached_above(sigma)


def gaussian_limits(chain: GapChain) -> tuple[float, float]:
    """The limits of ``gaussian_probability`` as σ → 0 and as σ → ∞."""
    if chain.second_eigenvalue == 0:
        return 1.0, 1.0
    return (1.0, 0.75) if chain.second_eigenvalue > 0 else (0.0, 0.5)


def _reached_above(sigma: float) -> float:
    """p + q > 1, in s = −log(2|w|): e_s² + w² = ½ log 2 + (e^(−2s) + 2s − 1)/2, least at s = 0."""
    from scipy.integrate import quad
    from scipy.special import erfcx

    def integrand(s: float) -> float:
        level = math.exp(-2 * s) / 4 + s + (math.log(2) - 1) / 2
        excess = (math.expm1(-2 * s) + 2 * s) / (2 * sigma) / (2 * sigma)
        weight = erfcx(math.sqrt(max(level, 0.0) / 2) / sigma)
        return math.exp(-excess - s) * weight / (2 * sigma * math.sqrt(2 * math.pi))

    beyond = math.erfc(1 / (2 * sigma)) / 2
    scale = 2.0 ** max(-1 / (4 * sigma) / sigma, -1100.0)  # zero in float64 beyond
    if scale == 0:
        return beyond
    low, high = -math.log(2) / 2, 45.0  # where w = −1/√2, and where |w| is rounding
    points = [s for s in (-4 * sigma, -sigma, 0.0, sigma, 4 * sigma, 16 * sigma) if low < s < high]
    ends = [low, *points, high]
    parts = (quad(integrand, a, b, **_SETTINGS)[0] for a, b in pairwise(ends))
    return beyond + scale * math.fsum(parts)


def _trapped_below(sigma: float) -> float:
    """1 − P for p + q < 1, in x = √2|w| − 1: e_s² = x + x²/2 − log(1 + x), w² = (1 + x)²/2."""
    from scipy.integrate import quad

    def integrand(x: float) -> float:
        level = x + x * x / 2 - math.log1p(x)
        weight = math.erf(math.sqrt(max(level, 0.0) / 2) / sigma)
        return (
            math.exp(-x / (2 * sigma) * (2 + x) / (2 * sigma))
            * weight
            / (2 * sigma * math.sqrt(math.pi))
        )

    scale = math.exp(max(-1 / (4 * sigma) / sigma, -800.0))
    if scale == 0:
        return 0.0
    # the exponent x(2 + x)/(4σ²) passes these values at the ends of the pieces
    ends = [0.0]
    for exponent in (0.01, 0.1, 1.0, 5.0, 20.0, 80.0, 700.0):
        length = 2 * sigma * math.sqrt(exponent)
        ends.append(length / (1 / length + math.hypot(1, 1 / length)))
    parts = (quad(integrand, a, b, **_SETTINGS)[0] for a, b in pairwise(ends))
    return scale * math.fsum(parts)
