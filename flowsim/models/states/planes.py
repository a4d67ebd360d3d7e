"""The plane of S states, with and without attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from flowsim.models.canonical.basins import minima_curve, separatrix
from flowsim.models.on_chain import ChainPlane, OnChain


class StatesPlane(ChainPlane):
    """(w, e); E = per_e e and W = per_w w are canonical, with ``gap_factor`` times the gap.

    With attention no separatrix is known, and the minima only where v, which is held, is 0.
    """

    model: Any

    def __init__(self, model: OnChain, per_e: float, per_w: float, gap_factor: float) -> None:
        super().__init__(model)
        self.per_e, self.per_w, self.gap_factor = per_e, per_w, gap_factor

    def separatrix(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        if self.model.attention:
            return super().separatrix(x, fixed)
        return separatrix(self.model.chain, self.per_w * x) / self.per_e

    def minima(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        if fixed.get("v"):
            return torch.full_like(x, torch.nan)
        found = minima_curve(self.model.chain, self.per_w * x)
        return found / (self.per_e * math.sqrt(self.gap_factor))
