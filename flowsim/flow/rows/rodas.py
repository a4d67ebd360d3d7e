"""One linearly implicit step of a smooth row: Rodas5P, a Rosenbrock method of order 5(4).

With J = ∂f/∂y at y and W = I/(γh) − J, the eight stages solve

    W k_i = f(y + Σ_{j<i} a_ij k_j) + Σ_{j<i} (c_ij/h) k_j,

the result is the last stage's point plus k_8, and k_8 is the error estimate. The method is L-stable
and stiffly accurate: as h grows, a step tends to where the linearised flow ends. Source of the
coefficients: Steinebach, BIT Numer. Math. 63 (2023) 27; their order is a test.
"""

from __future__ import annotations

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.rows.smooth_fields import velocity

#: Order of the error estimate plus one: errors shrink like h to this power.
ORDER = 5
STAGES = 8
GAMMA = 0.21193756319429014
A = np.zeros((STAGES, STAGES))
C = np.zeros((STAGES, STAGES))
A[1, :1] = 3.0
A[2, :2] = 2.849394379747939, 0.45842242204463923
A[3, :3] = -6.954028509809101, 2.489845061869568, -10.358996098473584
A[4, :4] = 2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641
A[5, :5] = (
    -7.502846399306121,
    2.561846144803919,
    -11.627539656261098,
    -0.18268767659942256,
    0.030198172008377946,
)
A[6, :5], A[6, 5] = A[5, :5], 1.0
A[7, :5], A[7, 5:7] = A[5, :5], 1.0
C[1, :1] = -14.155112264123755
C[2, :2] = -17.97296035885952, -2.859693295451294
C[3, :3] = 147.12150275711716, -1.41221402718213, 71.68940251302358
C[4, :4] = 165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306
C[5, :5] = (
    24.854864614690072,
    -3.0009227002832186,
    47.4931110020768,
    5.5814197821558125,
    -0.6610691825249471,
)
C[6, :6] = (
    30.91273214028599,
    -3.1208243349937974,
    77.79954646070892,
    34.28646028294783,
    -19.097331116725623,
    -28.087943162872662,
)
C[7, :7] = (
    37.80277123390563,
    -3.2571969029072276,
    112.26918849496327,
    66.9347231244047,
    -40.06618937091002,
    -54.66780262877968,
    -9.48861652309627,
)


@compiled
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


@compiled
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


@compiled
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
        status = velocity(kind, new, reals, ints, memory, slope)
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
