"""One linearly implicit step of a row inside one mode of its kinks: Rodas5P.

With J the Jacobian at y and W = I/(γh) − J, the eight stages solve

    W k_i = f(y + Σ_{j<i} a_ij k_j) + Σ_{j<i} (c_ij/h) k_j,

the result is the last stage's point plus k_8, and k_8 is the error estimate; all of it in the
coordinates of ``straight``.
"""

from __future__ import annotations

from flowsim.compiled import compiled
from flowsim.flow.rows.kinked.row import Row
from flowsim.flow.rows.kinked.straight import enter, finish, straight_velocity
from flowsim.flow.rows.tableau import GAMMA, STAGES, A, C


@compiled(internal=True)
def invert(matrix, inverse):
    """The inverse of ``matrix``, which is overwritten, by elimination with partial pivoting.

    Returns whether it exists. With eight right-hand sides a step, and k small, products with the
    inverse are cheaper than substitutions.
    """
    k = len(matrix)
    for i in range(k):
        for j in range(k):
            inverse[i, j] = 1.0 if i == j else 0.0
    for column in range(k):
        pivot = column
        for i in range(column + 1, k):
            if abs(matrix[i, column]) > abs(matrix[pivot, column]):
                pivot = i
        if not abs(matrix[pivot, column]) > 0.0:
            return False
        if pivot != column:
            for j in range(k):
                matrix[column, j], matrix[pivot, j] = matrix[pivot, j], matrix[column, j]
                inverse[column, j], inverse[pivot, j] = inverse[pivot, j], inverse[column, j]
        scale = 1.0 / matrix[column, column]
        for j in range(k):
            matrix[column, j] *= scale
            inverse[column, j] *= scale
        for i in range(k):
            factor = matrix[i, column]
            if i != column and factor != 0.0:
                for j in range(column, k):
                    matrix[i, j] -= factor * matrix[column, j]
                for j in range(k):
                    inverse[i, j] -= factor * inverse[column, j]
    return True


@compiled(inline=True)
def multiply(matrix, vector, out):
    """``out`` = matrix · vector."""
    k = len(vector)
    for i in range(k):
        value = 0.0
        for j in range(k):
            value += matrix[i, j] * vector[j]
        out[i] = value


@compiled(internal=True)
def step(row: Row, h):
    """Attempt a step of length h: fills ``row.new``, ``row.error`` and ``row.slope``.

    ``row.field`` and ``row.jacobian`` belong to ``row.y``; ``row.slope`` becomes dy/dt next to the
    new point. Returns whether the step could be taken.
    """
    y, new, stages, matrix, inverse = row.y, row.new, row.stages, row.matrix, row.inverse
    jacobian, slope, error, field = row.jacobian, row.slope, row.error, row.field
    reals, mode, origin, point = row.reals, row.mode, row.origin, row.point
    k = len(y)
    diagonal, rate = 1.0 / (GAMMA * h), 1.0 / h
    for i in range(k):
        for j in range(k):
            matrix[i, j] = -jacobian[i, j]
        matrix[i, i] += diagonal
        origin[i] = y[i]
    if not invert(matrix, inverse):
        return False
    enter(origin, mode, slope)
    multiply(inverse, field, stages[0])
    for s in range(1, STAGES):
        for i in range(k):
            value = origin[i]
            for j in range(s):
                value += A[s, j] * stages[j, i]
            new[i] = value
            point[i] = value
        straight_velocity(point, y, mode, reals, slope)
        for i in range(k):
            value = 0.0
            for j in range(s):
                value += C[s, j] * stages[j, i]
            error[i] = slope[i] + value * rate
        multiply(inverse, error, stages[s])
    for i in range(k):
        error[i] = stages[STAGES - 1, i]
        new[i] += error[i]
    finish(new, error, slope, y, mode, point)
    return True
