"""Limits of rows in smooth fields, doubtful ones beside displaced starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import torch
from torch import Tensor

from flowsim.flow.ends import Limits
from flowsim.flow.rows.smooth.smooth_ends import smooth_ends
from flowsim.landscape.labels import Label, Rule
from flowsim.models.base import ReducedModel

#: Starts handled at once, times k², which bounds the memory.
_SQUARES = 2**17
#: Coordinates along each of which a doubtful row is displaced.
_MOST_DIRECTIONS = 6


def smooth_limits(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start``, part by part."""
    for part in start.split(max(1, _SQUARES // start.shape[1] ** 2)):
        limits, doubtful = limits_and_doubt(model, part, rtol, atol, max_steps)
        if bool(doubtful.any()):
            _consult_shadows(model, part, limits, doubtful, rtol, atol, max_steps)
        yield limits


def limits_and_doubt(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> tuple[Limits, Tensor]:
    """Limits of the rows of ``start``, and which of them came close to a saddle."""
    *columns, near = smooth_ends(model, start, rtol, atol, max_steps)
    return Limits(*columns), near


def _consult_shadows(
    model: ReducedModel,
    start: Tensor,
    limits: Limits,
    doubtful: Tensor,
    rtol: float,
    atol: float,
    max_steps: int,
) -> None:
    """Decide the doubtful rows again: by a finer orbit, and where that too comes near a saddle
    by its displaced shadows, of which none may end otherwise and half must be decided.
    """
    centre = start[doubtful]
    finer = max(rtol / 10, 1e-12), max(atol / 10, 1e-13)
    found, near = limits_and_doubt(model, centre, *finer, max_steps)
    if bool(near.any()):
        size = max(rtol, 1e-11)  # ten times what rounding leaves of the finer orbit
        displaced = displace(model, centre[near], size)
        shadows, _ = limits_and_doubt(model, displaced.flatten(0, 1), *finer, max_steps)
        labels = shadows.label.reshape(displaced.shape[:2])
        same = labels == found.label[near]
        contradicted = (~same & (labels != Label.UNRESOLVED)).any(dim=0)
        agree = ~contradicted & (same.double().mean(dim=0) >= 0.5)
        found.label[near] = torch.where(agree, found.label[near], Label.UNRESOLVED).to(torch.int8)
        decided = found.label[near] != Label.UNRESOLVED
        found.rule[near] = torch.where(decided, Rule.SHADOWS, Rule.NONE).to(torch.int8)
        found.evaluations[near] += shadows.evaluations.reshape(labels.shape).sum(dim=0)
    found.evaluations += limits.evaluations[doubtful]
    for field in fields(Limits):
        getattr(limits, field.name)[doubtful] = getattr(found, field.name)


def displace(model: ReducedModel, centre: Tensor, size: float) -> Tensor:
    """Neighbours of each row of ``centre`` (n, k) to both sides, shape (directions, n, k).

    Along every coordinate; with many coordinates along four diagonals, which no surface that
    divides two basins can contain all.
    """
    k = centre.shape[1]
    directions = torch.eye(k).to(centre)
    if k > _MOST_DIRECTIONS:
        place = torch.arange(k)
        directions = torch.stack([1.0 - 2.0 * ((place >> j) & 1) for j in range(4)]).to(centre)
    keeps = torch.tensor(model.keeps_sign, device=centre.device)
    step = size * torch.where(keeps, centre.abs(), 1.0)
    moved = directions[:, None] * step
    return torch.cat([centre + moved, centre - moved])
