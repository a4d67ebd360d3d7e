"""The exact law of the current symbol x_n and the running sum S_n = Σ_{i≤n} x_i.

Uniform attention sees the past only through m_n = S_n/n − ½, so the expected loss of a transformer
with zero queries and keys is a finite sum over these laws. Nothing is sampled.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.memory import require_memory

#: Peak bytes per unit of N(N + 1) while a law is built: the dense law, then atoms being sorted.
_BYTES_DENSE, _BYTES_ATOMS = 16, 56


class Atoms(NamedTuple):
    """A discrete measure: points m in [−½, ½], strictly increasing, and positive weights."""

    m: np.ndarray
    weight: np.ndarray


def joint_law(chain: BinaryChain, length: int) -> np.ndarray:
    """Return P(x_n = x, S_n = S) for n = 1..N, shape (N, 2, N + 1) with axes (n − 1, x, S).

    By the two-row forward recursion P_{n+1}(0, S) = (1−p) P_n(0, S) + q P_n(1, S) and
    P_{n+1}(1, S+1) = p P_n(0, S) + (1−q) P_n(1, S), started stationary. All terms are positive, so
    each entry has a relative error of a few n units in the last place (entries below 1e-308 are 0).
    """
    length = check_length(length, _BYTES_DENSE)
    pi0, pi1 = chain.stationary
    law = np.zeros((length, 2, length + 1))
    law[0, 0, 0], law[0, 1, 1] = pi0, pi1
    for now, after in pairwise(law):
        after[0] = (1 - chain.p) * now[0] + chain.q * now[1]
        after[1, 1:] = chain.p * now[0, :-1] + (1 - chain.q) * now[1, :-1]
    return law


@lru_cache(maxsize=8)
def running_mean_law(chain: BinaryChain, length: int) -> tuple[Atoms, Atoms]:
    """Return the law of m_n = S_n/n − ½ given x_n = 0 and given x_n = 1, averaged over n; cached.

    These are (1/N) Σ_n P(x_n = x, m_n = m). Equal fractions S/n of different n are one atom, so
    about 0.6 N² of the N(N + 1) pairs remain. The weights sum to π₀ and π₁.
    """
    length = check_length(length, _BYTES_ATOMS)
    law = joint_law(chain, length)
    n, total = np.arange(1, length + 1)[:, None], np.arange(length + 1)[None, :]
    laws = []
    for x, pi in enumerate(chain.stationary):
        possible = law[:, x] > 1e-290  # leaves out subnormal numbers, which are slow and worth 0
        weight = law[:, x][possible]
        # (2S − n)/(2n) is rounded once: equal fractions give equal floats, others differ by 1/N²
        m = np.divide(2 * total - n, 2 * n, where=possible, out=np.zeros(possible.shape))[possible]
        order = np.argsort(m)
        m, weight = m[order], weight[order]
        first = np.flatnonzero(np.diff(m, prepend=-1.0))
        weight = np.add.reduceat(weight, first)
        laws.append(Atoms(m[first], weight * (pi / weight.sum())))
    return laws[0], laws[1]


def check_length(length: int, bytes_per_square: int = _BYTES_ATOMS) -> int:
    """Return N as an int; InputError if it is no integer ≥ 1, or if its tables fit no memory."""
    try:
        n = operator.index(length)
    except TypeError:
        n = 0
    if n < 1 or isinstance(length, bool):
        raise InputError(f"the length N must be an integer of at least 1, not {length!r}")
    what = f"the law of the running sum at length N = {n}"
    require_memory(what, bytes_per_square * n * (n + 1), "N")
    return n
