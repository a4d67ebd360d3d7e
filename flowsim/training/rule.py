"""The protocol of a model that optimizers train in another way than down its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flowsim.arrays import Numbers
from flowsim.interface import Model
from flowsim.training.trained import Trained


class TrainingRule(Protocol):
    """Training of a model, such as steps of a whole transformer in its coordinates.

    A model with a method ``training_rule`` returns it, or None to be trained down its loss.

    Attributes:
        columns: the attributes of ``Trained`` that a record has, with their types.
    """

    @property
    def columns(self) -> Mapping[str, str]: ...

    def completed(self, choice: Any) -> Any:
        """The ``OptimizerChoice`` with what is usual for the model."""
        ...

    def train(
        self,
        theta0: Numbers,
        optimizer: Any,
        numbers: Mapping[str, Any],
        progress: Callable[[int], object] | None,
    ) -> Trained:
        """Results of the optimizer, a choice or a name with its numbers, from starts (n, k)."""
        ...


#: Columns of runs down the model's own loss beside their codes and their ends.
_COLUMNS = {"loss": "<f8", "period": "<i4", "largest": "<f8", "steps_taken": "<i4"}


def rule_of(model: Model) -> TrainingRule | None:
    """The model's own rule; None without one."""
    rule = getattr(model, "training_rule", None)
    found: TrainingRule | None = rule() if callable(rule) else None
    return found


def recorded(model: Model) -> Mapping[str, str]:
    """The attributes of ``Trained`` that a record has of runs in that model, with their types."""
    rule = rule_of(model)
    return _COLUMNS if rule is None else rule.columns
