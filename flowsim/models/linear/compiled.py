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
    """Return the sign of w and the coordinates x = e², y (|w| or log|w|) and z = 1 + a of θ."""
    sign, y = split(far, w)
    return sign, e * e, y, 1.0 + a


@compiled(no_cpython_wrapper=True)
def theta_of(far: bool, sign: float, x: float, y: float, z: float, e0: float, w0: float) -> Point:
    """Return θ = (e, w, a) at a point of an orbit; e keeps the sign of ``e0``."""
    return math.copysign(math.sqrt(x), e0) if x > 0 else 0.0, joined(far, sign, y), z - 1.0


@compiled(no_cpython_wrapper=True)
def sign_of_z() -> int:
    """Return −1: z may have either sign."""
    return -1


@compiled(no_cpython_wrapper=True)
def gap(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return the logit gap Δ = x z g."""
    return x * z * gain(far, sign, y)


@compiled(no_cpython_wrapper=True)
def size(far: bool, x: float, y: float, z: float) -> float:
    """Return the size of the terms of Δ, |x| (1 + |z|)(1 + 2w²): its rounding is relative to it."""
    return abs(x) * (1.0 + abs(z)) * gain(far, 1.0, y)


@compiled(no_cpython_wrapper=True)
def rates(far: bool, sign: float, x: float, y: float, z: float) -> Point:
    """Return dx/dΔ, dy/dΔ and dz/dΔ along the orbit through a point."""
    v, dy = weight(far, y)
    g = 1.0 + 2.0 * sign * v
    m = 1.0 / (4.0 * z * z * g * g + x * (16.0 * v * z * z + g * g))
    return 4.0 * m * z * g, 4.0 * m * sign * dy * z, m * g


@compiled(no_cpython_wrapper=True)
def steepness(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return ‖∇Δ‖², the gradient being that by θ."""
    v = weight(far, y)[0]
    g = 1.0 + 2.0 * sign * v
    return x * (4.0 * z * z * g * g + x * (16.0 * v * z * z + g * g))


@compiled(no_cpython_wrapper=True)
def is_level(far: bool, start: Point, sign: float, x: float, y: float, z: float) -> bool:
    """Return whether ∇Δ = 0: where the start had e = 0, or g = z = 0 within rounding."""
    return start[0] == 0.0 or (no_gain(far, sign, y) and abs(z) <= 4e-16)


@compiled(no_cpython_wrapper=True)
def turns_back(far: bool, sign: float, x: float, y: float, z: float, target: float) -> bool:
    """Return whether the way to Δ* leads over Δ = 0: where z g has not the sign of ``target``."""
    return z * gain(far, sign, y) * target < 0


@compiled(no_cpython_wrapper=True)
def margins(far: bool, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """Return how far a point with Δ = 0 is from e = 0, and from g = 0 or z = 0, in units of x.

    Along the saddle's level of e² − w² − s log|w| and of e² − 2z².
    """
    g = gain(far, sign, y)
    return x, min(0.25 * g * g, 2.0 * z * z)


HOOKS = (
    is_far, point_of, theta_of, sign_of_z, gap, size, rates, steepness, is_level, turns_back,
    margins, loss, slope,
)  # fmt: skip
