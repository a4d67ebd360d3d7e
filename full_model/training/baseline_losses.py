"""The losses that a run's loss is compared with, for every model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.chains.baselines import baselines
from flowsim.errors import InputError
from full_model.training.settings import RunSettings


@dataclass(frozen=True)
class RunLosses:
    """The losses of ``baselines`` for every model of a run.

    Attributes:
        names: of the baselines.
        values: (M, baselines).
        missing: why some are not known; empty if none.
    """

    names: tuple[str, ...]
    values: Tensor
    missing: str = ""

    @classmethod
    def of(cls, settings: RunSettings) -> RunLosses:
        found: dict[Any, dict[str, float]] = {}
        missing = ""
        for data in settings.every_data:
            if data in found:
                continue
            try:
                found[data] = baselines(data, settings.arch.length)
            except InputError as error:
                found[data], missing = {"uniform": float(np.log(data.states))}, str(error)
        rows = [found[data] for data in settings.every_data]
        values = torch.tensor([list(row.values()) for row in rows], dtype=torch.float64)
        return cls(tuple(rows[0]), values, missing)

    def column(self, name: str) -> Tensor | None:
        """(M,) of one baseline, or None."""
        return self.values[:, self.names.index(name)] if name in self.names else None

    @property
    def least(self) -> Tensor | None:
        """(M,) the least possible loss without knowing more than the sequence and its law."""
        bayes = self.column("Bayes")
        return self.column("kernel") if bayes is None else bayes
