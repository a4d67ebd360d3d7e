"""Sequences of one stationary chain of any order, its kernel with zeros or without."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.chains.higher_order import OrderChain
from flowsim.chains.paths import sample_kernels
from full_model.model.sequence_source import SequenceSource, require_bytes, require_one_or


class ChainSource(SequenceSource):
    """Stationary sequences of a chain of order k, the same chain for each of M models.

    Args:
        chain: the chain.
        members: M, at least 1.

    Raises:
        InputError: M below 1, more than 256 states, or a chain with no one stationary law.
    """

    def __init__(self, chain: OrderChain, members: int = 1) -> None:
        require_bytes(chain.states, members)
        self.chain, self._members = chain, members
        self._kernel = torch.from_numpy(chain.kernel)
        self._contexts = torch.tensor(chain.contexts.stationary, dtype=torch.float64)

    @property
    def members(self) -> int:
        return self._members

    @property
    def states(self) -> int:
        return self.chain.states

    def repeat(self, members: int) -> ChainSource:
        require_one_or(self.members, members)
        return ChainSource(self.chain, members)

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        kernels = self._kernel.expand(self.members * max(batch, 0), -1, -1)
        paths = sample_kernels(kernels, self._contexts, length, generator)
        inputs, targets = (x.to(torch.uint8).unflatten(0, (self.members, batch)) for x in paths)
        return inputs, targets

    def first_law(self) -> Tensor:
        return torch.tensor(self.chain.stationary, dtype=torch.float64).expand(self.members, -1)

    def next_laws(self, tokens: Tensor) -> Tensor:
        """As ``SequenceSource``; before k symbols are known, of the stationary law.

        After symbols that do not occur the law is uniform.
        """
        whole, _ = self.of_members(tokens)
        states, order = self.states, self.chain.order
        context, laws = torch.zeros_like(whole[..., 0]), []
        for n in range(whole.shape[-1]):
            known = min(n + 1, order)
            context = (context * states + whole[..., n]) % states**known
            laws.append(self._after(known)[context])
        return torch.stack(laws, dim=-2)

    def _after(self, known: int) -> Tensor:
        """The law of the next symbol after each ``known`` ≤ k symbols, (S^known, S)."""
        if known == self.chain.order:
            return self._kernel
        joint = torch.from_numpy(self.chain.joint(known))
        whole = joint.sum(-1, keepdim=True)
        return torch.where(whole > 0, joint / whole.clamp(min=1e-300), 1 / self.states)
