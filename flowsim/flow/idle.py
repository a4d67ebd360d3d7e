"""Rows that get no further: rounding, or a kink, shortens their steps."""

from __future__ import annotations

import torch
from torch import Tensor

#: Rows are looked at after so many steps each. They get no further where they have stayed within
#: this part of their way, and their speed has turned so often, or changed by this factor at most.
WINDOW, _HERE, _TURNS, _STEADY = 100, 1e-4, 20, 1.5


class Idle:
    """Steps and turns of rows (n, k) since they were last looked at.

    Attributes:
        over: which rows get no further, (n,).
        slow: which of them were at less than their speed of rest all the time, (n,).
    """

    def __init__(self, start: Tensor, field: bool) -> None:
        self.field, none = field, torch.zeros_like(start[:, 0])
        self.over, self.slow = none.bool(), none.bool()
        self.speed, self.sense, self.turns = none.clone(), none.clone(), none.clone()
        self._forget(start)

    def _forget(self, start: Tensor) -> None:
        self.low, self.high = torch.full_like(start, torch.inf), torch.full_like(start, -torch.inf)
        self.slowest, self.fastest = self.low[:, 0].clone(), self.high[:, 0].clone()
        self.turns = torch.zeros_like(self.speed)

    def record(self, attempt: int, index: Tensor, y: Tensor, units: Tensor, speed: Tensor,
               still: Tensor) -> None:  # fmt: skip
        """Take rows (m,) to where they are now; ``units`` (m, k) of y, ``still`` as of a rest."""
        sense = (speed - self.speed[index]).sign()
        self.turns[index] += sense * self.sense[index] < 0
        self.sense[index] = torch.where(sense == 0, self.sense[index], sense)
        self.speed[index] = speed
        self.low[index] = torch.minimum(self.low[index], y)
        self.high[index] = torch.maximum(self.high[index], y)
        self.slowest[index] = torch.minimum(self.slowest[index], speed)
        self.fastest[index] = torch.maximum(self.fastest[index], speed)
        if attempt % WINDOW == 0:
            here = ((self.high - self.low)[index] <= _HERE * units).all(1)
            restless = self.turns[index] >= _TURNS
            if not self.field:  # which may go round a small circle at one speed
                restless |= here & (self.fastest <= _STEADY * self.slowest)[index]
            slow = self.fastest[index] <= still
            self.over[index], self.slow[index] = restless & (here | slow), restless & slow & ~here
            self._forget(self.low)
