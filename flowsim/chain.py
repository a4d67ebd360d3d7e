"""The binary first-order Markov chain: its entropies, its target logit gap, and samples from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flowsim.errors import InputError
from flowsim.markov import GapChain, binary_entropy, probability, relative_entropy_term

if TYPE_CHECKING:  # both are imported when they are needed, not when a chain is named
    import numpy as np
    import torch


@dataclass(frozen=True)
class BinaryChain(GapChain):
    """Stationary binary chain with p = P(0→1) and q = P(1→0), entropies in nats.

    Both probabilities lie in the open interval (0, 1). Every quantity is a float64 whose relative
    error is a few units in the last place, also where p or q is tiny or p + q is close to one.

    Args:
        p, q: P(0→1) and P(1→0), strictly between 0 and 1.

    Raises:
        InputError: p or q is not a number strictly between 0 and 1.

    Source: AM Sec. 2 (chain, entropies); the logit gap is LG's log[(1−p)(1−q)/(pq)].

    >>> import flowsim
    >>> chain = flowsim.BinaryChain(0.5, 0.8)
    >>> round(chain.stationary_entropy - chain.entropy_rate, 4)
    0.0473
    """

    p: float
    q: float
    states = 2

    def __post_init__(self) -> None:
        for name in ("p", "q"):
            object.__setattr__(self, name, probability(name, getattr(self, name)))

    @property
    def kernel(self) -> np.ndarray:
        """P, shape (2, 2): row i holds the probabilities of what follows i."""
        import numpy as np

        return np.array([[1 - self.p, self.p], [self.q, 1 - self.q]])

    @cached_property
    def stationary(self) -> tuple[float, float]:
        """(π₀, π₁) = (q, p)/(p + q)."""
        return self.q / (self.p + self.q), self.p / (self.p + self.q)

    @cached_property
    def switching_factor(self) -> float:
        """p + q: above one the chain prefers to switch, below one to stay."""
        return self.p + self.q

    @cached_property
    def second_eigenvalue(self) -> float:
        """λ = 1 − (p + q), the correlation of neighbouring symbols; zero when p + q = 1."""
        return 1.0 - self.switching_factor

    @cached_property
    def entropy_rate(self) -> float:
        """π₀ h(p) + π₁ h(q): the bigram loss, the global minimum."""
        pi0, pi1 = self.stationary
        return pi0 * binary_entropy(self.p) + pi1 * binary_entropy(self.q)

    @cached_property
    def stationary_entropy(self) -> float:
        """h(π₁): the unigram loss, that of the bad minima."""
        return binary_entropy(min(self.stationary))

    @cached_property
    def mutual_information(self) -> float:
        """Stationary entropy minus entropy rate; zero exactly when p + q = 1.

        Evaluated as Σ πₓ π_y φ(P(y|x)/π_y − 1) with φ(δ) = (1+δ) log(1+δ) − δ ≥ 0, where no term
        cancels another (own derivation).
        """
        pi0, pi1 = self.stationary
        lam = self.second_eigenvalue
        return (
            2 * pi0 * pi1 * relative_entropy_term(-lam)
            + pi0**2 * relative_entropy_term(lam * pi1 / pi0)
            + pi1**2 * relative_entropy_term(lam * pi0 / pi1)
        )

    @cached_property
    def target_logit_gap(self) -> float:
        """Δ* = log[(1−p)(1−q)/(pq)], positive iff p + q < 1.

        Equal to log(1 + λ/(pq)), the form used near p + q = 1, where Δ* vanishes.
        """
        ratio = self.second_eigenvalue / (self.p * self.q)
        if abs(ratio) < 0.5:
            return math.log1p(ratio)
        return math.log1p(-self.p) + math.log1p(-self.q) - math.log(self.p) - math.log(self.q)

    @cached_property
    def covariance_eigenvalue(self) -> float:
        """2 π₀π₁ λ, positive where the unigram point of a tied model is a saddle."""
        pi0, pi1 = self.stationary
        return 2 * pi0 * pi1 * self.second_eigenvalue

    @property
    def regime(self) -> str:
        """One of "p + q < 1", "p + q = 1" and "p + q > 1"."""
        lam = self.second_eigenvalue
        return "p + q = 1" if lam == 0 else "p + q < 1" if lam > 0 else "p + q > 1"

    def sample(
        self, batch: int, length: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw independent stationary sequences and their next symbols.

        Args:
            batch: number of sequences, at least 1.
            length: number N of positions, at least 1.
            generator: the only source of randomness; the sample lives on its device.

        Returns:
            (inputs, targets), int64 of shape (batch, length), where targets[:, n] is the symbol
            that follows inputs[:, n]; the last target is drawn from the chain like every other.

        Raises:
            InputError: batch or length below 1.

        One uniform number u per step moves either state: below min(p, 1−q) to 1, above
        max(p, 1−q) to 0, and between them every state stays (p + q < 1) or flips (p + q > 1). So
        a symbol follows from the last step that set it and the flips since (own derivation).
        """
        import torch

        if batch < 1 or length < 1:
            raise InputError(f"a sample needs batch ≥ 1 and length ≥ 1, not {batch} and {length}")
        u = torch.rand(
            batch, length + 1, dtype=torch.float64, device=generator.device, generator=generator
        )
        low, high = sorted((self.p, 1.0 - self.q))
        set_to_one, set_to_zero = u < low, u >= high
        set_to_one[:, 0] = u[:, 0] < self.stationary[1]
        set_to_zero[:, 0] = ~set_to_one[:, 0]
        is_set = set_to_one | set_to_zero
        step = torch.arange(length + 1, device=u.device)
        last_set = torch.where(is_set, step, 0).cummax(dim=1).values
        symbols = set_to_one.gather(1, last_set).long()
        if self.switching_factor > 1:
            flips = (~is_set).long().cumsum(dim=1)
            symbols = (symbols + flips - flips.gather(1, last_set)) % 2
        return symbols[:, :-1], symbols[:, 1:]
