"""The loops of the gap engine: the step, one orbit, its end, and the label of that end.

Steps are those of Dormand and Prince of order 8(5,3), as sums over the slopes of their stages: each
``stage``, ``error5`` and ``error3`` is one row of the tableau without its zeros. Source: Hairer,
Nørsett & Wanner, *Solving Ordinary Differential Equations I*, II.5 (step, error), II.6
(interpolant); the numbers are scipy's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.integrate import DOP853

from flowsim.compiled import compiled, template
from flowsim.flow.gap.hooks import (
    Law,
    Point,
    gap,
    is_far,
    is_level,
    loss,
    margins,
    on_plane,
    point_of,
    rates,
    sign_of_z,
    size,
    slope,
    steepness,
    theta_of,
    turns_back,
)
from flowsim.labels import Label, Rule, Status

#: The slopes of stages 5 to 11, all that the end of a step and its errors need beside the first.
Slopes = tuple[float, float, float, float, float, float, float]
#: Order of the step, and evaluations of the field that a step needs.
ORDER, STAGES = 8, 12
#: The next step is this part of what the error asks for, and within these bounds of the last one.
_SAFETY, _SHRINK, _GROW = 0.9, 0.1, 8.0
#: The first step, over the size of Δ at its ends and the eighth root of the tolerance.
_FIRST = 2.0
#: How an orbit ended.
AT_MINIMA, AT_PLANE, OUT_OF_STEPS, LOST = 0, 1, 2, 3
#: A step that aimed at the end of the way has landed if this part of it is left.
LANDED = 1e-3
#: Rounding of Δ, over the size of its terms.
ROUNDING = 1e-15
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

_END = (0, *range(5, 12))


def _sum(row: Iterable[float], given: tuple[int, ...] = ()) -> Any:
    """Σ aᵢ kᵢ, compiled: a function of the slopes of the stages ``given``, or of those with aᵢ ≠ 0.

    Written out, since a loop over so few numbers would cost more than their sum.
    """
    weights = {i: float(a) for i, a in enumerate(row) if a != 0}
    arguments = ", ".join(f"k{i}" for i in given or weights)
    space: dict[str, Any] = {}
    terms = " + ".join(f"{a!r} * k{i}" for i, a in weights.items())
    exec(f"def total({arguments}):\n    return {terms}\n", space)
    return compiled(space["total"], internal=True)


(
    stage1, stage2, stage3, stage4, stage5, stage6, stage7, stage8, stage9, stage10, stage11,
) = map(_sum, DOP853.A[1:])  # fmt: skip
#: The end of the step, whose slope is the first of the next step; and the errors.
stage12, error5, error3 = (_sum(row, _END) for row in (DOP853.B, DOP853.E5, DOP853.E3))
#: The last three stages serve the interpolant alone.
stage13, stage14, stage15 = (
    _sum(row, (*_END, *range(12, 13 + i))) for i, row in enumerate(DOP853.A_EXTRA)
)


@template(internal=True)
def step(
    far: bool, sign: float, h: float, x: float, y: float, z: float, x0: float, y0: float, z0: float
) -> tuple[float, float, float, Slopes, Slopes, Slopes]:
    """Move Δ by h: the new x, y, z, and the slopes of each at stages 5 to 11.

    Args:
        far, sign: of the row.
        h: length of the step in Δ, with its sign.
        x, y, z: the start of the step.
        x0, y0, z0: the slopes there.
    """
    # fmt: off
    x1, y1, z1 = rates(far, sign, x + h * stage1(x0), y + h * stage1(y0), z + h * stage1(z0))
    x2, y2, z2 = rates(far, sign, x + h * stage2(x0, x1),
                       y + h * stage2(y0, y1), z + h * stage2(z0, z1))
    x3, y3, z3 = rates(far, sign, x + h * stage3(x0, x2),
                       y + h * stage3(y0, y2), z + h * stage3(z0, z2))
    x4, y4, z4 = rates(far, sign, x + h * stage4(x0, x2, x3),
                       y + h * stage4(y0, y2, y3), z + h * stage4(z0, z2, z3))
    x5, y5, z5 = rates(far, sign, x + h * stage5(x0, x3, x4),
                       y + h * stage5(y0, y3, y4), z + h * stage5(z0, z3, z4))
    x6, y6, z6 = rates(far, sign, x + h * stage6(x0, x3, x4, x5),
                       y + h * stage6(y0, y3, y4, y5), z + h * stage6(z0, z3, z4, z5))
    x7, y7, z7 = rates(far, sign, x + h * stage7(x0, x3, x4, x5, x6),
                       y + h * stage7(y0, y3, y4, y5, y6), z + h * stage7(z0, z3, z4, z5, z6))
    x8, y8, z8 = rates(far, sign, x + h * stage8(x0, x3, x4, x5, x6, x7),
                       y + h * stage8(y0, y3, y4, y5, y6, y7),
                       z + h * stage8(z0, z3, z4, z5, z6, z7))
    x9, y9, z9 = rates(far, sign, x + h * stage9(x0, x3, x4, x5, x6, x7, x8),
                       y + h * stage9(y0, y3, y4, y5, y6, y7, y8),
                       z + h * stage9(z0, z3, z4, z5, z6, z7, z8))
    x10, y10, z10 = rates(far, sign, x + h * stage10(x0, x3, x4, x5, x6, x7, x8, x9),
                          y + h * stage10(y0, y3, y4, y5, y6, y7, y8, y9),
                          z + h * stage10(z0, z3, z4, z5, z6, z7, z8, z9))
    x11, y11, z11 = rates(far, sign, x + h * stage11(x0, x3, x4, x5, x6, x7, x8, x9, x10),
                          y + h * stage11(y0, y3, y4, y5, y6, y7, y8, y9, y10),
                          z + h * stage11(z0, z3, z4, z5, z6, z7, z8, z9, z10))
    # fmt: on
    kx = (x5, x6, x7, x8, x9, x10, x11)
    ky = (y5, y6, y7, y8, y9, y10, y11)
    kz = (z5, z6, z7, z8, z9, z10, z11)
    return x + h * stage12(x0, *kx), y + h * stage12(y0, *ky), z + h * stage12(z0, *kz), kx, ky, kz


@template(internal=True)
def error(
    far: bool,
    h: float,
    before: Point,
    after: Point,
    slopes: Point,
    stages: tuple[Slopes, Slopes, Slopes],
    rtol: float,
    atol: float,
) -> float:
    """The error of a step over what is allowed: rtol of each coordinate, and atol of a signed z.

    Of x and z the larger of their values at both ends counts, of y the smaller.

    Two estimates E₅ and E₃, of order 5 and 3, together give one of order 7,
    E₅²/√(E₅² + E₃²/100) (Hairer, Nørsett & Wanner, II.5); the worst coordinate counts.
    """
    worst = 0.0
    if not far and after[1] < 0.0:
        return math.inf
    for i in range(3):
        least, most = min(abs(before[i]), abs(after[i])), max(abs(before[i]), abs(after[i]))
        allowed = rtol * (least if i == 1 else most) + 1e-300
        if i == 1 and far:
            allowed = rtol + 1e-15 * most
        elif i == 2 and sign_of_z() < 0:
            allowed += atol
        five = h * error5(slopes[i], *stages[i]) / allowed
        three = h * error3(slopes[i], *stages[i]) / allowed
        if not abs(after[i]) + abs(five) + abs(three) < 1e150:  # too large, or not a number
            return math.inf
        ratio = five * (five / math.sqrt(five * five + 0.01 * three * three + 1e-300))
        worst = max(worst, ratio)
    return worst


@template(internal=True)
def first_length(gap: float, end: float, rtol: float) -> float:
    """The length of the first step on the way from ``gap`` to ``end``."""
    return min(_FIRST * rtol**0.125 * max(abs(gap), abs(end), 0.3), abs(end - gap))


@template(internal=True)
def reach(far: bool, y: float, y0: float) -> float:
    """The longest step: y changes by a factor of at most about e, where estimates hold."""
    return abs(y / y0) if not far and y0 != 0.0 else math.inf


@template(internal=True)
def growth(ratio: float) -> float:
    """What the error of a step lets the next one grow by: ratio to the power −1/8."""
    return 1.0 / math.sqrt(math.sqrt(math.sqrt(max(ratio, 1e-16))))


@template(internal=True)
def next_length(h: float, grow: float, last_h: float, last_grow: float) -> float:
    """The length after an accepted step h, less if errors are growing (Gustafsson's rule)."""
    if last_h != 0.0:
        grow = min(grow, grow * grow / last_grow * abs(h / last_h))
    return abs(h) * min(max(_SAFETY * grow, _SHRINK), _GROW)


@template(internal=True)
def shorter(h: float, ratio: float) -> float:
    """The step that is tried after a rejected one; a ratio that is not finite asks for a tenth."""
    if not ratio < math.inf:
        return _SHRINK * h
    return h * max(_SAFETY * growth(ratio), _SHRINK)


@template(internal=True)
def towards(length: float, left: float) -> float:
    """A step of that length, or onto the end where that is near; no small rest is left."""
    if length >= abs(left):
        return left
    return math.copysign(min(length, 0.6 * abs(left)), left)


@template(internal=True)
def follow(
    far: bool,
    sign: float,
    x: float,
    y: float,
    z: float,
    target: float,
    rtol: float,
    atol: float,
    max_steps: int,
) -> tuple[int, float, float, float, float, int]:
    """Follow an orbit to the minima, Δ = Δ* = ``target``, or into the plane.

    Returns:
        How it ended; x, y, z there; the margin by which it met the plane or missed it (infinite
        where Δ = 0 was not met); the number of attempted steps.
    """
    end = 0.0 if turns_back(far, sign, x, y, z, target) else target
    margin, last_h, last_grow = math.inf, 0.0, 1.0
    now = gap(far, sign, x, y, z)
    x0, y0, z0 = rates(far, sign, x, y, z)
    length = min(first_length(now, end, rtol), reach(far, y, y0))
    h = towards(length, end - now)
    for attempt in range(1, max_steps + 1):
        x1, y1, z1, kx, ky, kz = step(far, sign, h, x, y, z, x0, y0, z0)
        before, after, slopes = (x, y, z), (x1, y1, z1), (x0, y0, z0)
        ratio = error(far, h, before, after, slopes, (kx, ky, kz), rtol, atol)
        if not ratio <= 1.0:
            h = shorter(h, ratio)
            if h == 0.0:
                return LOST, x, y, z, margin, attempt
            continue
        aimed = h == end - now
        x, y, z = x1, y1, z1
        now = gap(far, sign, x, y, z)
        left = end - now
        near = abs(left) <= max(LANDED * abs(h), ROUNDING * size(far, x, y, z))
        landed = aimed and near
        if landed and end == 0.0:
            plane, other = margins(far, sign, x, y, z)
            margin = max(plane, other)
            if plane < other:
                return AT_PLANE, *land(far, sign, x, y, z, end, True), margin, attempt
            if target != 0.0:
                end, landed = target, False
                left = end - now
        if landed:
            return AT_MINIMA, *land(far, sign, x, y, z, end, False), margin, attempt
        x0, y0, z0 = rates(far, sign, x, y, z)
        grow = growth(ratio)
        length = next_length(h, grow, last_h, last_grow)
        last_h, last_grow = h, grow
        h = towards(min(length, reach(far, y, y0)), left)
    return OUT_OF_STEPS, x, y, z, margin, max_steps


@template(internal=True)
def land(far: bool, sign: float, x: float, y: float, z: float, end: float, plane: bool) -> Point:
    """Go along the slope over the rest that the last step left, and onto the plane."""
    for _ in range(5):
        left = end - gap(far, sign, x, y, z)
        if abs(left) <= ROUNDING * size(far, x, y, z):
            break
        x0, y0, z0 = rates(far, sign, x, y, z)
        x, y, z = x + x0 * left, y + y0 * left, z + z0 * left
    return on_plane(x, y, z) if plane else (x, y, z)


@template(internal=True)
def on_minima(
    far: bool, sign: float, x: float, y: float, z: float, target: float, tolerance: float
) -> bool:
    """Whether the whole way to Δ* is shorter than a hundredth of the tolerance, or than 1e-12.

    Where weights are large that may be so for any Δ, and then Δ alone would look like a plateau.
    """
    left = target - gap(far, sign, x, y, z)
    x0, y0, z0 = rates(far, sign, x, y, z)
    least = 1e-2 * min(tolerance, 1e-10)  # of a looser orbit too the end is on Δ = Δ*
    near = abs(x0 * left) <= least * x and abs(y0 * left) <= least * (1.0 if far else y)
    return near and abs(z0 * left) <= least * max(abs(z), 1.0)


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
