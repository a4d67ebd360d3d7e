"""What every source of sequences gives: samples, and the law of what follows each symbol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from flowsim.errors import InputError


class SequenceSource(ABC):
    """Sequences for each of M models, on S states."""

    @property
    @abstractmethod
    def members(self) -> int:
        """M."""

    @property
    @abstractmethod
    def states(self) -> int:
        """S."""

    @property
    def exact(self) -> bool:
        """Whether ``next_laws`` is known."""
        return True

    @abstractmethod
    def repeat(self, members: int) -> Self:
        """The same for every member; InputError if there are already several of them."""

    @abstractmethod
    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent sequences for every member, and their next symbols, uint8 (M, batch, N)."""

    @abstractmethod
    def first_law(self) -> Tensor:
        """The law of a sequence's first symbol, shape (M, S), float64."""

    @abstractmethod
    def next_laws(self, tokens: Tensor) -> Tensor:
        """P(x_{n+1} = s | x_1 … x_n) at every n, shape (M, B, N, S), float64.

        Args:
            tokens: integers in [0, S), (B, N) for all members or (M, B, N), each its own.

        Raises:
            InputError: where no closed form is known.
        """

    def held_out(
        self, batch: int, length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Sequences (M, batch, N), and the law of what follows, (M, batch, N, S)."""
        tokens, _ = self.sample(batch, length, generator)
        return tokens, self.next_laws(tokens.cpu()).to(tokens.device)

    def of_members(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens as (M, B, N), int64, and the member of each, (M, 1, 1)."""
        whole = tokens.long().expand(self.members, *tokens.shape[-2:])
        return whole, torch.arange(self.members, device=tokens.device)[:, None, None]


def sequence_law(source: SequenceSource, tokens: Tensor, laws: Tensor) -> Tensor:
    """P(x_1 … x_N) of sequences (B, N), with their ``next_laws``, shape (M, B)."""
    law = source.first_law()[:, tokens[:, 0].long()]
    for n in range(tokens.shape[1] - 1):
        following = tokens[None, :, n + 1, None].long().expand(law.shape[0], -1, -1)
        law = law * laws[:, :, n].gather(-1, following)[..., 0]
    return law


def require_one_or(sources: int, models: int) -> None:
    """InputError unless there is one source for all models, or one for each."""
    if sources not in (1, models):
        raise InputError(f"{sources} sources cannot serve {models} models")


def require_bytes(states: int, members: int) -> None:
    """InputError for a source of no member, or of symbols that fit no byte."""
    if members < 1:
        raise InputError(f"a source needs at least one member, not {members}")
    if states > 256:
        raise InputError(f"sequences are kept in bytes: at most 256 states, not {states}")
