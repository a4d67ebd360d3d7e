"""Rows that came close to a saddle: followed again, more finely and beside neighbours."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.flow.labelling import EndStates, label_ends
from flowsim.flow.options import Steps
from flowsim.flow.return_codes import AGREE, DIFFER, FAR, NEAR, STUCK
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.landscape.ends import Ends

#: Coordinates along each of which a doubtful row is displaced.
_MOST_DIRECTIONS = 6
#: (starts (n, k), steps) ↦ their end states.
Follow = Callable[[Tensor, Steps], EndStates]


def displace(model: Model, centre: Tensor, size: float, unit: Tensor | None = None) -> Tensor:
    """Return neighbours of each row of ``centre`` (n, k) to both sides, (2 · directions, n, k).

    Along every coordinate; with many coordinates along four diagonals, which no surface that
    divides two basins can contain all. By ``size`` in parts of ``unit`` (n, k): by default 1, and
    |θᵢ| of coordinates that keep their sign.
    """
    k = centre.shape[1]
    directions = torch.eye(k, dtype=centre.dtype, device=centre.device)
    if k > _MOST_DIRECTIONS:
        place = torch.arange(k, device=centre.device)
        directions = torch.stack([1.0 - 2.0 * ((place >> j) & 1) for j in range(4)]).to(centre)
    keeps = torch.tensor(model.keeps_sign, device=centre.device)
    step = size * torch.where(keeps, centre.abs(), 1.0 if unit is None else unit)
    moved = directions[:, None] * step
    return torch.cat([centre + moved, centre - moved])


def resolve_near_saddles(
    follow: Follow,
    model: Model,
    start: Tensor,
    steps: Steps,
    again: Steps,
    once: bool,
    neighbours_of: Callable[[Model, Tensor, float], Tensor] = displace,
) -> EndStates:
    """Follow the rows of ``start`` (n, k), and those in doubt again; return their end states.

    A doubtful row is followed again more finely. Where that too comes near a saddle, it is followed
    beside displaced neighbours, of which none may end otherwise and half must be decided. Where the
    steps ``again`` are not finer than the first, or with ``once``, no row is followed again.
    """
    states = follow(start, steps)
    if once or again.rtol >= steps.rtol:
        return states
    label = label_ends(model, states).label
    doubtful = (states.near != FAR) & ((label != Label.UNRESOLVED) | (states.why == STUCK))
    if not bool(doubtful.any()):
        return states
    centre = start[doubtful]
    found = follow(centre, again)
    limits = label_ends(model, found)
    near = (found.near == NEAR) | ((found.near != FAR) & (limits.label != label[doubtful]))
    near &= limits.label != Label.UNRESOLVED
    if bool(near.any()):
        size = max(steps.rtol, 1e-11)  # ten times what rounding leaves of the finer orbit
        displaced = neighbours_of(model, centre[near], size)
        neighbours = label_ends(model, follow(displaced.flatten(0, 1), again))
        ends = Ends(model)
        own = ends.identify(limits)[near]
        labels = ends.identify(neighbours)
        labels = labels.reshape(displaced.shape[:2])
        same = labels == own
        contradicted = (~same & (labels != Label.UNRESOLVED)).any(dim=0)
        agree = ~contradicted & (same.double().mean(dim=0) >= 0.5)
        found.neighbours[near] = torch.where(agree, AGREE, DIFFER).to(found.neighbours)
        found.evaluations[near] += neighbours.evaluations.reshape(labels.shape).sum(dim=0)
    found.evaluations += states.evaluations[doubtful]
    states.store(doubtful, found)
    return states
