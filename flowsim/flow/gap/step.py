"""One step along an orbit: the step, its error, and the length of the next."""

from __future__ import annotations

import math

from flowsim.compiled import template
from flowsim.flow.gap.dop853 import (
    Slopes,
    error3,
    error5,
    stage1,
    stage2,
    stage3,
    stage4,
    stage5,
    stage6,
    stage7,
    stage8,
    stage9,
    stage10,
    stage11,
    stage12,
)
from flowsim.flow.gap.hooks import Point, rates, sign_of_z

#: The next step is this part of what the error asks for, and within these bounds of the last one.
_SAFETY, _SHRINK, _GROW = 0.9, 0.1, 8.0
#: The first step, over the size of Δ at its ends and the eighth root of the tolerance.
_FIRST = 2.0


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
