"""Chains of order k: the next symbol depends on the last k."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from flowsim.errors import InputError, require_integer
from flowsim.markov import MarkovChain, checked_order_kernel

#: Contexts S^k: the law of a chain and its eigenvalues take the third power of their number.
MAX_CONTEXTS = 2000


class OrderChain:
    """A stationary chain of order k on S states, entropies in nats.

    Its contexts, the k last symbols, are a first-order chain (``contexts``), of which law and
    structure are taken; at k = 1 that is the chain itself.

    Args:
        kernel: shape (S^k, S): what follows each context, the oldest symbol varying slowest (with
            S = 2, k = 2: after 00, 01, 10, 11); or shape (S, …, S) with k + 1 axes.

    Raises:
        InputError: another shape, a negative entry, a row whose sum is not one, or more than
            2000 contexts.

    Source: AM Sec. 4.4 (order k); the regime as in docs/derivations/14.md.

    >>> import flowsim
    >>> chain = flowsim.chains.OrderChain([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.1, 0.9]])
    >>> chain.order, round(chain.entropy_rate, 4)
    (2, 0.3864)
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel, self.order = checked_order_kernel(kernel)
        self.states = self._kernel.shape[1]
        if len(self._kernel) > MAX_CONTEXTS:
            raise InputError(
                f"a chain of order {self.order} on {self.states} states has {len(self._kernel)} "
                f"contexts, and at most {MAX_CONTEXTS} are handled"
            )

    def __repr__(self) -> str:
        return f"OrderChain(order={self.order}, states={self.states})"

    @property
    def kernel(self) -> np.ndarray:
        """P, a copy, shape (S^k, S)."""
        return self._kernel.copy()

    @cached_property
    def contexts(self) -> MarkovChain:
        """The first-order chain on S^k contexts: each drops its oldest symbol and adds one."""
        count = len(self._kernel)
        if self.order == 1:
            return MarkovChain(self._kernel)
        lifted = np.zeros((count, count))
        row = np.arange(count)[:, None]
        lifted[row, row * self.states % count + np.arange(self.states)] = self._kernel
        return MarkovChain(lifted)

    @property
    def structure(self) -> str:
        """Irreducible or reducible, and the period of the chain of contexts."""
        return self.contexts.structure

    @property
    def second_eigenvalue(self) -> complex | float:
        """The eigenvalue largest in size beside 1 of the chain of contexts."""
        return self.contexts.second_eigenvalue

    @cached_property
    def stationary(self) -> tuple[float, ...]:
        """The probability of each symbol, shape (S,)."""
        return tuple(map(float, self.joint(0).reshape(-1)))

    def joint(self, past: int) -> np.ndarray:
        """Return the stationary joint law of ``past`` ≤ k symbols and the next one, (S^past, S)."""
        whole = np.array(self.contexts.stationary)[:, None] * self._kernel
        return whole.reshape(-1, self.states**past, self.states).sum(0)

    def ngram_loss(self, n: int) -> float:
        """Return H(X_n | X_1 … X_{n−1}), the loss of the best predictor from n − 1 symbols.

        Constant from n = k + 1 on, where it is the entropy rate.

        Raises:
            InputError: n is not an integer of at least 1.
        """
        require_integer("n", n, 1)
        return last_symbol_entropy(self.joint(min(n - 1, self.order)).reshape(-1), self.states)

    @property
    def entropy_rate(self) -> float:
        """Σ π(c) H(P(c, ·)), the least possible loss."""
        return self.ngram_loss(self.order + 1)

    @property
    def stationary_entropy(self) -> float:
        """H of one symbol: the unigram loss."""
        return self.ngram_loss(1)

    @property
    def mutual_information(self) -> float:
        """Information of the past about a symbol, H(X) − entropy rate."""
        return self.stationary_entropy - self.entropy_rate

    @cached_property
    def neighbours(self) -> MarkovChain:
        """The first-order chain whose neighbouring symbols have the same joint law."""
        joint, law = self.joint(1), np.array(self.stationary)
        rows = np.where(law[:, None] > 0, joint / np.where(law > 0, law, 1)[:, None], law)
        return MarkovChain(rows / rows.sum(1, keepdims=True))

    @property
    def covariance_eigenvalue(self) -> float:
        """As of ``MarkovChain``: near zero embeddings a tied model sees neighbours alone."""
        return self.neighbours.covariance_eigenvalue

    @property
    def unigram(self) -> str:
        """Expected type of the unigram point of a tied model."""
        return self.neighbours.unigram

    @property
    def regime(self) -> str:
        """The expected type of the unigram point, in words."""
        return f"the unigram is {self.unigram}"


def last_symbol_entropy(joint: np.ndarray, symbols: int) -> float:
    """Return H(last symbol | the symbols before it and the other axis) in nats.

    ``joint`` is P(word[, other]), words of ``symbols`` different ones along the first axis.
    """
    words = joint.reshape(-1, symbols, *joint.shape[1:])
    before = words.sum(1, keepdims=True)
    chance = np.divide(words, before, out=np.ones_like(words), where=words > 0)
    return abs(float(-(words * np.log(chance)).sum()))
