"""The reduced orbits of a comparison, and what they predict of the full models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flowsim.flow.limits import find_limits
from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel
from full_model.comparison.fields import FullField
from full_model.comparison.outcome import classify
from full_model.comparison.steps import ReducedField, step_until
from full_model.lift.lifting import lift_rank_one

#: Between the times at which orbits are looked at: the first, and each next one by this factor.
FIRST_TIME, FACTOR = 0.25, 2**0.5


class ReducedSide:
    """The reduced model's orbits from the comparison's points.

    Canonical and uniform predictions are the model's limits. Rank-one orbits are labelled on their
    way, by what their lifts into the full model show.

    Args:
        model: the model that predicts.
        points: (n, 2 or 3).
        field: of the full models that the orbits are lifted into.

    Attributes:
        state, time, steps: coordinates (n, k) of ``model``, physical times and steps taken.
        predicted: (n,) int8 labels, unresolved while undecided.
    """

    #: What a checkpoint holds.
    KEPT = ("state", "time", "steps", "predicted")

    def __init__(self, model: ReducedModel, points: Tensor, field: FullField) -> None:
        self.model, self.full_field, self.field = model, field, ReducedField(model)
        count = len(points)
        self.time = torch.zeros(count, dtype=torch.float64)
        self.steps = torch.zeros(count, dtype=torch.int64)
        if isinstance(model, RankOneModel):
            self.state = model.from_canonical(points)
            self.predicted = torch.full((count,), Label.UNRESOLVED, dtype=torch.int8)
        else:
            self.state = points.clone()
            self.predicted = find_limits(model, points).label.clone()

    def undecided(self) -> Tensor:
        """Which predictions are still to be found by moving, (n,) bool."""
        if isinstance(self.model, RankOneModel):
            return self.predicted == Label.UNRESOLVED
        return torch.zeros_like(self.predicted, dtype=torch.bool)

    def move(
        self,
        until: float,
        active: Tensor,
        method: str = "flow",
        pause: Callable[[], object] | None = None,
    ) -> None:
        """Move the active orbits to that time, by "flow" or in steps of "descent"."""
        step_until(
            self.field, self.state, self.time, self.steps, until, active, method, pause=pause
        )

    def measure(self, active: Tensor) -> dict[str, Tensor]:
        """Loss and canonical coordinates of the active orbits, and decide what can be decided.

        Returns:
            "reduced_loss" (n,) and "orbit" (n, 2 or 3), NaN for the others.
        """
        theta = self.state[active]
        loss, orbit = torch.full_like(self.time, torch.nan), self._canonical(theta)
        loss[active] = self.model.loss(theta)
        wide = torch.full((len(loss), orbit.shape[1]), torch.nan, dtype=torch.float64)
        wide[active] = orbit
        self._decide()
        return {"reduced_loss": loss, "orbit": wide}

    def _canonical(self, theta: Tensor) -> Tensor:
        """(e, w) or (e, w, a) at coordinates of the model."""
        return self.model.to_canonical(theta) if isinstance(self.model, RankOneModel) else theta

    def predict(self, horizon: float) -> None:
        """Follow the flow until every prediction is decided, or to the horizon, and come back."""
        start, at = self.state.clone(), 0.0
        self._decide()
        while bool(self.undecided().any()) and at < horizon:
            at = min(max(at * FACTOR, FIRST_TIME), horizon)
            self.move(at, self.undecided())
            self._decide()
        self.state = start
        self.time.zero_()

    def orbit_at(self, times: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Canonical coordinates (T, n, 2 or 3) and losses (T, n) along the flow, at T times."""
        everything = torch.ones(len(self.state), dtype=torch.bool)
        orbit, loss = [], []
        for at in times:
            self.move(at, everything)
            orbit.append(self._canonical(self.state).clone())
            loss.append(self.model.loss(self.state))
        return torch.stack(orbit), torch.stack(loss)

    @torch.no_grad()
    def _decide(self) -> None:
        """Label the undecided rank-one orbits as ``classify`` labels their lifts."""
        rows = self.undecided()
        if not bool(rows.any()):
            return
        model, field, theta = self.model, self.full_field, self.state[rows]
        assert isinstance(model, RankOneModel)
        device = field.metric.device
        lifted = lift_rank_one(model.point(theta), field.arch)
        weights = field.weights(field.state({k: w.to(device) for k, w in lifted.items()}))
        loss = model.loss(theta).to(device)
        found = classify(model.chain, loss, weights, field.gradient, field.metric_weights())
        self.predicted[rows] = found.label.cpu()
