"""One linearly implicit step of a smooth row: Rodas5P, a Rosenbrock method of order 5(4).

With J = ∂f/∂y at y and W = I/(γh) − J, the eight stages solve

    W k_i = f(y + Σ_{j<i} a_ij k_j) + Σ_{j<i} (c_ij/h) k_j,

the result is the last stage's point plus k_8, and k_8 is the error estimate. The method is L-stable
and stiffly accurate: as h grows, a step tends to where the linearised flow ends. The coefficients
are in ``tableau``.
"""

from __future__ import annotations

from flowsim.compiled import compiled
from flowsim.flow.rows.smooth.smooth_fields import velocity
from flowsim.flow.rows.tableau import GAMMA, STAGES, A, C


@compiled(internal=True)
def factorise(matrix, pivots):
    """LU factors of ``matrix`` in place, with partial pivoting; whether it is regular."""
    k = len(matrix)
    for column in range(k):
        pivot = column
        for i in range(column + 1, k):
            if abs(matrix[i, column]) > abs(matrix[pivot, column]):
                pivot = i
        pivots[column] = pivot
        if pivot != column:
            for j in range(k):
                matrix[column, j], matrix[pivot, j] = matrix[pivot, j], matrix[column, j]
        if not abs(matrix[column, column]) > 0.0:
            return False
        inverse = 1.0 / matrix[column, column]
        matrix[column, column] = inverse
        for i in range(column + 1, k):
            factor = matrix[i, column] * inverse
            matrix[i, column] = factor
            if factor != 0.0:
                for j in range(column + 1, k):
                    matrix[i, j] -= factor * matrix[column, j]
    return True


@compiled(internal=True)
def solve(matrix, pivots, vector):
    """Solve in place with the factors of ``factorise``."""
    k = len(vector)
    for i in range(k):
        pivot = pivots[i]
        value = vector[pivot]
        vector[pivot] = vector[i]
        for j in range(i):
            value -= matrix[i, j] * vector[j]
        vector[i] = value
    for i in range(k - 1, -1, -1):
        value = vector[i]
        for j in range(i + 1, k):
            value -= matrix[i, j] * vector[j]
        vector[i] = value * matrix[i, i]


@compiled(internal=True)
def step(kind, y, field, jacobian, h, reals, ints, memory, new, stages, work, slope, pivots):
    """A step of length h from y, whose field and Jacobian are given, to ``new``.

    The error is left in the last of ``stages``; ``work`` are two matrices, ``slope`` is a vector.
    Returns 0, or why a stage could not be evaluated.
    """
    k = len(y)
    matrix = work[0]
    for i in range(k):
        for j in range(k):
            matrix[i, j] = -jacobian[i, j]
        matrix[i, i] += 1.0 / (GAMMA * h)
        stages[0, i] = field[i]
    if not factorise(matrix, pivots):
        return -1
    solve(matrix, pivots, stages[0])
    for s in range(1, STAGES):
        for i in range(k):
            value = y[i]
            for j in range(s):
                value += A[s, j] * stages[j, i]
            new[i] = value
        status = velocity(new, reals, ints, memory, slope, *kind)
        if status != 0:
            return status
        for i in range(k):
            value = 0.0
            for j in range(s):
                value += C[s, j] * stages[j, i]
            stages[s, i] = slope[i] + value / h
        solve(matrix, pivots, stages[s])
    for i in range(k):
        new[i] += stages[STAGES - 1, i]
    return 0
