"""The field of the gap engine: orbits as functions of the logit gap Δ, in rational coordinates.

Along the gradient flow Δ is monotone, so an orbit may be written with Δ as independent variable,
dθ/dΔ = ∇Δ/‖∇Δ‖². With s the sign of w and g = 1 + 2w|w| the gain of the feed-forward layer, this
is a rational field in

    canonical   x = e²           y = |w|   z = 0            Δ = x g
    linear      x = e²           y = |w|   z = 1 + a        Δ = x z g
    untied      x = (e + u)²/2   y = |w|   z = (e − u)²/2   Δ = (x − z) g/2

and regular on the plane e = 0, where Δ = 0 too. Since |d log|w|/dx| ≤ 1/g, an orbit from a large x
may take w over hundreds of decades; such rows have y = log|w|. All functions are compiled and
choose by the number of the model in ``KINDS``, plus ``FAR`` where y is a logarithm. Source:
docs/derivations.md, 2.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled

KINDS = {"canonical": 0, "linear": 1, "untied": 2}
CANONICAL, LINEAR, UNTIED = 0, 1, 2
FAR = 4
#: e² (or e² + u²) and |Δ*| beyond which y is log|w|.
_FAR_AWAY = 40.0

#: x, y, z; or their derivatives.
Point = tuple[float, float, float]


@compiled
def kind_at(kind: int, e: float, second: float, third: float, target: float) -> int:
    """The kind of a row: with ``FAR`` if it begins or ends far from the origin."""
    x = e * e + (second * second if kind == UNTIED else 0.0)
    w = third if kind == UNTIED else second
    return kind + FAR if max(x, abs(target)) > _FAR_AWAY and w != 0.0 else kind


@compiled
def point_of(kind: int, e: float, second: float, third: float) -> tuple[float, float, float, float]:
    """The sign of w and the coordinates of θ = (e, w), (e, w, a) or (e, u, w)."""
    model = kind % FAR
    w = third if model == UNTIED else second
    sign, y = -1.0 if w < 0 else 1.0, math.log(abs(w)) if kind >= FAR else abs(w)
    if model == UNTIED:
        return sign, 0.5 * (e + second) ** 2, y, 0.5 * (e - second) ** 2
    return sign, e * e, y, 1.0 + third if model == LINEAR else 0.0


@compiled
def theta_of(
    kind: int, sign: float, x: float, y: float, z: float, e0: float, second0: float
) -> tuple[float, float, float]:
    """θ at a point of the orbit that began at e0 and, untied, at u0; the canonical third is 0."""
    model = kind % FAR
    w = sign * math.exp(y) if kind >= FAR else sign * y
    if model == UNTIED:  # neither e + u nor e − u changes its sign
        total = math.copysign(math.sqrt(max(2.0 * x, 0.0)), e0 + second0)
        difference = math.copysign(math.sqrt(max(2.0 * z, 0.0)), e0 - second0)
        return 0.5 * (total + difference), 0.5 * (total - difference), w
    e = math.copysign(math.sqrt(x), e0) if x > 0 else 0.0
    return e, w, z - 1.0 if model == LINEAR else 0.0


@compiled
def weight(kind: int, y: float) -> tuple[float, float]:
    """w², and dy/dlog|w|."""
    if kind >= FAR:
        return math.exp(2.0 * y), 1.0
    return y * y, y


@compiled
def gain(kind: int, sign: float, y: float) -> float:
    """g = 1 + 2w|w|."""
    return 1.0 + 2.0 * sign * weight(kind, y)[0]


@compiled
def gap(kind: int, sign: float, x: float, y: float, z: float) -> float:
    """Δ."""
    model, g = kind % FAR, gain(kind, sign, y)
    if model == CANONICAL:
        return x * g
    if model == LINEAR:
        return x * z * g
    return 0.5 * (x - z) * g


@compiled
def size(kind: int, x: float, y: float, z: float) -> float:
    """The largest of the terms that make up Δ, in which it is rounded."""
    model, terms = kind % FAR, gain(kind, 1.0, y)
    if model == CANONICAL:
        return abs(x) * terms
    if model == LINEAR:
        return abs(x) * (1.0 + abs(z)) * terms
    return 0.5 * (x + z) * terms


@compiled
def rates(kind: int, sign: float, x: float, y: float, z: float) -> Point:
    """dx/dΔ, dy/dΔ and dz/dΔ."""
    model = kind % FAR
    v, dy = weight(kind, y)
    g = 1.0 + 2.0 * sign * v
    if model == CANONICAL:
        m = 1.0 / (g * g + 4.0 * v * x)
        return m * g, m * (sign * dy), 0.0
    if model == LINEAR:
        m = 1.0 / (4.0 * z * z * g * g + x * (16.0 * v * z * z + g * g))
        return 4.0 * m * z * g, 4.0 * m * sign * dy * z, m * g
    d = x - z
    m = 2.0 / ((x + z) * g * g + 4.0 * v * d * d)
    return m * x * g, m * sign * dy * d, -m * z * g


@compiled
def steepness(kind: int, sign: float, x: float, y: float, z: float) -> float:
    """‖∇Δ‖², over the coordinates θ."""
    model, v = kind % FAR, weight(kind, y)[0]
    g = 1.0 + 2.0 * sign * v
    if model == CANONICAL:
        return 4.0 * x * (g * g + 4.0 * v * x)
    if model == LINEAR:
        return x * (4.0 * z * z * g * g + x * (16.0 * v * z * z + g * g))
    d = x - z
    return (x + z) * g * g + 4.0 * v * d * d


@compiled
def turns_back(kind: int, sign: float, x: float, y: float, z: float, target: float) -> bool:
    """Whether the way to Δ* leads over Δ = 0, where the orbit may end in the plane e = 0.

    Untied orbits can end there (e = u = 0) only from e = u or e = −u.
    """
    model = kind % FAR
    if model == UNTIED:
        return (x == 0 or z == 0) and gap(kind, sign, x, y, z) * target < 0
    g = gain(kind, sign, y)
    return (z * g if model == LINEAR else g) * target < 0


@compiled
def margins(kind: int, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """How far a point with Δ = 0 is from the plane e = 0, and from where another factor vanishes.

    Both in units of e², along the saddle's level of e² − w² − s log|w| and, linear, of
    e² − 2z²: one of the two is zero but for errors, and the other one says how large an error
    could have made the orbit end differently.
    """
    model, g = kind % FAR, gain(kind, sign, y)
    if model == UNTIED:
        return (x + z if x * z == 0.0 else math.inf), 0.25 * g * g
    return x, min(0.25 * g * g, 2.0 * z * z) if model == LINEAR else 0.25 * g * g


@compiled
def relative(rate: float, value: float) -> float:
    """|rate/value|; 0 where the value stays 0."""
    return abs(rate / value) if rate != 0.0 else 0.0
