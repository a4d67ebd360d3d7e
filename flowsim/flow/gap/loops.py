"""The loops of the gap engine: the step, one orbit, its end, and why it ended there.

Steps are those of Dormand and Prince of order 8(5,3), as sums over the slopes of their stages: each
``stage``, ``error5`` and ``error3`` is one row of the tableau without its zeros. Source: Hairer,
Nørsett & Wanner, *Solving Ordinary Differential Equations I*, II.5 (step, error), II.6
(interpolant); the numbers are scipy's.

A point of an orbit is p = (x, y, z) with ``far`` and ``sign`` (see ``hooks``), k0 is the slope
there, ``target`` is Δ*, ``params`` are ℓ's, and ``allowed`` are tolerances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.integrate import DOP853

from flowsim.compiled import compiled, template
from flowsim.flow.gap.hooks import (
    LossParameters,
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
from flowsim.flow.options import Steps
from flowsim.flow.return_codes import (
    AGREE,
    CRITICAL,
    DIFFER,
    MINIMA,
    NOT_ASKED,
    NOT_FINITE,
    ON_MINIMA,
    OUT_OF_STEPS,
    TRAPPED,
)

#: The slopes at stages 5 to 11, all that the end of a step and its errors need beside the first.
Stages = tuple[Point, Point, Point, Point, Point, Point, Point]
#: Order of the step, and evaluations of the field that a step needs.
ORDER, STAGES = 8, 12
#: The next step is this part of what the error asks for, and within these bounds of the last one.
_SAFETY, _SHRINK, _GROW = 0.9, 0.1, 8.0
#: The first step, over the size of Δ at its ends and the eighth root of the tolerance.
_FIRST = 2.0
#: A step that aimed at the end of the way has landed if this part of it is left.
LANDED = 1e-3
#: Rounding of Δ, over the size of its terms.
ROUNDING = 1e-15
#: A row is followed again where its margin at Δ = 0 is below this many times the tolerance.
_DOUBT = 1e4
#: The tolerances of the second time, and how far neighbours are displaced: a hundred tolerances.
_CAREFUL_RTOL, _CAREFUL_ATOL, _DISPLACED = 1e-13, 1e-14, 1e-11

#: The slopes that the end of a step and its errors are sums of.
END = (0, *range(5, 12))


def moved(row: Iterable[float], given: tuple[int, ...] = ()) -> Any:
    """Compile a function of a point p, a length h and slopes kᵢ that returns p + h Σ aᵢ kᵢ.

    ``row`` has the aᵢ. The function takes the slopes of the stages ``given``, or those with aᵢ ≠ 0.

    Written out, since a loop over so few numbers would cost more than their sum.
    """
    weights = {i: float(a) for i, a in enumerate(row) if a != 0}
    arguments = ", ".join(f"k{i}" for i in given or weights)
    sums = [" + ".join(f"{a!r} * k{i}[{c}]" for i, a in weights.items()) for c in range(3)]
    point = ", ".join(f"p[{c}] + h * ({total})" for c, total in enumerate(sums))
    space: dict[str, Any] = {}
    exec(f"def moved(p, h, {arguments}):\n    return {point}\n", space)
    return compiled(space["moved"], no_cpython_wrapper=True)


(
    stage1, stage2, stage3, stage4, stage5, stage6, stage7, stage8, stage9, stage10, stage11,
) = map(moved, DOP853.A[1:])  # fmt: skip
#: The end of the step, whose slope is the first of the next step; and the errors.
stage12, error5, error3 = (moved(row, END) for row in (DOP853.B, DOP853.E5, DOP853.E3))
#: The last three stages serve the interpolant alone.
stage13, stage14, stage15 = (
    moved(row, (*END, *range(12, 13 + i))) for i, row in enumerate(DOP853.A_EXTRA)
)


@template(no_cpython_wrapper=True)
def initial_point(theta: Point, target: float) -> tuple[bool, float, Point]:
    """Return the coordinates of a start θ: whether it is far, its sign, and (x, y, z)."""
    far = is_far(*theta, target)
    sign, x, y, z = point_of(far, *theta)
    return far, sign, (x, y, z)


@template(no_cpython_wrapper=True)
def speed(far: bool, sign: float, params: LossParameters, x: float, y: float, z: float) -> float:
    """Return dΔ/dt at a point."""
    return -slope(params, gap(far, sign, x, y, z) - params[0]) * steepness(far, sign, x, y, z)


@template(no_cpython_wrapper=True)
def velocity(
    far: bool, sign: float, params: LossParameters | None, x: float, y: float, z: float
) -> Point:
    """Return the derivatives of x, y, z by Δ, or, with a loss's parameters, by physical time."""
    k = rates(far, sign, x, y, z)
    if params is None:
        return k
    rate = speed(far, sign, params, x, y, z)
    return k[0] * rate, k[1] * rate, k[2] * rate


@template(no_cpython_wrapper=True)
def step(
    far: bool, sign: float, params: LossParameters | None, h: float, p: Point, k0: Point
) -> tuple[Point, Stages]:
    """Take a step of length h from p, where the slope is k0; return its end and ``Stages``."""
    k1 = velocity(far, sign, params, *stage1(p, h, k0))
    k2 = velocity(far, sign, params, *stage2(p, h, k0, k1))
    k3 = velocity(far, sign, params, *stage3(p, h, k0, k2))
    k4 = velocity(far, sign, params, *stage4(p, h, k0, k2, k3))
    k5 = velocity(far, sign, params, *stage5(p, h, k0, k3, k4))
    k6 = velocity(far, sign, params, *stage6(p, h, k0, k3, k4, k5))
    k7 = velocity(far, sign, params, *stage7(p, h, k0, k3, k4, k5, k6))
    k8 = velocity(far, sign, params, *stage8(p, h, k0, k3, k4, k5, k6, k7))
    k9 = velocity(far, sign, params, *stage9(p, h, k0, k3, k4, k5, k6, k7, k8))
    k10 = velocity(far, sign, params, *stage10(p, h, k0, k3, k4, k5, k6, k7, k8, k9))
    k11 = velocity(far, sign, params, *stage11(p, h, k0, k3, k4, k5, k6, k7, k8, k9, k10))
    stages = (k5, k6, k7, k8, k9, k10, k11)
    return stage12(p, h, k0, *stages), stages


@template(no_cpython_wrapper=True)
def error(
    far: bool,
    h: float,
    before: Point,
    after: Point,
    k0: Point,
    stages: Stages,
    allowed: Steps,
) -> float:
    """Return a step's error over what is allowed: rtol of each coordinate, and atol of a signed z.

    For x and z the larger of their values at both ends counts, for y the smaller.

    Two estimates E₅ and E₃, of order 5 and 3, together give one of order 7,
    E₅²/√(E₅² + E₃²/100) (Hairer, Nørsett & Wanner, II.5); the worst coordinate counts.
    """
    none = (0.0, 0.0, 0.0)
    fives, threes = error5(none, h, k0, *stages), error3(none, h, k0, *stages)
    worst = 0.0
    if not far and after[1] < 0.0:
        return math.inf
    for i in range(2 if sign_of_z() == 0 else 3):
        least, most = min(abs(before[i]), abs(after[i])), max(abs(before[i]), abs(after[i]))
        here = allowed.rtol * (least if i == 1 else most) + 1e-300
        if i == 1 and far:
            here = allowed.rtol + 1e-15 * most
        elif i == 2 and sign_of_z() < 0:
            here += allowed.atol
        five, three = fives[i] / here, threes[i] / here
        if not abs(after[i]) + abs(five) + abs(three) < 1e150:  # too large, or not a number
            return math.inf
        ratio = five * (five / math.sqrt(five * five + 0.01 * three * three + 1e-300))
        worst = max(worst, ratio)
    return worst


@template(no_cpython_wrapper=True)
def first_length(gap: float, end: float, rtol: float) -> float:
    """Return the length, in Δ, of the first step on the way from Δ = ``gap`` to Δ = ``end``."""
    return min(_FIRST * rtol**0.125 * max(abs(gap), abs(end), 0.3), abs(end - gap))


@template(no_cpython_wrapper=True)
def max_step(far: bool, p: Point, k0: Point) -> float:
    """Return the longest step allowed at p, slope k0: y changes by a factor of at most about e.

    Beyond that the estimates of errors do not hold.
    """
    return abs(p[1] / k0[1]) if not far and k0[1] != 0.0 else math.inf


@template(no_cpython_wrapper=True)
def growth(ratio: float) -> float:
    """Return a factor for the length of steps: ``ratio``, which is from ``error``, to the −1/8."""
    return 1.0 / math.sqrt(math.sqrt(math.sqrt(max(ratio, 1e-16))))


@template(no_cpython_wrapper=True)
def reject_step(h: float, ratio: float) -> float:
    """Return the length to try after a rejected step of length h with that ratio of ``error``.

    A ratio that is not finite asks for a tenth.
    """
    if not ratio < math.inf:
        return _SHRINK * h
    return h * max(_SAFETY * growth(ratio), _SHRINK)


@template(no_cpython_wrapper=True)
def clip_step(length: float, left: float) -> float:
    """Return a step of that length, with the sign of ``left``, the rest of the way.

    A step that would reach the end becomes ``left``; one that would leave a small rest is cut.
    """
    if length >= abs(left):
        return left
    return math.copysign(min(length, 0.6 * abs(left)), left)


@template(no_cpython_wrapper=True)
def next_step(
    far: bool,
    p: Point,
    k0: Point,
    h: float,
    ratio: float,
    last: tuple[float, float],
    left: float,
) -> tuple[float, tuple[float, float]]:
    """Return the length of the step from p after an accepted one, and ``last`` for the next call.

    The accepted one had length h and the error ``ratio``, and p is its end. The length grows less
    if errors are growing (Gustafsson's rule); ``last`` is (0, 1) at first.
    """
    grow = allowed = growth(ratio)
    if last[0] != 0.0:
        allowed = min(grow, grow * grow / last[1] * abs(h / last[0]))
    length = abs(h) * min(max(_SAFETY * allowed, _SHRINK), _GROW)
    return clip_step(min(length, max_step(far, p, k0)), left), (h, grow)


@template(no_cpython_wrapper=True)
def follow(
    far: bool, sign: float, p: Point, target: float, allowed: Steps
) -> tuple[int, Point, float, int]:
    """Follow an orbit to the minima, Δ = Δ* = ``target``, or into the plane.

    Returns:
        Return code; point there; the margin by which it met the plane or missed it (infinite
        where Δ = 0 was not met); the number of attempted steps.
    """
    end = 0.0 if turns_back(far, sign, *p, target) else target
    margin, last = math.inf, (0.0, 1.0)
    now, k0 = gap(far, sign, *p), rates(far, sign, *p)
    h = clip_step(min(first_length(now, end, allowed.rtol), max_step(far, p, k0)), end - now)
    for attempt in range(1, allowed.most + 1):
        after, stages = step(far, sign, None, h, p, k0)
        ratio = error(far, h, p, after, k0, stages, allowed)
        if not ratio <= 1.0:
            h = reject_step(h, ratio)
            if h == 0.0:
                return NOT_FINITE, p, margin, attempt
            continue
        aimed = h == end - now
        p, now = after, gap(far, sign, *after)
        left = end - now
        landed = aimed and abs(left) <= max(LANDED * abs(h), ROUNDING * size(far, *p))
        if landed and end == 0.0:
            plane, other = margins(far, sign, *p)
            margin = max(plane, other)
            if plane < other:
                return TRAPPED, locate_event(far, sign, p, end, True), margin, attempt
            if target != 0.0:
                end, landed = target, False
                left = end - now
        if landed:
            return MINIMA, locate_event(far, sign, p, end, False), margin, attempt
        k0 = rates(far, sign, *p)
        h, last = next_step(far, p, k0, h, ratio, last, left)
    return OUT_OF_STEPS, p, margin, allowed.most


@template(no_cpython_wrapper=True)
def locate_event(far: bool, sign: float, p: Point, end: float, plane: bool) -> Point:
    """Return the point with Δ = ``end`` next to p, by Newton's method along the orbit's slope.

    With ``plane`` that point is moved onto the plane where orbits of bad starts end.
    """
    for _ in range(5):
        left = end - gap(far, sign, *p)
        if abs(left) <= ROUNDING * size(far, *p):
            break
        k = rates(far, sign, *p)
        p = (p[0] + k[0] * left, p[1] + k[1] * left, p[2] + k[2] * left)
    return on_plane(*p) if plane else p


@template(no_cpython_wrapper=True)
def on_minima(far: bool, sign: float, p: Point, target: float, tolerance: float) -> bool:
    """Return whether the way to Δ* is shorter than a hundredth of the tolerance, or than 1e-12.

    With large weights that may hold for any Δ, and then Δ alone would look like a plateau.
    """
    left, (x, y, z) = target - gap(far, sign, *p), p
    x0, y0, z0 = rates(far, sign, *p)
    least = 1e-2 * min(tolerance, 1e-10)  # of a looser orbit too the end is on Δ = Δ*
    near = abs(x0 * left) <= least * x and abs(y0 * left) <= least * (1.0 if far else y)
    return near and abs(z0 * left) <= least * max(abs(z), 1.0)


@template(no_cpython_wrapper=True)
def end_of(
    far: bool,
    sign: float,
    p: Point,
    theta: Point,
    target: float,
    units: np.ndarray,
    allowed: Steps,
) -> tuple[int, Point, int, int]:
    """Find the end of the orbit from the start ``theta``, whose point is p.

    Returns why it ended, its last point, what neighbours say (two values of
    ``flow.return_codes``), and the number of attempted steps.

    An orbit that met or missed the plane by little is followed again at the careful tolerance.
    If that is close too, its label stands only if all orbits from starts displaced by
    ``_DISPLACED`` to both sides, along every coordinate, end alike.
    """
    scale = 1.0 + p[0] + (math.exp(2.0 * p[1]) if far else p[1] * p[1]) + p[2] * p[2]
    if not math.isfinite(scale):
        return NOT_FINITE, p, NOT_ASKED, 0
    if is_level(far, theta, sign, *p):
        return CRITICAL, p, NOT_ASKED, 0
    if on_minima(far, sign, p, target, allowed.rtol):
        return ON_MINIMA, p, NOT_ASKED, 0
    end, last, margin, steps = follow(far, sign, p, target, allowed)
    known = end != MINIMA and end != TRAPPED
    if margin >= _DOUBT * allowed.rtol * scale or target == 0.0 or known:
        return end, last, NOT_ASKED, steps
    rtol = min(allowed.rtol, _CAREFUL_RTOL)
    careful = Steps(rtol, min(allowed.atol, _CAREFUL_ATOL), allowed.most)
    end, last, margin, more = follow(far, sign, p, target, careful)
    steps += more
    if margin >= _DOUBT * rtol * scale:
        return end, last, NOT_ASKED, steps
    first, second, third = theta
    for i in range(len(units)):
        for side in (-_DISPLACED, _DISPLACED):
            move = side * max(abs(theta[i]), units[i])
            _, x, y, z = point_of(
                far, first + move if i == 0 else first, second + move if i == 1 else second,
                third + move if i == 2 else third,
            )  # fmt: skip
            found = follow(far, sign, (x, y, z), target, careful)
            steps += found[3]
            if found[0] != end:
                return end, last, DIFFER, steps
    return end, last, AGREE, steps


@template(no_cpython_wrapper=True)
def as_triple(row: np.ndarray) -> Point:
    """Return the θ in ``row`` as three numbers, the third being 0 where a model has two."""
    return row[0], row[1], row[2] if len(row) == 3 else 0.0


@template(no_cpython_wrapper=True)
def store(theta: Point, row: np.ndarray) -> None:
    """Write θ, or its first two numbers, into a row."""
    row[0], row[1] = theta[0], theta[1]
    if len(row) == 3:
        row[2] = theta[2]


@template
def find_ends(
    params: LossParameters,
    units: np.ndarray,
    starts: np.ndarray,
    allowed: Steps,
    theta: np.ndarray,
    reasons: np.ndarray,
    values: np.ndarray,
    evaluations: np.ndarray,
) -> None:
    """Find the ends of all rows, of ``starts`` (n, k), each for itself.

    ``units`` (k,): what displacements are relative to at least. Filled are the end points ``theta``
    (n, k), why the rows ended and what neighbours said in ``reasons`` (2, n), loss and ‖∇L‖ in
    ``values`` (2, n), and ``evaluations`` of the field (n,).
    """
    target = params[0]
    for n in range(len(starts)):
        last = start = as_triple(starts[n])
        far, sign, p = initial_point(start, target)
        why, p, reasons[1, n], steps = end_of(far, sign, p, start, target, units, allowed)
        reasons[0, n] = why
        if steps > 0 or why == ON_MINIMA:
            last = theta_of(far, sign, *p, start[0], start[1])
        store(last, theta[n])
        here = gap(far, sign, *p)
        values[0, n] = loss(params, here)
        values[1, n] = abs(slope(params, here - target)) * math.sqrt(steepness(far, sign, *p))
        evaluations[n] = 1 + STAGES * steps
