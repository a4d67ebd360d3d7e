"""The sequences that some models of an ensemble see, drawn where the others are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.model.sequence_source import SequenceSource
from full_model.model.source import MarkovSource


class EnsemblePart(SequenceSource):
    """Some rows of what a source draws for a whole ensemble.

    All is drawn and the rest thrown away, so that a part of an ensemble trained by itself sees what
    it would see among the others.

    Args:
        source: one chain for all models of the ensemble.
        rows: which of them are the members here.
        ensemble: how many there are in all.

    Raises:
        InputError: the models have chains of their own.
    """

    def __init__(self, source: MarkovSource, rows: Sequence[int], ensemble: int) -> None:
        if source.members != 1:
            raise InputError("models with chains of their own are no part of an ensemble")
        self.whole, self.rows = source.repeat(ensemble), torch.tensor(list(rows))
        self.part = source.repeat(len(self.rows))

    @property
    def members(self) -> int:
        return len(self.rows)

    @property
    def states(self) -> int:
        return self.part.states

    @property
    def exact(self) -> bool:
        return self.part.exact

    def repeat(self, members: int) -> Self:
        if members != self.members:
            raise InputError(f"{self.members} rows of an ensemble cannot serve {members} models")
        return self

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        inputs, targets = self.whole.sample(batch, length, generator)
        rows = self.rows.to(inputs.device)
        return inputs[rows], targets[rows]

    def first_law(self) -> Tensor:
        return self.part.first_law()

    def next_laws(self, tokens: Tensor) -> Tensor:
        return self.part.next_laws(tokens)
