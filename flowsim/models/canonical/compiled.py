"""The canonical model for the gap engine: x = e², y = |w|, z = 0, and Δ = x g with g = 1 + 2w|w|.

The hooks are those of ``flow.gap.hooks``. The field dθ/dΔ = ∇Δ/‖∇Δ‖² is rational in these
coordinates, and regular on the plane e = 0, where Δ = 0 too. Since |d log|w|/dx| ≤ 1/g, an orbit
from a large x may take w over hundreds of decades. Source: docs/derivations/02.md.
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
    slope,
    split,
    weight,
)


@compiled(no_cpython_wrapper=True)
def point_of(far: bool, e: float, w: float, third: float) -> tuple[float, float, float, float]:
    sign, y = split(far, w)
    return sign, e * e, y, 0.0


@compiled(no_cpython_wrapper=True)
def theta_of(far: bool, sign: float, x: float, y: float, z: float, e0: float, w0: float) -> Point:
    return math.copysign(math.sqrt(x), e0) if x > 0 else 0.0, joined(far, sign, y), 0.0


@compiled(no_cpython_wrapper=True)
def sign_of_z() -> int:
    return 0


@compiled(no_cpython_wrapper=True)
def gap(far: bool, sign: float, x: float, y: float, z: float) -> float:
    return x * gain(far, sign, y)


@compiled(no_cpython_wrapper=True)
def size(far: bool, x: float, y: float, z: float) -> float:
    return abs(x) * gain(far, 1.0, y)


@compiled(no_cpython_wrapper=True)
def rates(far: bool, sign: float, x: float, y: float, z: float) -> Point:
    v, dy = weight(far, y)
    g = 1.0 + 2.0 * sign * v
    m = 1.0 / (g * g + 4.0 * v * x)
    return m * g, m * (sign * dy), 0.0


@compiled(no_cpython_wrapper=True)
def steepness(far: bool, sign: float, x: float, y: float, z: float) -> float:
    v = weight(far, y)[0]
    g = 1.0 + 2.0 * sign * v
    return 4.0 * x * (g * g + 4.0 * v * x)


@compiled(no_cpython_wrapper=True)
def is_level(far: bool, start: Point, sign: float, x: float, y: float, z: float) -> bool:
    return start[0] == 0.0


@compiled(no_cpython_wrapper=True)
def turns_back(far: bool, sign: float, x: float, y: float, z: float, target: float) -> bool:
    return gain(far, sign, y) * target < 0


@compiled(no_cpython_wrapper=True)
def margins(far: bool, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """Along the saddle's level of e² − w² − s log|w|."""
    g = gain(far, sign, y)
    return x, 0.25 * g * g


HOOKS = (
    is_far, point_of, theta_of, sign_of_z, gap, size, rates, steepness, is_level, turns_back,
    margins, loss, slope,
)  # fmt: skip
