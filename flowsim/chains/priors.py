"""Laws of kernels: one is drawn anew for every sequence, and Bayes's predictor knows the law.

A sequence starts with k symbols drawn uniformly. Given them, its probability depends on how often
each symbol followed each context, n_cb; so does everything that Bayes says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flowsim.chains.higher_order import OrderChain
from flowsim.errors import InputError, require_integer
from flowsim.markov import MarkovChain

#: Rejection of doubly stochastic kernels accepts 1 draw in 2 at S = 3, few beyond this.
_MOST_STATES = 8


class Prior(ABC):
    """A distribution of kernels of order k on S states; one is drawn for every sequence.

    Counts n_cb say how often the symbol b followed the context c, the k symbols before it. Of A
    sequences they have shape (A, S^k, S), and contexts c shape (A,).
    """

    states: int
    order: int = 1

    @property
    def has_bayes(self) -> bool:
        """Return whether Bayes's predictor is known, and with it every exact loss."""
        return True

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return settings ready for JSON; two priors with equal settings are equal."""

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``count`` kernels, shape (count, S^k, S), float64 on the generator's device."""

    @abstractmethod
    def log_evidence(self, counts: Tensor) -> Tensor:
        """Return log E Π P(c, b)^n_cb over the prior, shape (A,).

        The log probability of a sequence with these counts, given its first k symbols.
        """

    @abstractmethod
    def predict(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return Bayes's probability of each next symbol after ``context``, shape (A, S)."""

    @abstractmethod
    def row_entropy(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return E H(P(c, ·)) in nats under the posterior, the loss with the kernel known, (A,)."""


class DirichletPrior(Prior):
    """Rows drawn independently from Dirichlet(β, …, β); Bayes adds β to every count.

    Args:
        states: S, at least 2.
        order: k, how many symbols the next one depends on, at least 1.
        beta: β > 0; 1 is uniform over all rows, less makes rows nearly certain.

    Raises:
        InputError: S below 2, k below 1, or β not above 0.

    >>> import flowsim, torch
    >>> kernels = flowsim.chains.DirichletPrior(3).draw(5, torch.Generator().manual_seed(0))
    >>> tuple(kernels.shape), bool((kernels.sum(-1) - 1).abs().max() < 1e-12)
    ((5, 3, 3), True)
    """

    def __init__(self, states: int, order: int = 1, beta: float = 1.0) -> None:
        require_integer("states", states, 2)
        require_integer("order", order, 1)
        if not 0 < beta < float("inf"):
            raise InputError(f"beta must be a number above 0, not {beta!r}")
        self.states, self.order, self.beta = states, order, float(beta)

    def __repr__(self) -> str:
        return f"DirichletPrior({self.states}, order={self.order}, beta={self.beta:g})"

    def settings(self) -> dict[str, Any]:
        """Return the name, S, k and β."""
        return {"prior": "dirichlet", "states": self.states, "order": self.order, "beta": self.beta}

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw kernels as gamma variates, normalised in each row."""
        shape = (count, self.states**self.order, self.states)
        alpha = torch.full(shape, self.beta, dtype=torch.float64, device=generator.device)
        gamma = torch._standard_gamma(alpha, generator=generator).clamp(min=1e-300)
        return gamma / gamma.sum(-1, keepdim=True)

    def log_evidence(self, counts: Tensor) -> Tensor:
        """Return the log evidence, a sum over contexts in closed form."""
        return _dirichlet_evidence(counts, self.beta).sum(-1)

    def predict(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return (n_cb + β) over its sum in b."""
        row = row_of(counts, context) + self.beta
        return row / row.sum(-1, keepdim=True)

    def row_entropy(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return the expected entropy of a Dirichlet row, in closed form."""
        return _dirichlet_entropy(row_of(counts, context) + self.beta)


class DoublyStochasticPrior(Prior):
    """Kernels whose columns sum to one too, uniform over all of them (Birkhoff's polytope).

    Their stationary law is uniform: the unigram learns nothing. Drawn by rejection: S − 1
    rows uniform, accepted where the last one can complete them. Bayes's predictor has a closed
    form for S = 2, where the probability to move is uniform.

    Args:
        states: S, from 2 to 8.

    Raises:
        InputError: S not from 2 to 8; Bayes's predictor, or a loss that needs it, for S above 2.

    >>> import flowsim, torch
    >>> kernels = flowsim.chains.DoublyStochasticPrior(3).draw(5, torch.Generator().manual_seed(0))
    >>> bool((kernels.sum(-2) - 1).abs().max() < 1e-12)
    True
    """

    def __init__(self, states: int) -> None:
        if isinstance(states, bool) or states not in range(2, _MOST_STATES + 1):
            raise InputError(
                f"doubly stochastic kernels are drawn for 2 to {_MOST_STATES} states, "
                f"not {states!r}"
            )
        self.states = states

    def __repr__(self) -> str:
        return f"DoublyStochasticPrior({self.states})"

    @property
    def has_bayes(self) -> bool:
        """Return whether S = 2, where Bayes's predictor has a closed form."""
        return self.states == 2

    def settings(self) -> dict[str, Any]:
        """Return the name, S and k = 1."""
        return {"prior": "doubly-stochastic", "states": self.states, "order": 1}

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw kernels by rejection: the last row must be what the columns leave."""
        rows, device = self.states - 1, generator.device
        kept = torch.zeros(0, rows, self.states, dtype=torch.float64, device=device)
        while len(kept) < count:
            alpha = kept.new_ones(max(4 * count, 4096), rows, self.states)
            drawn = torch._standard_gamma(alpha, generator=generator)
            drawn = drawn / drawn.sum(-1, keepdim=True)
            kept = torch.cat([kept, drawn[(drawn.sum(1) <= 1).all(-1)]])
        kept = kept[:count]
        last = 1 - kept.sum(1, keepdim=True)
        return torch.cat([kept, last / last.sum(-1, keepdim=True)], dim=1)

    def log_evidence(self, counts: Tensor) -> Tensor:
        """Return the log evidence for S = 2, where the probability to move is uniform."""
        return _dirichlet_evidence(self._stays_and_moves(counts), 1.0)

    def predict(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return Bayes's probabilities for S = 2: one added to the stays and to the moves."""
        alpha = self._stays_and_moves(counts) + 1
        chance = alpha / alpha.sum(-1, keepdim=True)
        return torch.where((context == 0)[:, None], chance, chance.flip(-1))

    def row_entropy(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return the expected entropy of a row for S = 2."""
        return _dirichlet_entropy(self._stays_and_moves(counts) + 1)

    def _stays_and_moves(self, counts: Tensor) -> Tensor:
        """Return how often the state stayed and how often it moved, shape (A, 2); S = 2 only."""
        if self.states > 2:
            raise InputError(
                "Bayes's predictor of doubly stochastic kernels is known for two states only, "
                f"not for {self.states}"
            )
        stays = counts[:, 0, 0] + counts[:, 1, 1]
        return torch.stack([stays, counts[:, 0, 1] + counts[:, 1, 0]], dim=-1)


class FinitePrior(Prior):
    """One of finitely many kernels.

    Args:
        kernels: chains, or their kernels, all of one order on as many states.
        weights: their probabilities, of sum one; equal ones if None.

    Raises:
        InputError: no kernel, kernels of different shapes, or weights that are no probabilities.

    >>> import flowsim
    >>> prior = flowsim.chains.FinitePrior([[[0.9, 0.1], [0.1, 0.9]], [[0.1, 0.9], [0.9, 0.1]]])
    >>> prior
    FinitePrior(2 kernels of 2 states)
    """

    def __init__(self, kernels: Sequence[Any], weights: Sequence[float] | None = None) -> None:
        rows = (k.kernel if isinstance(k, (OrderChain, MarkovChain)) else k for k in kernels)
        chains = [OrderChain(k) for k in rows]
        if len({(chain.states, chain.order) for chain in chains}) != 1:
            raise InputError("a finite prior needs at least one kernel, all of one order and shape")
        self.states, self.order = chains[0].states, chains[0].order
        self.kernels = torch.stack([torch.from_numpy(chain.kernel) for chain in chains])
        self.weights = _probabilities(weights, len(chains))

    def __repr__(self) -> str:
        return f"FinitePrior({len(self.weights)} kernels of {self.states} states)"

    def settings(self) -> dict[str, Any]:
        """Return the name, S, k, the kernels and their weights."""
        rows, weights = self.kernels.tolist(), self.weights.tolist()
        own = {"kernels": rows, "weights": weights}
        return {"prior": "finite", "states": self.states, "order": self.order, **own}

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw kernels out of the given ones by their weights."""
        return self.kernels.to(generator.device)[_draw_indices(self.weights, count, generator)]

    def log_evidence(self, counts: Tensor) -> Tensor:
        """Return the log of the weighted sum of each kernel's probability of the counts."""
        return self._log_weights(counts).logsumexp(-1)

    def predict(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return the rows of all kernels, averaged by their posterior weights."""
        rows = self.kernels.to(counts.device)[:, context]
        return torch.einsum("ak,kas->as", self._log_weights(counts).softmax(-1), rows)

    def row_entropy(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return the entropy of the rows of all kernels, averaged by their posterior weights."""
        entropy = -torch.xlogy(self.kernels, self.kernels).sum(-1).to(counts.device)
        return torch.einsum("ak,ka->a", self._log_weights(counts).softmax(-1), entropy[:, context])

    def _log_weights(self, counts: Tensor) -> Tensor:
        """Return log of weight times probability of the counts under each kernel, (A, kernels)."""
        logs, flat = self.kernels.log().to(counts.device).flatten(1), counts.flatten(1)
        impossible = torch.where(torch.isinf(logs), 1.0, 0.0).to(counts)
        found = flat @ torch.where(torch.isinf(logs), 0.0, logs).T
        found = found.masked_fill(flat @ impossible.T > 0, -torch.inf)
        return found + self.weights.log().to(counts.device)


class MixturePrior(Prior):
    """A kernel of one prior or another, by weight.

    Args:
        parts: priors of one order on as many states.
        weights: their probabilities, of sum one; equal ones if None.

    Raises:
        InputError: no part, parts of different shapes, or weights that are no probabilities.

    >>> import flowsim
    >>> parts = [flowsim.chains.DirichletPrior(2), flowsim.chains.DirichletPrior(2, beta=0.1)]
    >>> prior = flowsim.chains.MixturePrior(parts, weights=[0.7, 0.3])
    >>> prior.states, prior.order
    (2, 1)
    """

    def __init__(self, parts: Sequence[Prior], weights: Sequence[float] | None = None) -> None:
        if len({(part.states, part.order) for part in parts}) != 1:
            raise InputError("a mixture needs at least one prior, all of one order and on as many "
                             "states")  # fmt: skip
        self.parts = tuple(parts)
        self.states, self.order = parts[0].states, parts[0].order
        self.weights = _probabilities(weights, len(parts))

    def __repr__(self) -> str:
        return f"MixturePrior({list(self.parts)}, {self.weights.tolist()})"

    @property
    def has_bayes(self) -> bool:
        """Return whether Bayes's predictor of every part is known."""
        return all(part.has_bayes for part in self.parts)

    def settings(self) -> dict[str, Any]:
        """Return the name, S, k, the settings of the parts and their weights."""
        parts = [part.settings() for part in self.parts]
        own = {"parts": parts, "weights": self.weights.tolist()}
        return {"prior": "mixture", "states": self.states, "order": self.order, **own}

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw a part by weight for each kernel, and the kernel from that part."""
        chosen = _draw_indices(self.weights, count, generator)
        drawn = torch.stack([part.draw(count, generator) for part in self.parts])
        return drawn[chosen, torch.arange(count, device=generator.device)]

    def log_evidence(self, counts: Tensor) -> Tensor:
        """Return the log of the weighted sum of the parts' evidences."""
        return self._log_weights(counts).logsumexp(-1)

    def predict(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return the predictions of the parts, averaged by their posterior weights."""
        said = torch.stack([part.predict(counts, context) for part in self.parts], dim=1)
        return (self._log_weights(counts).softmax(-1)[..., None] * said).sum(1)

    def row_entropy(self, counts: Tensor, context: Tensor) -> Tensor:
        """Return the expected row entropies of the parts, averaged by their posterior weights."""
        said = torch.stack([part.row_entropy(counts, context) for part in self.parts], dim=1)
        return (self._log_weights(counts).softmax(-1) * said).sum(1)

    def _log_weights(self, counts: Tensor) -> Tensor:
        """Return log of weight times evidence of each part, shape (A, parts)."""
        found = torch.stack([part.log_evidence(counts) for part in self.parts], dim=-1)
        return found + self.weights.log().to(counts.device)


def _probabilities(weights: Sequence[float] | None, count: int) -> Tensor:
    """Return the weights as a tensor (count,), equal ones if None; InputError if they are wrong."""
    if weights is None:
        return torch.full((count,), 1 / count, dtype=torch.float64)
    found = torch.tensor(list(weights), dtype=torch.float64)
    if len(found) != count or not bool((found > 0).all()) or abs(float(found.sum()) - 1) > 1e-12:
        raise InputError(f"weights must be {count} positive numbers of sum one, not {weights}")
    return found


def _draw_indices(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw ``count`` indices with the probabilities ``weights``, int64 (count,)."""
    u = torch.rand(count, dtype=torch.float64, device=generator.device, generator=generator)
    return (u[:, None] >= weights.to(u.device).cumsum(0)[:-1]).sum(-1)


def row_of(tables: Tensor, context: Tensor) -> Tensor:
    """Return the row of each table (A, S^k, S) that belongs to its context (A,), shape (A, S)."""
    return tables[torch.arange(len(tables), device=tables.device), context]


def _dirichlet_evidence(counts: Tensor, beta: float) -> Tensor:
    """Return log E Π P_b^n_b for P of Dirichlet(β, …, β), over the last axis of ``counts``."""
    whole, like = counts.sum(-1), counts.shape[-1] * beta
    none = torch.zeros_like(whole)
    ratio = torch.lgamma(counts + beta) - torch.lgamma(torch.zeros_like(counts) + beta)
    return torch.lgamma(none + like) - torch.lgamma(whole + like) + ratio.sum(-1)


def _dirichlet_entropy(alpha: Tensor) -> Tensor:
    """Return E H(P) for P of Dirichlet(α), over the last axis of ``alpha``.

    ψ(A + 1) − Σ (α_b/A) ψ(α_b + 1), A = Σ α_b.
    """
    whole = alpha.sum(-1)
    return torch.digamma(whole + 1) - (alpha * torch.digamma(alpha + 1)).sum(-1) / whole
