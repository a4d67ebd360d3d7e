"""The solver of models with L = ℓ(Δ): tensors in, tensors out; the loops are compiled.

Each class of models has a compiled copy of the loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flowsim.compiled import specialise
from flowsim.flow import return_codes
from flowsim.flow.gap import hooks, loops, timed
from flowsim.flow.labelling import EndStates
from flowsim.flow.options import Limits, Steps
from flowsim.interface import LogitGapSystem, Model
from flowsim.labels import Label

#: Rows between two reports of progress.
PART = 65_536


@cache
def _copy(of: type, functions: tuple[Any, ...]) -> Any:
    """Return a copy of the compiled loops that calls these functions of the class ``of``."""
    return specialise((hooks, loops, timed), of.__name__, **{f.__name__: f for f in functions})


def engine_of(system: LogitGapSystem) -> Any:
    """Return the compiled loops with a model's functions in the places of the hooks."""
    return _copy(system.of, system.hooks)


class LogitGapSolver:
    """Follows models with L = ℓ(Δ) in the logit gap Δ, by compiled loops."""

    batched = False
    variable: Literal["logit gap"] = "logit gap"

    def __init__(self, model: Model, system: LogitGapSystem) -> None:
        self.model, self.system, self.defaults = model, system, system

    @cached_property
    def engine(self) -> Any:
        """The compiled loops that call the model's own functions, as attributes."""
        return engine_of(self.system)

    def ends(self, start: Tensor, steps: Steps, once: bool = False) -> Iterator[EndStates]:
        """Follow starts (n, k) to their ends; yield their end states part by part.

        A row in doubt is followed again within the loops, whatever ``once`` says.
        """
        model, system = self.model, self.system
        units = 1.0 - np.array(model.keeps_sign, float)
        scale = np.array(system.scale or 1.0)
        for part in start.split(PART):
            rows = _rows(part) * scale
            n, theta = len(rows), np.empty_like(rows)
            reasons, values = np.zeros((2, n), np.int64), np.empty((2, n))
            spent = np.empty(n, np.int64)
            self.engine.find_ends(system.params, units, rows, steps, theta, reasons, values, spent)
            why, neighbours = reasons
            if not system.plane_attracts:
                why[why == return_codes.TRAPPED] = return_codes.AT_SADDLES
            still = (why == return_codes.CRITICAL) | (why == return_codes.ON_MINIMA)
            theta /= scale
            theta[still] = _rows(part)[still]
            if system.scale:
                values[1] = model.gradient(torch.from_numpy(theta)).norm(dim=1).numpy()
            found = [torch.from_numpy(x).to(part.device) for x in (theta, why, *values, spent)]
            states = EndStates.of(*found)
            states.neighbours[:] = torch.from_numpy(neighbours)
            yield states

    def paths(self, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
        """Return θ (T, n, k) at the times (T, n), from ``start`` at times[0]; NaN if not known."""
        system = self.system
        rows = _rows(start) * (system.scale or 1.0)
        since = _rows((times[1:] - times[0]).T) / system.time
        path = np.empty((len(rows), len(times), rows.shape[1]))
        for i in range(0, len(rows), PART):
            part = slice(i, i + PART)
            self.engine.find_paths(system.params, rows[part], since[part], steps, path[part, 1:])
        if system.scale:
            path[:, 1:] /= system.scale
        path[:, 0] = _rows(start)
        return torch.from_numpy(path).transpose(0, 1).to(start.device)

    def times(self, start: Tensor, ends: Limits, fraction: float, steps: Steps) -> Tensor:
        """Return the times (n,) when ``fraction`` of the excess loss is left.

        NaN where the excess at the start is lost in rounding.
        """
        system, found = self.system, np.empty(len(start))
        rows = _rows(start) * (system.scale or 1.0)
        gaps = _rows(ends.label == Label.GLOBAL_MINIMUM) * system.params[0]
        self.engine.find_times(system.params, rows, gaps, fraction, steps, found)
        return torch.from_numpy(found * system.time).to(start.device)


def _rows(tensor: Tensor) -> np.ndarray:
    """Return a tensor as a contiguous array, as the compiled loops take it."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
