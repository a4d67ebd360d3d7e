"""One linearly implicit step of a row: Rodas5P.

With J = ∂f/∂y at y and W = I/(γh) − J, the eight stages solve

    W k_i = f(y + Σ_{j<i} a_ij k_j) + Σ_{j<i} (c_ij/h) k_j,

the result is the last stage's point plus k_8, and k_8 is the error estimate. The method is L-stable
and stiffly accurate: as h grows, a step tends to where the linearised flow ends. The coefficients
are in ``flow.tableau``.
"""

from __future__ import annotations

from flowsim.compiled import template
from flowsim.flow.rows.hooks import enter, finish, stage
from flowsim.flow.tableau import GAMMA, STAGES, A, C
from flowsim.models.vectors import copy, invert, multiply


@template(internal=True)
def step(row, h):
    """Attempt a step of length h: fills ``row.new``, ``row.error`` and ``row.slope``; a status.

    ``row.field`` and ``row.jacobian`` belong to ``row.y``; ``row.slope`` becomes dy/dt next to the
    new point.
    """
    new, stages, matrix, inverse = row.new, row.stages, row.work[0], row.work[1]
    jacobian, slope, error = row.jacobian, row.slope, row.error
    origin, point = row.origin, row.point
    k = len(new)
    diagonal, rate = 1.0 / (GAMMA * h), 1.0 / h
    for i in range(k):
        for j in range(k):
            matrix[i, j] = -jacobian[i, j]
        matrix[i, i] += diagonal
    copy(row.y, origin)
    if not invert(matrix, inverse):
        return -1
    enter(row)
    multiply(inverse, row.field, stages[0])
    for s in range(1, STAGES):
        for i in range(k):
            value = origin[i]
            for j in range(s):
                value += A[s, j] * stages[j, i]
            new[i] = value
            point[i] = value
        status = stage(row, point, slope)
        if status != 0:
            return status
        for i in range(k):
            value = 0.0
            for j in range(s):
                value += C[s, j] * stages[j, i]
            error[i] = slope[i] + value * rate
        multiply(inverse, error, stages[s])
    for i in range(k):
        error[i] = stages[STAGES - 1, i]
        new[i] += error[i]
    finish(row)
    return 0
