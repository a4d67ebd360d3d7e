"""Models that optimizers train in another way than down their loss, such as whole transformers.

A model with a method ``training_rule`` is trained down its loss if that returns None, else by the
class that it returns, with

- ``columns``, the attributes of ``Trained`` that a record has, with their types;
- ``progress``, the words of how far runs come, by the names of its codes, if it is a column;
- ``completed(choice)``, the ``OptimizerChoice`` with what is usual for the model;
- ``rule(model, optimizer, **numbers).run(theta0, progress)``, the ``Trained`` of an optimizer, a
  choice or a name with its numbers, from starts (n, k).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowsim.interface import Model

#: Columns of runs down the model's own loss beside their codes and their ends.
_COLUMNS = {"loss": "<f8", "period": "<i4", "largest": "<f8", "steps_taken": "<i4"}


def rule_of(model: Model) -> Any:
    """The class that trains the model in another way than down its loss, or None."""
    rule = getattr(model, "training_rule", None)
    return rule() if callable(rule) else None


def recorded(model: Model) -> Mapping[str, str]:
    """Name the attributes of ``Trained`` that a record of such runs has, with numpy's types."""
    rule = rule_of(model)
    return _COLUMNS if rule is None else rule.columns
