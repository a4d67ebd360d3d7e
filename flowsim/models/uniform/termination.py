"""Termination of rows with uniform attention, and their ends."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.return_codes import DRIFTS, GOING, MINIMA, REST, TRAPPED
from flowsim.flow.rows.vectors import copy
from flowsim.interface import CompiledModel
from flowsim.models.uniform.rows import (
    HOOKS,
    KNOWN,
    LIMIT,
    MEMORY,
    ORIGIN,
    SLIDES,
    excess,
    loss,
    write_flow,
)
from flowsim.models.uniform.table import (
    DYNAMIC,
    ENTROPY_RATE,
    INFORMATION,
    LAMBDA,
    LENGTH,
    UNIGRAM_LOGIT,
    LawTable,
)

#: A row is trapped by the plane e = 0 once the others are slower than this times (e's rate)²/|λ|
#: and than this times e's rate: what they still move by changes that rate by no part of it.
_TRAPPED = 1e-13
#: Rounding of Σω once b is at its optimum.
_ROUNDING = 1e-15
#: A row is at rest once no coordinate moves faster than this, times λ²: at a minimum e² is as small
#: as |λ|, and a moves e⁴ as fast.
_STATIONARY = 1e-12
#: An excess loss below this part of the mutual information is none, nor is one that rounding may
#: leave.
_NONE, _LEAST = 1e-9, 1e-30
#: log|e| where the curvature of the plane e = 0 is read off the field, in units of the root of |λ|.
_NEAR_PLANE = math.log(1e-6)
#: |a| from where drifting to infinity is looked for, and log|e| and log|a| of how far it is probed.
_FAR_OUT, _PROBE = 20.0, math.log(1e3)
#: On the valley's floor a coordinate is this near to where it would rest, in units of its scale;
#: w below exp of the last is nought.
_FLOOR, _NO_W = 0.05, -8.0
#: A drifting row's loss stays this part of the information above the entropy rate.
_ABOVE = 0.02


@compiled
def check_termination(row):
    """Return GOING, or the code with which the row ends."""
    y, velocity, jacobian, work = row.y, row.velocity, row.derivative, row.work
    reals, ints, memory = row.reals, row.ints, row.memory
    # a small w may still move by much of itself, within the gradient's rounding; e may not,
    # since its plane can repel
    others = moving = 0.0
    for i in range(1, len(y)):
        size = min(1.0, math.exp(y[1])) if i == 1 else 1.0
        if i < 3 or abs(velocity[3]) > _ROUNDING * abs(reals[LAMBDA]):
            moving = max(moving, abs(velocity[i]) * size)
        if i < 3 or abs(velocity[3]) > min(_ROUNDING, 1e-6 * abs(velocity[0])):
            others = max(others, abs(velocity[i]))
    rate = abs(velocity[0])
    quiet = others * max(rate, abs(reals[LAMBDA])) <= _TRAPPED * rate * rate
    falls = velocity[0] < 0.0 and quiet and reals[LAMBDA] != 0.0
    if falls and _plane_attracts(y, reals, ints, memory, work):
        return TRAPPED
    # with λ = 0 the plane e = 0 attracts ever more slowly
    if reals[LAMBDA] == 0.0 and excess(y, reals, ints, memory) <= 1e-15:
        return MINIMA
    far = abs(y[2]) > max(_FAR_OUT, 2.0 * ints[LENGTH]) and memory[SLIDES] == 0.0
    if far and _drifts(y, velocity, jacobian, reals, ints, memory, work):
        return DRIFTS
    speed = max(abs(velocity[0]), moving)
    if speed > _STATIONARY or memory[SLIDES] == 1.0:
        return GOING
    if excess(y, reals, ints, memory) <= max(_NONE * reals[INFORMATION], _LEAST):
        return MINIMA
    return REST if speed <= _STATIONARY * reals[LAMBDA] ** 2 else GOING


@compiled
def end_loss(row, rule):
    """Return the loss at a row's end; where it drifts, the loss a thousand times further out."""
    if rule == DRIFTS:
        return row.reals[ENTROPY_RATE] + row.memory[LIMIT]
    return loss(row.y, row.reals, row.ints, row.memory)


@compiled(no_cpython_wrapper=True)
def _plane_attracts(y, reals, ints, memory, work):
    """Return whether |e| falls close to the plane e = 0 below y."""
    point, rate = work[0, 0], work[0, 1]
    copy(y, point)
    point[0] = min(y[0], _NEAR_PLANE + 0.5 * math.log(abs(reals[LAMBDA])))
    memory[KNOWN] = 0.0  # the bias of a point so far away is solved for anew
    status = write_flow(point, reals, ints, memory, rate, work[1], 0.0)
    memory[KNOWN] = 0.0
    return status == 0 and rate[0] < 0.0


@compiled(no_cpython_wrapper=True)
def _drifts(y, velocity, jacobian, reals, ints, memory, work):
    """Return whether a → ±∞ and e → 0 with e²a bounded, along a valley above the entropy rate.

    At K = e²a the loss is M(K, w, b) + e²D + …. The row drifts where it is near a minimum of M and
    D > 0, here and a thousand times further out. Source: docs/derivations/06.md.
    """
    push = push_outwards(y, velocity, jacobian)
    if push <= 0.0:
        return False
    point, rate, steep = work[0, 0], work[0, 1], work[1]
    copy(y, point)
    point[0] -= _PROBE
    point[2] *= math.exp(2.0 * _PROBE)
    memory[KNOWN] = 0.0
    status = write_flow(point, reals, ints, memory, rate, steep, 1.0)
    memory[LIMIT] = value = excess(point, reals, ints, memory)
    memory[KNOWN] = 0.0
    for j in range(len(y)):
        memory[ORIGIN + j] = y[j]
    if status != 0 or not value > _ABOVE * reals[INFORMATION]:
        return False
    share = math.exp(2.0 * point[0])
    slope = -rate[2] / share  # ∂L/∂K
    there = -0.5 * rate[0] - point[2] * slope
    if not 0.7 * push < there < 1.4 * push:
        return False
    return is_floor(point, steep, y[1] < _NO_W and rate[1] < 0.0)


@compiled(no_cpython_wrapper=True)
def push_outwards(y, velocity, jacobian):
    """Return D = ∂L/∂(e²) at constant e²a where y is on the floor of the valley, else 0."""
    push = -0.5 * velocity[0] + y[2] * velocity[2] * math.exp(-2.0 * y[0])
    without_w = y[1] < _NO_W and velocity[1] < 0.0
    if not abs(velocity[0]) <= _FLOOR * push or not is_floor(y, jacobian, without_w):
        return 0.0
    for i in range(len(y)):
        near = abs(velocity[i]) <= _FLOOR * abs(jacobian[i, i])
        if i != 2 and not near and not (i == 1 and without_w):
            return 0.0
    return push


@compiled(no_cpython_wrapper=True, nrt=True)
def is_floor(y, jacobian, without_w):
    """Return whether the loss has a minimum in (log|e|, log|w|, b) near y, at constant a.

    There the field is −1/θ² times the loss's slope in log|θ|, so that −θ²J is the Hessian, which
    is positive if all its pivots are.
    """
    k, pivots = len(y), np.zeros((4, 4))
    for i in range(k):
        size = math.exp(2.0 * y[i]) if i < 2 else 1.0
        for j in range(k):
            pivots[i, j] = -size * jacobian[i, j]
    for i in range(k):
        if i == 2 or (i == 1 and without_w):
            continue
        size = math.exp(2.0 * y[i]) if i < 2 else 1.0
        if not pivots[i, i] > 1e-3 * size * abs(jacobian[i, i]):
            return False
        for j in range(i + 1, k):
            factor = pivots[j, i] / pivots[i, i]
            for m in range(i + 1, k):
                pivots[j, m] -= factor * pivots[i, m]
    return True


def compiled_model_of(table: LawTable) -> CompiledModel:
    """Return the hooks and constants by which the rows engine follows the uniform model.

    ``table`` has the law of the running mean of the chain.
    """
    bias = (0.0, 0.0, 0.0, table.reals[UNIGRAM_LOGIT])
    return CompiledModel(
        "uniform",
        {**HOOKS, "check_termination": check_termination, "end_loss": end_loss},
        lambda: (table.reals, table.ints, MEMORY),
        origin=bias if table.ints[DYNAMIC] else (),
        extend=table.add,
    )
