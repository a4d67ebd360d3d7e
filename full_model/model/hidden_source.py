"""Sequences of a hidden Markov process, as a source of training data."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.chains.paths import sample_kernels
from flowsim.errors import InputError
from full_model.model.sources import SequenceSource


class HiddenSource(SequenceSource):
    """Stationary sequences of a hidden Markov process, the same process for each of M models.

    Args:
        process: of V symbols.
        members: M, at least 1.

    Raises:
        InputError: M below 1, or more than 256 symbols.

    >>> import flowsim.chains.hidden as hidden
    >>> from full_model.model.hidden_source import HiddenSource
    >>> HiddenSource(hidden.process("mess3"), members=2).states
    3
    """

    def __init__(self, process: HiddenMarkovProcess, members: int = 1) -> None:
        if members < 1:
            raise InputError(f"a source needs at least one member, not {members}")
        if process.symbols > 256:
            raise InputError(f"sequences are kept in bytes: at most 256, not {process.symbols}")
        self.process, self.members, self.states = process, members, process.symbols
        by_state = torch.from_numpy(process.transitions).transpose(0, 1).flatten(1)  # (S, V S)
        moves = by_state.shape[1]
        law = torch.tensor(process.hidden.stationary, dtype=torch.float64)
        self._first = law @ by_state
        # a pair (symbol, next state) leads on as its state does
        self._kernel = by_state.repeat(moves // len(by_state), 1)

    def repeat(self, members: int) -> HiddenSource:
        if self.members not in (1, members):
            raise InputError(f"{self.members} sources cannot serve {members} models")
        return HiddenSource(self.process, members)

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        kernels = self._kernel.expand(self.members * max(batch, 0), -1, -1)
        paths = sample_kernels(kernels, self._first, length, generator)
        symbols = (x.div(self.process.states, rounding_mode="floor") for x in paths)
        inputs, targets = (x.to(torch.uint8).unflatten(0, (self.members, -1)) for x in symbols)
        return inputs, targets

    def first_law(self) -> Tensor:
        law = torch.tensor(self.process.stationary, dtype=torch.float64)
        return law.expand(self.members, -1)

    def next_laws(self, tokens: Tensor) -> Tensor:
        """As ``SequenceSource``: Bayes's prediction, the stationary law after impossible words."""
        whole, _ = self.of_members(tokens)
        single = whole[:1] if tokens.ndim == 2 else whole  # the same for all members
        found = torch.from_numpy(self.process.next_laws_of_any(single.numpy()))
        return found.expand(self.members, *found.shape[1:])
