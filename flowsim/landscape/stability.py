"""Type of a point at which a flow rests: attracting, repelling, a centre, or flat along itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.interface import Model
from flowsim.labels import Label

#: Rates this small beside the largest count as zero: at a start that never moves, and at a point
#: where an integrator stopped.
_EXACT, _STOPPED = 1e-9, 1e-6
#: A flat direction is tried at the distances reach / 2, reach / 4, … from the point, so many, and
#: first at one of them alone; the rest of the coordinates follows in so many steps.
_DISTANCES, _FIRST, _FOLLOWS = 24, 6, 12
#: They have followed when this part of the distance is left to them at most.
_SETTLED = 1e-3
#: A velocity counts above this times what rounding may change in it.
_RESOLVED = 30.0
#: It belongs to the point and not to its error above this times the velocity at the point.
_BEYOND_ERROR = 8.0
#: Entries of a matrix this small beside its largest change none of its eigenvalues that counts.
_NOTHING = 1e-40
#: Number of neighbouring distances that have to agree. A nearer value is at least this part of the
#: one by a power of the distance: else the direction is flat up to an edge.
_AGREE, _JUMP = 3, 0.1
#: Bisections to the edge of a region without a velocity, and the velocity there below which
#: numbers end and not the slope.
_EDGE, _FADED = 60, 1e-200


def stability(model: Model, theta: Tensor, decisive: bool, radius: Tensor | None = None) -> Tensor:
    """Labels of critical points by the flow near them, int8 (n,).

    A rate of growth: saddle. A rate that is zero with a rotation: a centre, unresolved. All rates
    negative: local minimum. In a direction without a rate the flow is looked at on both sides, at
    smaller and smaller distances: a saddle if it leads away on one of them, else a local minimum,
    which may be flat along itself; unresolved where the field about it is zero by underflow. A line
    of rest of a field, as a conserved mass makes it, is unresolved where the flow leads away on one
    side: concentrations may never get there. Points (n, k) that are ``decisive`` are critical only
    within an integrator's error. They are looked at no further than ``radius`` (n,), by default the
    size of their coordinates.
    """
    jacobian = model.jacobian(theta).nan_to_num()
    rates = torch.linalg.eigvals(without_dust(jacobian))
    largest = rates.abs().amax(1, keepdim=True)
    zero = (_STOPPED if decisive else _EXACT) * largest
    still = rates.real.abs() <= zero
    grows, turns = (rates.real > zero).any(1), (still & (rates.imag.abs() > zero)).any(1)
    label = torch.full_like(theta[:, 0], Label.LOCAL_MINIMUM, dtype=torch.int8)
    flat = (still.any(1) & ~grows & ~turns).nonzero()[:, 0]
    if len(flat):
        if radius is None:
            size = theta.abs().amax(1)
            radius = torch.where(size > 0, size, 1.0)
        leaves = _leaves(model, theta[flat], jacobian[flat], zero[flat], radius[flat])
        label[flat[leaves]] = Label.SADDLE
        if type(model).field is not Model.field:
            lines = (torch.linalg.svdvals(jacobian[flat]) <= zero[flat]).sum(1) > 1
            label[flat[leaves & lines]] = Label.UNRESOLVED
    label[velocity_fades(model, theta, jacobian)] = Label.UNRESOLVED
    label[turns] = Label.UNRESOLVED
    label[grows] = Label.SADDLE
    return label


def velocity_fades(model: Model, theta: Tensor, jacobian: Tensor) -> Tensor:
    """Mask (m,) of points (m, k) in a region where the field is zero by underflow alone.

    The ``jacobian`` (m, k, k) is zero there too, and at the edge of the region the speed is below
    1e-200. The edge is looked for along all coordinates, and towards 0.
    """
    fades = torch.zeros_like(theta[:, 0], dtype=torch.bool)
    rows = ((jacobian == 0).all(2).all(1) & (theta != 0).any(1)).nonzero()[:, 0]
    if not len(rows):
        return fades
    place, k = theta[rows], theta.shape[1]
    size = place.abs().amax(1).view(-1, 1, 1)
    axes = torch.eye(k, dtype=theta.dtype, device=theta.device) * size
    ways = torch.cat([axes, -axes, -place.unsqueeze(1)], 1).unsqueeze(2)
    parts = 2.0 ** torch.arange(-8.0, 1.01, 0.25, dtype=theta.dtype, device=theta.device)

    def speed(part: Tensor) -> Tensor:
        """The field's largest component at parts of the ways, of the shape of ``part``."""
        at = place[:, None, None] + part.unsqueeze(3) * ways
        return model.field(at.reshape(-1, k)).nan_to_num().abs().amax(1).view(part.shape)

    moves = speed(parts.expand(*ways.shape[:2], -1)) > 0
    first = moves.long().argmax(2, keepdim=True)
    high = parts[first]
    low = torch.where(first > 0, parts[(first - 1).clamp_min(0)], 0.0)
    for _ in range(_EDGE):
        middle = (low + high) / 2
        beyond = speed(middle) > 0
        low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
    edge = torch.where(moves.any(2), speed(high)[..., 0], 1.0)
    fades[rows] = (edge < _FADED).any(1)
    return fades


def _leaves(model: Model, theta: Tensor, jacobian: Tensor, zero: Tensor, radius: Tensor) -> Tensor:
    """Mask (m,) of points (m, k) that the flow leaves along a direction without a rate.

    ``zero`` (m, 1) is how large a rate is that counts as none, ``radius`` (m,) how far from the
    points the flow is looked at.
    """
    distances = 0.5 ** torch.arange(1, _DISTANCES + 1).to(theta)
    near = distances[_FIRST : _FIRST + 1]
    flat, velocity, noise, _ = _velocities_along(model, theta, jacobian, zero, radius, near)
    leaves = torch.zeros_like(flat[:, 0])
    tried = (flat & (velocity.abs() > _RESOLVED * noise)[..., 0].any(0)).any(1).nonzero()[:, 0]
    if not len(tried):
        return leaves
    theta, jacobian, zero, radius = theta[tried], jacobian[tried], zero[tried], radius[tried]
    flat, velocity, noise, own = _velocities_along(model, theta, jacobian, zero, radius, distances)
    counts = velocity.abs() > torch.maximum(_RESOLVED * noise, _BEYOND_ERROR * own)
    # the smallest distances come last: the first so many that count, from there
    count = counts.flip(-1).long().cumsum(-1)
    chosen = counts.flip(-1) & (count <= _AGREE)
    away = (velocity.flip(-1) > 0) | ~chosen
    there = (count[..., -1] >= _AGREE) & away.all(-1)
    first = chosen.long().argmax(-1, keepdim=True)
    size, seen = velocity.abs().flip(-1), (velocity.abs() + _RESOLVED * noise).flip(-1)
    one, next_one = (size.gather(-1, (first + i).clamp_max(_DISTANCES - 1)) for i in (0, 1))
    before = seen.gather(-1, (first - 1).clamp_min(0))
    smooth = (first == 0) | (before >= _JUMP * one * one / next_one)
    leaves[tried] = (there & smooth[..., 0] & flat).any(0).any(1)
    return leaves


def _velocities_along(
    model: Model, theta: Tensor, jacobian: Tensor, zero: Tensor, radius: Tensor, distances: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Velocities beside points (m, k), along directions in which the Jacobian has no rate.

    The j = k + 2 directions are the Jacobian's right singular vectors and two diagonals between the
    flat ones. On both sides, at d ``distances`` in parts of ``radius`` (m,), the other coordinates
    are first brought to rest. Returns a mask (m, j) of the flat directions; the velocity away from
    the point, (2, m, j, d); what rounding may change in it, of the same shape, ∞ in directions that
    are not flat and where the others did not rest; and the speed left at the point, (m, j, 1).
    """
    left, stiff, right = torch.linalg.svd(jacobian)
    flat = stiff <= torch.maximum(zero, 1e-300 * torch.ones_like(zero))
    inverse = right.mT @ torch.where(flat, 0.0, 1 / stiff).unsqueeze(-1).mul(left.mT)
    # beside the flat directions two diagonals between them
    is_flat = flat.to(theta)
    signs = 1.0 - 2.0 * (is_flat.cumsum(1) % 2)
    diagonals = torch.stack([is_flat, is_flat * signs], 1) @ right
    diagonals = diagonals / is_flat.sum(1).clamp_min(1).sqrt().view(-1, 1, 1)
    right = torch.cat([right, diagonals], 1)
    flat = torch.cat([flat, (is_flat.sum(1) > 1)[:, None].expand(-1, 2)], 1)
    m, k = theta.shape
    sides = theta.new_tensor([1.0, -1.0]).view(2, 1, 1, 1)
    step = sides * distances * radius.view(1, m, 1, 1)  # (2, m, 1, d)
    shape = (2, m, k + 2, len(distances))
    place = (theta[:, None, None] + step[..., None] * right[:, :, None]).reshape(-1, k)
    matrix = inverse[None, :, None, None].expand(*shape, k, k).reshape(-1, k, k)
    own = followed(model, theta, inverse)
    own_velocity = (right @ model.field(own).unsqueeze(2)).abs().squeeze(2)
    place = followed(model, place, matrix)
    direction = right[None, :, :, None].expand(*shape, k).reshape(-1, k)
    left_over = (matrix @ model.field(place).unsqueeze(2)).squeeze(2)
    across = jacobian[None, :, None, None].expand(*shape, k, k).reshape(-1, k, k)
    across = (across @ left_over.unsqueeze(2)).squeeze(2).abs().amax(1)
    velocity, noise = with_rounding(lambda x: (model.field(x) * direction).sum(1), place)
    # of what the others still move, nothing is a velocity of this direction
    noise = torch.maximum(noise, across)
    unknown = ~flat[..., None] | (left_over.abs().amax(1).view(shape) > _SETTLED * step.abs())
    noise = torch.where(unknown, torch.inf, noise.view(shape))
    return flat, velocity.view(shape) * sides, noise, own_velocity[..., None]


def followed(model: Model, place: Tensor, inverse: Tensor) -> Tensor:
    """Move places (n, k) by Newton's steps −``inverse`` · field, until coordinates are at rest.

    Directions in the kernel of ``inverse`` (n, k, k) stay.
    """
    for _ in range(_FOLLOWS):
        step = (inverse @ model.field(place).unsqueeze(2)).squeeze(2)
        place = torch.where(step.isfinite().all(1, keepdim=True), place - step, place)
    return place


def without_dust(matrix: Tensor) -> Tensor:
    """Set entries of matrices (m, k, k) to zero that are nothing beside the largest.

    LAPACK finds no eigenvalues where a product of entries is below all numbers.
    """
    size = matrix.abs()
    return torch.where(size > _NOTHING * size.amax((1, 2), keepdim=True), matrix, 0.0)


def with_rounding(values: Callable[[Tensor], Tensor], place: Tensor) -> tuple[Tensor, Tensor]:
    """The values of a function at places (n, k), and how much rounding of these changes them."""
    number = torch.arange(place.shape[1], device=place.device)
    number = number.to(place)  # or bits of float64 would be lost
    signs = [1.0 - 2.0 * (number % 2), 1.0 - 2.0 * (number // 2 % 2)]
    rounded = [place * (1 + unit * sign) for sign in signs for unit in (2**-51, -(2**-51))]
    here = values(place)
    return here, torch.stack([(values(x) - here).abs() for x in rounded]).amax(0)
