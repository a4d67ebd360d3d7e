"""The state of one row of the rank-one flow without attention, and what is found of many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: Modes of a unit (``kinks``).
CLOSED, OPEN, SLIDING = range(3)


class Row(NamedTuple):
    """The state of one row of k coordinates, and room to work in.

    Attributes:
        reals: the model's constants (``rank_one``).
        y, velocity, derivative: where the row is, dy/dt and ∂(dy/dt)/∂y there.
        field, jacobian: the same two in the coordinates of a step (``straight``).
        mode: of its kinks: units 0 and 1 (CLOSED, OPEN, SLIDING), w₁ held at 0, sign of w₁; then
            the coordinates of a step.
        memory: what is kept of the orbit (``kinked_verdict``).
        new, error, slope: of the step being tried: its end, its error, dy/dt next to its end.
        margins: of its mode (``kinks``).
        stages, matrix, inverse, point, origin: room for the step.
    """

    reals: np.ndarray
    y: np.ndarray
    velocity: np.ndarray
    derivative: np.ndarray
    field: np.ndarray
    jacobian: np.ndarray
    mode: np.ndarray
    memory: np.ndarray
    new: np.ndarray
    error: np.ndarray
    slope: np.ndarray
    margins: np.ndarray
    stages: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    point: np.ndarray
    origin: np.ndarray


class Found(NamedTuple):
    """What ``follow_all`` finds of n rows, to be filled.

    Attributes:
        ends, velocities: where the rows stopped and dy/dt there, (n, k).
        paths: y at the requested times, (n, T, k).
        why: a value of ``codes``, (n,).
        counts: attempted steps, kinks met and times written, (n, 3).
        clocks: time, time spent sliding, and distances from saddles (``kinked_verdict``), (n, 4).
    """

    ends: np.ndarray
    velocities: np.ndarray
    paths: np.ndarray
    why: np.ndarray
    counts: np.ndarray
    clocks: np.ndarray
