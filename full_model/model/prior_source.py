"""Sources whose every sequence has a kernel of its own, drawn from a prior."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.chains.next_laws import bayes_laws, kernel_laws
from flowsim.chains.paths import sample_kernels
from flowsim.chains.priors import Prior
from full_model.model.sequence_source import SequenceSource, require_bytes, require_one_or


class PriorSource(SequenceSource):
    """Sequences for each of M models, every one with a kernel drawn anew.

    Args:
        prior: the law of kernels; the first k symbols of a sequence are uniform.
        members: M, at least 1.

    Raises:
        InputError: M below 1, or more than 256 states.
    """

    def __init__(self, prior: Prior, members: int = 1) -> None:
        require_bytes(prior.states, members)
        self.prior, self._members = prior, members

    @property
    def members(self) -> int:
        return self._members

    @property
    def states(self) -> int:
        return self.prior.states

    @property
    def exact(self) -> bool:
        return self.prior.has_bayes

    def repeat(self, members: int) -> PriorSource:
        """The same prior for every member; InputError if there are already several of them."""
        require_one_or(self.members, members)
        return PriorSource(self.prior, members)

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent sequences for every member, and their next symbols.

        Returns:
            (inputs, targets), uint8 of shape (M, batch, N); targets[..., n] follows inputs[..., n].

        Raises:
            InputError: batch or length below 1.
        """
        return self._paths(self._kernels(batch, generator), length, generator)

    def first_law(self) -> Tensor:
        return torch.full((self.members, self.states), 1 / self.states, dtype=torch.float64)

    def next_laws(self, tokens: Tensor) -> Tensor:
        """Bayes's predictor, the same for all members."""
        shape = tokens.shape[-2:]
        laws = bayes_laws(self.prior, tokens.reshape(-1, shape[-1]))
        return laws.reshape(-1, *shape, self.states).expand(self.members, -1, -1, -1)

    def held_out(
        self, batch: int, length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """As ``SequenceSource``; by each sequence's own kernel where Bayes's is not known."""
        if self.exact:
            return super().held_out(batch, length, generator)
        kernels = self._kernels(batch, generator)
        tokens, _ = self._paths(kernels, length, generator)
        return tokens, kernel_laws(kernels, tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])

    def _kernels(self, batch: int, generator: torch.Generator) -> Tensor:
        return self.prior.draw(self.members * max(batch, 0), generator)

    def _paths(
        self, kernels: Tensor, length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        paths = sample_kernels(kernels, None, length, generator)
        inputs, targets = (x.to(torch.uint8).unflatten(0, (self.members, -1)) for x in paths)
        return inputs, targets
