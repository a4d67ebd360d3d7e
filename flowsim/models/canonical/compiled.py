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
    """Return the sign of w and the coordinates x = e², y (|w| or log|w|) and z = 0 of θ."""
    sign, y = split(far, w)
    return sign, e * e, y, 0.0


@compiled(no_cpython_wrapper=True)
def theta_of(far: bool, sign: float, x: float, y: float, z: float, e0: float, w0: float) -> Point:
    """Return θ = (e, w, 0) at a point of an orbit; e keeps the sign of ``e0``."""
    return math.copysign(math.sqrt(x), e0) if x > 0 else 0.0, joined(far, sign, y), 0.0


@compiled(no_cpython_wrapper=True)
def sign_of_z() -> int:
    """Return 0: z is always 0."""
    return 0


@compiled(no_cpython_wrapper=True)
def gap(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return the logit gap Δ = x g."""
    return x * gain(far, sign, y)


@compiled(no_cpython_wrapper=True)
def size(far: bool, x: float, y: float, z: float) -> float:
    """Return the size of the terms of Δ, |x| (1 + 2w²): its rounding is relative to it."""
    return abs(x) * gain(far, 1.0, y)


@compiled(no_cpython_wrapper=True)
def rates(far: bool, sign: float, x: float, y: float, z: float) -> Point:
    """Return dx/dΔ, dy/dΔ and dz/dΔ along the orbit through a point."""
    v, dy = weight(far, y)
    g = 1.0 + 2.0 * sign * v
    m = 1.0 / (g * g + 4.0 * v * x)
    return m * g, m * (sign * dy), 0.0


@compiled(no_cpython_wrapper=True)
def steepness(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return ‖∇Δ‖², the gradient being that by θ."""
    v = weight(far, y)[0]
    g = 1.0 + 2.0 * sign * v
    return 4.0 * x * (g * g + 4.0 * v * x)


@compiled(no_cpython_wrapper=True)
def is_level(far: bool, start: Point, sign: float, x: float, y: float, z: float) -> bool:
    """Return whether ∇Δ = 0 along the orbit of ``start``: where it began at e = 0."""
    return start[0] == 0.0


@compiled(no_cpython_wrapper=True)
def turns_back(far: bool, sign: float, x: float, y: float, z: float, target: float) -> bool:
    """Return whether the way to Δ* leads over Δ = 0: where g and Δ* = ``target`` differ in sign."""
    return gain(far, sign, y) * target < 0


@compiled(no_cpython_wrapper=True)
def margins(far: bool, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """Return how far a point with Δ = 0 is from e = 0, and from g = 0, in units of x.

    Along the saddle's level of e² − w² − s log|w|.
    """
    g = gain(far, sign, y)
    return x, 0.25 * g * g


HOOKS = (
    is_far, point_of, theta_of, sign_of_z, gap, size, rates, steepness, is_level, turns_back,
    margins, loss, slope,
)  # fmt: skip
