"""Few weighted nodes in place of the law of m_n, for integrands that are sigmoids of bounded slope.

Every integrand of the attention model is smooth in m on the scale 1/κ, κ the steepest slope
|d logit/dm|, apart from one ReLU kink. So the interval [−½, ½] is cut into dyadic bins, each with a
Gauss rule of its share of the law, as wide as κ allows. The bin that holds the kink gives way to
its halves, recursively to one narrow leaf, whose atoms stay uncompressed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import expit

from flowsim.models.past_law import Atoms

#: Nodes of the Gauss rule of one bin: exact for polynomials of degree 15.
ORDER = 8
#: Atoms lighter than this are left out; all of them together weigh less than 1e-16.
NEGLIGIBLE = 1e-22
#: Largest error in any E σ(κ(m − c)) that merging two bins may make.
TOLERANCE = 1e-14


class Rule(NamedTuple):
    """Nodes for integrands of slope at most κ.

    ``smooth`` serves integrands without kink. ``binned`` holds the nodes of all bins and
    ``node_bin`` the bin of each; leaf i of the tree lies in bin ``leaf_bin[i]``, which is on level
    ``leaf_level[i]``.
    """

    smooth: Atoms
    binned: Atoms
    node_bin: np.ndarray
    leaf_bin: np.ndarray
    leaf_level: np.ndarray


class GaussTree:
    """Gauss rules of one law on the dyadic bins of [−½, ½], 2^j of them on level j = 0..depth.

    Bin i of level j is row 2^j − 1 + i of ``node`` and ``weight``, both (2^{depth+1} − 1, 8).
    ``atoms`` is the law without its negligible atoms, leaf i owning ``start[i]:start[i + 1]``.
    A parent's rule follows from its children's, whose moments up to degree 15 are the law's.
    Source: own derivation; Gauss rules by Golub and Welsch (1969).
    """

    def __init__(self, distribution: Atoms) -> None:
        heavy = distribution.weight > NEGLIGIBLE
        self.atoms = Atoms(distribution.m[heavy], distribution.weight[heavy])
        self.depth = max(0, round(math.log2(len(self.atoms.m) / 10)))
        leaves = 2**self.depth
        leaf = np.clip(((self.atoms.m + 0.5) * leaves).astype(np.int64), 0, leaves - 1)
        self.start = np.searchsorted(leaf, np.arange(leaves + 1))
        self.node = np.zeros((2 * leaves - 1, ORDER))
        self.weight = np.zeros((2 * leaves - 1, ORDER))
        count = np.diff(self.start)
        smaller, size = 0, ORDER
        while smaller < count.max():  # leaves of similar size together, to pad little
            chosen = np.flatnonzero((smaller < count) & (count <= size))
            index = self.start[chosen, None] + np.arange(size)
            inside = index < self.start[chosen + 1, None]
            index = np.minimum(index, len(self.atoms.m) - 1)
            weight = np.where(inside, self.atoms.weight[index], 0.0)
            self._set_rules(leaves - 1 + chosen, self.atoms.m[index], weight)
            smaller, size = size, 2 * size
        for level in range(self.depth - 1, -1, -1):
            rows = 2**level - 1 + np.arange(2**level)
            self._set_rules(rows, *self._of_children(rows))

    def _of_children(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes and weights of the two halves of each bin, both of shape (bins, 16)."""
        halves = np.stack([2 * rows + 1, 2 * rows + 2], axis=1)
        shape = (len(rows), 2 * ORDER)
        return self.node[halves].reshape(shape), self.weight[halves].reshape(shape)

    def _set_rules(self, rows: np.ndarray, m: np.ndarray, weight: np.ndarray) -> None:
        """Write Gauss rules of the measures (m, weight) to these rows of ``node`` and ``weight``.

        The measures themselves if 8 points do.
        """
        points = (weight > 0).sum(axis=1)
        few, many = points <= ORDER, points > ORDER
        first = np.argsort(weight[few] == 0, axis=1, kind="stable")[:, :ORDER]
        self.node[rows[few]] = np.take_along_axis(m[few], first, axis=1)
        self.weight[rows[few]] = np.take_along_axis(weight[few], first, axis=1)
        if many.any():
            alpha, beta, centre, scale, total = lanczos(m[many], weight[many], ORDER)
            matrix = np.zeros((*alpha.shape, ORDER))
            i = np.arange(ORDER)
            matrix[:, i, i] = alpha
            matrix[:, i[1:], i[:-1]] = beta
            value, vector = np.linalg.eigh(matrix)  # reads the lower triangle only
            self.node[rows[many]] = centre[:, None] + scale[:, None] * value
            self.weight[rows[many]] = total[:, None] * vector[:, 0] ** 2

    def bins(self, kappa: float) -> tuple[np.ndarray, np.ndarray]:
        """Return levels and indices of the widest bins whose rules integrate σ(κ(m − c)) for all c.

        Starting from the leaves, two halves are merged where the rule of the whole differs from
        theirs by at most 1e-14 for 24 values of c; it always does below a width of 1/κ, where the
        error bound of Gauss' rule is 1e-17 of the bin's weight.
        """
        safe = min(self.depth, max(0, math.ceil(math.log2(kappa))))
        kept = np.ones(2**safe, dtype=bool)
        levels, indices = [], []
        for level in range(safe - 1, -1, -1):
            merged = np.zeros(2**level, dtype=bool)
            candidates = np.flatnonzero(kept.reshape(-1, 2).all(axis=1))
            rows = 2**level - 1 + candidates
            c = (candidates[:, None] + np.linspace(-0.25, 1.25, 24)) / 2**level - 0.5
            of_whole = sigmoid_means(Atoms(self.node[rows], self.weight[rows]), kappa, c)
            of_halves = sigmoid_means(Atoms(*self._of_children(rows)), kappa, c)
            merged[candidates] = (np.abs(of_whole - of_halves) <= TOLERANCE).all(axis=1)
            alone = np.flatnonzero(kept & ~np.repeat(merged, 2))
            levels.append(np.full(len(alone), level + 1))
            indices.append(alone)
            kept = merged
        levels.append(np.zeros(kept.sum(), dtype=np.int64))
        indices.append(np.flatnonzero(kept))
        return np.concatenate(levels), np.concatenate(indices)

    def rule(self, kappa: float) -> Rule:
        """Return the nodes for integrands of slope at most κ ≤ 2^depth."""
        levels, indices = self.bins(kappa)
        rows = 2**levels - 1 + indices
        used = self.weight[rows] > NEGLIGIBLE
        binned = Atoms(self.node[rows][used], self.weight[rows][used])
        leaf_bin = np.zeros(2**self.depth, dtype=np.int64)
        leaf_level = np.zeros(2**self.depth, dtype=np.int64)
        for number, (level, index) in enumerate(zip(levels, indices, strict=True)):
            width = 2 ** (self.depth - level)
            leaf_bin[index * width : (index + 1) * width] = number
            leaf_level[index * width : (index + 1) * width] = level
        node_bin = np.nonzero(used)[0]
        return Rule(single_rule(binned, kappa), binned, node_bin, leaf_bin, leaf_level)


def single_rule(distribution: Atoms, kappa: float) -> Atoms:
    """Return one Gauss rule for all of [−½, ½] that integrates σ(κ(m − c)).

    The smallest of a ladder of sizes with an error of at most 1e-14 for every c; the law itself
    where none is much smaller.
    """
    largest = min(256, int(0.8 * len(distribution.m)))
    if largest < 4 or kappa > 512:
        return distribution
    coefficients = lanczos(distribution.m[None], distribution.weight[None], largest)
    alpha, beta, centre, scale, total = (c[0] for c in coefficients)
    c = np.linspace(-0.6, 0.6, 32 + int(2 * kappa))[None]
    exact = sigmoid_means(Atoms(distribution.m[None], distribution.weight[None]), kappa, c)
    size = 6
    while size <= largest:
        value, vector = eigh_tridiagonal(alpha[:size], beta[: size - 1])
        trial = Atoms(centre + scale * value, total * vector[0] ** 2)
        found = sigmoid_means(Atoms(trial.m[None], trial.weight[None]), kappa, c)
        if np.abs(found - exact).max() <= TOLERANCE:
            return trial
        size = math.ceil(1.2 * size)
    return distribution


def sigmoid_means(distribution: Atoms, kappa: float, c: np.ndarray) -> np.ndarray:
    """Return Σ weight σ(κ(m − c)), shape (bins, C), for nodes (bins, J) and c (bins, C)."""
    values = expit(kappa * (distribution.m[:, None, :] - c[:, :, None]))
    return np.einsum("bcj,bj->bc", values, distribution.weight)


def lanczos(
    m: np.ndarray, weight: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return recurrence coefficients of the orthogonal polynomials of discrete measures.

    Points ``m`` and ``weight`` have shape (measures, points).

    Lanczos' method with full reorthogonalisation, twice; a measure of fewer than K = ``order``
    points ends with coefficients zero. Diagonal (measures, K) and off-diagonal (measures, K − 1) of
    the Jacobi matrix of (m − centre)/scale, then centre, scale and the total weight. The Gauss
    nodes are centre + scale · eigenvalues, the weights total · (first components)². Source: Golub
    and Welsch (1969); Gragg and Harrod (1984).
    """
    total = weight.sum(axis=1)
    centre = (weight * m).sum(axis=1) / total
    x = np.where(weight > 0, m - centre[:, None], 0.0)
    scale = np.abs(x).max(axis=1)
    scale[scale == 0] = 1.0
    x /= scale[:, None]
    basis = np.zeros((order, *m.shape))
    alpha, beta = np.zeros((len(m), order)), np.zeros((len(m), order - 1))
    basis[0] = np.sqrt(weight / total[:, None])
    for k in range(order):
        rest = x * basis[k]
        alpha[:, k] = np.einsum("bj,bj->b", rest, basis[k])
        if k == order - 1:
            break
        for _ in range(2):
            overlap = np.einsum("kbj,bj->kb", basis[: k + 1], rest)
            rest -= np.einsum("kb,kbj->bj", overlap, basis[: k + 1])
        norm = np.sqrt(np.einsum("bj,bj->b", rest, rest))
        beta[:, k] = np.where(norm > 1e-13, norm, 0.0)
        basis[k + 1] = rest * np.where(norm > 1e-13, 1 / np.maximum(norm, 1e-13), 0.0)[:, None]
    return alpha, beta, centre, scale, total
