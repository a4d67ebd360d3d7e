"""Sources of sequences: samples, and the law of what follows each symbol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.chains.higher_order import OrderChain
from flowsim.chains.paths import bayes_laws, kernel_laws, sample_kernels
from flowsim.chains.priors import Prior
from flowsim.errors import InputError
from flowsim.markov import MarkovChain

D = TypeVar("D", OrderChain, Prior, HiddenMarkovProcess)


class SequenceSource(ABC):
    """Sequences for each of M models on S states; ``exact`` where ``next_laws`` is known."""

    members: int
    states: int
    exact = True

    @abstractmethod
    def repeat(self, members: int) -> Self:
        """The same for every member; InputError if there are already several of them."""

    @abstractmethod
    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent sequences for every member, and their next symbols, uint8, (M, batch, N).

        The sample lies on the generator's device; targets[..., n] follows inputs[..., n].
        """

    @abstractmethod
    def first_law(self) -> Tensor:
        """The law of a sequence's first symbol, shape (M, S), float64."""

    @abstractmethod
    def next_laws(self, tokens: Tensor) -> Tensor:
        """P(x_{n+1} = s | x_1 … x_n), (M, B, N, S), for tokens (B, N) or (M, B, N)."""

    def held_out(
        self, batch: int, length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw sequences (M, batch, N), and return with them the law of each next symbol.

        The law is (M, batch, N, S): of x_{n+1} after x_1 … x_n.
        """
        tokens, _ = self.sample(batch, length, generator)
        return tokens, self.next_laws(tokens.cpu()).to(tokens.device)

    def of_members(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens as (M, B, N), int64, and the member of each, (M, 1, 1)."""
        whole = tokens.long().expand(self.members, *tokens.shape[-2:])
        return whole, torch.arange(self.members, device=tokens.device)[:, None, None]


def sequence_law(source: SequenceSource, tokens: Tensor, predictions: Tensor) -> Tensor:
    """Return P(x_1 … x_N) of the sequences ``tokens`` (B, N) for each member, shape (M, B).

    ``predictions`` are their ``next_laws``, (M, B, N, S).
    """
    law = source.first_law()[:, tokens[:, 0].long()]
    for n in range(tokens.shape[1] - 1):
        following = tokens[None, :, n + 1, None].long().expand(law.shape[0], -1, -1)
        law = law * predictions[:, :, n].gather(-1, following)[..., 0]
    return law


class SharedSource(SequenceSource, Generic[D]):
    """The same chain, prior or hidden process for each of M ≥ 1 models, on at most 256 symbols."""

    def __init__(self, data: D, members: int = 1) -> None:
        self.states = data.symbols if isinstance(data, HiddenMarkovProcess) else data.states
        if members < 1:
            raise InputError(f"a source needs at least one member, not {members}")
        if self.states > 256:
            raise InputError(f"sequences are kept in bytes: at most 256 states, not {self.states}")
        self.data: D = data
        self.members = members

    def repeat(self, members: int) -> Self:
        """The same source for so many models; InputError if it is for another number, above 1."""
        if self.members not in (1, members):
            raise InputError(f"{self.members} sources cannot serve {members} models")
        return type(self)(self.data, members)

    def first_law(self) -> Tensor:
        """The law of the first symbol, (M, S): stationary, or of a prior uniform."""
        if isinstance(self.data, Prior):  # whose first k symbols are uniform
            return torch.full((self.members, self.states), 1 / self.states, dtype=torch.float64)
        return torch.tensor(self.data.stationary, dtype=torch.float64).expand(self.members, -1)

    def _paths(
        self, kernels: Tensor, first: Tensor | None, length: int, generator: torch.Generator,
        each: int = 1,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Sample a sequence from each of M·batch kernels: inputs and next symbols.

        Both are uint8, (M, batch, N). ``first`` is the law of the first k symbols, None if uniform.
        If kernels are on pairs (symbol, hidden state), a pair has number symbol·``each`` +
        state, and the symbol alone is returned.
        """
        paths = sample_kernels(kernels, first, length, generator)
        symbols = (x.div(each, rounding_mode="floor").to(torch.uint8) for x in paths)
        inputs, targets = (x.unflatten(0, (self.members, -1)) for x in symbols)
        return inputs, targets


class MarkovSource(SequenceSource):
    """M stationary chains on k states: kernels, stationary laws, entropies and samples.

    Args:
        chains: M ≥ 1 chains on as many states, with positive kernels.

    Attributes:
        kernel: (M, k, k), P(next = j | now = i), float64.
        stationary: (M, k), π with π P = π.
        entropy_rate: (M,), Σᵢ πᵢ H(P(i, ·)) in nats, the bigram loss.
        stationary_entropy: (M,), H(π) in nats, the unigram loss.

    Raises:
        InputError: no chain, different numbers of states, or a kernel that is zero somewhere.

    Source: AM Sec. 2 (binary), AM Sec. 4.3 (k states).

    >>> import flowsim, full_model
    >>> source = full_model.MarkovSource.of(flowsim.BinaryChain(0.5, 0.8))
    >>> round(float(source.stationary_entropy - source.entropy_rate), 4)
    0.0473
    """

    def __init__(self, chains: Sequence[MarkovChain]) -> None:
        if len({chain.states for chain in chains}) != 1:
            raise InputError("a source needs at least one chain, all on the same number of states")
        self.chains, self.members, self.states = tuple(chains), len(chains), chains[0].states
        self.kernel = torch.from_numpy(np.stack([chain.kernel for chain in chains]))
        if not (self.kernel > 0).all():
            raise InputError("every entry of a kernel must be positive")
        self.stationary, self.entropy_rate, self.stationary_entropy = (
            torch.tensor([getattr(chain, name) for chain in chains], dtype=torch.float64)
            for name in ("stationary", "entropy_rate", "stationary_entropy")
        )

    @classmethod
    def of(cls, chains: MarkovChain | Sequence[MarkovChain]) -> MarkovSource:
        """The source of one chain or of several on as many states, one per member."""
        return cls([chains] if isinstance(chains, MarkovChain) else chains)

    def repeat(self, members: int) -> MarkovSource:
        """The source for so many models, of its one chain or as many; else InputError."""
        if self.members not in (1, members):
            raise InputError(f"{self.members} chains cannot serve {members} models")
        return MarkovSource(self.chains * (members // self.members))

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw stationary sequences and their next symbols, uint8, (M, batch, N).

        Every step is a random map of the states, read off one uniform number; the sequence is the
        chain of their compositions, taken by doubling in log₂ N rounds (own derivation).
        """
        if batch < 1 or length < 1:
            raise InputError(f"a sample needs batch ≥ 1 and length ≥ 1, not {batch} and {length}")
        device = generator.device
        size = (self.members, batch, length + 1)
        u = torch.rand(size, dtype=torch.float64, device=device, generator=generator)
        predictions = torch.cat(
            [self.stationary[:, None], self.kernel], dim=1
        )  # π, then a row per state
        steps = predictions.cumsum(-1)[..., :-1].to(device)  # (M, 1 + k, k − 1)
        if self.states == 2:
            return _binary_paths(u, steps[..., 0])
        maps = (u[..., None, None] >= steps[:, None, None, 1:]).sum(-1)  # (M, B, N + 1, k)
        maps[:, :, 0] = (u[:, :, 0, None] >= steps[:, None, 0]).sum(-1, keepdim=True)
        shift = 1
        while shift <= length:
            maps[:, :, shift:] = maps[:, :, shift:].gather(-1, maps[:, :, :-shift])
            shift *= 2
        paths = maps[..., 0].to(torch.uint8)
        return paths[..., :-1], paths[..., 1:]

    def first_law(self) -> Tensor:
        """The stationary law, (M, k)."""
        return self.stationary

    def next_laws(self, tokens: Tensor) -> Tensor:
        """The kernel's row of each symbol, (M, B, N, k), for tokens (B, N) or (M, B, N)."""
        whole, member = self.of_members(tokens)
        return self.kernel[member, whole]


def _binary_paths(u: Tensor, zero_below: Tensor) -> tuple[Tensor, Tensor]:
    """Two-state paths from uniforms (M, B, N + 1) and P(0 | start, 0, 1), shape (M, 3).

    Returned are inputs and next symbols, (M, B, N). Step n maps the state s to c ⊕ (d ∧ s), and
    maps after maps are of that form. All sequences are composed as one long row: a first step has
    d = 0, and nothing reaches over it.
    """
    image = (u >= zero_below[:, 1, None, None]).view(torch.uint8)
    moves = (u >= zero_below[:, 2, None, None]).view(torch.uint8).bitwise_xor_(image)
    image[..., 0] = u[..., 0] >= zero_below[:, 0, None]
    moves[..., 0] = 0
    c, d = image.view(-1), moves.view(-1)
    shift, last = 1, u.shape[-1] - 1
    while shift <= last:
        c[shift:] ^= d[shift:] & c[:-shift]
        d[shift:] &= d[:-shift].clone()
        shift *= 2
    return image[..., :-1], image[..., 1:]


class ChainSource(SharedSource[OrderChain]):
    """Stationary sequences of a chain of order k, the same chain for each of M models."""

    def __init__(self, chain: OrderChain, members: int = 1) -> None:
        super().__init__(chain, members)
        self._kernel = torch.from_numpy(chain.kernel)
        self._contexts = torch.tensor(chain.contexts.stationary, dtype=torch.float64)

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Stationary sequences and their next symbols, uint8, (M, batch, N)."""
        kernels = self._kernel.expand(self.members * max(batch, 0), -1, -1)
        return self._paths(kernels, self._contexts, length, generator)

    def next_laws(self, tokens: Tensor) -> Tensor:
        """The law of each next symbol, (M, B, N, S); uniform after words that do not occur."""
        whole, _ = self.of_members(tokens)
        states, order = self.states, self.data.order
        context, predictions = torch.zeros_like(whole[..., 0]), []
        for n in range(whole.shape[-1]):
            known = min(n + 1, order)
            context = (context * states + whole[..., n]) % states**known
            law = self._kernel  # of the next symbol after so many
            if known < order:
                joint = torch.from_numpy(self.data.joint(known))
                seen = joint.sum(-1, keepdim=True)
                law = torch.where(seen > 0, joint / seen.clamp(min=1e-300), 1 / states)
            predictions.append(law[context])
        return torch.stack(predictions, dim=-2)


class HiddenSource(SharedSource[HiddenMarkovProcess]):
    """Stationary sequences of a hidden Markov process, the same process for each of M models.

    >>> import flowsim.chains.hidden as hidden
    >>> from full_model.model.sources import HiddenSource
    >>> HiddenSource(hidden.process("mess3"), members=2).states
    3
    """

    def __init__(self, process: HiddenMarkovProcess, members: int = 1) -> None:
        super().__init__(process, members)
        by_state = torch.from_numpy(process.transitions).transpose(0, 1).flatten(1)  # (S, V S)
        law = torch.tensor(process.hidden.stationary, dtype=torch.float64)
        self._first = law @ by_state
        # a pair (symbol, next state) leads on as its state does
        self._kernel = by_state.repeat(process.symbols, 1)

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Stationary sequences and their next symbols, uint8, (M, batch, N)."""
        kernels = self._kernel.expand(self.members * max(batch, 0), -1, -1)
        return self._paths(kernels, self._first, length, generator, self.data.states)

    def next_laws(self, tokens: Tensor) -> Tensor:
        """Bayes's law of each next symbol, (M, B, N, V).

        After an impossible word the filter begins again at the stationary law.
        """
        whole, _ = self.of_members(tokens)
        single = whole[:1] if tokens.ndim == 2 else whole  # the same for all members
        found = torch.from_numpy(self.data.next_laws_of_any(single.numpy()))
        return found.expand(self.members, *found.shape[1:])


class PriorSource(SharedSource[Prior]):
    """Sequences for each of M models, every one with a kernel drawn anew.

    Args:
        prior: the law of kernels; the first k symbols of a sequence are uniform.
        members: M, at least 1.

    Raises:
        InputError: M below 1, or more than 256 states.

    >>> import flowsim, full_model
    >>> source = full_model.PriorSource(flowsim.chains.DirichletPrior(2), members=3)
    >>> source.members
    3
    """

    def __init__(self, prior: Prior, members: int = 1) -> None:
        super().__init__(prior, members)
        self.exact = prior.has_bayes

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sequences, each of a new kernel, and their next symbols, uint8, (M, batch, N)."""
        return self._paths(self._kernels(batch, generator), None, length, generator)

    def next_laws(self, tokens: Tensor) -> Tensor:
        """Bayes's law of each next symbol, (M, B, N, S), the same for all members."""
        shape = tokens.shape[-2:]
        predictions = bayes_laws(self.data, tokens.reshape(-1, shape[-1]))
        return predictions.reshape(-1, *shape, self.states).expand(self.members, -1, -1, -1)

    def held_out(
        self, batch: int, length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """As ``SequenceSource``; by each sequence's own kernel where Bayes's is not known."""
        if self.exact:
            return super().held_out(batch, length, generator)
        kernels = self._kernels(batch, generator)
        tokens, _ = self._paths(kernels, None, length, generator)
        return tokens, kernel_laws(kernels, tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])

    def _kernels(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw a kernel from the prior for each of M·batch sequences, (M·batch, S^k, S)."""
        return self.data.draw(self.members * max(batch, 0), generator)
