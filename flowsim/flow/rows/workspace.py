"""The state of one row that is followed, which an engine and a model's compiled functions share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsim.flow.tableau import STAGES

#: Numbers in ``TrajectoryWorkspace.margins``.
MARGINS = 6


class TrajectoryWorkspace(NamedTuple):
    """One row of k coordinates, and its buffers.

    Attributes:
        reals, ints: the model's constants; ``ints`` may also hold what a row is in the middle of.
        memory: what the model keeps of the orbit.
        y: where the row is, in the chart (log|θᵢ| where θᵢ keeps its sign).
        velocity, derivative: dy/dt and ∂(dy/dt)/∂y there.
        field, jacobian: the same two in the coordinates of a step; the very same arrays where
            these are y.
        new, error, slope: of the step being tried: its end, its error, dy/dt next to its end.
        stages: of the step, (stages, k); the others are scratch: ``work`` (2, k, k), ``margins``,
            ``point`` and ``origin``.
    """

    reals: np.ndarray
    ints: np.ndarray
    memory: np.ndarray
    y: np.ndarray
    velocity: np.ndarray
    derivative: np.ndarray
    field: np.ndarray
    jacobian: np.ndarray
    new: np.ndarray
    error: np.ndarray
    slope: np.ndarray
    stages: np.ndarray
    work: np.ndarray
    margins: np.ndarray
    point: np.ndarray
    origin: np.ndarray


def allocate_workspace(
    reals: np.ndarray, ints: np.ndarray, memory: int, k: int, own_steps: bool
) -> TrajectoryWorkspace:
    """Allocate the buffers of one row of k coordinates, for a model with these constants.

    ``memory`` is how many numbers the model keeps of an orbit; ``own_steps``: the coordinates of a
    step are not y.
    """
    velocity, derivative = np.zeros(k), np.zeros((k, k))
    return TrajectoryWorkspace(
        reals=reals,
        ints=ints,
        memory=np.zeros(memory),
        y=np.zeros(k),
        velocity=velocity,
        derivative=derivative,
        field=np.zeros(k) if own_steps else velocity,
        jacobian=np.zeros((k, k)) if own_steps else derivative,
        new=np.zeros(k),
        error=np.zeros(k),
        slope=np.zeros(k),
        stages=np.zeros((STAGES, k)),
        work=np.zeros((2, k, k)),
        margins=np.zeros(MARGINS),
        point=np.zeros(k),
        origin=np.zeros(k),
    )
