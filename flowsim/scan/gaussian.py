"""The probability that a Gaussian initialization (e, w) reaches the global minima."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
import xarray as xr

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.flow.limits import find_limits
from flowsim.landscape.basins import SADDLE_ENERGY, reaches_global_minimum
from flowsim.landscape.labels import Label
from flowsim.models.canonical import CanonicalModel, energy
from flowsim.models.catalogue import model_attributes
from flowsim.records.provenance import provenance
from flowsim.scan.statistics import wilson_interval

#: Scales between which float64 holds every start of a cloud, its energy and its orbit.
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-12, 1e3

#: Nearer to the separatrix than this in energy, a label may be unresolved but counts as no error.
_ENERGY_BAND = 1e-9
_SETTINGS = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 200}


def gaussian_probability(chain: BinaryChain, sigma: float) -> float:
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


def gaussian_limits(chain: BinaryChain) -> tuple[float, float]:
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


def gaussian_record(
    model: CanonicalModel,
    sigmas: np.ndarray,
    samples: int = 4096,
    seed: int = 0,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """The probability of reaching the global minima against σ: flow beside integral.

    For every σ a cloud of its own is drawn from N(0, σ²I) and followed by ``find_limits``. The
    integral and the analytic basin are only compared with what the flow found.

    Args:
        model: the canonical model, bias minimised out.
        sigmas: standard deviations, increasing, shape (n,), each from 1e-12 to 1000.
        samples: starts per σ.
        seed: of the one generator that draws all clouds.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done.

    Returns:
        Dataset over sigma: integral; fraction, the share of starts that reached the global
        minima; fraction_low and fraction_high, its 95 % Wilson interval, widened by the
        unresolved starts; count_<label>; wrong, the starts whose label contradicts the analytic
        basin although |E − E_s| > 1e-9. Attributes hold the settings, the limits of the integral,
        counts and the largest drift of the energy relative to max(1, |E|).

    Raises:
        InputError: a model, scale or number of samples that is not as above.
    """
    if not isinstance(model, CanonicalModel) or model.dynamic_bias:
        raise InputError("the integral over a Gaussian needs the canonical model, bias optimal")
    sigmas = np.asarray(sigmas, dtype=np.float64)
    increasing = sigmas.ndim == 1 and sigmas.size > 0 and bool((np.diff(sigmas) > 0).all())
    if not (increasing and sigmas[0] >= SMALLEST_SIGMA and sigmas[-1] <= LARGEST_SIGMA):
        raise InputError(
            f"sigma must increase from at least {SMALLEST_SIGMA:g} to at most {LARGEST_SIGMA:g}"
        )
    if samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}")
    generator = torch.Generator().manual_seed(seed)
    shape = (len(sigmas), samples, 2)
    start = torch.randn(shape, dtype=torch.float64, generator=generator)
    start *= torch.from_numpy(sigmas).reshape(-1, 1, 1)
    limits = find_limits(model, start, rtol, atol, progress=progress)

    record = xr.Dataset(coords={"sigma": sigmas})
    chain, label = model.chain, limits.label
    exact = [gaussian_probability(chain, float(sigma)) for sigma in sigmas]
    record["integral"] = ("sigma", np.array(exact))
    counts = {code: (label == code).sum(dim=1).numpy() for code in Label}
    reached, unknown = counts[Label.GLOBAL_MINIMUM], counts[Label.UNRESOLVED]
    record["fraction"] = ("sigma", reached / samples)
    record["fraction_low"] = ("sigma", wilson_interval(reached, samples)[0])
    record["fraction_high"] = ("sigma", wilson_interval(reached + unknown, samples)[1])
    for code, count in counts.items():
        record[f"count_{code.name.lower()}"] = ("sigma", count)
    expected = reaches_global_minimum(chain, start)
    clear = ~((energy(start) - SADDLE_ENERGY).abs() <= _ENERGY_BAND)
    wrong = clear & (label != Label.UNRESOLVED) & ((label == Label.GLOBAL_MINIMUM) != expected)
    record["wrong"] = ("sigma", wrong.sum(dim=1).numpy())
    missed = (record["integral"] < record["fraction_low"]) | (
        record["integral"] > record["fraction_high"]
    )
    level, normal = energy(start), limits.theta[..., 1].abs() > 1e-300
    drift = (energy(limits.theta) - level).abs() / level.abs().clamp_min(1)
    drift = torch.where(normal, drift, torch.nan)  # below that w is not followed any further
    small, large = gaussian_limits(chain)
    settings: dict[str, object] = {
        "kind": "gaussian",
        **model_attributes(model),
        "samples": samples,
        "seed": seed,
        "rtol": "default" if rtol is None else rtol,
        "atol": atol,
        "limit_small_sigma": small,
        "limit_large_sigma": large,
        "intervals_missed": int(missed.sum()),
        "unresolved": int(unknown.sum()),
        "wrong": int(wrong.sum()),
        "largest_relative_energy_drift": float(np.nanmax(drift.numpy(), initial=0)),
    }
    record.attrs = provenance(settings)
    return record
