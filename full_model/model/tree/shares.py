"""Attention over the tree of all prefixes, by sums that prefixes share.

Position n with symbol x is *place* 2n + x, n = 0 … N − 1. Prefixes are numbered by depth, then by
their last symbol, then by the symbols before it, the first one running fastest: a prefix
x_0 … x_n has number 2^(n+1) − 2 + Σ x_m 2^m, and those that end in one place are neighbours. All of
them have the same query, so that their attention is a mixture with weights E_{q,s}, known for each
pair of places, divided by their sum. Both sums over a prefix are made from those over its first
symbols: the tree that is followed has one more symbol at each step, two additions for each prefix.
Own derivation.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled

#: A range of scores whose exponentials, centred, are normal numbers, and so are their inverses.
WIDEST = 1360.0
#: A lead in score of which rounding leaves nothing: exp(−37) is less than 2^−53. The last query of
#: N positions has at most 2(N − 1) of them: they fit into that range up to N = 19.
LEAD = 37.0


@compiled(internal=True)
def first_prefix(place):
    """Number of the first prefix that ends in ``place``; of place 2N, how many there are."""
    n = place // 2
    return (2 << n) - 2 + (place % 2) * (1 << n)


@compiled(internal=True)
def columns_of(place, length, start, count):
    """Which columns of a block hold prefixes that end in ``place``: from, and up to.

    Two columns behind all prefixes fill the number up to 2^(N+1); they count to the last place.
    """
    behind = first_prefix(place + 1) + (2 if place == 2 * length - 1 else 0)
    return max(first_prefix(place) - start, 0), min(behind - start, count)


@compiled(internal=True, makes_arrays=True)
def exponentials(scores, length):
    """Replace every query's scores by exponentials, up to a factor of each query.

    A prefix holds its own place and one of two at every position before: its largest score is no
    less than ``least``. Where scores reach further above that than exponentials do, leads of more
    than ``LEAD`` are shortened to it, which changes no attention by more than rounding.
    """
    seen = np.empty(2 * length - 1)
    for q in range(2 * length):
        n = q // 2
        for s in range(2 * n):
            seen[s] = scores[q, s]
        seen[2 * n] = scores[q, q]
        least = most = seen[2 * n]
        for m in range(n):
            zero, one = seen[2 * m], seen[2 * m + 1]
            least = max(least, min(zero, one))
            most = max(most, max(zero, one))
        if most - least > WIDEST:
            most = _shorten(seen, 2 * n + 1, least)
        middle = least + (most - least) / 2
        for s in range(2 * n):
            scores[q, s] = math.exp(seen[s] - middle)
        scores[q, q] = math.exp(seen[2 * n] - middle)


@compiled(internal=True, makes_arrays=True)
def _shorten(values, count, least):
    """Shorten the leads among the first values, but for those below ``least``; the largest left."""
    order = np.empty(count, np.int64)
    for i in range(count):
        order[i] = i
        for j in range(i, 0, -1):
            if values[order[j]] >= values[order[j - 1]]:
                break
            order[j], order[j - 1] = order[j - 1], order[j]
    before = after = least
    for i in order:
        value = values[i]
        if value > least:
            after += min(value - before, LEAD)
            before, values[i] = value, after
    return after


@compiled(internal=True)
def laws(first, kernel, length, law):
    """Probability of every prefix, divided by N: law(x_0) Π P(x_m | x_{m−1})/N; of no other."""
    law[0], law[1] = first[0] / length, first[1] / length
    law[-2], law[-1] = 0.0, 0.0
    for n in range(1, length):
        before, half = first_prefix(2 * n - 2), 1 << (n - 1)
        for x in range(2):
            begin = first_prefix(2 * n + x)
            for last in range(2):
                step, shift = kernel[last, x], last * half
                for j in range(shift, shift + half):
                    law[begin + j] = law[before + j] * step


@compiled(reordered=True, internal=True)
def mix(weight, symbols, length, mixed):
    """mixed[c] = Σ_m weight·symbols[place, c] over the places of every prefix; 1 behind them."""
    for c in range(symbols.shape[1]):
        mixed[c, -2], mixed[c, -1] = 1.0, 1.0
    for q in range(2 * length):
        n, begin = q // 2, first_prefix(q)
        for c in range(symbols.shape[1]):
            row = mixed[c]
            row[begin] = weight[q, q] * symbols[q, c]
            for m in range(n):
                half, s = 1 << m, 2 * m
                zero, one = weight[q, s] * symbols[s, c], weight[q, s + 1] * symbols[s + 1, c]
                low, high = row[begin : begin + half], row[begin + half : begin + 2 * half]
                for j in range(half):
                    high[j] = low[j] + one
                for j in range(half):
                    low[j] += zero


@compiled(reordered=True, internal=True)
def unmix(length, mixed, q, sums):
    """sums[s, c] = Σ mixed[c] over the prefixes that end in place q and hold place s.

    The transpose of ``mix``; what it sums is lost.
    """
    n, begin = q // 2, first_prefix(q)
    for c in range(mixed.shape[0]):
        row = mixed[c]
        for m in range(n - 1, -1, -1):
            half = 1 << m
            low, high = row[begin : begin + half], row[begin + half : begin + 2 * half]
            zero = one = 0.0
            for j in range(half):
                zero += low[j]
                one += high[j]
                low[j] += high[j]
            sums[2 * m, c], sums[2 * m + 1, c] = zero, one
        sums[q, c] = row[begin]
