"""The gap engine's face: tensors in, tensors out; the loops over rows are compiled.

It follows any model whose ``flow()`` is a ``Gap``, with a compiled copy of its own for each class.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.compiled import specialise
from flowsim.flow.gap import hooks, loops, timed
from flowsim.flow.how import Limits, Steps
from flowsim.interface import Gap, Model
from flowsim.labels import Label, Rule
from flowsim.landscape.critical import classify_critical

#: Rows between two reports of progress.
PART = 65_536


@cache
def _copy(of: type, functions: tuple[Any, ...]) -> Any:
    return specialise((hooks, loops, timed), of.__name__, **{f.__name__: f for f in functions})


def engine_of(half: Gap) -> Any:
    """The engine with a model's functions in the places of its hooks."""
    return _copy(half.of, half.hooks)


def gap_limits(model: Model, half: Gap, start: Tensor, steps: Steps) -> Iterator[Limits]:
    """The limits of the rows of ``start``, shape (n, k), part by part."""
    units = 1.0 - np.array(model.keeps_sign, float)
    find_ends, scale = engine_of(half).find_ends, np.array(half.scale or 1.0)
    for part in start.split(PART):
        rows = _rows(part) * scale
        n, theta = len(rows), np.empty_like(rows)
        codes, values = np.zeros((3, n), np.int8), np.empty((2, n))
        spent = np.empty(n, np.int64)
        find_ends(half.law, int(half.trap), units, rows, steps, theta, codes, values, spent)
        label, status, rule = codes
        still = np.flatnonzero(rule == Rule.CRITICAL_START)
        theta /= scale
        theta[still] = _rows(part)[still]
        level = still[label[still] == Label.UNRESOLVED]  # the others are on the minima
        if len(level):
            label[level] = classify_critical(model, torch.from_numpy(theta[level])).numpy()
        if half.scale:
            values[1] = model.gradient(torch.from_numpy(theta)).norm(dim=1).numpy()
        found = theta, label, status, rule, *values, spent
        yield Limits(*(torch.from_numpy(column).to(part.device) for column in found))


def gap_paths(half: Gap, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
    """θ (T, n, k) of the rows of ``start`` (n, k) at the times (T, n); NaN if not known."""
    find_paths, scratch, scale = engine_of(half).find_paths, _scratch(), half.scale
    rows, since = _rows(start) * (scale or 1.0), _rows((times[1:] - times[0]).T) / half.time
    path = np.empty((len(rows), len(times), rows.shape[1]))
    for i in range(0, len(rows), PART):
        part = slice(i, i + PART)
        find_paths(half.law, rows[part], since[part], steps, scratch, path[part, 1:])
    if scale:
        path[:, 1:] /= scale
    path[:, 0] = _rows(start)
    return torch.from_numpy(path).transpose(0, 1).to(start.device)


def gap_times(half: Gap, start: Tensor, learned: Tensor, fraction: float, steps: Steps) -> Tensor:
    """The time until ``fraction`` of the excess loss is left.

    Args:
        half: of the model.
        start: rows that move, shape (n, k).
        learned: whether each ends at Δ*, not at Δ = 0, shape (n,).
        fraction: in (0, 1).
        steps: what they are allowed; rtol of the time too.

    Returns:
        Times, shape (n,); NaN where the excess at the start is lost in rounding.
    """
    found, scratch = np.empty(len(start)), _scratch()
    rows, ends = _rows(start) * (half.scale or 1.0), _rows(learned) * half.law[0]
    find_times = engine_of(half).find_times
    find_times(half.law, rows, ends, fraction, steps, scratch, found)
    return torch.from_numpy(found * half.time).to(start.device)


def _rows(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _scratch() -> timed.Scratch:
    return np.zeros((4, timed.NODES)), np.zeros((4, timed.NODES)), np.zeros((3, 5))
