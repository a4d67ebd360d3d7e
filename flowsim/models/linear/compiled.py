"""Linear attention for the gap engine: x = e², y = |w|, z = 1 + a, and Δ = x z g.

As of the canonical model. Source: docs/derivations/02.md and 04.md.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.models.gap_family.compiled import (
    Point,
    gain,
    is_far,
    joined,
    loss,
    no_gain,
    slope,
    split,
    weight,
)


@compiled(no_cpython_wrapper=True)
def point_of(far: bool, e: float, w: float, a: float) -> tuple[float, float, float, float]:
    sign, y = split(far, w)
    return sign, e * e, y, 1.0 + a


@compiled(no_cpython_wrapper=True)
def theta_of(far: bool, sign: float, x: float, y: float, z: float, e0: float, w0: float) -> Point:
    return math.copysign(math.sqrt(x), e0) if x > 0 else 0.0, joined(far, sign, y), z - 1.0


@compiled(no_cpython_wrapper=True)
def sign_of_z() -> int:
    return -1


@compiled(no_cpython_wrapper=True)
def gap(far: bool, sign: float, x: float, y: float, z: float) -> float:
    return x * z * gain(far, sign, y)


@compiled(no_cpython_wrapper=True)
def size(far: bool, x: float, y: float, z: float) -> float:
    return abs(x) * (1.0 + abs(z)) * gain(far, 1.0, y)


@compiled(no_cpython_wrapper=True)
def rates(far: bool, sign: float, x: float, y: float, z: float) -> Point:
    v, dy = weight(far, y)
    g = 1.0 + 2.0 * sign * v
    m = 1.0 / (4.0 * z * z * g * g + x * (16.0 * v * z * z + g * g))
    return 4.0 * m * z * g, 4.0 * m * sign * dy * z, m * g


@compiled(no_cpython_wrapper=True)
def steepness(far: bool, sign: float, x: float, y: float, z: float) -> float:
    v = weight(far, y)[0]
    g = 1.0 + 2.0 * sign * v
    return x * (4.0 * z * z * g * g + x * (16.0 * v * z * z + g * g))


@compiled(no_cpython_wrapper=True)
def is_level(far: bool, start: Point, sign: float, x: float, y: float, z: float) -> bool:
    return start[0] == 0.0 or (no_gain(far, sign, y) and abs(z) <= 4e-16)


@compiled(no_cpython_wrapper=True)
def turns_back(far: bool, sign: float, x: float, y: float, z: float, target: float) -> bool:
    return z * gain(far, sign, y) * target < 0


@compiled(no_cpython_wrapper=True)
def margins(far: bool, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """Along the saddle's level of e² − w² − s log|w| and of e² − 2z²."""
    g = gain(far, sign, y)
    return x, min(0.25 * g * g, 2.0 * z * z)


HOOKS = (
    is_far, point_of, theta_of, sign_of_z, gap, size, rates, steepness, is_level, turns_back,
    margins, loss, slope,
)  # fmt: skip
