"""Sources whose every sequence has a kernel of its own, drawn from a prior."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.chains.paths import sample_kernels
from flowsim.chains.priors import Prior
from flowsim.errors import InputError


class PriorSource:
    """Sequences for each of M models, every one with a kernel drawn anew.

    Args:
        prior: the law of kernels; the first k symbols of a sequence are uniform.
        members: M, at least 1.

    Raises:
        InputError: M below 1.
    """

    def __init__(self, prior: Prior, members: int = 1) -> None:
        if members < 1:
            raise InputError(f"a source needs at least one member, not {members}")
        self.prior, self.members = prior, members

    @property
    def states(self) -> int:
        return self.prior.states

    def repeat(self, members: int) -> PriorSource:
        """The same prior for every member; InputError if there are already several of them."""
        if self.members not in (1, members):
            raise InputError(f"{self.members} sources cannot serve {members} models")
        return PriorSource(self.prior, members)

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent sequences for every member, and their next symbols.

        Returns:
            (inputs, targets), uint8 of shape (M, batch, N); targets[..., n] follows inputs[..., n].

        Raises:
            InputError: batch or length below 1, or more than 256 states.
        """
        if self.states > 256:
            raise InputError(f"sequences are kept in bytes: at most 256 states, not {self.states}")
        kernels = self.prior.draw(self.members * max(batch, 0), generator)
        paths = sample_kernels(kernels, None, length, generator)
        inputs, targets = (x.to(torch.uint8).unflatten(0, (self.members, batch)) for x in paths)
        return inputs, targets
