"""Gradient descent of many rows at once, each row with its own learning rate.

A step is a fixed share of the inverse of a bound on the largest curvature, at the row's own
weights. No step is rejected and no row depends on another, so that rows may be split or dropped at
will, and two fields that agree to rounding take the same steps: the full models' and the reduced
model's. On a ReLU's kink, where the field jumps, the steps chatter about the sliding orbit instead
of stalling, within one step's length. In a valley whose walls get ever steeper they get ever
shorter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

#: A step in parts of the inverse stiffness: below 1 it does not oscillate.
_SHARE = 0.8
#: Steps between two calls of ``pause``.
_PAUSE_EVERY = 200
#: Number of short steps that look for a kink, their part of 1/stiffness, the share by which a
#: gradient changes at a kink, and how often it does so along one.
_PROBES, _PROBE, _JUMP, _CROSSINGS = 500, 0.02, 0.1, 3


class Field(Protocol):
    """Gradient (M, K) and stiffness (M,) of states (M, K), which move by −gradient/metric."""

    metric: Tensor

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]: ...


def step_until(
    field: Field,
    state: Tensor,
    time: Tensor,
    steps: Tensor,
    until: float,
    active: Tensor,
    pause: Callable[[], object] | None = None,
    most: int | Tensor = sys.maxsize,
) -> None:
    """Move the active rows of ``state`` (M, K) to time ``until``, in place, with their times and
    steps.

    θ ← θ − η G⁻¹∇L(θ) with η = 0.8/stiffness(θ), shortened to land on ``until``. What a row does
    depends on its own state and time alone. A row that has taken ``most`` steps moves no more.
    ``pause`` is called every few hundred steps, when state, time and steps are consistent.
    """

    def step(rows: Tensor) -> None:
        """Take one step of gradient descent with these rows."""
        start = state[rows]
        gradient, stiffness = field(start)
        left = until - time[rows]
        length = torch.minimum(_SHARE / stiffness, left)
        state[rows] = start - length.unsqueeze(-1) * (gradient / field.metric)
        # a row whose weights are not finite has ended; it must not run for ever
        ended = (length == left) | ~length.isfinite()
        time[rows] = torch.where(ended, until, time[rows] + length)

    repeat(step, time, steps, until, active, most, pause, _PAUSE_EVERY)


def repeat(
    step: Callable[[Tensor], object], time: Tensor, steps: Tensor, until: float, active: Tensor,
    most: int | Tensor, pause: Callable[[], object] | None, every: int,
) -> None:  # fmt: skip
    """Call ``step`` with the indices of the rows that are to go on, until none is; count steps.

    Rows go on that are active, before time ``until`` and below ``most`` steps. ``pause`` is called
    after every so many steps; the rest is as in ``step_until``.
    """
    for taken in count(1):
        rows = (active & (time < until) & (steps < most)).nonzero()[:, 0]
        if not len(rows):
            return
        step(rows)
        steps[rows] += 1
        if pause is not None and taken % every == 0:
            pause()


def chatters(field: Field, state: Tensor) -> Tensor:
    """Mask of rows (M,) that creep along a ReLU's kink: their short steps cross it again and again.

    In a smooth field one of them changes the gradient by about its part of the inverse stiffness;
    across a kink it jumps.
    """
    state, jumps = state.clone(), torch.zeros(len(state), dtype=torch.int64, device=state.device)
    before: Tensor | None = None
    for _ in range(_PROBES):
        gradient, stiffness = field(state)
        if before is not None:
            size = torch.maximum(gradient.norm(dim=1), before.norm(dim=1))
            jumps += (gradient - before).norm(dim=1) > _JUMP * size
        before = gradient
        state = state - (_PROBE / stiffness).unsqueeze(1) * (gradient / field.metric)
    return jumps >= _CROSSINGS
