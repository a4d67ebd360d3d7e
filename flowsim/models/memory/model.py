"""The state-space layer on a hidden symmetric chain, in four numbers."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.errors import InputError, require_integer
from flowsim.interface import Model
from flowsim.models.memory.law import hidden_symmetric, pasts
from flowsim.models.states import HIDDEN_PER_STATE

#: Numbers of an array of logits, at most.
_CHUNK = 4_000_000
#: Maps of raw numbers to decays: into (−1, 1) and into (0, 1).
DECAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "signed": torch.tanh,
    "positive": torch.sigmoid,
}


class MemoryModel(Model):
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
        length: N, at least 1.
        hidden_per_state: m, at least 1.
        decay: "signed" or "positive".

    Raises:
        InputError: a number out of range, or more than 3¹¹ words.

    >>> import flowsim
    >>> model = flowsim.model("memory", 0.9, flip=0.2, length=8)
    >>> [round(float(model.loss([0.5, 0.6, 0.0, 0.0])), 4), round(model.bigram, 4)]
    [0.8184, 0.6511]
    """

    name = "memory"
    title = "state-space layer on a hidden chain"
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
    shown = ("w", "e")
    slow = True

    def __init__(
        self,
        p: float,
        flip: float = 0.2,
        states: int = 2,
        length: int = 8,
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
        self.kinked = states > 2
        words = pasts(states, p, flip, length)
        self._lags = _lagged_symbols([last for last, _, _ in words], states)
        self._weight = torch.cat([torch.from_numpy(chance) for _, chance, _ in words]) / length
        self._target = torch.cat([torch.from_numpy(laws) for _, _, laws in words])

    @property
    def subtitle(self) -> str:  # type: ignore[override]
        """The data, and the losses of the bigram and of Bayes's predictor."""
        chosen = f"$S$ = {self.states}, $p$ = {self.p:g}, flips {self.flip:g}, "
        return (
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
        laws = self._target
        return -float((self._weight * torch.xlogy(laws, laws).sum(-1)).sum())

    def kappa(self, theta: Tensor) -> Tensor:
        """κ, the decay of the memory, (...)."""
        return DECAYS[self.decay](theta[..., 3])

    def options(self) -> dict[str, Any]:
        names = ("p", "flip", "states", "length", "hidden_per_state", "decay")
        return {name: getattr(self, name) for name in names}

    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...)."""
        return self._by_chunks(theta, self._loss)

    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of θ. With δ = softmax − P(· | word), G = c m w|w| and M the memory,

        ∂L/∂logit = δ, ∂L/∂u = c e² (1 + c G 1{u > 0}) δ, ∂L/∂a = Σ M ∂L/∂u, ∂L/∂κ = a Σ M′ ∂L/∂u.
        """
        return self._by_chunks(theta, self._gradient)

    def _by_chunks(self, theta: Tensor, quantity: Callable[[Tensor], Tensor]) -> Tensor:
        rows = theta.reshape(-1, 4)
        most = max(1, _CHUNK // self._target.numel())
        found = torch.cat([quantity(part) for part in rows.split(most)]) if len(rows) else rows
        return found.reshape((*theta.shape[:-1], *found.shape[1:]))

    def _loss(self, rows: Tensor) -> Tensor:
        logits = rows[:, 0, None, None].square() * self._logits_over_e2(rows, self._inputs(rows))
        lost = logits.logsumexp(-1) - (self._target.to(rows) * logits).sum(-1)
        return (lost * self._weight.to(rows)).sum(-1)

    def _gradient(self, rows: Tensor) -> Tensor:
        e, w, v, _ = rows.unbind(-1)
        ratio, m = self.states / (self.states - 1), self.hidden_per_state
        kappa, signed = self.kappa(rows), self.decay == "signed"
        u = self._inputs(rows)
        over = self._logits_over_e2(rows, u)
        square = e.square()[:, None, None]
        off = (square * over).softmax(-1) - self._target.to(rows)
        off = off * self._weight.to(rows)[:, None]
        opened = ratio * m * (w * w.abs())[:, None, None] * (u > 0)
        through = square * ratio * (1 + opened) * off
        by_a = (through * self._memory(kappa)).sum((-2, -1))
        by_kappa = v * v.abs() * (through * self._memory(kappa, 1)).sum((-2, -1))
        return torch.stack(
            [
                2 * e * (off * over).sum((-2, -1)),
                2 * ratio**2 * m * w.abs() * e.square() * (off * u.relu()).sum((-2, -1)),
                2 * v.abs() * by_a,
                (1 - kappa.square() if signed else kappa * (1 - kappa)) * by_kappa,
            ],
            dim=-1,
        )

    def _memory(self, kappa: Tensor, derivative: int = 0) -> Tensor:
        """Σ_k κ^k c(x_{n−k}) of every word, or its derivative by κ, (n, words, S)."""
        powers = [torch.ones_like(kappa)]
        for _ in range(self.length - 1 - derivative):
            powers.append(powers[-1] * kappa)
        rising = torch.stack(powers[: self.length - derivative], dim=-1)
        lags = self._lags.to(kappa)[derivative:]
        if derivative:
            rising = rising * torch.arange(1, self.length).to(kappa)
            lags = lags[: self.length - 1]
        return torch.einsum("nk,kws->nws", rising, lags)

    def _inputs(self, rows: Tensor) -> Tensor:
        """u of every word, (n, words, S)."""
        a = rows[:, 2] * rows[:, 2].abs()
        return self._lags[0].to(rows) + a[:, None, None] * self._memory(self.kappa(rows))

    def unigram_slope(self, theta: Tensor) -> Tensor:
        """C with L = log S − C e² + O(e⁴), (...): the unigram traps where C < 0."""
        rows = theta.reshape(-1, 4)
        logits = self._logits_over_e2(rows, self._inputs(rows))
        per_word = (self._target.to(theta) * logits).sum(-1) - logits.mean(-1)
        return (per_word * self._weight.to(theta)).sum(-1).reshape(theta.shape[:-1])

    def _logits_over_e2(self, rows: Tensor, u: Tensor) -> Tensor:
        ratio, w = self.states / (self.states - 1), rows[:, 1, None, None]
        return ratio * (u + ratio * self.hidden_per_state * w * w.abs() * u.relu())


def _lagged_symbols(last: list[np.ndarray], states: int) -> Tensor:
    """c(x_{n−k}) of every word by lag k, zero where k ≥ n, shape (N, words, S)."""
    own = np.eye(states) - 1 / states
    length, pieces = len(last), []
    memory = np.zeros((length, 1, states))
    for n, symbols in enumerate(last):
        past = memory if n == 0 else np.repeat(memory, states, axis=1)
        memory = np.concatenate([own[symbols][None], past[:-1]])
        pieces.append(memory)
    return torch.from_numpy(np.concatenate(pieces, axis=1))
