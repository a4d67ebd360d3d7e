"""Hooks of the gap engine, compiled: coordinates in which a model's orbits are regular in Δ.

Along the gradient flow of L = ℓ(Δ) the gap Δ is monotone, so an orbit may be written with Δ as
independent variable, dθ/dΔ = ∇Δ/‖∇Δ‖². A model chooses x, y and z such that this field is regular
also on the plane (or line) where Δ = 0 and ∇Δ = 0, at which orbits of bad starts end: there x = 0.
For y ≥ 0 the engine follows the logarithm in rows that are ``far``; ``sign`` is that of the
coordinate of θ that y is the size of, and is kept. θ is handed over as three numbers, the third
being 0 where a model has two. The engine's templates call these names; ``engine`` copies them for
each model, whose functions of the same names stand in their places.
"""

from __future__ import annotations

from flowsim.compiled import hook

#: x, y, z; or their derivatives, or θ.
Point = tuple[float, float, float]
#: Arguments of ℓ besides the gap; the first is Δ*.
LossParameters = tuple[float, ...]


@hook
def is_far(first: float, second: float, third: float, target: float) -> bool:
    """Return whether y is a logarithm: the row, or Δ* = ``target``, is far from the origin."""
    return False


@hook
def point_of(
    far: bool, first: float, second: float, third: float
) -> tuple[float, float, float, float]:
    """Return the coordinates of θ: the sign, x, y and z."""
    raise NotImplementedError


@hook
def theta_of(
    far: bool, sign: float, x: float, y: float, z: float, first: float, second: float
) -> Point:
    """Return θ at a point of an orbit; ``first`` and ``second`` are those of θ at its start."""
    raise NotImplementedError


@hook
def on_plane(x: float, y: float, z: float) -> Point:
    """Return the point on the plane where orbits of bad starts end, given one next to it."""
    return 0.0, y, z


@hook
def sign_of_z() -> int:
    """Return 0 if z is always 0, 1 if it is never negative, −1 if it may have either sign."""
    return 1


@hook
def gap(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return the logit gap Δ at a point."""
    raise NotImplementedError


@hook
def size(far: bool, x: float, y: float, z: float) -> float:
    """Return the largest |term| of those that make up Δ: the rounding of Δ is relative to it."""
    raise NotImplementedError


@hook
def rates(far: bool, sign: float, x: float, y: float, z: float) -> Point:
    """Return dx/dΔ, dy/dΔ and dz/dΔ along the orbit through (x, y, z).

    If ``far``, y is a logarithm; ``sign`` is that of the coordinate of θ whose size y is.
    """
    raise NotImplementedError


@hook
def steepness(far: bool, sign: float, x: float, y: float, z: float) -> float:
    """Return ‖∇Δ‖² at a point, the gradient being that by θ."""
    raise NotImplementedError


@hook
def is_level(far: bool, start: Point, sign: float, x: float, y: float, z: float) -> bool:
    """Return whether ∇Δ = 0, within rounding. ``start`` is θ, of which x may have underflowed."""
    raise NotImplementedError


@hook
def turns_back(far: bool, sign: float, x: float, y: float, z: float, target: float) -> bool:
    """Return whether the way to Δ* leads over Δ = 0, where the orbit may end in the plane."""
    raise NotImplementedError


@hook
def margins(far: bool, sign: float, x: float, y: float, z: float) -> tuple[float, float]:
    """Return how far a point with Δ = 0 is from the plane, and from another factor's zero.

    Both in units of x, along the saddle's level of what is conserved: one of the two is zero but
    for errors, and the other one says how large an error could have made the orbit end differently.
    """
    raise NotImplementedError


@hook
def loss(params: LossParameters, gap: float) -> float:
    """Return the loss ℓ(Δ) in nats at Δ = ``gap``."""
    raise NotImplementedError


@hook
def slope(params: LossParameters, beyond: float) -> float:
    """Return ℓ′ at Δ = Δ* + ``beyond``: it has the sign of ``beyond``, and no cancellation."""
    raise NotImplementedError
