"""The gap engine's face: tensors in, tensors out; the loops over rows are compiled.

The model of S states is followed in the canonical plane (E, W), with S logits in the loss: there
its orbits are the same, its time 4S times slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.ends import Limits
from flowsim.flow.gap.decide import find_ends
from flowsim.flow.gap.field import KINDS
from flowsim.flow.gap.loss import Chain, numbers, numbers_of_states
from flowsim.flow.gap.timed import find_paths, find_times, scratch_arrays
from flowsim.landscape.curvature import classify_critical
from flowsim.landscape.labels import Label, Rule
from flowsim.models.base import BinaryGapModel, ReducedModel
from flowsim.models.states.states_plane import StatesModel

#: Rows between two reports of progress.
PART = 65_536
#: Attempted steps of an orbit that is followed in physical time.
_STEPS = 3000


class _Plane(NamedTuple):
    """What the compiled loops follow in place of a model.

    Attributes:
        kind, chain: as the loops take them.
        scale: their coordinates over the model's, shape (k,).
        gap: the model's gap over theirs.
        time: the model's time over theirs.
    """

    kind: int
    chain: Chain
    scale: np.ndarray
    gap: float
    time: float


def _plane_of(model: ReducedModel) -> _Plane:
    if isinstance(model, StatesModel):
        scale, chain = np.array(model.to_canonical), numbers_of_states(model.chain)
        return _Plane(KINDS["canonical"], chain, scale, model.gap_factor, 4.0 * model.chain.states)
    assert isinstance(model, BinaryGapModel)
    ones = np.ones(len(model.coordinates))
    return _Plane(KINDS[model.name], numbers(model.chain), ones, 1.0, 1.0)


def gap_limits(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start``, shape (n, k), part by part."""
    plane = _plane_of(model)
    for part in start.split(PART):
        rows = _rows(part) * plane.scale
        n, theta = len(rows), np.empty_like(rows)
        codes, values = np.zeros((3, n), np.int8), np.empty((2, n))
        spent = np.empty(n, np.int64)
        find_ends(plane.kind, plane.chain, rows, rtol, atol, max_steps, theta, codes, values, spent)
        label, status, rule = codes
        still = np.flatnonzero(rule == Rule.CRITICAL_START)
        theta /= plane.scale
        theta[still] = _rows(part)[still]
        level = still[label[still] == Label.UNRESOLVED]  # the others are on the minima
        if len(level):
            label[level] = classify_critical(model, torch.from_numpy(theta[level])).numpy()
        if plane.gap != 1.0:
            values[1] = model.gradient(torch.from_numpy(theta)).norm(dim=1).numpy()
        found = theta, label, status, rule, *values, spent
        yield Limits(*(torch.from_numpy(column).to(part.device) for column in found))


def gap_paths(
    model: ReducedModel, start: Tensor, times: Tensor, rtol: float, atol: float
) -> Tensor:
    """θ of the rows of ``start``, shape (n, k), at the times: (T, n, k); NaN if not known."""
    plane, scratch = _plane_of(model), scratch_arrays()
    rows, since = _rows(start) * plane.scale, _rows(times - times[0])[1:] / plane.time
    path = np.empty((len(rows), len(times), rows.shape[1]))
    for i in range(0, len(rows), PART):
        part = slice(i, i + PART)
        find_paths(
            plane.kind, plane.chain, rows[part], since, rtol, atol, _STEPS, scratch,
            path[part, 1:],
        )  # fmt: skip
    if np.any(np.asarray(plane.scale) != 1.0):
        path /= plane.scale
    path[:, 0] = _rows(start)
    return torch.from_numpy(path).transpose(0, 1).to(start.device)


def gap_times(
    model: ReducedModel, start: Tensor, end: Tensor, fraction: float, rtol: float
) -> Tensor:
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
    plane, found, scratch = _plane_of(model), np.empty(len(start)), scratch_arrays()
    rows, ends = _rows(start) * plane.scale, _rows(end) / plane.gap
    find_times(plane.kind, plane.chain, rows, ends, fraction, rtol, _STEPS, scratch, found)
    return torch.from_numpy(found * plane.time).to(start.device)


def _rows(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
