"""The pasts of a hidden symmetric chain: their law, and what follows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.errors import InputError
from flowsim.markov import SymmetricChain

#: The most words that begin with 0 and are enumerated: N ≤ 18 of two symbols, 12 of three.
MAX_WORDS = 3**11


@lru_cache(maxsize=32)
def hidden_symmetric(states: int, p: float, flip: float) -> HiddenMarkovProcess:
    """S hidden states left with chance p, each with a symbol of its own and another one by ε.

    Flips with p = q are S = 2, and Mess3(x, a) is S = 3 with p = 2x, ε = 1 − a.

    Raises:
        InputError: S below 2, p not between 0 and 1, ε not in [0, 1).

    >>> from flowsim.models.memory.process import hidden_symmetric
    >>> round(hidden_symmetric(3, 0.1, 0.15).ngram_loss(2), 6)
    0.857719
    """
    chain = SymmetricChain(states, p)
    if isinstance(flip, bool) or not isinstance(flip, (int, float)) or not 0 <= flip < 1:
        raise InputError(f"flip must be a number from 0 up to, but not, 1, not {flip!r}")
    emission = np.full((states, states), flip / (states - 1))
    np.fill_diagonal(emission, 1 - flip)
    return HiddenMarkovProcess.from_emission(chain.kernel, emission)


@lru_cache(maxsize=8)
def pasts(states: int, p: float, flip: float, length: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For n = 1 … N the words of n symbols that begin with 0, which stand for all by symmetry.

    Returns:
        Chances times S, (S^(n−1),), and laws of the next symbol (S^(n−1), S).

    Raises:
        InputError: more words than are enumerated.
    """
    if states ** (length - 1) > MAX_WORDS:
        raise InputError(
            f"{length} positions of {states} states make more words than are enumerated, "
            f"{MAX_WORDS} that begin with one symbol: take a smaller length"
        )
    process = hidden_symmetric(states, p, flip)
    T = process.transitions
    ahead = (np.array(process.hidden.stationary) @ T[0])[None] * states
    found = []
    for n in range(1, length + 1):
        if n > 1:
            ahead = np.einsum("ws,xst->wxt", ahead, T).reshape(-1, states)
        chance = ahead.sum(1)
        laws = ahead @ T.sum(2).T / np.where(chance > 0, chance, 1)[:, None]
        found.append((chance, laws))
    return found
