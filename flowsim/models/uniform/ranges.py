"""Nodes of the distribution of the past for given logits, as ranges of the flat table (compiled).

For |a| < 1 one rule without kink serves. Beyond, the ReLU switches side at m = (½ − x)/a inside the
law: the bins left and right of it serve whole, the kink's bin gives way to its halves, and so on
down to one leaf of the tree whose atoms stay uncompressed. A range lies on one side of it.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.models.uniform.table import (
    ATOM_COUNT,
    ATOMS,
    BIN_STARTS,
    BINNED,
    BINNED_COUNT,
    BINS,
    BLOCK,
    DEPTH,
    LEAF_BIN,
    LEAF_LEVEL,
    LEVELS,
    RULES,
    SMOOTH,
    SMOOTH_COUNT,
    STARTS,
    STEEPEST,
    TREE,
)

#: Places in a row's memory: the number of ranges, and the first of them. A range is the symbol x,
#: o = 1 where the ReLU is open, where its points and its weights begin, and how many there are.
COUNT, FIRST, RANGE = 0, 32, 5
#: Depth of the stack: a tree has at most 40 levels.
MEMORY = FIRST + 2 * 48 * RANGE


@compiled(no_cpython_wrapper=True)
def _add(memory, x, o, points, weights, count):
    if count > 0:
        at = FIRST + RANGE * int(memory[COUNT])
        memory[at], memory[at + 1] = x, o
        memory[at + 2], memory[at + 3], memory[at + 4] = points, weights, count
        memory[COUNT] += 1


@compiled(no_cpython_wrapper=True)
def _add_split(reals, memory, x, a, points, weights, count):
    """Both sides of the kink, of points that increase; ReLU'(0) = 0."""
    first = a < 0  # whether the ReLU is open on the left
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if (x - 0.5 + a * reals[points + middle] > 0) == first:
            low = middle + 1
        else:
            high = middle
    _add(memory, x, 1 if first else 0, points, weights, low)
    _add(memory, x, 0 if first else 1, points + low, weights + low, count - low)


@compiled
def gather(square, gamma, a, open_at, reals, ints, memory):
    """Write the ranges that serve e² = ``square``, 4w|w| = ``gamma`` and a.

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
                _add(memory, x, x, atoms, atoms + count, count)
            else:
                _add_split(reals, memory, x, open_at, atoms, atoms + count, count)
        elif abs(open_at) < 1:
            nodes, count = ints[rule + SMOOTH], ints[rule + SMOOTH_COUNT]
            _add(memory, x, x, nodes, nodes + count, count)
        else:
            _around_kink(x, open_at, tree, rule, reals, ints, memory)
    return 0


@compiled(no_cpython_wrapper=True)
def _around_kink(x, a, tree, rule, reals, ints, memory):
    """The ranges given x for |a| ≥ 1."""
    depth = ints[tree + DEPTH]
    leaf = min(max(int(((0.5 - x) / a + 0.5) * 2**depth), 0), 2**depth - 1)
    left = 1 if a < 0 else 0
    nodes, count = ints[rule + BINNED], ints[rule + BINNED_COUNT]
    starts = ints[rule + BIN_STARTS] + ints[ints[rule + LEAF_BIN] + leaf]
    begin, end = ints[starts], ints[starts + 1]
    _add(memory, x, left, nodes, nodes + count, begin)
    _add(memory, x, 1 - left, nodes + end, nodes + count + end, count - end)
    for level in range(ints[ints[rule + LEAF_LEVEL] + leaf] + 1, depth + 1):
        half = (leaf >> (depth - level)) ^ 1
        at = ints[tree + BINS] + 16 * (2**level - 1 + half)
        _add(memory, x, left if half & 1 == 0 else 1 - left, at, at + 8, 8)
    starts, atoms = ints[tree + STARTS] + leaf, ints[tree + ATOMS]
    begin, end = ints[starts], ints[starts + 1]
    weights = atoms + ints[tree + ATOM_COUNT]
    _add_split(reals, memory, x, a, atoms + begin, weights + begin, end - begin)
