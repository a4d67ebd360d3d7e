"""Sums over the columns of small matrices: the loops that most of the time is spent in.

A matrix holds one prefix in each column; ``count`` says how many columns are in use. Inner loops
run along a row with at most one array written to, so that the compiler can use vectors.
"""

from __future__ import annotations

from flowsim.compiled import compiled


@compiled(reassoc=True, no_cpython_wrapper=True)
def product(matrix, x, out, count):
    """out = matrix · x, column by column."""
    rows, columns = matrix.shape
    for i in range(rows):
        row = out[i]
        begin = columns % 4
        if begin == 0:
            begin = 4
            m0, m1, m2, m3 = matrix[i, 0], matrix[i, 1], matrix[i, 2], matrix[i, 3]
            x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
            for j in range(count):
                row[j] = (m0 * x0[j] + m1 * x1[j]) + (m2 * x2[j] + m3 * x3[j])
        else:
            m0, x0 = matrix[i, 0], x[0]
            for j in range(count):
                row[j] = m0 * x0[j]
            for k in range(1, begin):
                m0, x0 = matrix[i, k], x[k]
                for j in range(count):
                    row[j] += m0 * x0[j]
        for k in range(begin, columns, 4):
            m0, m1, m2, m3 = matrix[i, k], matrix[i, k + 1], matrix[i, k + 2], matrix[i, k + 3]
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            for j in range(count):
                row[j] += (m0 * x0[j] + m1 * x1[j]) + (m2 * x2[j] + m3 * x3[j])


@compiled(reassoc=True, no_cpython_wrapper=True)
def add_moments(x, y, weight, weighted, out, count):
    """out[k, i] += Σ_j x_kj y_ij weight_j; rows of x in fours; ``weighted`` is scratch."""
    for i in range(y.shape[0]):
        row = y[i]
        for j in range(count):
            weighted[j] = weight[j] * row[j]
        for k in range(0, x.shape[0], 4):
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            s0 = s1 = s2 = s3 = 0.0
            for j in range(count):
                s0 += x0[j] * weighted[j]
                s1 += x1[j] * weighted[j]
                s2 += x2[j] * weighted[j]
                s3 += x3[j] * weighted[j]
            out[k, i] += s0
            out[k + 1, i] += s1
            out[k + 2, i] += s2
            out[k + 3, i] += s3


@compiled(reassoc=True, no_cpython_wrapper=True, nrt=True)
def add_all(x, y, out):
    """out = x + y, in all columns."""
    one, other, both = x.ravel(), y.ravel(), out.ravel()
    for j in range(both.shape[0]):
        both[j] = one[j] + other[j]


@compiled(reassoc=True, no_cpython_wrapper=True)
def inner(x, y, out, count):
    """out_j = Σ_i x_ij y_ij."""
    rows = x.shape[0]
    for j in range(count):
        out[j] = x[0, j] * y[0, j]
    for i in range(1, (rows - 1) % 2 + 1):
        x0, y0 = x[i], y[i]
        for j in range(count):
            out[j] += x0[j] * y0[j]
    for i in range((rows - 1) % 2 + 1, rows, 2):
        x0, x1, y0, y1 = x[i], x[i + 1], y[i], y[i + 1]
        for j in range(count):
            out[j] += x0[j] * y0[j] + x1[j] * y1[j]


@compiled(reassoc=True, no_cpython_wrapper=True)
def weighted_sum(weight, x, begin, end):
    """Σ_j weight_j x_j over begin ≤ j < end."""
    total = 0.0
    for j in range(begin, end):
        total += weight[j] * x[j]
    return total
