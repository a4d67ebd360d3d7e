"""The reduced orbits of a comparison, and what they predict of the full models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flowsim.flow.orbits import find_limits, trajectories
from flowsim.interface import Model

#: Error of a step of the orbits: they are drawn, and training is as far from them as it is.
_RTOL = 1e-8


class ReducedSide:
    """The reduced model's gradient flow from the comparison's points.

    Args:
        model: the model that predicts.
        points: (n, 2 or 3).

    Attributes:
        start: (n, k), the points in the model's coordinates.
        predicted: (n,) int8 labels of their limits.
    """

    def __init__(self, model: Model, points: Tensor) -> None:
        self.model = model
        self.start = model.plane.embed(dict(zip("ewa", points.unbind(-1), strict=False)))
        self.predicted = find_limits(model, self.start).label

    def orbit_at(self, times: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Canonical coordinates (T, n, 2 or 3) and losses (T, n) at T increasing times.

        NaN from the first time on at which an orbit is not known.
        """
        wanted = torch.tensor(times, dtype=torch.float64)
        if len(times) == 1:  # the start alone
            path = self.start.unsqueeze(0)
        else:
            path = trajectories(self.model, self.start, wanted, rtol=_RTOL)
        known = path.isfinite().all(-1)
        loss = self.model.loss(torch.where(known.unsqueeze(-1), path, self.start))
        return self.model.plane.project(path), torch.where(known, loss, torch.nan)
