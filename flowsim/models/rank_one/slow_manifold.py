"""Coordinates in which the valleys of the rank-one loss are straight.

If a unit's gain is large the orbit keeps to a valley on which that unit's logit hardly changes,
and a linearly implicit step along a curved valley leaves it by the square of its length. So every
step is taken with the logit f = u Y_x s_x + b of the steeper unit in place of the coordinate y_m on
which f depends most: the valley is flat in f, and what relaxes onto it is f alone. With g = ∇f and
P = 1 + e_m (g − e_m)ᵀ = ∂(new)/∂(old coordinates), the field is P y′ and the Jacobian

    (P J + e_m (g′)ᵀ) P⁻¹,        g′ the change of g along the flow.   (own derivation)
"""

from __future__ import annotations

from math import sqrt

from flowsim.compiled import compiled
from flowsim.flow.rows.workspace import TrajectoryWorkspace
from flowsim.models.rank_one.field import LENGTH, OPEN, inner_value, velocity

#: Places in ``Row.ints`` of the unit whose logit is a coordinate, and of the one it replaces.
UNIT, PIVOT = 4, 5


@compiled(no_cpython_wrapper=True)
def logit_and_gradient(y, mode, x, g):
    """Return the logit f of unit x at y, and write its gradient by y to ``g`` (k,)."""
    value, inner_e, inner_rho = inner_value(y, mode, x)
    gate = 4.0 if mode[x] == OPEN and mode[2] == 0 else 0.0
    tied = len(y) == 5
    u = y[0] if tied else y[5]
    slope = 1.0 + gate * y[2] * y[3]
    g[0] = u * slope * inner_e
    g[1] = u * slope * inner_rho
    g[2] = u * gate * y[3] * value
    g[3] = u * gate * y[2] * value
    g[4] = 1.0
    if tied:
        g[0] += value * slope
    else:
        g[5] = value * slope
    return u * value * slope + y[4]


@compiled(no_cpython_wrapper=True)
def _gradient_change(y, velocity, mode, x, dg):
    """Write g′ = ∇²f · y′, the rate of change of the gradient of unit x's logit, to ``dg`` (k,)."""
    value, inner_e, inner_rho = inner_value(y, mode, x)
    gate = 4.0 if mode[x] == OPEN and mode[2] == 0 else 0.0
    tied = len(y) == 5
    u, du = (y[0], velocity[0]) if tied else (y[5], velocity[5])
    w1, w2, dw1, dw2 = y[2], y[3], velocity[2], velocity[3]
    slope, dslope = 1.0 + gate * w1 * w2, gate * (dw1 * w2 + w1 * dw2)
    dvalue = inner_e * velocity[0] + inner_rho * velocity[1]
    product = du * slope + u * dslope
    doutput = dvalue * slope + value * dslope
    dg[0] = product * inner_e
    dg[1] = product * inner_rho
    dg[2] = gate * (du * w2 * value + u * dw2 * value + u * w2 * dvalue)
    dg[3] = gate * (du * w1 * value + u * dw1 * value + u * w1 * dvalue)
    dg[4] = 0.0
    if tied:
        dg[0] += doutput
    else:
        dg[5] = doutput


@compiled(no_cpython_wrapper=True)
def to_slow_manifold(row: TrajectoryWorkspace):
    """Choose the coordinate that f replaces; write the field and the Jacobian with f in its place.

    The choice goes to ``row.ints``, the others to ``row.field`` and ``row.jacobian``.
    """
    y, velocity, mode, field, matrix = row.y, row.velocity, row.ints, row.field, row.jacobian
    derivative, g, dg = row.derivative, row.point, row.origin
    k, root = len(y), sqrt(row.reals[LENGTH])
    steepest = -1.0
    for x in range(2):
        logit_and_gradient(y, mode, x, g)
        for i in range(k):
            size = abs(g[i]) / (1.0 if i == 0 or i > 3 else root if i == 1 else 2.0)
            if size > steepest:
                steepest = size
                mode[UNIT], mode[PIVOT] = x, i
    m = mode[PIVOT]
    logit_and_gradient(y, mode, mode[UNIT], g)
    _gradient_change(y, velocity, mode, mode[UNIT], dg)
    rate = 0.0
    for i in range(k):
        rate += g[i] * velocity[i]
        field[i] = velocity[i]
    field[m] = rate
    for j in range(k):
        value = dg[j]
        for i in range(k):
            matrix[i, j] = derivative[i, j]
            value += g[i] * derivative[i, j]
        matrix[m, j] = value
    inverse = 1.0 / g[m]
    for i in range(k):
        last = matrix[i, m] * inverse
        for j in range(k):
            matrix[i, j] -= last * g[j]
        matrix[i, m] = last


@compiled(no_cpython_wrapper=True)
def to_step_coordinates(row):
    """Replace y_m by the logit f in ``row.origin``, in place."""
    y, mode = row.origin, row.ints
    y[mode[PIVOT]] = logit_and_gradient(y, mode, mode[UNIT], row.slope)


@compiled(inline=True, no_cpython_wrapper=True)
def _solve_e(inner_e, rest, goal, e):
    """The root next to e of (inner_e·e + rest)·e = goal; NaN if there is none."""
    if inner_e == 0.0:
        return goal / rest
    root = sqrt(rest * rest + 4.0 * inner_e * goal)
    if 2.0 * inner_e * e + rest < 0.0:
        root = -root
    return 2.0 * goal / (rest + root) if root * rest > 0.0 else (root - rest) / (2.0 * inner_e)


@compiled(inline=True, no_cpython_wrapper=True)
def from_logit(y, start, mode):
    """Replace the logit f in ``y`` by the coordinate y_m, in place; of two, that near ``start``."""
    x, m = mode[UNIT], mode[PIVOT]
    f = y[m]
    y[m] = start[m]
    value, inner_e, inner_rho = inner_value(y, mode, x)
    slope = 1.0 + (4.0 * y[2] * y[3] if mode[x] == OPEN and mode[2] == 0 else 0.0)
    tied = len(y) == 5
    u = y[0] if tied else y[5]
    if m == 0 and tied:
        y[0] = _solve_e(inner_e, value - inner_e * y[0], (f - y[4]) / slope, y[0])
    elif m == 0:
        y[0] += ((f - y[4]) / (u * slope) - value) / inner_e
    elif m == 1:
        y[1] += ((f - y[4]) / (u * slope) - value) / inner_rho
    elif m == 2 or m == 3:
        y[m] = ((f - y[4]) / (u * value) - 1.0) / (4.0 * y[5 - m])
    elif m == 4:
        y[4] = f - u * value * slope
    else:
        y[5] = (f - y[4]) / (value * slope)


@compiled(no_cpython_wrapper=True)
def velocity_in_step_coordinates(row, y, out):
    """Write dy/dt with f′ in place of y_m′ to ``out``; return 0.

    ``y`` comes with f in place of y_m and gets y_m back.
    """
    mode = row.ints
    from_logit(y, row.y, mode)
    velocity(y, mode, row.reals, out)
    x = mode[UNIT]
    value, inner_e, inner_rho = inner_value(y, mode, x)
    u, du = (y[0], out[0]) if len(y) == 5 else (y[5], out[5])
    slope, dslope = 1.0, 0.0
    if mode[x] == OPEN and mode[2] == 0:
        slope += 4.0 * y[2] * y[3]
        dslope = 4.0 * (out[2] * y[3] + y[2] * out[3])
    dvalue = inner_e * out[0] + inner_rho * out[1]
    rate = du * value * slope + u * (dvalue * slope + value * dslope) + out[4]
    out[mode[PIVOT]] = rate
    return 0


@compiled(no_cpython_wrapper=True)
def from_step_coordinates(row):
    """Turn ``row.new``, ``row.error`` and ``row.slope`` of a step back from f to y_m, in place."""
    new, error, slope, mode, g = row.new, row.error, row.slope, row.ints, row.point
    m = mode[PIVOT]
    from_logit(new, row.y, mode)
    logit_and_gradient(new, mode, mode[UNIT], g)
    for i in range(len(new)):
        if i != m:
            error[m] -= g[i] * error[i]
            slope[m] -= g[i] * slope[i]
    error[m] /= g[m]
    slope[m] /= g[m]
