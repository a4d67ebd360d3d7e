"""Optimizers of the rank-one model, with the steps of the full transformer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from flowsim.arrays import Numbers
from flowsim.models.rank_one.training.reduced import ReducedTraining
from flowsim.training.optimizer_choice import OptimizerChoice
from flowsim.training.trained import Trained

#: The usual relative displacement of a transformer's start.
USUAL_NUDGE = 1e-12


class LiftedSteps:
    """``TrainingRule`` of the rank-one model."""

    columns: Mapping[str, str] = MappingProxyType(
        {"on_plateau_at_end": "i1", "loss": "<f8", "open_share": "<f8", "learned_step": "<f8"}
    )

    def __init__(self, model: Any) -> None:
        self.model = model

    def completed(self, choice: OptimizerChoice) -> OptimizerChoice:
        nudge = USUAL_NUDGE if choice.nudge is None else choice.nudge
        return OptimizerChoice(choice.recipe, choice.d or 8, choice.seed, nudge)

    def train(
        self,
        theta0: Numbers,
        optimizer: OptimizerChoice | str,
        numbers: Mapping[str, Any],
        progress: Callable[[int], object] | None,
    ) -> Trained:
        return ReducedTraining(self.model, optimizer, **numbers).run(theta0, progress)
