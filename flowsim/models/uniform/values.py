"""Excess loss, gradient, Hessian and optimal bias of uniform attention at many points (compiled).

With y = (log|e|, log|w|, a[, b]) and the field ẏ of ``rows``, whose first two rates lack the
factors 1/e² and 1/w² that a division would bring in,

    ∂L/∂e = −e ẏ₀,   ∂L/∂w = −w ẏ₁,   ∂L/∂a = −ẏ₂,   ∂L/∂b = −ẏ₃,

and the Hessian follows from ∂ẏ/∂y alike.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.models.bias import mean_logit
from flowsim.models.uniform.rows import MEMORY, SIGN, write_flow_from_sums
from flowsim.models.uniform.sums import class_sums, excess_of_ranges, newton_shift
from flowsim.models.uniform.table import DYNAMIC, PI0, PI1, UNIGRAM_LOGIT, gather

#: Names of the results, and the number of their axes of length k.
EXCESS, BIAS, GAP, GRADIENT, HESSIAN = range(5)
QUANTITIES = {"excess": (EXCESS, 0), "bias": (BIAS, 0),
              "gap": (GAP, 0), "gradient": (GRADIENT, 1),
              "hessian": (HESSIAN, 2)}  # fmt: skip


@compiled(nrt=True)
def values_of(what, theta, reals, ints, found):
    """Write the quantity ``what`` at the points ``theta`` (n, k) to ``found`` (n, 1, k or k²).

    NaN where not finite. Returns 0, or 1 + a level that the table lacks, which must be added first.
    """
    k, memory = theta.shape[1], np.zeros(MEMORY)
    rate, steep = np.zeros(k), np.zeros((k, k))
    for i in range(len(theta)):
        e, w, a = theta[i, 0], theta[i, 1], theta[i, 2]
        square, gamma = e * e, 4.0 * w * abs(w)
        status = -1
        if math.isfinite(e + w + a):
            status = gather(square, gamma, a, a, reals, ints, memory)
        if status > 0:
            return status
        found[i] = math.nan
        if status < 0:
            continue
        if what == GAP:
            zeros = mean_logit(square, gamma, a, 0, reals, memory) / reals[PI0]
            ones = mean_logit(square, gamma, a, 1, reals, memory) / reals[PI1]
            found[i, 0] = ones - zeros
            continue
        if ints[DYNAMIC] == 1 and what != BIAS:
            shift = theta[i, 3] - reals[UNIGRAM_LOGIT] - square / 2
        else:
            shift, step = newton_shift(square, gamma, a, math.nan, reals, memory)
            shift += step
        if what == BIAS:
            found[i, 0] = shift + reals[UNIGRAM_LOGIT] + square / 2
        elif what == EXCESS:
            found[i, 0] = excess_of_ranges(square, gamma, a, shift, reals, memory)
        else:
            memory[SIGN] = 1.0 if w > 0.0 else -1.0 if w < 0.0 else 0.0
            class_sums(square, gamma, a, shift, reals, memory)
            write_flow_from_sums(square, gamma, a, 0.0, memory, rate, steep, 1.0)
            if what == GRADIENT:
                for j in range(k):
                    found[i, j] = -_factor(j, e, w) * rate[j]
            else:
                _write_hessian(e, w, rate, steep, found[i])
    return 0


@compiled(no_cpython_wrapper=True)
def _factor(j, e, w):
    """Return the factor of −ẏ_j in ∂L/∂θ_j: e for j = 0, w for j = 1, else 1."""
    return e if j == 0 else w if j == 1 else 1.0


@compiled(no_cpython_wrapper=True)
def _write_hessian(e, w, rate, steep, found):
    """Write the Hessian of the loss, row by row, to ``found`` (k²,), from ẏ and its Jacobian."""
    k = len(rate)
    for i in range(k):
        for j in range(i, k):
            value = -_factor(i, e, w) * steep[i, j]
            if i < 2:
                if i == j:
                    value = -steep[i, i] - rate[i]
                elif j == 1:
                    value = value / w if w != 0.0 else 0.0
            found[k * i + j] = found[k * j + i] = value
