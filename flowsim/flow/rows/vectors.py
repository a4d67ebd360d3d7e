"""Copies, norms and small matrices for compiled rows, without slice assignment.

``x[:] = y`` would compile a message about shapes at every place.
"""

from __future__ import annotations

from math import sqrt

from flowsim.compiled import compiled


@compiled(no_cpython_wrapper=True)
def copy(source, target):
    """Write the numbers of ``source`` into ``target``, of the same length."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled(no_cpython_wrapper=True)
def largest_of(values):
    """Return the largest |value|, or NaN if one is NaN."""
    largest = 0.0
    for value in values:
        if not abs(value) <= largest:
            largest = abs(value)
        if largest != largest:
            return largest  # NaN, which the next value would hide
    return largest


@compiled(no_cpython_wrapper=True)
def invert(matrix, inverse):
    """Write the inverse of ``matrix`` into ``inverse``, by elimination with partial pivoting.

    Overwrites ``matrix``; returns whether the inverse exists. With eight right-hand sides a step,
    and k small, products with the inverse are cheaper than substitutions.
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
    """Write the product of a square matrix and a vector into ``out``."""
    k = len(vector)
    for i in range(k):
        value = 0.0
        for j in range(k):
            value += matrix[i, j] * vector[j]
        out[i] = value


@compiled(inline=True, no_cpython_wrapper=True)
def lowest_between(before, after, fall, rise):
    """Return where on a step, from 0 to 1, a cubic has its minimum, and the value there.

    At 0 the cubic is ``before`` and its slope ``fall``, at 1 ``after`` and ``rise``.
    """
    # before + fall x + c2 x² + c3 x³, least where its slope fall + 2 c2 x + 3 c3 x² is zero
    c2 = 3.0 * (after - before) - 2.0 * fall - rise
    c3 = 2.0 * (before - after) + fall + rise
    place = -fall / (c2 + sqrt(max(c2 * c2 - 3.0 * c3 * fall, 0.0)))
    return place, before + place * (fall + place * (c2 + place * c3))
