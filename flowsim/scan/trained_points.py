"""What a scan records of starts that were trained by an optimizer instead of following the flow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.training.optimizer_choice import OptimizerChoice
from flowsim.training.reduced import ReducedTraining

_CODES = ("label", "status", "rule", "on_plateau_at_end")
_NUMBERS = ("loss", "open_share", "learned_step")


def training_dtype(model: ReducedModel) -> np.dtype:
    """Names and types of what is recorded of one start."""
    ends = [f"end_{name}" for name in model.coordinates]
    return np.dtype([*((n, "i1") for n in _CODES), *((n, "<f8") for n in (*_NUMBERS, *ends))])


def trained_points(
    model: ReducedModel,
    theta: Tensor,
    optimizer: OptimizerChoice,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """What became of every row of ``theta``, a structured array of shape (n,).

    Args:
        progress: called with how many more steps were taken, summed over the starts.
    """
    found = ReducedTraining(model, optimizer).run(theta, progress)
    points = np.empty(len(theta), training_dtype(model))
    for name in (*_CODES, *_NUMBERS):
        points[name] = getattr(found, name).numpy()
    for i, name in enumerate(model.coordinates):
        points[f"end_{name}"] = found.theta[:, i].numpy()
    return points


def check_training(
    model: ReducedModel,
    optimizer: OptimizerChoice | None,
    fraction: float | None,
    rtol: float | None,
    integrator: str,
) -> None:
    """InputError for options that steps of an optimizer do not have, or a model without a map."""
    if optimizer is None:
        return
    ReducedTraining(model, optimizer)
    if (fraction, rtol, integrator) != (None, None, "flowsim"):
        raise InputError(
            "fraction, tolerances and integrator belong to the flow: an optimizer takes its own "
            "steps; omit them"
        )
