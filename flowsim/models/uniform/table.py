"""The compressed law of the past as two flat arrays, for compiled functions that follow one row.

``reals`` begins with the chain, ``ints`` with what is where; nodes come as points and then weights.
A level's rule serves logits whose slope in m is at most 2^level (``quadrature``). Rules are padded
with nodes of weight zero to whole vectors.

The nodes for given logits are ranges of these arrays. For |a| < 1 one rule without kink serves.
Beyond, the ReLU switches side at m = (½ − x)/a inside the law: the bins left and right of it serve
whole, the kink's bin gives way to its halves, and so on down to one leaf of the tree whose atoms
stay uncompressed. A range lies on one side of it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from threading import Lock

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.compiled import compiled
from flowsim.models.on_chain import beyond_targets, unigram_logit
from flowsim.models.past_law import running_mean_law
from flowsim.models.uniform.quadrature import GaussTree, Rule

#: Places in ``reals``: the chain, π₀, π₁, then entropy rate, mutual information and λ, the
#: unigram's logit, and by how much it is beyond the logits of both targets.
P, Q, PI0, PI1, ENTROPY_RATE, INFORMATION, LAMBDA, UNIGRAM_LOGIT, BEYOND = range(9)
_REALS = 10
#: Places in ``ints``: levels present, the steepest that can be, whether the bias is a coordinate,
#: and N.
LEVELS, STEEPEST, DYNAMIC, LENGTH = range(4)
#: Blocks of ``ints``, one per symbol: depth of its tree, and where are its bins of 8 points and 8
#: weights, the starts of its leaves, its atoms and how many they are.
TREE, BLOCK = 8, 8
DEPTH, BINS, STARTS, ATOMS, ATOM_COUNT = range(5)
#: Blocks of ``ints``, one per level and symbol: where are the nodes for integrands without kink and
#: those of all bins from left to right, how many, the first node of each bin, the bin of each leaf
#: of the tree and that bin's level.
RULES = TREE + 2 * BLOCK
SMOOTH, SMOOTH_COUNT, BINNED, BINNED_COUNT, BIN_STARTS, LEAF_BIN, LEAF_LEVEL = range(7)
#: Nodes of a vector loop.
_VECTOR = 16


class LawTable:
    """The law of the running mean of one chain and length, as two arrays of nodes.

    Levels, each for steeper logits, are added when they are needed.

    Attributes:
        reals, ints: the arrays; replaced, not changed, when a level is added.
    """

    def __init__(self, chain: BinaryChain, length: int, dynamic: bool, compress: bool) -> None:
        self._trees = [GaussTree(distribution) for distribution in running_mean_law(chain, length)]
        self._lock = Lock()
        steepest = min(tree.depth for tree in self._trees) if compress else -1
        self._head = np.zeros(RULES + 2 * BLOCK * (steepest + 1), dtype=np.int64)
        self._head[STEEPEST], self._head[DYNAMIC], self._head[LENGTH] = steepest, dynamic, length
        head = chain.p, chain.q, *chain.stationary, chain.entropy_rate, chain.mutual_information
        logits = unigram_logit(chain), *beyond_targets(chain)
        self._reals = [np.array([*head, chain.second_eigenvalue, *logits])]
        self._ints: list[np.ndarray] = []
        self._sizes = [_REALS, len(self._head)]
        for x, tree in enumerate(self._trees):
            block = self._head[TREE + BLOCK * x : TREE + BLOCK * (x + 1)]
            block[DEPTH] = tree.depth
            block[BINS] = self._append(np.concatenate([tree.node, tree.weight], axis=1).ravel())
            block[STARTS] = self._append_integers(tree.start)
            block[ATOMS] = self._append(np.concatenate(tree.atoms))
            block[ATOM_COUNT] = len(tree.atoms.m)
        self._join()

    def add(self, level: int) -> None:
        """Add the quadrature rules of all levels up to ``level`` to the arrays."""
        with self._lock:
            for new in range(int(self._head[LEVELS]), level + 1):
                for x, tree in enumerate(self._trees):
                    first = RULES + BLOCK * (2 * new + x)
                    self._write_rule(self._head[first : first + BLOCK], tree.rule(2.0**new))
                self._head[LEVELS] += 1
            self._join()

    def _write_rule(self, block: np.ndarray, rule: Rule) -> None:
        """Append a rule, its bins from left to right; write where its parts are to ``block``."""
        smooth = [np.pad(v, (0, -len(v) % _VECTOR)) for v in rule.smooth]
        block[SMOOTH], block[SMOOTH_COUNT] = self._append(np.concatenate(smooth)), len(smooth[0])
        place = np.argsort(np.argsort(np.unique(rule.leaf_bin, return_index=True)[1]))
        node_place = place[rule.node_bin]
        order = np.argsort(node_place, kind="stable")
        block[BINNED] = self._append(np.concatenate([v[order] for v in rule.binned]))
        block[BINNED_COUNT] = len(order)
        starts = np.searchsorted(node_place[order], np.arange(len(place) + 1))
        block[BIN_STARTS] = self._append_integers(starts)
        block[LEAF_BIN] = self._append_integers(place[rule.leaf_bin])
        block[LEAF_LEVEL] = self._append_integers(rule.leaf_level)

    def _append(self, values: np.ndarray) -> int:
        """Append values to ``reals`` and return the place where they begin."""
        self._reals.append(values)
        self._sizes[0] += len(values)
        return self._sizes[0] - len(values)

    def _append_integers(self, values: np.ndarray) -> int:
        """Append values to ``ints`` and return the place where they begin."""
        self._ints.append(values.astype(np.int64))
        self._sizes[1] += len(values)
        return self._sizes[1] - len(values)

    def _join(self) -> None:
        """Join what was appended into the new arrays ``reals`` and ``ints``."""
        self.reals = np.concatenate(self._reals)
        self.ints = np.concatenate([self._head, *self._ints])
        self._reals, self._ints = [self.reals], [self.ints[len(self._head) :]]


@lru_cache(maxsize=8)
def law_table(chain: BinaryChain, length: int, dynamic: bool, compress: bool) -> LawTable:
    """Return the :class:`LawTable` of a chain and length, built once and kept."""
    return LawTable(chain, length, dynamic, compress)


#: Places in a row's memory: the number of ranges, and the first of them. A range is the symbol x,
#: o = 1 where the ReLU is open, where its points and its weights begin, and how many there are.
COUNT, FIRST, RANGE = 0, 32, 5
#: Depth of the stack: a tree has at most 40 levels.
MEMORY = FIRST + 2 * 48 * RANGE


@compiled(inline=True, no_cpython_wrapper=True)
def range_at(n, square, gamma, a, memory):
    """Return range n: x, o, where its points and weights begin, how many, and C and K of its logit.

    The logit is log(π₁/π₀) + β + C + K m, see ``models.uniform.sums``.
    """
    at = FIRST + RANGE * n
    x, o = int(memory[at]), int(memory[at + 1])
    level, steep = square * (x + (x - 0.5) * gamma * o), square * a * (1.0 + gamma * o)
    return x, o, int(memory[at + 2]), int(memory[at + 3]), int(memory[at + 4]), level, steep


@compiled(no_cpython_wrapper=True)
def _add_range(memory, x, o, points, weights, count):
    """Append one more range to those in memory, unless it is empty."""
    if count > 0:
        at = FIRST + RANGE * int(memory[COUNT])
        memory[at], memory[at + 1] = x, o
        memory[at + 2], memory[at + 3], memory[at + 4] = points, weights, count
        memory[COUNT] += 1


@compiled(no_cpython_wrapper=True)
def _add_both_sides(reals, memory, x, a, points, weights, count):
    """Append two ranges to memory, one for each side of the kink among these points.

    The points increase; ReLU'(0) = 0.
    """
    first = a < 0  # whether the ReLU is open on the left
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if (x - 0.5 + a * reals[points + middle] > 0) == first:
            low = middle + 1
        else:
            high = middle
    _add_range(memory, x, 1 if first else 0, points, weights, low)
    _add_range(memory, x, 0 if first else 1, points + low, weights + low, count - low)


@compiled
def gather(square, gamma, a, open_at, reals, ints, memory):
    """Write the ranges of nodes for logits with e² = ``square``, 4w|w| = ``gamma`` and a to memory.

    ``open_at`` is the a by which ReLUs are open or shut: a itself, or the next on its side of a
    corner.

    Returns 0, or −1 where something is not finite, or 1 + a level that the table lacks.
    """
    kappa = square * abs(a) * max(1.0, abs(1.0 + gamma))
    if not (kappa < 1e300 and abs(gamma) < 1e300):
        return -1
    level = math.ceil(math.log2(kappa)) if kappa > 1.0 else 0
    exact = level > ints[STEEPEST]
    if not exact and level >= ints[LEVELS]:
        return 1 + level
    memory[COUNT] = 0
    for x in range(2):
        tree, rule = TREE + BLOCK * x, RULES + BLOCK * (2 * level + x)
        if exact:
            atoms, count = ints[tree + ATOMS], ints[tree + ATOM_COUNT]
            if abs(open_at) < 1:
                _add_range(memory, x, x, atoms, atoms + count, count)
            else:
                _add_both_sides(reals, memory, x, open_at, atoms, atoms + count, count)
        elif abs(open_at) < 1:
            nodes, count = ints[rule + SMOOTH], ints[rule + SMOOTH_COUNT]
            _add_range(memory, x, x, nodes, nodes + count, count)
        else:
            _around_kink(x, open_at, tree, rule, reals, ints, memory)
    return 0


@compiled(no_cpython_wrapper=True)
def _around_kink(x, a, tree, rule, reals, ints, memory):
    """Append the ranges given x to memory where the ReLU switches inside the law, |a| ≥ 1."""
    depth = ints[tree + DEPTH]
    leaf = min(max(int(((0.5 - x) / a + 0.5) * 2**depth), 0), 2**depth - 1)
    left = 1 if a < 0 else 0
    nodes, count = ints[rule + BINNED], ints[rule + BINNED_COUNT]
    starts = ints[rule + BIN_STARTS] + ints[ints[rule + LEAF_BIN] + leaf]
    begin, end = ints[starts], ints[starts + 1]
    _add_range(memory, x, left, nodes, nodes + count, begin)
    _add_range(memory, x, 1 - left, nodes + end, nodes + count + end, count - end)
    for level in range(ints[ints[rule + LEAF_LEVEL] + leaf] + 1, depth + 1):
        half = (leaf >> (depth - level)) ^ 1
        at = ints[tree + BINS] + 16 * (2**level - 1 + half)
        _add_range(memory, x, left if half & 1 == 0 else 1 - left, at, at + 8, 8)
    starts, atoms = ints[tree + STARTS] + leaf, ints[tree + ATOMS]
    begin, end = ints[starts], ints[starts + 1]
    weights = atoms + ints[tree + ATOM_COUNT]
    _add_both_sides(reals, memory, x, a, atoms + begin, weights + begin, end - begin)
