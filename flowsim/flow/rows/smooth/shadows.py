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


def smooth_limits(
    model: ReducedModel, start: Tensor, rtol: float, atol: float, max_steps: int
) -> Iterator[Limits]:
    """The limits of the rows of ``start``, part by part."""
    for part in start.split(max(1, _SQUARES // start.shape[1] ** 2)):
        limits, doubtful = _follow(model, part, rtol, atol, max_steps)
        if bool(doubtful.any()):
            _consult_shadows(model, part, limits, doubtful, rtol, atol, max_steps)
        yield limits


def _follow(
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
    by its displaced shadows.
    """
    k = start.shape[1]
    centre = start[doubtful]
    size = max(rtol, 1e-11)  # ten times what rounding leaves of the finer orbit
    displaced = [centre]
    for i in range(k):
        step = torch.zeros_like(centre)
        step[:, i] = size * centre[:, i].abs() if model.keeps_sign[i] else size
        displaced += [centre + step, centre - step]
    finer = max(rtol / 10, 1e-12), max(atol / 10, 1e-13)
    found, near = _follow(model, torch.cat(displaced), *finer, max_steps)
    labels = found.label.reshape(2 * k + 1, -1)
    near = near[: len(centre)]
    agree = (labels == labels[0]).all(dim=0) | ~near
    spent = limits.evaluations[doubtful] + found.evaluations.reshape(2 * k + 1, -1).sum(dim=0)
    for field in fields(Limits):
        getattr(limits, field.name)[doubtful] = getattr(found, field.name)[: len(centre)]
    limits.label[doubtful] = torch.where(agree, labels[0], Label.UNRESOLVED).to(torch.int8)
    rule = torch.where(near, Rule.SHADOWS, found.rule[: len(centre)])
    limits.rule[doubtful] = torch.where(agree, rule, Rule.NONE).to(torch.int8)
    limits.evaluations[doubtful] = spent
