"""The classes of sequences that the induction model sums over, and its field at one point."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flowsim.compiled import compiled


class Terms(NamedTuple):
    """Classes of sequences, q their last symbol and o the other one."""

    counts: np.ndarray  # how often qq, oq, qo and oo occurred as neighbours, shape (4, A)
    weight: np.ndarray  # probability of the class over the number of lengths; of sum one
    chance: np.ndarray  # Bayes's probability that q follows

    @classmethod
    def merged(cls, counts: np.ndarray, weight: np.ndarray, chance: np.ndarray) -> Terms:
        """Classes with equal counts put together; their chances are averaged by weight."""
        found, which = np.unique(counts, axis=1, return_inverse=True)
        which = which.reshape(-1)
        whole = np.bincount(which, weight)
        mean = np.bincount(which, weight * chance) / whole
        return cls(np.ascontiguousarray(found), whole, mean)


@compiled
def induction_loss(
    counts: np.ndarray, weight: np.ndarray, chance: np.ndarray, s: float, beta: float
) -> float:
    """L at one point; scores are 1, 1 − s, s and 0 times β."""
    most = max(beta, 0.0)
    e_both, e_own = math.exp(beta - most), math.exp(beta * (1.0 - s) - most)
    e_before, e_neither = math.exp(beta * s - most), math.exp(-most)
    loss = 0.0
    for i in range(weight.shape[0]):
        found = counts[0, i] * e_both + counts[1, i] * e_own
        rest = counts[2, i] * e_before + counts[3, i] * e_neither
        size = counts[0, i] + counts[1, i] + counts[2, i] + counts[3, i]
        same = size * found / (found + rest) + 1.0
        other = size * rest / (found + rest) + 1.0
        loss -= weight[i] * (chance[i] * math.log(same) + (1.0 - chance[i]) * math.log(other))
        loss += weight[i] * math.log(size + 2.0)
    return loss


@compiled
def induction_slopes(
    counts: np.ndarray, weight: np.ndarray, chance: np.ndarray, s: float, beta: float
) -> tuple[float, float]:
    """∂L/∂s and ∂L/∂β at one point."""
    most = max(beta, 0.0)
    e_both, e_own = math.exp(beta - most), math.exp(beta * (1.0 - s) - most)
    e_before, e_neither = math.exp(beta * s - most), math.exp(-most)
    along_share = along_beta = 0.0
    for i in range(weight.shape[0]):
        both, own = counts[0, i] * e_both, counts[1, i] * e_own
        before, neither = counts[2, i] * e_before, counts[3, i] * e_neither
        size = counts[0, i] + counts[1, i] + counts[2, i] + counts[3, i]
        found, rest = both + own, before + neither
        whole = found + rest
        # L = −Σ ω [t log same + (1 − t) log other] in these two, of sum size + 2
        same, other = size * found / whole + 1.0, size * rest / whole + 1.0
        slope = -weight[i] * (chance[i] / same - (1.0 - chance[i]) / other) * size / whole
        share = found / whole
        along_share += slope * beta * (share * (own - before) - own)
        along_found = both + (1.0 - s) * own
        along_beta += slope * (along_found - share * (along_found + s * before))
    return along_share, along_beta


@compiled
def induction_curvatures(
    counts: np.ndarray, weight: np.ndarray, chance: np.ndarray, s: float, beta: float
) -> tuple[float, float, float]:
    """∂²L/∂s², ∂²L/∂s∂β and ∂²L/∂β² at one point.

    With y = σ(z) the share that attention gives to q: of its two kinds of neighbours, and of those
    of o, z's second derivatives are variances of the scores (docs/derivations/19.md).
    """
    most = max(beta, 0.0)
    e_both, e_own = math.exp(beta - most), math.exp(beta * (1.0 - s) - most)
    e_before, e_neither = math.exp(beta * s - most), math.exp(-most)
    by_ss = by_sb = by_bb = 0.0
    for i in range(weight.shape[0]):
        own, before = counts[1, i] * e_own, counts[2, i] * e_before
        found, rest = counts[0, i] * e_both + own, before + counts[3, i] * e_neither
        if found == 0.0 or rest == 0.0:
            continue  # y is 0 or 1 everywhere
        size = counts[0, i] + counts[1, i] + counts[2, i] + counts[3, i]
        y = found / (found + rest)
        same, other = size * y + 1.0, size * (1.0 - y) + 1.0
        t, u = chance[i] / same, (1.0 - chance[i]) / other
        by_y, by_yy = -size * (t - u), size * size * (t / same + u / other)
        by_z = weight[i] * y * (1.0 - y) * by_y
        by_zz = weight[i] * y * (1.0 - y) * (y * (1.0 - y) * by_yy + (1.0 - 2.0 * y) * by_y)
        own, before = own / found, before / rest
        z_s, z_b = -beta * (own + before), 1.0 - s * own - s * before
        spread = own * (1.0 - own) - before * (1.0 - before)
        by_ss += by_zz * z_s * z_s + by_z * beta * beta * spread
        by_sb += by_zz * z_s * z_b + by_z * (beta * s * spread - own - before)
        by_bb += by_zz * z_b * z_b + by_z * s * s * spread
    return by_ss, by_sb, by_bb


@compiled
def induction_fields(
    counts: np.ndarray,
    weight: np.ndarray,
    chance: np.ndarray,
    share: np.ndarray,
    beta: np.ndarray,
    found: np.ndarray,
) -> None:
    """L, ∂L/∂s, ∂L/∂β, ∂²L/∂s², ∂²L/∂s∂β and ∂²L/∂β² at P points, as many as ``found`` has rows."""
    for i in range(share.shape[0]):
        found[0, i] = induction_loss(counts, weight, chance, share[i], beta[i])
        slopes = induction_slopes(counts, weight, chance, share[i], beta[i])
        found[1, i], found[2, i] = slopes[0], slopes[1]
        if found.shape[0] > 3:
            second = induction_curvatures(counts, weight, chance, share[i], beta[i])
            found[3, i], found[4, i], found[5, i] = second[0], second[1], second[2]
