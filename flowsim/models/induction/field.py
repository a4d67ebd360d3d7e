"""The classes of sequences that the induction model sums over, and its field at one point."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flowsim.compiled import compiled


class SequenceClasses(NamedTuple):
    """Classes of sequences as arrays over A classes; q is the last symbol, o the other one."""

    counts: np.ndarray  # how often qq, oq, qo and oo occurred as neighbours, shape (4, A)
    weight: np.ndarray  # probability of the class over the number of lengths; of sum one
    chance: np.ndarray  # Bayes's probability that q follows

    @classmethod
    def merged(cls, counts: np.ndarray, weight: np.ndarray, chance: np.ndarray) -> SequenceClasses:
        """Return the classes with those of equal counts merged; chances are averaged by weight."""
        found, which = np.unique(counts, axis=1, return_inverse=True)
        which = which.reshape(-1)
        whole = np.bincount(which, weight)
        mean = np.bincount(which, weight * chance) / whole
        return cls(np.ascontiguousarray(found), whole, mean)


@compiled
def loss_and_derivatives(
    counts: np.ndarray,
    weight: np.ndarray,
    chance: np.ndarray,
    s: float,
    beta: float,
    first: int,
    last: int,
) -> tuple[float, float, float, float, float, float]:
    """Return L, ∂L/∂s, ∂L/∂β, ∂²L/∂s², ∂²L/∂s∂β and ∂²L/∂β² at one point.

    Only the derivatives of order ``first`` to ``last`` are computed, the others are 0. Scores are
    1, 1 − s, s and 0 times β. With y = σ(z) the share that attention gives to q, z's second
    derivatives are variances of the scores: of its two kinds of neighbours, and of those of o
    (docs/derivations/19.md).
    """
    most = max(beta, 0.0)
    e_both, e_own = math.exp(beta - most), math.exp(beta * (1.0 - s) - most)
    e_before, e_neither = math.exp(beta * s - most), math.exp(-most)
    loss = by_s = by_b = by_ss = by_sb = by_bb = 0.0
    for i in range(weight.shape[0]):
        own, before = counts[1, i] * e_own, counts[2, i] * e_before
        found, rest = counts[0, i] * e_both + own, before + counts[3, i] * e_neither
        size = counts[0, i] + counts[1, i] + counts[2, i] + counts[3, i]
        part = 1.0 / (found + rest)
        y, z = found * part, rest * part
        same, other = size * y + 1.0, size * z + 1.0
        if first == 0:
            loss -= weight[i] * (chance[i] * math.log(same) + (1.0 - chance[i]) * math.log(other))
            loss += weight[i] * math.log(size + 2.0)
        if last == 0 or found == 0.0 or rest == 0.0:
            continue  # y is 0 or 1 everywhere
        t, u = chance[i] / same, (1.0 - chance[i]) / other
        by_y = size * (u - t)
        slope = weight[i] * y * z
        by_z = slope * by_y
        own, before = own / found, before / rest
        z_s, z_b = -beta * (own + before), 1.0 - s * own - s * before
        by_s += by_z * z_s
        by_b += by_z * z_b
        if last == 2:
            by_yy = size * size * (t / same + u / other)
            by_zz = slope * (y * z * by_yy + (z - y) * by_y)
            spread = own * (1.0 - own) - before * (1.0 - before)
            by_ss += by_zz * z_s * z_s + by_z * beta * beta * spread
            by_sb += by_zz * z_s * z_b + by_z * (beta * s * spread - own - before)
            by_bb += by_zz * z_b * z_b + by_z * s * s * spread
    return loss, by_s, by_b, by_ss, by_sb, by_bb


@compiled
def write_losses_and_derivatives(
    counts: np.ndarray,
    weight: np.ndarray,
    chance: np.ndarray,
    share: np.ndarray,
    beta: np.ndarray,
    found: np.ndarray,
) -> None:
    """Write loss and slopes, or curvatures too, at P points to ``found`` (3 or 6, P)."""
    for i in range(share.shape[0]):
        last = 1 if found.shape[0] == 3 else 2
        numbers = loss_and_derivatives(counts, weight, chance, share[i], beta[i], 0, last)
        found[0, i], found[1, i], found[2, i] = numbers[:3]
        if last == 2:
            found[3, i], found[4, i], found[5, i] = numbers[3:]
