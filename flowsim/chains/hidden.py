"""Hidden Markov processes: block entropies, Bayes's filter, samples, and processes by name.

``SeenChain`` is what a model sees of one that reads the present symbol alone.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.chains.higher_order import last_symbol_entropy
from flowsim.errors import InputError, require_integer
from flowsim.markov import (
    MarkovChain,
    array_of_numbers,
    checked_kernel,
    checked_rows,
    probability,
)

#: The most words of n symbols that are enumerated: n ≤ 16 for two symbols, 12 for three.
MAX_WORDS = 3**12


class HiddenSample(NamedTuple):
    """Sequences of a hidden process, all tensors with the batch first.

    Attributes:
        hidden: (B, N), int64, the hidden state from which each symbol is emitted.
        symbols: (B, N), int64.
        targets: (B, N), int64, the symbol that follows each.
        next_law: (B, N, V), float64, P(x_{n+1} | x_1 … x_n), Bayes's prediction.
    """

    hidden: Tensor
    symbols: Tensor
    targets: Tensor
    next_law: Tensor


class LinearFilter(NamedTuple):
    """The best linear prediction of a binary symbol from all symbols before it.

    Attributes:
        ratio: κ; the weight of x_{n−k} is proportional to κ^k.
        explained_by_one: R² of the prediction from x_n alone.
        explained_by_all: R² of the prediction from x_n, x_{n−1}, …
    """

    ratio: float
    explained_by_one: float
    explained_by_all: float


class HiddenMarkovProcess:
    """A stationary process of V symbols driven by a Markov chain on S hidden states.

    T[x][i, j] = P(emit x and move to j | state i), so that Σₓ T[x] is the hidden chain's kernel.
    The state is that before the emission: with emissions E a state i emits x with chance E[i, x]
    and then moves. Entropies are in nats.

    Args:
        transitions: T, shape (V, S, S), not negative, Σₓ T[x] with rows of sum one; V ≥ 2, S ≥ 2.

    Raises:
        InputError: another shape, or a sum that is no kernel.

    Source: Cover & Thomas, Elements of Information Theory, 4.5 (bounds of the entropy rate).

    >>> import flowsim.chains.hidden as hidden
    >>> flips = hidden.process("flips", p=0.9, q=0.9, epsilon=0.2)
    >>> [round(loss, 6) for loss in flips.ngram_losses(3)]
    [0.693147, 0.651082, 0.638311]
    """

    def __init__(self, transitions: Any) -> None:
        found = array_of_numbers(transitions, "the transitions of a hidden process")
        if found.ndim != 3 or found.shape[1] != found.shape[2] or len(found) < 2:
            raise InputError(
                "the transitions of a hidden process have shape (V, S, S) with V of at least 2, "
                f"not {found.shape}"
            )
        if not (found >= 0).all():
            raise InputError("the transitions of a hidden process must not be negative")
        self.hidden = MarkovChain(checked_kernel(found.sum(0)))
        self._transitions = found
        self.symbols, self.states = found.shape[:2]
        self.emission: np.ndarray | None = None
        self._name = ""

    @classmethod
    def from_emission(cls, kernel: Any, emission: Any) -> HiddenMarkovProcess:
        """Make the process whose state i emits the symbol x with chance E[i, x], then moves by P.

        Args:
            kernel: P, shape (S, S).
            emission: E, shape (S, V), rows of sum one.

        Raises:
            InputError: shapes or rows that do not fit.

        >>> import flowsim.chains.hidden as hidden
        >>> kernel, emission = [[0.5, 0.5], [0.8, 0.2]], [[0.9, 0.1], [0.1, 0.9]]
        >>> hidden.HiddenMarkovProcess.from_emission(kernel, emission).symbols
        2
        """
        P = checked_kernel(kernel)
        E = array_of_numbers(emission, "an emission matrix")
        if E.ndim != 2 or len(E) != len(P) or E.shape[1] < 2:
            raise InputError(
                f"an emission matrix has a row for each of the {len(P)} states and a column for "
                f"each symbol, at least two, not shape {E.shape}"
            )
        made = cls(checked_rows(E, "an emission matrix").T[:, :, None] * P)
        made.emission = E
        return made

    def __repr__(self) -> str:
        return f"HiddenMarkovProcess(states={self.states}, symbols={self.symbols})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HiddenMarkovProcess):
            return NotImplemented
        return np.array_equal(self._transitions, other._transitions)

    def __hash__(self) -> int:
        return hash(self._transitions.tobytes())

    @property
    def transitions(self) -> np.ndarray:
        """T, a copy, shape (V, S, S)."""
        return self._transitions.copy()

    @property
    def name(self) -> str:
        """The text from which ``parse_process`` makes the process again.

        >>> import flowsim.chains.hidden as hidden
        >>> hidden.process("mess3", x=0.1).name
        'mess3:x=0.1,a=0.85'
        """
        return self._name or json.dumps(self._transitions.tolist())

    @cached_property
    def stationary(self) -> tuple[float, ...]:
        """The probability of each symbol, shape (V,)."""
        pi = np.array(self.hidden.stationary)
        return tuple(map(float, self._transitions.sum(2) @ pi))

    def ngram_losses(self, n: int) -> list[float]:
        """Return H₁ … Hₙ with Hₖ = H(x_k | x_1 … x_{k−1}), by enumeration of all words.

        H₁ is the unigram's loss and H₂ the bigram's. They fall to the entropy rate.

        Raises:
            InputError: n is not an integer of at least 1, or there are more than 3¹² words.

        >>> import flowsim.chains.hidden as hidden
        >>> [round(loss, 6) for loss in hidden.process("golden-mean").ngram_losses(3)]
        [0.636514, 0.462098, 0.462098]
        """
        return [upper for _, upper in self._entropy_bounds(n)]

    def entropy_bounds(self, n: int) -> tuple[float, float]:
        """Return the bounds H(x_n | x_1 … x_{n−1}, z₁) ≤ entropy rate ≤ H(x_n | x_1 … x_{n−1}).

        z₁ is the hidden state that emits x₁.

        Raises:
            InputError: as ``ngram_losses``.

        Source: Birch (1962); Cover & Thomas, Theorem 4.5.1.
        """
        return self._entropy_bounds(n)[-1]

    def _entropy_bounds(self, n: int) -> list[tuple[float, float]]:
        """Return (lower, upper) bounds of the entropy rate from words of 1, …, n symbols."""
        require_integer("n", n, 1)
        if self.symbols**n > MAX_WORDS:
            raise InputError(
                f"{n} of {self.symbols} symbols make more than the {MAX_WORDS} words that are "
                "enumerated: take a smaller n"
            )
        pi = np.array(self.hidden.stationary)
        ahead, found = np.ones((1, self.states)), []  # P(word | z₁), a row for each word
        for _ in range(n):
            ahead = np.einsum("xst,wt->xws", self._transitions, ahead).reshape(-1, self.states)
            joint = ahead * pi
            lower, upper = (last_symbol_entropy(p, self.symbols) for p in (joint, joint.sum(1)))
            found.append((lower, upper))
        return found

    def ngram_loss(self, n: int) -> float:
        """Return Hₙ, the loss of the best prediction from the last n − 1 symbols."""
        return self.ngram_losses(n)[-1]

    @cached_property
    def neighbours(self) -> MarkovChain:
        """The first-order chain whose neighbouring symbols have the same joint law, P(x₂ | x₁).

        A model that reads the present symbol alone has on the process the same loss as on this
        chain, and so the same flow.

        Raises:
            InputError: a symbol that never occurs.
        """
        pi = np.array(self.hidden.stationary)
        joint = np.einsum("s,xst,ytu->xy", pi, self._transitions, self._transitions)
        if not (joint.sum(1) > 0).all():
            raise InputError("a symbol of the hidden process never occurs")
        return MarkovChain(joint / joint.sum(1, keepdims=True))

    def beliefs(self, symbols: Any) -> np.ndarray:
        """Return P(hidden state | x_1 … x_n), the state being that before the next emission.

        Args:
            symbols: integers in [0, V), shape (..., N).

        Returns:
            Shape (..., N + 1, S), the stationary law first.

        Raises:
            InputError: no symbols of the process, or a sequence that it cannot emit.

        >>> import flowsim.chains.hidden as hidden
        >>> hidden.process("even").beliefs([0]).round(3)
        array([[0.667, 0.333],
               [1.   , 0.   ]])
        """
        tokens = np.asarray(symbols)
        whole = tokens.dtype.kind in "iu" and tokens.ndim > 0
        if not whole or not ((tokens >= 0) & (tokens < self.symbols)).all():
            raise InputError(f"symbols of this process are integers from 0 to {self.symbols - 1}")
        found, possible = self._filtered(tokens)
        if not possible:
            raise InputError("the process cannot emit this sequence of symbols")
        return found

    def _filtered(self, tokens: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return what ``beliefs`` does, (..., N + 1, S), and whether all sequences are possible.

        After a word that the process cannot emit they are the stationary law again.
        """
        now = np.broadcast_to(self.hidden.stationary, (*tokens.shape[:-1], self.states))
        found, possible = [now], True
        for n in range(tokens.shape[-1]):
            joint = np.einsum("...s,...st->...t", now, self._transitions[tokens[..., n]])
            chance = joint.sum(-1, keepdims=True)
            possible = possible and bool((chance > 0).all())
            now = np.where(chance > 0, joint / np.where(chance > 0, chance, 1), found[0])
            found.append(now)
        return np.stack(found, axis=-2), possible

    def next_laws(self, symbols: Any) -> np.ndarray:
        """Return P(x_{n+1} | x_1 … x_n), Bayes's prediction, shape (..., N, V).

        Args and raises as ``beliefs``.
        """
        return self._next_laws(self.beliefs(symbols))

    def next_laws_of_any(self, symbols: np.ndarray) -> np.ndarray:
        """Return ``next_laws``, by the stationary law after words that cannot be emitted."""
        return self._next_laws(self._filtered(symbols)[0])

    def _next_laws(self, beliefs: np.ndarray) -> np.ndarray:
        """Return P(next symbol), (..., N, V), from beliefs (..., N + 1, S)."""
        predictions: np.ndarray = beliefs[..., 1:, :] @ self._transitions.sum(2).T
        return predictions

    def sample(self, batch: int, length: int, generator: torch.Generator) -> HiddenSample:
        """Draw independent stationary sequences: hidden states, symbols, targets and predictions.

        Args:
            batch: number of sequences, at least 1.
            length: N, at least 1.
            generator: the only source of randomness; drawn on its device, returned on the CPU.

        Raises:
            InputError: batch or length below 1.

        >>> import torch, flowsim.chains.hidden as hidden
        >>> draws = torch.Generator().manual_seed(0)
        >>> found = hidden.process("mess3").sample(2, 5, draws)
        >>> tuple(found.next_law.shape), bool((found.symbols[:, 1:] == found.targets[:, :-1]).all())
        ((2, 5, 3), True)
        """
        require_integer("batch", batch, 1)
        require_integer("length", length, 1)
        u = torch.rand(batch, length + 2, dtype=torch.float64, device=generator.device,
                       generator=generator).cpu().numpy()  # fmt: skip
        state = np.searchsorted(np.cumsum(self.hidden.stationary)[:-1], u[:, 0], side="right")
        moves = self._transitions.transpose(1, 0, 2).reshape(self.states, -1)
        steps = moves.cumsum(1)[:, :-1]  # of symbol and next state together
        states, symbols = [], []
        for n in range(1, length + 2):
            states.append(state)
            move = (u[:, n, None] >= steps[state]).sum(1)
            symbol, state = move // self.states, move % self.states
            symbols.append(symbol)
        x, z = np.stack(symbols, 1), np.stack(states, 1)
        parts = z[:, :-1], x[:, :-1], x[:, 1:], self.next_laws(x[:, :-1])
        return HiddenSample(*map(torch.from_numpy, map(np.ascontiguousarray, parts)))

    @cached_property
    def linear_filter(self) -> LinearFilter:
        """The best linear prediction of the next symbol, of two states that emit two symbols.

        With s² = (E₁ − E₀)² π₀π₁, λ = 1 − p − q, R = Var(x) − s² and Q = s²(1 − λ²) the error's
        variance P solves P = λ² P R/(P + R) + Q, and κ = λ R/(P + R): its sign is that of λ.

        Raises:
            InputError: another number of states or symbols, or no emission matrix.

        Source: own derivation (Kalman's filter at rest).

        >>> import flowsim.chains.hidden as hidden
        >>> round(hidden.process("flips", p=0.9, q=0.9, epsilon=0.1).linear_filter.ratio, 6)
        -0.409803
        """
        if self.emission is None or self.emission.shape != (2, 2):
            raise InputError(
                "the linear filter is known of two hidden states that emit two symbols"
            )
        (zero, one), kernel = self.hidden.stationary, self.hidden.kernel
        eigenvalue = 1 - float(kernel[0, 1] + kernel[1, 0])
        mean = self.stationary[1]
        signal = (self.emission[1, 1] - self.emission[0, 1]) ** 2 * zero * one
        noise, moved = mean * (1 - mean) - signal, signal * (1 - eigenvalue**2)
        # P² + P (R (1 − λ²) − Q) − Q R = 0
        half = (noise * (1 - eigenvalue**2) - moved) / 2
        error = math.hypot(half, math.sqrt(moved * noise)) - half
        total = signal + noise
        ratio = eigenvalue * noise / (error + noise) if error + noise > 0 else 0.0
        one_only = (signal * eigenvalue / total) ** 2
        found = ratio, one_only, 1 - (error + noise) / total
        return LinearFilter(*map(float, found))


@dataclass(frozen=True)
class SeenChain(BinaryChain):
    """The first-order projection of a hidden process of two symbols.

    p̃ = P(x' = 1 | x = 0) and q̃ = P(x' = 0 | x = 1) of neighbouring symbols. A prediction that reads
    the present symbol alone has the same loss on both, hence the same flow and the same basins. The
    best loss of this chain is that of such a prediction, H(x' | x), above the process's own.

    Attributes:
        process: whose symbols are seen.

    >>> import flowsim
    >>> from flowsim.chains.hidden import SeenChain, process
    >>> seen = SeenChain.of(process("golden-mean"))
    Traceback (most recent call last):
        ...
    flowsim.errors.InputError: p must be a number strictly between 0 and 1, not 1.0
    >>> SeenChain.of(process("even")).regime
    'p + q < 1'
    """

    process: HiddenMarkovProcess

    @classmethod
    def of(cls, process: HiddenMarkovProcess) -> Self:
        """Return the chain of neighbouring symbols of a process.

        Raises:
            InputError: another number of symbols than two, or neighbours that never occur.
        """
        if process.symbols != 2:
            raise InputError(
                f"a binary model sees two symbols, and this process has {process.symbols}"
            )
        kernel = process.neighbours.kernel
        return cls(float(kernel[0, 1]), float(kernel[1, 0]), process)

    def lag_ratios(self, count: int) -> np.ndarray:
        """Return Cov(x_{n+1}, x_{n−k})/Cov(x_{n+1}, x_n) for k < count, (count,); λ^k of flips.

        Raises:
            InputError: neighbours are not correlated, so that the ratios are not defined.
        """
        T = self.process.transitions
        ahead = np.array(self.process.hidden.stationary) @ T[1]
        mean, kernel, found = self.process.stationary[1], T.sum(0), []
        for _ in range(count):
            found.append(float((ahead @ T[1]).sum() - mean**2))
            ahead = ahead @ kernel
        if abs(found[0]) < 1e-12:
            raise InputError("neighbouring symbols of this process are not correlated")
        return np.array(found) / found[0]


def hidden_baselines(process: HiddenMarkovProcess, length: int) -> dict[str, float]:
    """Return losses by name, in nats, exact means over the predictions after 1, …, N symbols.

    "uniform", log V; "unigram"; "bigram", the best from the last symbol; and "Bayes", the least
    possible: the mean of H₂ … H_{N+1}. Beyond the words that are enumerated Hₙ is the upper bound
    of the entropy rate, where both bounds agree to 1e-6 nats.

    Raises:
        InputError: they do not agree.

    >>> import flowsim.chains.hidden as hidden
    >>> losses = hidden.hidden_baselines(hidden.process("mess3"), 64)
    >>> {name: round(loss, 5) for name, loss in losses.items()}
    {'uniform': 1.09861, 'unigram': 1.09861, 'bigram': 0.85772, 'Bayes': 0.79487}
    """
    longest = int(math.log(MAX_WORDS, process.symbols) + 1e-9)
    bounds = process._entropy_bounds(max(2, min(length + 1, longest)))
    upper = [high for _, high in bounds]
    if length + 1 > len(bounds) and upper[-1] - bounds[-1][0] > 1e-6:
        raise InputError(
            f"words of {len(bounds)} symbols bound the entropy rate between {bounds[-1][0]:.6g} "
            f"and {upper[-1]:.6g} only: the least loss of {length} positions is not known"
        )
    later = upper[1 : length + 1]
    later += upper[-1:] * (length - len(later))
    return {
        "uniform": math.log(process.symbols),
        "unigram": upper[0],
        "bigram": upper[1],
        "Bayes": math.fsum(later) / length,
    }


def _flips(p: float = 0.9, q: float = 0.9, epsilon: float = 0.2) -> HiddenMarkovProcess:
    """Return the binary chain (p, q) with each symbol flipped with chance ε in [0, ½)."""
    flip = probability("epsilon", epsilon, below=0.5, zero=True)
    emission = [[1 - flip, flip], [flip, 1 - flip]]
    return HiddenMarkovProcess.from_emission(BinaryChain(p, q).kernel, emission)


def _mess3(x: float = 0.05, a: float = 0.85) -> HiddenMarkovProcess:
    """Return the process of three states: each moves with chance 2x, emits its symbol with a."""
    move, own = probability("x", x, below=0.5), probability("a", a)
    kernel = np.full((3, 3), move) + (1 - 3 * move) * np.eye(3)
    emission = np.full((3, 3), (1 - own) / 2) + (own - (1 - own) / 2) * np.eye(3)
    # it moves and then emits
    return HiddenMarkovProcess(emission.T[:, None, :] * kernel)


def _golden_mean(p: float = 0.5) -> HiddenMarkovProcess:
    """Return the process with no two zeros in a row; else a zero has chance p."""
    p = probability("p", p)
    return HiddenMarkovProcess([[[0, p], [0, 0]], [[1 - p, 0], [1, 0]]])


def _even(p: float = 0.5) -> HiddenMarkovProcess:
    """Return the process with ones in runs of even length; p is the chance to begin a pair."""
    p = probability("p", p)
    return HiddenMarkovProcess([[[1 - p, 0], [0, 0]], [[0, p], [1, 0]]])


def _rrxor(p: float = 0.5, q: float = 0.5) -> HiddenMarkovProcess:
    """Return the process of two random bits, ones with chances p and q, and their exclusive or."""
    p, q = probability("p", p), probability("q", q)
    T = np.zeros((2, 5, 5))  # start; after a zero, a one; before the answer zero, one
    T[0, 0, 1], T[1, 0, 2] = 1 - p, p
    T[0, 1, 3], T[1, 1, 4] = 1 - q, q
    T[0, 2, 4], T[1, 2, 3] = 1 - q, q
    T[0, 3, 0] = T[1, 4, 0] = 1
    return HiddenMarkovProcess(T)


def _zero_one_random(p: float = 0.5) -> HiddenMarkovProcess:
    """Return the process of a zero, a one, and a random bit that is one with chance p."""
    p = probability("p", p)
    T = np.zeros((2, 3, 3))
    T[0, 0, 1] = T[1, 1, 2] = 1
    T[0, 2, 0], T[1, 2, 0] = 1 - p, p
    return HiddenMarkovProcess(T)


#: Processes by name, functions of their numbers.
PROCESSES: dict[str, Callable[..., HiddenMarkovProcess]] = {
    "flips": _flips, "mess3": _mess3, "golden-mean": _golden_mean, "even": _even,
    "rrxor": _rrxor, "z1r": _zero_one_random,
}  # fmt: skip


def process(name: str, /, **numbers: float) -> HiddenMarkovProcess:
    """Make a hidden Markov process by its name.

    Args:
        name: "flips", "mess3", "golden-mean", "even", "rrxor" or "z1r".
        numbers: of flips p, q and epsilon; of mess3 x and a; of rrxor p and q; of the others p.

    Raises:
        InputError: an unknown name, or numbers that the process has not or that are out of range.

    Source: Marzen and Crutchfield (2017) for Mess3; Shai et al., arXiv 2405.15943, for Mess3, RRXOR
    and Z1R as data of transformers.

    >>> import flowsim.chains.hidden as hidden
    >>> hidden.process("mess3", x=0.15, a=0.6)
    HiddenMarkovProcess(states=3, symbols=3)
    """
    if name not in PROCESSES:
        raise InputError(f"there is no process {name!r}: choose {', '.join(PROCESSES)}")
    known = inspect.signature(PROCESSES[name]).parameters
    for number in numbers:
        if number not in known:
            raise InputError(f"{name} has no {number!r}; it has {', '.join(known)}")
    made = PROCESSES[name](**numbers)
    values = {key: numbers.get(key, about.default) for key, about in known.items()}
    made._name = f"{name}:" + ",".join(f"{key}={value!r}" for key, value in values.items())
    return made


def parse_process(text: str) -> HiddenMarkovProcess:
    """Make the process that NAME, NAME:NUMBER=VALUE,… or its transitions (V, S, S) as JSON spell.

    Raises:
        InputError: another text, or as ``process``.

    >>> import flowsim.chains.hidden as hidden
    >>> hidden.parse_process("flips:p=0.9,q=0.9") == hidden.process("flips", p=0.9, q=0.9)
    True
    """
    if text.startswith("["):
        try:
            return HiddenMarkovProcess(json.loads(text))
        except json.JSONDecodeError:
            raise InputError("the transitions of a hidden process are JSON numbers") from None
    name, _, rest = text.partition(":")
    numbers = {}
    for part in rest.split(",") if rest else []:
        key, _, value = part.partition("=")
        try:
            numbers[key.strip()] = float(value)
        except ValueError:
            said = text if len(text) <= 60 else f"{text[:57]}..."
            raise InputError(
                f"a process is NAME or NAME:NUMBER=VALUE,NUMBER=VALUE, not {said!r}"
            ) from None
    return process(name.strip(), **numbers)
