"""The end of every row and its label, decided by its orbit and, near a saddle, by neighbours."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.gap.dop853 import STAGES
from flowsim.flow.gap.field import (
    FAR,
    LINEAR,
    UNTIED,
    gap,
    kind_at,
    point_of,
    steepness,
    theta_of,
    weight,
)
from flowsim.flow.gap.loss import Chain, loss, slope
from flowsim.flow.gap.orbit import (
    AT_MINIMA,
    AT_PLANE,
    LOST,
    OUT_OF_STEPS,
    follow,
    is_level,
    on_minima,
)
from flowsim.landscape.labels import Label, Rule, Status

#: Ends and numbers of one row: how it ended, x, y, z, what decided, attempted steps.
End = tuple[int, float, float, float, int, int]

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
_LOCAL, _SADDLE = int(Label.LOCAL_MINIMUM), int(Label.SADDLE)
_CONVERGED, _TIMED_OUT, _FAILED = int(Status.CONVERGED), int(Status.TIMED_OUT), int(Status.FAILED)


@compiled
def end_of(
    kind: int,
    target: float,
    e: float,
    second: float,
    third: float,
    rtol: float,
    atol: float,
    max_steps: int,
) -> End:
    """Where the orbit from θ ends, and what decided it.

    An orbit that met or missed the plane e = 0 by little is followed again at the careful
    tolerance. Where that too is close, its label stands only if all orbits from starts displaced
    by ``_DISPLACED`` to both sides, along every coordinate, end alike.
    """
    sign, x, y, z = point_of(kind, e, second, third)
    scale = 1.0 + x + weight(kind, y)[0] + z * z
    if not math.isfinite(scale):
        return NOT_FINITE, x, y, z, NONE, 0
    if is_level(kind, (e, second, third), sign, x, y, z):
        return STILL, x, y, z, CRITICAL, 0
    if on_minima(kind, sign, x, y, z, target, rtol):
        return AT_MINIMA, x, y, z, CRITICAL, 0
    end, x1, y1, z1, margin, steps = follow(kind, sign, x, y, z, target, rtol, atol, max_steps)
    rule = _rule_of(kind, end)
    if margin >= _DOUBT * rtol * scale or target == 0.0 or end > AT_PLANE:
        return end, x1, y1, z1, rule, steps
    finer, least = min(rtol, _CAREFUL_RTOL), min(atol, _CAREFUL_ATOL)
    end, x1, y1, z1, margin, more = follow(kind, sign, x, y, z, target, finer, least, max_steps)
    steps += more
    if margin >= _DOUBT * finer * scale:
        return end, x1, y1, z1, _rule_of(kind, end), steps
    rule = BESIDE if end <= AT_PLANE else NONE
    for i in range(3 if kind % FAR else 2):
        for side in (-_DISPLACED, _DISPLACED):
            e1 = e + side * _unit(kind, 0, e) if i == 0 else e
            second1 = second + side * _unit(kind, 1, second) if i == 1 else second
            third1 = third + side * _unit(kind, 2, third) if i == 2 else third
            sign, x, y, z = point_of(kind, e1, second1, third1)
            found = follow(kind, sign, x, y, z, target, finer, least, max_steps)
            steps += found[5]
            if found[0] != end:
                end, rule = DIVIDED, NONE
                return end, x1, y1, z1, rule, steps
    return end, x1, y1, z1, rule, steps


@compiled
def _unit(kind: int, i: int, value: float) -> float:
    """What a displacement of a coordinate is relative to: |θᵢ|, and at least 1 for a, e and u."""
    signed = (i == 2 and kind % FAR == LINEAR) or (i < 2 and kind % FAR == UNTIED)
    return max(abs(value), 1.0) if signed else abs(value)


@compiled
def _rule_of(kind: int, end: int) -> int:
    if end == AT_MINIMA:
        return REACHED
    if end == AT_PLANE:
        return RESTED if kind % FAR == UNTIED else TRAPPED
    return NONE


@compiled
def find_ends(
    kind: int,
    chain: Chain,
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
        kind, chain: the model and its data.
        starts: shape (n, k).
        rtol, atol, max_steps: error allowed per step, and attempted steps per orbit.
        theta: to be filled with the end points, shape (n, k).
        codes: to be filled with label, status and rule, shape (3, n); the label of a start where
            ∇Δ = 0 stays as it is.
        values: to be filled with loss and ‖∇L‖ at the end, shape (2, n).
        evaluations: to be filled with the evaluations of the field, shape (n,).
    """
    k, target = starts.shape[1], chain[4]
    trap = _SADDLE if kind == UNTIED else _LOCAL
    if target == 0.0:
        trap = _GLOBAL
    for n in range(len(starts)):
        e, second = starts[n, 0], starts[n, 1]
        third = starts[n, 2] if k == 3 else 0.0
        chart = kind_at(kind, e, second, third, target)
        end, x, y, z, rule, steps = end_of(chart, target, e, second, third, rtol, atol, max_steps)
        w = third if kind == UNTIED else second
        sign = -1.0 if w < 0 else 1.0
        moved = end != STILL and end != NOT_FINITE
        if moved:
            e, second, third = theta_of(chart, sign, x, y, z, e, second)
        theta[n, 0], theta[n, 1] = e, second
        if k == 3:
            theta[n, 2] = third
        if end == AT_MINIMA:
            codes[0, n] = _GLOBAL
        elif end == AT_PLANE:
            codes[0, n] = trap
        elif end != STILL:
            codes[0, n] = _UNRESOLVED
        codes[1, n] = _CONVERGED
        if end == OUT_OF_STEPS:
            codes[1, n] = _TIMED_OUT
        elif end in (LOST, NOT_FINITE):
            codes[1, n] = _FAILED
        codes[2, n] = rule
        here = gap(chart, sign, x, y, z)
        values[0, n] = loss(chain, here)
        values[1, n] = abs(slope(chain, here - target)) * math.sqrt(steepness(chart, sign, x, y, z))
        evaluations[n] = 1 + STAGES * steps
