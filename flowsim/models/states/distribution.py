"""The exact law of the current state and of the shares of all states among x_1 … x_n.

By the symmetry of the chain, and of every model here, only the own count k_0 and the multiset of
the other counts matter. A class is one (k_0 : multiset of the others), in lowest terms, so that
positions whose shares agree are one class; the number of classes grows with the partitions of N.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from flowsim.errors import InputError
from flowsim.markov import SymmetricChain
from flowsim.models.past_law import check_length

#: With more classes an orbit takes minutes.
MOST_CLASSES = 50_000

_Counts = tuple[int, tuple[int, ...]]


class ShareLaw(NamedTuple):
    """Classes C of pasts, and in each the different shares of states T, the own one first."""

    weight: np.ndarray  # probability, averaged over n = 1 … N, (C,); sums to one
    share: np.ndarray  # of each group of states among x_1 … x_n, (C, T)
    #: The number of states with that share, (C, T): 1 for the own one, 0 for padding.
    multiplicity: np.ndarray


@lru_cache(maxsize=8)
def share_law(chain: SymmetricChain, length: int) -> ShareLaw:
    """Return the law of the shares for n = 1 … N of a stationary symmetric chain.

    By recursion in n, from own count k_0 and other counts k: with 1 − p to k_0 + 1; with p/(S − 1)
    to each other state, whose count, one more, becomes the own one. All terms are positive.
    InputError for another N than an integer of at least 1, or more than 50 000 classes. Source:
    docs/derivations/20.md.
    """
    length = check_length(length, 0)
    others = chain.states - 1
    # pasts of N symbols, or of the first 300: partitions of 0 … N − 1 into as many parts; no more
    # than there are classes, and with few states, whose law is quick, many fewer
    ways = [1] + [0] * (min(length, 300) - 1)
    for part in range(1, min(others, len(ways)) + 1):
        for n in range(part, len(ways)):
            ways[n] += ways[n - part]
    if sum(ways) > MOST_CLASSES:
        raise _too_many(chain, length)
    now: dict[_Counts, float] = {(1, (0,) * min(others, length)): 1.0}
    found: defaultdict[_Counts, float] = defaultdict(float)
    for n in range(1, length + 1):
        for (own, rest), weight in now.items():
            divisor = gcd(own, n, *rest)
            found[own // divisor, tuple(k // divisor for k in rest)] += weight / length
        if len(found) + len(now) > MOST_CLASSES:
            raise _too_many(chain, length)
        if n < length:
            now = next_law(chain, now, others)
    rows = []  # of each class its different shares and how many states have them
    for own, rest in found:
        groups = Counter(rest)
        groups[0] += others - len(rest)
        total = own + sum(rest)
        rows.append([(own / total, 1)] + [(k / total, m) for k, m in groups.items() if m])
    share, multiplicity = np.zeros((2, len(rows), max(map(len, rows))))
    for i, row in enumerate(rows):
        for j, (value, count) in enumerate(row):
            share[i, j], multiplicity[i, j] = value, count
    return ShareLaw(np.array(list(found.values())), share, multiplicity)


def _too_many(chain: SymmetricChain, length: int) -> InputError:
    """Return the error for more classes than are handled."""
    return InputError(
        f"{chain.states} states have more than {MOST_CLASSES:,} different pasts of up to "
        f"{length} symbols: choose a smaller length"
    )


def next_law(chain: SymmetricChain, now: dict[_Counts, float], others: int) -> dict[_Counts, float]:
    """Return the probabilities of (own count, other counts) one position later than ``now``.

    Of states never seen only as many are listed as can matter.
    """
    after: dict[_Counts, float] = {}
    for (own, rest), weight in now.items():
        stays = own + 1, rest
        after[stays] = after.get(stays, 0.0) + (1 - chain.p) * weight
        listed, unlisted = Counter(rest), others - len(rest)
        for count, multiplicity in listed.items():
            alike = multiplicity + (unlisted if count == 0 else 0)
            left = list(rest)
            left.remove(count)
            moves = count + 1, tuple(sorted([*left, own], reverse=True))
            after[moves] = after.get(moves, 0.0) + chain.p / others * alike * weight
    return after
