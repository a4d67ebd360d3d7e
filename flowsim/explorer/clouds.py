"""The share of a cloud of starts that is trapped, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from flowsim.explorer.view import DRAWS, FEWER_DRAWS, Puff, View
from flowsim.flow.limits import find_limits
from flowsim.landscape.labels import Label
from flowsim.portraits.starts_in_plane import plane_starts
from flowsim.scan.statistics import wilson_interval

#: Starts that are followed between two looks at whether anybody still waits.
_AT_ONCE = 10


@dataclass(frozen=True)
class CloudShare:
    """Where the starts of a cloud end, as far as they were followed.

    Attributes:
        e, w, label: of every start that was followed, shape (n,).
        drawn: starts of the cloud in all.
    """

    e: np.ndarray
    w: np.ndarray
    label: np.ndarray
    drawn: int

    def share(self, label: Label) -> tuple[float, float, float]:
        """The share with that label among those that were followed, and its Wilson interval."""
        count = np.array((self.label == label).sum())
        low, high = wilson_interval(count, len(self.label))
        return float(count / len(self.label)), float(low), float(high)


def draws(puff: Puff, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Its starts, e and w: the same draws whatever the centre and the spread, so that a share does
    not jump while a cloud is dragged."""
    unit = np.random.Generator(np.random.PCG64(0)).standard_normal((count, 2))
    return puff.e + puff.sigma * unit[:, 0], puff.w + puff.sigma * unit[:, 1]


def cloud_shares(view: View, stop: Callable[[], bool] = lambda: False) -> Iterator[CloudShare]:
    """The shares of the view's cloud, ever more of its starts; ends early when stopped."""
    if view.puff is None:
        return
    model = view.model
    quick = model.loss_of_gap
    e, w = draws(view.puff, DRAWS if quick else FEWER_DRAWS)
    rows = plane_starts(model, torch.from_numpy(e), torch.from_numpy(w), view.held)
    label = np.empty(0, np.int8)
    for part in rows.split(len(rows) if quick else _AT_ONCE):
        if stop():
            return
        label = np.append(label, find_limits(model, part).label.numpy())
        yield CloudShare(e[: len(label)], w[: len(label)], label, len(e))
