"""When a row with uniform attention has come to its end, and what that end is."""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.flow.rows.codes import GOING, MINIMA, REST, TRAPPED
from flowsim.flow.rows.smooth.uniform_rows import KNOWN, expand, loss
from flowsim.models.uniform.table import ENTROPY_RATE, LAMBDA, UNIGRAM

#: A row is trapped by the plane e = 0 once the others are slower than this times (e's rate)².
_TRAPPED = 1e-13
#: A row is at rest once no coordinate moves faster than this.
_STATIONARY = 1e-12
#: log|e| where the curvature of the plane e = 0 is read off the field.
_NEAR_PLANE = math.log(1e-6)


@compiled
def verdict(y, velocity, jacobian, reals, ints, memory, work):
    """GOING, or the rule that ends the row at y, where ``velocity`` is dy/dt."""
    # a small w may still move by much of itself, within the gradient's rounding; e may not,
    # since its plane can repel
    others = moving = 0.0
    for i in range(1, len(y)):
        size = min(1.0, math.exp(y[1])) if i == 1 else 1.0
        others = max(others, abs(velocity[i]))
        moving = max(moving, abs(velocity[i]) * size)
    falls = velocity[0] < 0 and others <= _TRAPPED * velocity[0] * velocity[0]
    if falls and _plane_attracts(y, reals, ints, memory, work):
        return TRAPPED
    # with λ = 0 the plane e = 0 attracts ever more slowly
    if reals[LAMBDA] == 0.0 and loss(y, reals, ints, memory) - reals[ENTROPY_RATE] <= 1e-15:
        return MINIMA
    if max(abs(velocity[0]), moving) > _STATIONARY:
        return GOING
    excess = loss(y, reals, ints, memory) - reals[ENTROPY_RATE]
    if excess <= 1e-9 * (reals[UNIGRAM] - reals[ENTROPY_RATE]) + 1e-15:
        return MINIMA
    return REST


@compiled
def _plane_attracts(y, reals, ints, memory, work):
    """Whether |e| falls close to the plane e = 0 below y."""
    point, rate = work[0, 0], work[0, 1]
    point[:] = y
    point[0] = min(y[0], _NEAR_PLANE)
    memory[KNOWN] = 0.0  # the bias of a point so far away is solved for anew
    status = expand(point, reals, ints, memory, rate, work[1], False)
    memory[KNOWN] = 0.0
    return status == 0 and rate[0] < 0.0
