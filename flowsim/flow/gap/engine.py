"""The gap engine's face: tensors in, tensors out; the loops over rows are compiled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.ends import Limits
from flowsim.flow.gap.decide import find_ends
from flowsim.flow.gap.field import KINDS
from flowsim.flow.gap.loss import numbers
from flowsim.flow.gap.timed import find_paths, find_times, scratch_arrays
from flowsim.landscape.curvature import classify_critical
from flowsim.landscape.labels import Rule
from flowsim.models.base import GapModel

#: Rows between two reports of progress.
PART = 65_536
#: Attempted steps of an orbit that is followed in physical time.
_STEPS = 3000


def gap_limits(
    model: GapModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start``, shape (n, k), part by part."""
    kind, chain = KINDS[model.name], numbers(model.chain)
    for part in start.split(PART):
        rows = _rows(part)
        n, theta = len(rows), np.empty_like(rows)
        codes, values = np.zeros((3, n), np.int8), np.empty((2, n))
        spent = np.empty(n, np.int64)
        find_ends(kind, chain, rows, rtol, atol, max_steps, theta, codes, values, spent)
        label, status, rule = codes
        still = np.flatnonzero(rule == Rule.CRITICAL_START)
        if len(still):
            label[still] = classify_critical(model, torch.from_numpy(rows[still])).numpy()
        found = theta, label, status, rule, *values, spent
        yield Limits(*(torch.from_numpy(column).to(part.device) for column in found))


def gap_paths(model: GapModel, start: Tensor, times: Tensor, rtol: float, atol: float) -> Tensor:
    """θ of the rows of ``start``, shape (n, k), at the times: (T, n, k); NaN if not known."""
    rows, since = _rows(start), _rows(times - times[0])[1:]
    path = np.full((len(rows), len(times), rows.shape[1]), np.nan)
    path[:, 0] = rows
    kind, chain, scratch = KINDS[model.name], numbers(model.chain), scratch_arrays()
    for i in range(0, len(rows), PART):
        part = slice(i, i + PART)
        find_paths(kind, chain, rows[part], since, rtol, atol, _STEPS, scratch, path[part, 1:])
    return torch.from_numpy(path).transpose(0, 1).to(start.device)


def gap_times(model: GapModel, start: Tensor, end: Tensor, fraction: float, rtol: float) -> Tensor:
    """The time until ``fraction`` of the excess loss is left.

    Args:
        model: its loss is a function of the gap.
        start: rows that move, shape (n, k).
        end: the gap at which each ends, shape (n,).
        fraction: in (0, 1).
        rtol: error allowed per step.

    Returns:
        Times, shape (n,); NaN where the excess at the start is lost in rounding.
    """
    rows, found = _rows(start), np.empty(len(start))
    kind, chain, scratch = KINDS[model.name], numbers(model.chain), scratch_arrays()
    find_times(kind, chain, rows, _rows(end), fraction, rtol, _STEPS, scratch, found)
    return torch.from_numpy(found).to(start.device)


def _rows(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
