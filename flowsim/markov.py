"""Markov chains on any number of states: stationary law, entropies, eigenvalues, regime.

The last functions check transition matrices and compute with probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError, require_integer

if TYPE_CHECKING:  # numpy is imported when a number is asked for, not when a chain is named
    import numpy as np

#: Tolerance of a row's sum, of π P = π, and of eigenvalues that count as equal.
ROUNDING = 1e-12
#: Eigenvalues of the covariance below this count as zero.
_FLAT = 1e-14


class MarkovChain:
    """A stationary first-order chain with any finite transition matrix, entropies in nats.

    ``BinaryChain`` and ``SymmetricChain`` are the special cases with closed forms. A kernel with
    transient states has the stationary law of its one closed class; one with several closed classes
    has no one stationary law, and everything that needs it raises InputError.

    Args:
        kernel: P, shape (S, S) with S ≥ 2: row i holds the probabilities of what follows i.

    Raises:
        InputError: not a square matrix of numbers, a negative entry, a row whose sum is not one.

    Source: AM Sec. 2 (entropies), 4.3 (more states); the regime by own derivation,
    docs/derivations/14.md.

    >>> import flowsim
    >>> chain = flowsim.MarkovChain([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.2, 0.0, 0.8]])
    >>> [round(share, 2) for share in chain.stationary], round(chain.entropy_rate, 4)
    ([0.4, 0.4, 0.2], 0.3601)
    """

    #: S.
    states: int
    #: k, the number of symbols that the next one depends on.
    order = 1

    def __init__(self, kernel: Any) -> None:
        self._kernel = checked_kernel(kernel)
        self.states = len(self._kernel)

    @classmethod
    def symmetric(cls, states: int, p: float) -> SymmetricChain:
        """Return the chain that stays with probability 1 − p, else moves uniformly elsewhere."""
        return SymmetricChain(states, p)

    def __eq__(self, other: object) -> bool:
        same = type(other) is MarkovChain and type(self) is MarkovChain
        return same and self.kernel.tolist() == other.kernel.tolist()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(tuple(map(tuple, self.kernel.tolist())))

    def __repr__(self) -> str:
        return f"MarkovChain({self.kernel.tolist()})"

    @property
    def kernel(self) -> np.ndarray:
        """P, a copy, shape (S, S)."""
        return self._kernel.copy()

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The closed classes: sets of states that are never left and reach one another."""
        import numpy as np
        from scipy.sparse.csgraph import connected_components

        moves = self.kernel > 0
        count, name = connected_components(moves, connection="strong")
        groups = [np.flatnonzero(name == i) for i in range(count)]
        closed = [g for g in groups if not np.delete(moves[g], g, axis=1).any()]
        return tuple(sorted(tuple(map(int, g)) for g in closed))

    @cached_property
    def period(self) -> int:
        """The greatest common divisor of the lengths of all round trips in the closed classes."""
        import numpy as np

        found = 0
        for group in self.classes:
            moves = self.kernel[np.ix_(group, group)] > 0
            level, queue = {0: 0}, [0]
            for i in queue:  # grows while it is read
                for j in map(int, np.flatnonzero(moves[i])):
                    if j not in level:
                        level[j] = level[i] + 1
                        queue.append(j)
                    found = math.gcd(found, level[i] + 1 - level[j])
        return found

    @cached_property
    def structure(self) -> str:
        """In words, whether the kernel is irreducible, its closed classes and its period."""
        inside = {i for group in self.classes for i in group}
        outside = [i for i in range(self.states) if i not in inside]
        words = ["irreducible" if len(self.classes) == 1 and not outside else "reducible"]
        words += [f"closed classes {sets_text(self.classes)}"] * (len(self.classes) > 1)
        words += [f"transient states {sets_text([tuple(outside)])}"] * bool(outside)
        return ", ".join([*words, "aperiodic" if self.period == 1 else f"period {self.period}"])

    @cached_property
    def stationary(self) -> tuple[float, ...]:
        """π with π P = π and sum one, zero at transient states.

        By elimination of state after state without a subtraction, so that every entry is right to
        rounding however small it is (Grassmann, Taksar and Heyman, 1985).

        Raises:
            InputError: several closed classes, or π P − π is not below 1e-12.
        """
        if len(self.classes) > 1:
            raise InputError(
                f"the kernel is reducible: its closed classes {sets_text(self.classes)} have laws "
                "of their own, so that it has no one stationary law"
            )
        import numpy as np

        kernel, group = self.kernel, self.classes[0]
        left, count = kernel[np.ix_(group, group)].copy(), len(group)
        for n in range(count - 1, 0, -1):
            left[:n, n] /= left[n, :n].sum()
            left[:n, :n] += np.outer(left[:n, n], left[n, :n])
        part = np.ones(count)
        for n in range(1, count):
            part[n] = part[:n] @ left[:n, n]
        law = np.zeros(len(kernel))
        law[list(group)] = part / part.sum()
        residual = float(np.abs(law @ kernel - law).max())
        if not residual <= ROUNDING:
            raise InputError(f"the stationary law solves its equations to {residual:.0e} only")
        return tuple(map(float, law))

    @cached_property
    def entropy_rate(self) -> float:
        """Σ πᵢ H(P(i, ·)): the bigram loss, the least possible one."""
        rows = (math.fsum(-x * math.log(x) for x in row if x > 0) for row in self.kernel.tolist())
        return math.fsum(weight * h for weight, h in zip(self.stationary, rows, strict=True))

    @cached_property
    def stationary_entropy(self) -> float:
        """H(π): the unigram loss."""
        return math.fsum(-x * math.log(x) for x in self.stationary if x > 0)

    @cached_property
    def mutual_information(self) -> float:
        """Stationary entropy minus entropy rate: zero exactly where successors are independent.

        Σ πᵢπⱼ φ(P(i, j)/πⱼ − 1) with φ(δ) = (1+δ) log(1+δ) − δ ≥ 0, where no term cancels another
        (own derivation).
        """
        law, rows = self.stationary, self.kernel.tolist()
        inside = [i for i, x in enumerate(law) if x > 0]
        return math.fsum(
            law[i] * law[j] * relative_entropy_term(rows[i][j] / law[j] - 1)
            for i in inside
            for j in inside
        )

    def ngram_loss(self, n: int) -> float:
        """Return the loss of the best predictor from the last n − 1 symbols.

        The unigram's is the stationary entropy; the bigram's is the entropy rate, which no longer
        past betters.

        Raises:
            InputError: n is not an integer of at least 1.
        """
        require_integer("n", n, 1)
        return self.stationary_entropy if n == 1 else self.entropy_rate

    @cached_property
    def second_eigenvalue(self) -> complex | float:
        """The eigenvalue of P largest in size beside 1; of a pair that with the imaginary part ≥ 0.

        Real if it is so to rounding. Of several the one with the largest real part.
        """
        import numpy as np

        values = np.linalg.eigvals(self.kernel)
        rest = np.delete(values, np.abs(values - 1).argmin())
        size = np.abs(rest)
        largest = rest[size >= size.max() - ROUNDING]
        best = max(largest, key=lambda x: (round(x.real, 12), x.imag))
        return float(best.real) if abs(best.imag) <= ROUNDING else complex(best)

    @cached_property
    def covariance(self) -> np.ndarray:
        """C = (DP + PᵀD)/2 − ππᵀ, D = diag π: covariance of neighbouring symbols, shape (S, S)."""
        import numpy as np

        law = np.array(self.stationary)
        joint = law[:, None] * self.kernel
        return (joint + joint.T) / 2 - np.outer(law, law)

    @cached_property
    def covariance_eigenvalue(self) -> float:
        """The largest eigenvalue of C on what is orthogonal to constants, without transient states.

        Near zero embeddings E the loss of a tied model is H(π) − tr(Eᵀ C E): where this is positive
        the unigram point is a saddle. Zero if it is so to rounding.
        """
        import numpy as np

        inside = np.flatnonzero(np.array(self.stationary) > 0)
        if len(inside) < 2:
            return 0.0
        ones = np.ones((len(inside), 1))
        across = np.linalg.qr(np.hstack([ones, np.eye(len(inside))[:, 1:]]))[0][:, 1:]
        within = across.T @ self.covariance[np.ix_(inside, inside)] @ across
        largest = float(np.linalg.eigvalsh(within)[-1])
        return 0.0 if abs(largest) <= _FLAT else largest

    @property
    def unigram(self) -> str:
        """The expected type of the unigram point of a tied model, in words.

        By the sign of ``covariance_eigenvalue``.
        """
        value = self.covariance_eigenvalue
        if value == 0:
            return "flat to second order"
        return "a saddle" if value > 0 else "a local minimum"

    @property
    def regime(self) -> str:
        """The expected type of the unigram point, in words.

        Chains with a threshold say instead on which side of it they are.
        """
        return f"the unigram is {self.unigram}"


class GapChain(MarkovChain):
    """A chain whose best prediction is one logit gap, so that reduced models have L = ℓ(Δ)."""

    p: float

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """One class, which is never left: every entry of the kernel is positive."""
        return (tuple(range(self.states)),)

    @cached_property
    def period(self) -> int:
        """1, since every entry of the kernel is positive."""
        return 1

    @cached_property
    def second_eigenvalue(self) -> float:
        """λ, which every derived class gives."""
        raise NotImplementedError

    @cached_property
    def target_logit_gap(self) -> float:
        """Δ*, the best logit gap, of the sign of λ; every derived class gives it."""
        raise NotImplementedError


@dataclass(frozen=True)
class SymmetricChain(GapChain):
    """S states; the chain stays with probability 1 − p, else moves uniformly to another state.

    Every quantity has a closed form, right to a few units in the last place also near p = (S−1)/S,
    where successors are independent.

    Args:
        states: S, at least 2.
        p: the probability to leave a state, strictly between 0 and 1.

    Raises:
        InputError: S is not an integer of at least 2, or p not a number strictly between 0 and 1.

    >>> import flowsim
    >>> chain = flowsim.chains.SymmetricChain(3, 0.2)
    >>> chain.kernel.round(2).tolist()
    [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    """

    states: int
    p: float

    def __post_init__(self) -> None:
        require_integer("states", self.states, 2)
        object.__setattr__(self, "p", probability("p", self.p))

    @property
    def kernel(self) -> np.ndarray:
        """P, shape (S, S)."""
        import numpy as np

        kernel = np.full((self.states, self.states), self.p / (self.states - 1))
        np.fill_diagonal(kernel, 1 - self.p)
        return kernel

    @property
    def threshold(self) -> float:
        """(S − 1)/S, the p above which the unigram traps."""
        return (self.states - 1) / self.states

    @cached_property
    def stationary(self) -> tuple[float, ...]:
        """π, which is uniform."""
        return (1 / self.states,) * self.states

    @cached_property
    def second_eigenvalue(self) -> float:
        """λ = 1 − pS/(S − 1)."""
        return (self.states - 1 - self.states * self.p) / (self.states - 1)

    @cached_property
    def entropy_rate(self) -> float:
        """h(p) + p log(S − 1): the bigram loss, the least possible one."""
        return binary_entropy(self.p) + self.p * math.log(self.states - 1)

    @cached_property
    def stationary_entropy(self) -> float:
        """log S: the unigram loss."""
        return math.log(self.states)

    @cached_property
    def mutual_information(self) -> float:
        """Stationary entropy minus entropy rate, where no term cancels another."""
        stay = relative_entropy_term((self.states - 1) * self.second_eigenvalue)
        move = relative_entropy_term(-self.second_eigenvalue)
        return (stay + (self.states - 1) * move) / self.states

    @cached_property
    def target_logit_gap(self) -> float:
        """Δ* = log[(1 − p)(S − 1)/p], the best gap between the current state and any other."""
        excess = (self.states - 1) * self.second_eigenvalue / self.p
        if abs(excess) < 0.5:
            return math.log1p(excess)
        return math.log1p(-self.p) + math.log(self.states - 1) - math.log(self.p)

    @cached_property
    def covariance_eigenvalue(self) -> float:
        """λ/S."""
        return self.second_eigenvalue / self.states

    @property
    def regime(self) -> str:
        """One of "p < (S−1)/S", "p = (S−1)/S", "p > (S−1)/S", S as a number."""
        lam = self.second_eigenvalue
        sign = "=" if lam == 0 else "<" if lam > 0 else ">"
        return f"p {sign} {self.states - 1}/{self.states}"


def probability(argument: str, value: Any, below: float = 1.0, zero: bool = False) -> float:
    """Return ``value`` as a number strictly between 0 and ``below``; with ``zero`` 0 is allowed.

    InputError for anything else.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (0.0 < number < below or (zero and number == 0.0)):
        interval = "from 0 up to, but not," if zero else "strictly between 0 and"
        raise InputError(f"{argument} must be a number {interval} {below:g}, not {value!r}")
    return number


def binary_entropy(x: float) -> float:
    """Return h(x) = −x log x − (1−x) log(1−x) in nats, for x in (0, 1)."""
    return -x * math.log(x) - (1 - x) * math.log1p(-x)


def relative_entropy_term(delta: float) -> float:
    """Return φ(δ) = (1+δ) log(1+δ) − δ, by its Taylor series where the difference would cancel."""
    if delta <= -1:
        return 1.0
    if abs(delta) > 0.1:
        return (1 + delta) * math.log1p(delta) - delta
    return math.fsum((-delta) ** k / (k * (k - 1)) for k in range(2, 20))


def checked_kernel(kernel: Any) -> np.ndarray:
    """Return a square transition matrix as an array (S, S); InputError for anything else."""
    found = array_of_numbers(kernel)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2:
        shape = " x ".join(map(str, found.shape)) if found.size > 1 else "empty or a number"
        raise InputError(f"a kernel must be a square matrix on at least two states, not {shape}")
    return checked_rows(found)


def checked_order_kernel(kernel: Any) -> tuple[np.ndarray, int]:
    """Return a kernel of order k as an array (S^k, S), and k; InputError for anything else.

    A row is what follows one context, the k last symbols with the oldest varying slowest; arrays
    of shape (S, …, S), with k + 1 axes, are accepted too.
    """
    found = array_of_numbers(kernel)
    states = found.shape[-1] if found.ndim else 0
    rows = found.reshape(-1, states) if states > 1 and found.ndim > 1 else found
    order = round(math.log(len(rows), states)) if states > 1 and found.size else 0
    if rows.ndim != 2 or order < 1 or states**order != len(rows):
        shape = " x ".join(map(str, found.shape)) if found.size > 1 else "empty or a number"
        raise InputError(
            f"a kernel of order k has S^k rows of S probabilities, S at least 2, not {shape}"
        )
    return checked_rows(rows), order


def array_of_numbers(matrix: Any, what: str = "a kernel") -> np.ndarray:
    """Return a matrix as a float64 array; InputError, which calls it ``what``, if it is none."""
    import numpy as np

    try:
        return np.array(matrix, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a matrix of numbers, in rows of one length") from None


def checked_rows(found: np.ndarray, what: str = "a kernel") -> np.ndarray:
    """Return the matrix, if its rows are probabilities of sum one; else raise InputError."""
    import numpy as np

    wrong = np.argwhere(~(found >= 0))
    if len(wrong):
        i, j = map(int, wrong[0])
        raise InputError(f"{what} holds probabilities, but row {i}, column {j} is {found[i, j]}")
    sums = found.sum(axis=1)
    for i in map(int, np.flatnonzero(~(np.abs(sums - 1) <= ROUNDING))):
        raise InputError(f"{what}'s rows must sum to one, but row {i} sums to {sums[i]:.12g}")
    return found


def sets_text(groups: Iterable[Iterable[int]]) -> str:
    """Return sets of states as a sentence says them, such as {0, 1} and {2}."""
    return " and ".join("{" + ", ".join(map(str, group)) + "}" for group in groups)
