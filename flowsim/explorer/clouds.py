"""The share of a cloud of starts that is trapped, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from flowsim.explorer.plane_layers import ends_of
from flowsim.explorer.view import DRAWS, FEWER_DRAWS, Puff, View
from flowsim.flow.orbits import find_limits
from flowsim.scan.record import wilson_interval

#: Starts that are followed between two looks at whether anybody still waits.
_AT_ONCE = 10


@dataclass(frozen=True)
class CloudShare:
    """Where the starts of a cloud end, as far as they were followed.

    Attributes:
        y, x, label: of every start that was followed, shape (n,); labels are codes of ends.
        drawn: starts of the cloud in all.
    """

    y: np.ndarray
    x: np.ndarray
    label: np.ndarray
    drawn: int

    def share(self, label: int) -> tuple[float, float, float]:
        """The share with that code among those that were followed, and its Wilson interval."""
        count = np.array((self.label == label).sum())
        low, high = wilson_interval(count, len(self.label))
        return float(count / len(self.label)), float(low), float(high)


def draws(puff: Puff, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Its starts, y and x: the same draws whatever the centre and the spread, so that a share does
    not jump while a cloud is dragged."""
    unit = np.random.Generator(np.random.PCG64(0)).standard_normal((count, 2))
    return puff.y + puff.sigma * unit[:, 0], puff.x + puff.sigma * unit[:, 1]


def cloud_shares(view: View, stop: Callable[[], bool] = lambda: False) -> Iterator[CloudShare]:
    """The shares of the view's cloud, ever more of its starts; ends early when stopped."""
    if view.puff is None:
        return
    model = view.model
    quick = model.fast
    y, x = draws(view.puff, DRAWS if quick else FEWER_DRAWS)
    rows = model.plane.at(torch.from_numpy(x), torch.from_numpy(y), view.held)
    quick, ends = quick or model.flow() is None, ends_of(view)
    label = np.empty(0, np.int8)
    for part in rows.split(len(rows) if quick else _AT_ONCE):
        if stop():
            return
        label = np.append(label, ends.codes(find_limits(model, part)))
        yield CloudShare(y[: len(label)], x[: len(label)], label, len(y))
