"""Rows that get no further: rounding, or a kink, shortens their steps."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.flow.replay import Replay

#: Rows are looked at after so many steps each. They get no further where they have stayed within
#: this part of their way, and their speed has turned so often, or changed by this factor at most.
WINDOW, _HERE, _TURNS, _STEADY = 100, 1e-4, 20, 1.5


class Idle:
    """Speeds and extents of rows (orbits from n starts) since they were last looked at.

    A turn is a change from speeding up to slowing down, or back.

    Attributes:
        over: which rows get no further, (n,).
        slow: which of them were at less than their speed of rest all the time, (n,).
        news: whether a row was found to get no further.
    """

    def __init__(self, start: Tensor, field: bool) -> None:
        """Begin at ``start`` (n, k); ``field``: of a flow that is no gradient's."""
        self.field, none = field, torch.zeros_like(start[:, 0])
        self.over, self.slow, self.news = none.bool(), none.bool(), False
        # speed, its sense and turns, the least and the largest speed, and y
        self.kept = start.new_zeros(len(start), 5 + 2 * start.shape[1])
        self._forget()

    def _forget(self) -> None:
        """Begin anew to count turns and to note extremes, after rows were looked at."""
        k = (self.kept.shape[1] - 5) // 2
        self.kept[:, 2], self.kept[:, 3], self.kept[:, 4] = 0.0, torch.inf, -torch.inf
        self.kept[:, 5 : 5 + k], self.kept[:, 5 + k :] = torch.inf, -torch.inf

    def record(self, attempt: int, index: Tensor, y: Tensor, units: Tensor, speed: Tensor,
               still: Tensor) -> None:  # fmt: skip
        """Note y (m, k) and speeds (m,) of rows after a step, and look at them now and then.

        ``units`` (m, k) are those of y, ``still`` (m,) the speeds below which rows may be at rest.
        """
        (self.kept[index],) = _RECORD(y, speed, self.kept[index])
        if attempt % WINDOW == 0:
            _, _, turns, slowest, fastest, low, high = _columns(self.kept[index])
            here = (high - low <= _HERE * units).all(1)
            restless = turns >= _TURNS
            if not self.field:  # which may go round a small circle at one speed
                restless |= here & (fastest <= _STEADY * slowest)
            slow = fastest <= still
            self.over[index], self.slow[index] = restless & (here | slow), restless & slow & ~here
            self._forget()
            self.news = bool(restless.any())


def _columns(kept: Tensor) -> tuple[Tensor, ...]:
    """Split ``Idle.kept``: speed, its sense, turns, least and largest speed, (m,); extents of y."""
    k = (kept.shape[1] - 5) // 2
    numbers, low, high = kept.split_with_sizes([5, k, k], 1)
    return *numbers.unbind(1), low, high


def _record(y: Tensor, speed: Tensor, kept: Tensor) -> tuple[Tensor]:
    """Return ``Idle.kept`` of rows that are at y (m, k) now, with this speed (m,)."""
    before, sense, turns, slowest, fastest, low, high = _columns(kept)
    now = (speed - before).sign()
    turns = turns + (now * sense < 0)
    sense = torch.where(now == 0, sense, now)
    slowest, fastest = torch.minimum(slowest, speed), torch.maximum(fastest, speed)
    numbers = torch.stack([speed, sense, turns, slowest, fastest], 1)
    return (torch.cat([numbers, torch.minimum(low, y), torch.maximum(high, y)], 1),)


_RECORD = Replay(_record)
