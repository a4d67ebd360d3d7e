"""The end of every row and its label, decided by its orbit and, near a saddle, by neighbours."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import template
from flowsim.flow.gap.dop853 import STAGES
from flowsim.flow.gap.hooks import (
    Law,
    Point,
    gap,
    is_far,
    is_level,
    loss,
    point_of,
    slope,
    steepness,
    theta_of,
)
from flowsim.flow.gap.orbit import AT_MINIMA, AT_PLANE, LOST, OUT_OF_STEPS, follow, on_minima
from flowsim.labels import Label, Rule, Status

#: Ends and numbers of one row: how it ended, its sign, x, y, z, what decided, attempted steps.
End = tuple[int, float, float, float, float, int, int]

#: A row is followed again where its margin at Δ = 0 is below this many times the tolerance.
_DOUBT = 1e4
#: The tolerances of the second time, and how far neighbours are displaced: a hundred tolerances.
_CAREFUL_RTOL, _CAREFUL_ATOL, _DISPLACED = 1e-13, 1e-14, 1e-11
#: How a row ended whose neighbours end differently, which never moved, or is not finite.
DIVIDED, STILL, NOT_FINITE = 4, 5, 6

NONE, BESIDE = int(Rule.NONE), int(Rule.SHADOWS)
CRITICAL, RESTED = int(Rule.CRITICAL_START), int(Rule.CAME_TO_REST)
TRAPPED, REACHED = int(Rule.TRAPPED_BY_PLANE), int(Rule.REACHED_MINIMA)
_UNRESOLVED, _GLOBAL = int(Label.UNRESOLVED), int(Label.GLOBAL_MINIMUM)
_LOCAL = int(Label.LOCAL_MINIMUM)
_CONVERGED, _TIMED_OUT, _FAILED = int(Status.CONVERGED), int(Status.TIMED_OUT), int(Status.FAILED)


@template(internal=True)
def end_of(
    far: bool,
    target: float,
    theta: Point,
    units: np.ndarray,
    rtol: float,
    atol: float,
    max_steps: int,
) -> End:
    """Where the orbit from θ ends, and what decided it; at the plane the rule is ``TRAPPED``.

    An orbit that met or missed the plane by little is followed again at the careful tolerance.
    Where that too is close, its label stands only if all orbits from starts displaced by
    ``_DISPLACED`` to both sides, along every coordinate, end alike.
    """
    first, second, third = theta
    sign, x, y, z = point_of(far, first, second, third)
    scale = 1.0 + x + (math.exp(2.0 * y) if far else y * y) + z * z
    if not math.isfinite(scale):
        return NOT_FINITE, sign, x, y, z, NONE, 0
    if is_level(far, theta, sign, x, y, z):
        return STILL, sign, x, y, z, CRITICAL, 0
    if on_minima(far, sign, x, y, z, target, rtol):
        return AT_MINIMA, sign, x, y, z, CRITICAL, 0
    end, x1, y1, z1, margin, steps = follow(far, sign, x, y, z, target, rtol, atol, max_steps)
    rule = _rule_of(end)
    if margin >= _DOUBT * rtol * scale or target == 0.0 or end > AT_PLANE:
        return end, sign, x1, y1, z1, rule, steps
    finer, least = min(rtol, _CAREFUL_RTOL), min(atol, _CAREFUL_ATOL)
    end, x1, y1, z1, margin, more = follow(far, sign, x, y, z, target, finer, least, max_steps)
    steps += more
    if margin >= _DOUBT * finer * scale:
        return end, sign, x1, y1, z1, _rule_of(end), steps
    rule = BESIDE if end <= AT_PLANE else NONE
    for i in range(len(units)):
        for side in (-_DISPLACED, _DISPLACED):
            move = side * max(abs(theta[i]), units[i])
            _, x, y, z = point_of(
                far, first + move if i == 0 else first, second + move if i == 1 else second,
                third + move if i == 2 else third,
            )  # fmt: skip
            found = follow(far, sign, x, y, z, target, finer, least, max_steps)
            steps += found[5]
            if found[0] != end:
                return DIVIDED, sign, x1, y1, z1, NONE, steps
    return end, sign, x1, y1, z1, rule, steps


@template(internal=True)
def _rule_of(end: int) -> int:
    if end == AT_MINIMA:
        return REACHED
    return TRAPPED if end == AT_PLANE else NONE


@template
def find_ends(
    law: Law,
    trap: int,
    units: np.ndarray,
    starts: np.ndarray,
    rtol: float,
    atol: float,
    max_steps: int,
    theta: np.ndarray,
    codes: np.ndarray,
    values: np.ndarray,
    evaluations: np.ndarray,
) -> None:
    """The ends of all rows, each for itself.

    Args:
        law: the model's data.
        trap: the label of ends in the plane, where Δ* ≠ 0.
        units: what a displacement of each coordinate is relative to at least, shape (k,).
        starts: shape (n, k).
        rtol, atol, max_steps: error allowed per step, and attempted steps per orbit.
        theta: to be filled with the end points, shape (n, k).
        codes: to be filled with label, status and rule, shape (3, n); the label of a start where
            ∇Δ = 0 stays as it is.
        values: to be filled with loss and ‖∇L‖ at the end, shape (2, n).
        evaluations: to be filled with the evaluations of the field, shape (n,).
    """
    k, target = starts.shape[1], law[0]
    for n in range(len(starts)):
        start = starts[n, 0], starts[n, 1], starts[n, 2] if k == 3 else 0.0
        far = is_far(start[0], start[1], start[2], target)
        end, sign, x, y, z, rule, steps = end_of(far, target, start, units, rtol, atol, max_steps)
        last = start
        if end != STILL and end != NOT_FINITE:
            last = theta_of(far, sign, x, y, z, start[0], start[1])
        for i in range(k):
            theta[n, i] = last[i]
        if end == AT_MINIMA:
            codes[0, n] = _GLOBAL
        elif end == AT_PLANE:
            codes[0, n] = trap if target != 0.0 else _GLOBAL
        elif end != STILL:
            codes[0, n] = _UNRESOLVED
        codes[1, n] = _CONVERGED
        if end == OUT_OF_STEPS:
            codes[1, n] = _TIMED_OUT
        elif end in (LOST, NOT_FINITE):
            codes[1, n] = _FAILED
        codes[2, n] = RESTED if rule == TRAPPED and trap != _LOCAL else rule
        here = gap(far, sign, x, y, z)
        values[0, n] = loss(law, here)
        values[1, n] = abs(slope(law, here - target)) * math.sqrt(steepness(far, sign, x, y, z))
        evaluations[n] = 1 + STAGES * steps
