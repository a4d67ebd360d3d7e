"""From logits to the loss, and to what is differentiated of them.

One logit stands for the two logits (0, f), and its chance is that of the symbol one. Arrays have a
row for each logit and a column for each prefix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowsim.compiled import compiled
from flowsim.elementary import clipped, exponential


class Outputs(NamedTuple):
    """Logits f, chances, targets and gains of φ = Σ gains_a f_a, each (R, prefixes).

    ``omega`` and ``spread``, (prefixes,), weigh φ in the gradient and in the stiffness.
    """

    logit: Any
    chance: Any
    target: Any
    gains: Any
    omega: Any
    spread: Any


@compiled(no_cpython_wrapper=True, nrt=True)
def new_outputs(gains):
    """Make ``Outputs`` of zeros in the shape (R, prefixes) of ``gains``, which they hold itself."""
    logits, count = gains.shape
    return Outputs(
        np.zeros((logits, count)), np.zeros((logits, count)), np.zeros((logits, count)), gains,
        np.zeros(count), np.zeros(count),
    )  # fmt: skip


@compiled(no_cpython_wrapper=True)
def entropies(probability, start, count, out):
    """Sum probability × cross-entropy of target and prediction over a block: its part of the loss.

    It is taken from the logits, without loss of digits where chances are near 0 or 1.
    """
    total, logits = 0.0, out.logit.shape[0]
    for j in range(count):
        most = 0.0 if logits == 1 else out.logit[0, j]
        for a in range(logits):
            most = max(most, out.logit[a, j])
        missed = rest = 0.0
        if logits == 1:
            f, target = out.logit[0, j], out.target[0, j]
            missed = (1.0 - target) * f if f > 0.0 else -target * f
            rest = np.exp(-abs(f))
        else:
            rest = -1.0
            for a in range(logits):
                missed += out.target[a, j] * (most - out.logit[a, j])
                rest += np.exp(out.logit[a, j] - most)
        total += probability[start + j] * (missed + np.log1p(rest))
    return total


@compiled(reassoc=True, inline=True, no_cpython_wrapper=True)
def chances(count, out):
    """Compute the chances of the symbols: σ of one logit, else the softmax."""
    logits = out.logit.shape[0]
    if logits == 1:
        for j in range(count):
            out.chance[0, j] = 1.0 / (1.0 + exponential(-clipped(out.logit[0, j])))
        return
    for j in range(count):
        most, total = out.logit[0, j], 0.0
        for a in range(1, logits):
            most = max(most, out.logit[a, j])
        for a in range(logits):
            out.chance[a, j] = exponential(clipped(out.logit[a, j] - most))
            total += out.chance[a, j]
        for a in range(logits):
            out.chance[a, j] /= total


@compiled(reassoc=True, inline=True, no_cpython_wrapper=True)
def set_cotangent(which, probability, start, count, out):
    """Set in ``out`` the gains, ω and spread of φ number ``which``, for a block of prefixes.

    The gradient is Σ ω ∇φ of the first. The stiffness bounds the trace of Σ spread·∇φ ∇φᵀ, P the
    probability of a prefix: of one logit, φ = f with spread P·max(σ′(f), t(1 − t)); of several, the
    second and later ones, φ_c = f_c − f̄ with f̄ the mean under the chances, and spread
    P·max(chance, target) of c. It is no less than the trace of the Gauss-Newton matrix at the
    model's chances, and at the targets.
    """
    logits = out.gains.shape[0]
    for j in range(count):
        one = probability[start + j]
        chance, target = out.chance[which - 1, j], out.target[which - 1, j]
        out.omega[j], out.spread[j] = one, one * max(chance, target)
        if logits == 1:
            out.omega[j] = one * (chance - target)
            out.spread[j] = one * max(chance * (1.0 - chance), target * (1.0 - target))
    for a in range(logits):
        gains, chance, target = out.gains[a], out.chance[a], out.target[a]
        for j in range(count):
            if logits == 1:
                gains[j] = 1.0
            elif which == 0:
                gains[j] = chance[j] - target[j]
            else:
                gains[j] = (1.0 if a == which - 1 else 0.0) - chance[j]
