"""One orbit from its start to its end: step, error, accept, land."""

from __future__ import annotations

import math

from flowsim.compiled import template
from flowsim.flow.gap.hooks import Point, gap, margins, on_plane, rates, size, turns_back
from flowsim.flow.gap.step import (
    error,
    first_length,
    growth,
    next_length,
    reach,
    shorter,
    step,
    towards,
)

#: How an orbit ended.
AT_MINIMA, AT_PLANE, OUT_OF_STEPS, LOST = 0, 1, 2, 3
#: A step that aimed at the end of the way has landed if this part of it is left.
LANDED = 1e-3
#: Rounding of Δ, over the size of its terms.
ROUNDING = 1e-15


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
