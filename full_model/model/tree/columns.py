"""Sums over the columns of small matrices: the loops that most of the time is spent in.

A matrix holds one prefix in each column; ``count`` says how many columns are in use. Inner loops run
along a row with at most one array written to, so that the compiler can use vectors.
"""

from __future__ import annotations

from flowsim.compiled import compiled


@compiled(reordered=True, internal=True)
def product(matrix, x, out, count):
    """out = matrix · x, column by column."""
    rows, columns = matrix.shape
    for i in range(rows):
        row = out[i]
        for j in range(count):
            row[j] = 0.0
        fours = columns - columns % 4
        for k in range(0, fours, 4):
            m0, m1, m2, m3 = matrix[i, k], matrix[i, k + 1], matrix[i, k + 2], matrix[i, k + 3]
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            for j in range(count):
                row[j] += (m0 * x0[j] + m1 * x1[j]) + (m2 * x2[j] + m3 * x3[j])
        for k in range(fours, columns):
            factor, one = matrix[i, k], x[k]
            for j in range(count):
                row[j] += factor * one[j]


@compiled(reordered=True, internal=True)
def open_product(matrix, x, out, count):
    """out += matrix · [x > 0], column by column; a multiple of four rows of x."""
    rows, columns = matrix.shape
    for i in range(rows):
        row = out[i]
        for k in range(0, columns, 4):
            m0, m1, m2, m3 = matrix[i, k], matrix[i, k + 1], matrix[i, k + 2], matrix[i, k + 3]
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            for j in range(count):
                first = (m0 if x0[j] > 0.0 else 0.0) + (m1 if x1[j] > 0.0 else 0.0)
                second = (m2 if x2[j] > 0.0 else 0.0) + (m3 if x3[j] > 0.0 else 0.0)
                row[j] += first + second


@compiled(reordered=True, internal=True)
def open_sums(x, weight, y, out, weighted, count):
    """out[k, i] += Σ_j [x_kj > 0] weight_j y_ij; ``weighted`` is room for a row."""
    for i in range(y.shape[0]):
        row = y[i]
        for j in range(count):
            weighted[j] = weight[j] * row[j]
        for k in range(0, x.shape[0], 4):
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            s0 = s1 = s2 = s3 = 0.0
            for j in range(count):
                here = weighted[j]
                s0 += here if x0[j] > 0.0 else 0.0
                s1 += here if x1[j] > 0.0 else 0.0
                s2 += here if x2[j] > 0.0 else 0.0
                s3 += here if x3[j] > 0.0 else 0.0
            out[k, i] += s0
            out[k + 1, i] += s1
            out[k + 2, i] += s2
            out[k + 3, i] += s3


@compiled(reordered=True, internal=True)
def inner(x, y, out, count):
    """out_j = Σ_i x_ij y_ij."""
    for j in range(count):
        out[j] = 0.0
    for i in range(x.shape[0]):
        one, other = x[i], y[i]
        for j in range(count):
            out[j] += one[j] * other[j]


@compiled(reordered=True, internal=True)
def weighted_sum(weight, x, begin, end):
    """Σ_j weight_j x_j over begin ≤ j < end."""
    total = 0.0
    for j in range(begin, end):
        total += weight[j] * x[j]
    return total
