"""The state-space layer on a hidden symmetric chain, in four numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor

from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.errors import InputError, require_integer
from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.interface import Model, Plane, RecordedModel, SolverDefaults
from flowsim.markov import SymmetricChain, probability
from flowsim.models import autograd
from flowsim.models.memory.word_sums import sum_words
from flowsim.models.states import HIDDEN_PER_STATE

#: Maps of raw numbers to decays: into (−1, 1) and into (0, 1).
DECAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "signed": torch.tanh,
    "positive": torch.sigmoid,
}

#: e, and w where own units read on (p + q > 1) and where they do not, outside the unigram's trap.
EMBEDDING, ABOVE, BELOW = 0.6, -1.2, 0.5
#: The most words that begin with 0 and are enumerated: N ≤ 18 of two symbols, 12 of three.
MAX_WORDS = 3**11


class MemoryPlane(Plane):
    """(α, v), e and w fixed by default where the unigram does not trap: v keeps its sign."""

    x, y = "alpha", "v"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.window = {"alpha": (-2.0, 2.0), "v": (-1.5, 1.5)}
        eigenvalue: float = model.eigenvalue  # type: ignore[attr-defined]
        fixed = {"e": EMBEDDING, "w": ABOVE if eigenvalue < 0 else BELOW}
        self.defaults = replace(self.defaults, fixed=fixed)


class MemoryModel(RecordedModel):
    """θ = (e, w, v, α): a transformer's layer with a diagonal recurrence in place of attention.

    It extends the plane of S states. Every channel keeps h_n = κ h_{n−1} + W_V x_n, with κ = tanh α
    in (−1, 1) or κ = σ(α) in (0, 1), and W_O W_V = a P with a = v|v|. On the hidden chain, whose S
    states have a symbol each, left with chance p and reported wrongly with chance ε, full training
    never leaves these weights. With c = S/(S − 1) and centred symbols c_t(x) = 1{x = t} − 1/S

        u_t = c_t(x_n) + a Σ_{k<n} κ^k c_t(x_{n−k}),
        logit of t = c e² (u_t + c m w|w| ReLU(u_t)),

    up to a number common to all; for S = 2 the logit is linear in the past. L is the mean over
    n ≤ N of the expected cross-entropy, exact by enumeration of all words. The metric is
    S (de² + 2m dw²) + (S − 1)(2 dv² + dα²). At v = 0 the model reads the present symbol alone.
    Source: own derivation, docs/derivations/21.md.

    Args:
        p: chance to leave a hidden state, strictly between 0 and 1.
        flip: ε, chance of another symbol than the state's own, in [0, 1).
        states: S, at least 2.
        length: N, at least 1. At N = 2 all ends are finite; from 3 on the best lie at infinity.
        hidden_per_state: m, at least 1.
        decay: "signed" or "positive".

    Raises:
        InputError: a number out of range, or more than 3¹¹ words.

    >>> import flowsim
    >>> model = flowsim.model("memory", 0.9, flip=0.2)
    >>> [round(float(model.loss([0.5, 0.6, 0.0, 0.0])), 4), round(model.bigram, 4)]
    [1.0444, 0.6511]
    """

    name = "memory"
    long_names = MappingProxyType(
        {
            "e": "embedding e",
            "w": "feed-forward weight w",
            "v": "memory's weight v, a = v|v|",
            "alpha": "memory's decay α",
            "p": "p = P(another state)",
            "flip": "flips ε",
            "length": "positions N",
        }
    )
    coordinates = ("e", "w", "v", "alpha")
    keeps_sign = (True, True, True, False)

    def __init__(
        self,
        p: float,
        flip: float = 0.2,
        states: int = 2,
        length: int = 2,
        hidden_per_state: int = HIDDEN_PER_STATE,
        decay: str = "signed",
    ) -> None:
        for name, value in (("length", length), ("hidden_per_state", hidden_per_state)):
            require_integer(name, value, 1)
        if decay not in DECAYS:
            raise InputError(f"decay must be one of {', '.join(DECAYS)}, not {decay!r}")
        self.p, self.flip, self.states = p, flip, states
        self.length, self.hidden_per_state, self.decay = length, hidden_per_state, decay
        self.process: HiddenMarkovProcess = hidden_symmetric(states, p, flip)
        self.metric = tuple(
            float(x) for x in (states, 2 * states * hidden_per_state, 2 * (states - 1), states - 1)
        )
        words = words_by_length(states, p, flip, length)
        self._chances = np.concatenate([chance for chance, _ in words]) / length
        self._laws = np.concatenate([laws for _, laws in words])

    @property
    def title(self) -> str:  # type: ignore[override]
        """The data, and the losses of the bigram and of Bayes's predictor."""
        chosen = f"$S$ = {self.states}, $p$ = {self.p:g}, flips {self.flip:g}, "
        return (
            "state-space layer on a hidden chain\n"
            f"{chosen}$N$ = {self.length}, {self.decay} decay\n"
            f"loss {self.bigram:.4f} of the bigram, {self.bayes:.4f} of Bayes"
        )

    @property
    def eigenvalue(self) -> float:
        """λ = 1 − pS/(S − 1) of the hidden chain: covariances at lag k fall as λ^k."""
        return 1 - self.p * self.states / (self.states - 1)

    @property
    def bigram(self) -> float:
        """The best loss from the present symbol alone, H₂, in nats."""
        return self.process.ngram_loss(2)

    @property
    def bayes(self) -> float:
        """The least possible loss of N positions, the mean of H₂ … H_{N+1}, in nats."""
        return float((self._chances * entr(self._laws).sum(-1)).sum())

    @property
    def plane(self) -> MemoryPlane:
        """The plane (α, v)."""
        return MemoryPlane(self)

    def kappa(self, theta: Tensor) -> Tensor:
        """Return κ, the decay of the memory, shape (...)."""
        return DECAYS[self.decay](theta[..., 3])

    def options(self) -> dict[str, Any]:
        """Return all arguments of the model, by name."""
        names = ("p", "flip", "states", "length", "hidden_per_state", "decay")
        return {name: getattr(self, name) for name in names}

    def flow(self) -> RosenbrockSolver:
        """Return the solver for any loss; a start takes four times as long as elsewhere."""
        return RosenbrockSolver(self, SolverDefaults(cost=4e-3, count_kinks=self.states > 2))

    loss, gradient, hessian = autograd.loss, autograd.gradient, autograd.hessian

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor:
        """Return the "loss" (...), "gradient" (..., 4) or "hessian" (..., 4, 4) at θ (..., 4)."""
        axes = autograd.QUANTITIES.index(quantity)

        def fill(rows: np.ndarray, found: np.ndarray) -> None:
            """Write the quantity at ``rows`` (n, 4) to ``found`` (n, 1, 4 or 16)."""
            sum_words(
                axes, rows, self.decay == "signed", self.states, self.hidden_per_state,
                self.length, self._chances, self._laws, found,
            )  # fmt: skip

        return autograd.evaluate_rows(theta, axes, fill)


@lru_cache(maxsize=32)
def hidden_symmetric(states: int, p: float, flip: float) -> HiddenMarkovProcess:
    """Return S hidden states left with chance p, each with a symbol of its own and another by ε.

    Flips with p = q are S = 2, and Mess3(x, a) is S = 3 with p = 2x, ε = 1 − a.
    """
    chain = SymmetricChain(states, p)
    flip = probability("flip", flip, zero=True)
    emission = np.full((states, states), flip / (states - 1))
    np.fill_diagonal(emission, 1 - flip)
    return HiddenMarkovProcess.from_emission(chain.kernel, emission)


@lru_cache(maxsize=8)
def words_by_length(
    states: int, p: float, flip: float, length: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return chances and next laws of all words of n symbols that begin with 0, for n = 1 … N.

    These stand for all words by symmetry. Chances are times S, (S^(n−1),); the laws of the next
    symbol are (S^(n−1), S).
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
