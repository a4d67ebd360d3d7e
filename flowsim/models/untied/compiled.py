"""Untied weights for the gap engine: x = (e + u)²/2, y = |w|, z = (e − u)²/2, Δ = (x − z) g/2.

As of the canonical model, the plane being the line e = u = 0. Neither e + u nor e − u changes its
sign. Source: docs/derivations/02.md and 05.md.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.models.gap_family.compiled import (
    Point,
    far_away,
    gain,
    joined,
    loss,
    no_gain,
    slope,
    split,
    weight,
)


@compiled(no_cpython_wrapper=True)
def is_far(e: float, u: float, w: float, target: float) -> bool:
    """Return whether y is log|w|: e² + u² or |Δ*| is large, and w is not 0."""
    return far_away(e * e + u * u, w, target)


@compiled(no_cpython_wrapper=True)
def point_of(far: bool, e: float, u: float, w: float) -> tuple[float, float, float, float]:
    """Return the sign of w and the coordinates x = (e + u)²/2, y and z = (e − u)²/2 of θ."""
    sign, y = split(far, w)
    return sign, 0.5 * (e + u) ** 2, y, 0.5 * (e - u) ** 2


@compiled(no_cpython_wrapper=True)
def theta_of(far: bool, sign: float, x: float, y: float, z: float, e0: float, u0: float) -> Point:
    """Return θ = (e, u, w) at a point of an orbit, whose start had ``e0`` and ``u0``."""
    total = math.copysign(math.sqrt(max(2.0 * x, 0.0)), e0 + u0)
    difference = math.copysign(math.sqrt(max(2.0 * z, 0.0)), e0 - u0)
    return 0.5 * (total + difference), 0.5 * (total - difference), joined(far, sign, y)


@compiled(no_cpython_wrapper=True)
def on_plane(x: float, y: float, z: float) -> Point:
    """Return the point on the line e = u = 0 with the same y."""
    return 0.0, y, 0.0


@compiled(no_cpython_wrapper=True)
def gap(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return the logit gap Δ = (x − z) g/2."""
    return 0.5 * (x - z) * gain(far, sign, y)


@compiled(no_cpython_wrapper=True)
def size(far: bool, x: float, y: float, z: float) -> float:
    """Return the size of the terms of Δ, (x + z)(1 + 2w²)/2: its rounding is relative to it."""
    return 0.5 * (x + z) * gain(far, 1.0, y)


@compiled(no_cpython_wrapper=True)
def rates(far: bool, sign: float, x: float, y: float, z: float) -> Point:
    """Return dx/dΔ, dy/dΔ and dz/dΔ along the orbit through a point."""
    v, dy = weight(far, y)
    g = 1.0 + 2.0 * sign * v
    d = x - z
    m = 2.0 / ((x + z) * g * g + 4.0 * v * d * d)
    return m * x * g, m * sign * dy * d, -m * z * g


@compiled(no_cpython_wrapper=True)
def steepness(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return ‖∇Δ‖², the gradient being that by θ."""
    v = weight(far, y)[0]
    g = 1.0 + 2.0 * sign * v
    d = x - z
    return (x + z) * g * g + 4.0 * v * d * d


@compiled(no_cpython_wrapper=True)
def is_level(far: bool, start: Point, sign: float, x: float, y: float, z: float) -> bool:
    """Return whether ∇Δ = 0: where the start had e = u = 0, or g = 0 and x = z within rounding."""
    return start[0] == start[1] == 0.0 or (no_gain(far, sign, y) and x == z)


@compiled(no_cpython_wrapper=True)
def turns_back(far: bool, sign: float, x: float, y: float, z: float, target: float) -> bool:
    """Return whether the way to Δ* leads over Δ = 0, where the orbit may end in e = u = 0.

    Orbits can end there only from e = u or e = −u.
    """
    return (x == 0 or z == 0) and gap(far, sign, x, y, z) * target < 0


@compiled(no_cpython_wrapper=True)
def margins(far: bool, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """Return how far a point with Δ = 0 is from e = u = 0, and from g = 0, in units of x.

    Along the saddle's level of e² + u² − w² − s log|w|.
    """
    g = gain(far, sign, y)
    return (x + z if x * z == 0.0 else math.inf), 0.25 * g * g


HOOKS = (
    is_far, point_of, theta_of, on_plane, gap, size, rates, steepness, is_level, turns_back,
    margins, loss, slope,
)  # fmt: skip
