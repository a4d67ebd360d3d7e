"""The probability that a Gaussian initialization (e, w) lies in the canonical good basin."""

from __future__ import annotations

import math
from itertools import pairwise

from flowsim.errors import InputError
from flowsim.markov import GapChain

_SETTINGS = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 200}


def gaussian_probability(chain: GapChain, sigma: float, ratio: float = 1.0) -> float:
    """Probability that e ~ N(0, σ²), w ~ N(0, (ratio σ)²) are in the canonical good basin.

    With τ = ratio σ, φ the density of N(0, τ²) and e_s(w)² = w² − log|w| + E_s the separatrix, the
    weight of |e| > e_s(w) is erfc(e_s/(√2σ)), hence

        p + q > 1:  P = ½ erfc(1/(2τ)) + ∫ φ(w) erfc(e_s(w)/(√2σ)) dw  over −1/√2 < w < 0,
        p + q < 1:  P = 1 − ∫ φ(w) erf(e_s(w)/(√2σ)) dw  over w < −1/√2,
        p + q = 1:  P = 1.

    As σ → 0 these tend to 0 (for ratio 1 as 2^(−1/(4σ²)), from around w = −1/2), 1 and 1; as σ → ∞
    to 1/2, 1 − arctan(ratio)/π and 1. The first is computed to a relative 1e-11 however small it
    is. Source: docs/derivations/03.md.

    Args:
        chain: the data; only the sign of the second eigenvalue, 1 − p − q, matters.
        sigma: standard deviation of e, positive.
        ratio: that of w over that of e, positive; of the model of S states in its canonical
            coordinates, where draws of e and w alike have different scales.

    Raises:
        InputError: ``sigma`` or ``ratio`` is not a positive finite number.

    >>> import flowsim
    >>> round(flowsim.models.gaussian_probability(flowsim.BinaryChain(0.5, 0.8), sigma=0.5), 4)
    0.189
    """
    for name, value in (("sigma", sigma), ("ratio", ratio)):
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be a positive finite number, not {value}")
    if chain.second_eigenvalue == 0:
        return 1.0
    sigma = min(sigma, 1e100)  # where both are at their limits within rounding
    if chain.second_eigenvalue > 0:
        return 1.0 - trapped_below(sigma, ratio * sigma)
    return _reached_above(sigma, ratio * sigma)


def gaussian_limits(chain: GapChain, ratio: float = 1.0) -> tuple[float, float]:
    """Return the limits of ``gaussian_probability`` as σ → 0 and as σ → ∞."""
    if chain.second_eigenvalue == 0:
        return 1.0, 1.0
    return (1.0, 1 - math.atan(ratio) / math.pi) if chain.second_eigenvalue > 0 else (0.0, 0.5)


def _reached_above(sigma: float, tau: float) -> float:
    """Return the probability for p + q > 1; ``sigma`` and ``tau`` are deviations of e and w.

    In y = −log(√2|w|), so that e_s² = (e^(−2y) + 2y − 1)/2 and w² = e^(−2y)/2. e_s²/σ² + w²/τ² is
    least at y₀ = ½ log(1 + σ²/τ²), where it is y₀/σ², and with t = y − y₀ above that by
    (e^(−2t) + 2t − 1)/(2σ²).
    """
    from scipy.integrate import quad
    from scipy.special import erfcx

    def integrand(y: float) -> float:
        """Return the density of starts that reach the minima at y, over ``scale``."""
        t = y - least
        excess = _bowl(t) / (2 * sigma) / (2 * sigma)
        weight = erfcx(math.sqrt(_bowl(y)) / (2 * sigma))
        return math.exp(-excess - y) * weight / (2 * tau * math.sqrt(math.pi))

    sum_of_shares = 1 + (sigma / tau) ** 2
    least = math.log(sum_of_shares) / 2
    beyond = math.erfc(1 / (2 * tau)) / 2
    # zero in float64 beyond
    scale = 2.0 ** max(-math.log2(sum_of_shares) / (4 * sigma) / sigma, -1100.0)
    if scale == 0:
        return beyond
    far = min(45.0, least + 60 * sigma)  # where |w|, or the integrand, is rounding
    places = (least + k * sigma for k in (-4, -1, 0, 1, 4, 16))
    points = [y for y in places if 0 < y < far]
    ends = [0.0, *points, far]
    parts = (quad(integrand, a, b, **_SETTINGS)[0] for a, b in pairwise(ends))
    return beyond + scale * math.fsum(parts)


def _bowl(t: float) -> float:
    """Return e^(−2t) + 2t − 1 ≥ 0, by its Taylor series where the difference would cancel."""
    if abs(t) > 0.1:
        return math.expm1(-2 * t) + 2 * t
    return math.fsum((-2 * t) ** k / math.factorial(k) for k in range(2, 16))


def trapped_below(sigma: float, tau: float) -> float:
    """Return 1 − P for p + q < 1; ``sigma`` and ``tau`` are deviations of e and w.

    In x = √2|w| − 1: e_s² = x + x²/2 − log(1 + x), w² = (1 + x)²/2.
    """
    from scipy.integrate import quad

    def integrand(x: float) -> float:
        """Return the density of trapped starts at x, over ``scale``."""
        level = x + x * x / 2 - math.log1p(x)
        weight = math.erf(math.sqrt(max(level, 0.0) / 2) / sigma)
        return (
            math.exp(-x / (2 * tau) * (2 + x) / (2 * tau)) * weight / (2 * tau * math.sqrt(math.pi))
        )

    scale = math.exp(max(-1 / (4 * tau) / tau, -800.0))
    if scale == 0:
        return 0.0
    # the exponent x(2 + x)/(4τ²) passes these values at the ends of the pieces
    ends = [0.0]
    for exponent in (0.01, 0.1, 1.0, 5.0, 20.0, 80.0, 700.0):
        length = 2 * tau * math.sqrt(exponent)
        ends.append(length / (1 / length + math.hypot(1, 1 / length)))
    parts = (quad(integrand, a, b, **_SETTINGS)[0] for a, b in pairwise(ends))
    return scale * math.fsum(parts)
