"""Attention over the tree of all prefixes, by sums that prefixes share.

With S symbols, position n with symbol x is *place* Sn + x, n = 0 … N − 1. Prefixes are numbered by
depth, then by their last symbol, then by the symbols before it, the first one running fastest:
those that end in one place are neighbours, and symbols x_0 … x_{n−1} are number Σ x_m S^m of them.
All of them have the same query, so that their attention is a mixture with weights E_{q,s}, known
for each pair of places, divided by their sum. Both sums over a prefix are made from those over its
first symbols: the tree that is followed has one more symbol at each step, two additions for each
prefix.
Own derivation.
"""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled

#: A range of scores whose exponentials, centred, are normal numbers, and so are their inverses.
WIDEST = 1360.0
#: A lead in score of which rounding leaves nothing: exp(−37) is less than 2^−53. Scores have at
#: most S(N − 1) + 1 of them, less where they would not fit into that range.
LEAD = 37.0


@compiled(no_cpython_wrapper=True, nrt=True)
def first_prefixes(states, length, attends):
    """Return the number of the first prefix that ends in each place, and last the count, (SN + 1,).

    Without attention all prefixes that end in a place are one.
    """
    first = np.zeros(states * length + 1, np.int64)
    each = 1
    for q in range(states * length):
        first[q + 1] = first[q] + each
        each *= states if attends and q % states == states - 1 else 1
    return first


@compiled(no_cpython_wrapper=True)
def columns_of(first, place, start, count):
    """Return the range (low, high) of a block's columns whose prefixes end in ``place``.

    The block has ``count`` prefixes from number ``start`` on; low ≥ high if none ends there.
    """
    return max(first[place] - start, 0), min(first[place + 1] - start, count)


@compiled(no_cpython_wrapper=True, nrt=True)
def exponentials(scores, states):
    """Replace every query's scores by exponentials, up to a factor of each query.

    A prefix holds its own place and one of S at every position before: its largest score is no
    less than ``least``. Where scores reach further above that than exponentials do, leads of more
    than ``LEAD`` are shortened to it, which changes no attention by more than rounding.
    """
    seen = np.empty(scores.shape[0])
    for q in range(scores.shape[0]):
        before = q // states * states
        for s in range(before):
            seen[s] = scores[q, s]
        seen[before] = least = most = scores[q, q]
        for begin in range(0, before, states):
            lowest = seen[begin]
            for s in range(begin, begin + states):
                lowest, most = min(lowest, seen[s]), max(most, seen[s])
            least = max(least, lowest)
        if most - least > WIDEST:
            most = _shorten(seen, before + 1, least)
        middle = least + (most - least) / 2
        for s in range(before):
            scores[q, s] = math.exp(seen[s] - middle)
        scores[q, q] = math.exp(seen[before] - middle)


@compiled(no_cpython_wrapper=True, nrt=True)
def _shorten(values, count, least):
    """Shorten, in place, gaps between the first ``count`` values, sorted; return the largest then.

    Gaps above ``least`` become at most ``LEAD``; values up to it stay.
    """
    order = np.empty(count, np.int64)
    for i in range(count):
        order[i] = i
        for j in range(i, 0, -1):
            if values[order[j]] >= values[order[j - 1]]:
                break
            order[j], order[j - 1] = order[j - 1], order[j]
    before, after, lead = least, least, min(LEAD, WIDEST / count)
    for i in order:
        value = values[i]
        if value > least:
            after += min(value - before, lead)
            before, values[i] = value, after
    return after


@compiled(no_cpython_wrapper=True)
def prefix_probabilities(initial, kernel, first, length, probability):
    """Fill ``probability`` with that of every prefix over N: initial(x_0) Π P(x_m | x_{m−1})/N."""
    states = kernel.shape[0]
    alone = first[-1] == states * length  # ``initial`` is stationary
    for q in range(states * length):
        x, at = q % states, first[q]
        if q < states or alone:
            probability[at] = initial[x] / length
            continue
        for before in range(states):
            last = q - x - states + before
            for j in range(first[last], first[last + 1]):
                probability[at] = probability[j] * kernel[before, x]
                at += 1


@compiled(reassoc=True, no_cpython_wrapper=True)
def attend(weight, symbols, first, states, mixed):
    """Set mixed[c, prefix] = Σ weight·symbols[place, c] over the places of every prefix."""
    for q in range(weight.shape[0]):
        for c in range(symbols.shape[1]):
            row = mixed[c, first[q] : first[q + 1]]
            row[0], size = weight[q, q] * symbols[q, c], 1
            for begin in range(0, q // states * states, states):
                low = row[:size]
                for x in range(1, states):
                    part = row[x * size : x * size + size]
                    more = weight[q, begin + x] * symbols[begin + x, c]
                    for j in range(size):
                        part[j] = low[j] + more
                more = weight[q, begin] * symbols[begin, c]
                for j in range(size):
                    low[j] += more
                size *= states


@compiled(reassoc=True, no_cpython_wrapper=True)
def attend_vjp(first, states, mixed, q, sums):
    """sums[s, c] = Σ mixed[c] over the prefixes that end in place q and hold place s.

    The transpose of ``attend``; what it sums is lost.
    """
    before, whole = q // states * states, first[q + 1] - first[q]
    for c in range(mixed.shape[0]):
        row, size = mixed[c, first[q] : first[q + 1]], whole
        for begin in range(before - states, -1, -states):
            size //= states
            low, total = row[:size], 0.0
            for j in range(size):
                total += low[j]
            sums[begin, c] = total
            for x in range(1, states):
                part, total = row[x * size : x * size + size], 0.0
                for j in range(size):
                    total += part[j]
                    low[j] += part[j]
                sums[begin + x, c] = total
        sums[q, c] = row[0]
