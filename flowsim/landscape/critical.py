"""Critical points: the loss's second derivatives, what kind a point is, and a search for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.arrays import Numbers, accepts_arrays
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.landscape.stability import stability, without_dust
from flowsim.running import quickly

#: Starts along every axis of a window.
STARTS = 24
#: Newton's step at a zero, and how far apart two are, in parts of the window; the least curvature,
#: in parts of the largest, of a point that is not one of a curve of them.
_ARRIVED, _APART, _CURVED = 1e-9, 1e-6, 1e-6
#: A search has arrived with a step of this part of the size, if its μ is below the second number,
#: and is stuck with a μ above the third.
_SETTLED, _FREE, _STUCK = 1e-13, 1e-3, 1e15

#: A function of places (m, d) in a search for zeros, and of the numbers (m,) of the searches.
OfRows = Callable[[Tensor, Tensor], Tensor]


@quickly
@accepts_arrays
def curvatures(model: Model, theta: Tensor) -> Tensor:
    """Eigenvalues of the loss's Hessian G^−½ ∇∇L G^−½, ascending, shape (..., k).

    For a flow that is no gradient flow: −Re of those of its Jacobian, the rates of return.

    Args:
        model: any reduced model; G is its metric.
        theta: points, a tensor of shape (..., k).

    >>> import flowsim, torch
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> flowsim.landscape.curvatures(model, [0.0, 1.0]).round(4)
    array([0.   , 0.426])
    """
    return _curvatures(model, theta)


def _curvatures(model: Model, theta: Tensor) -> Tensor:
    """``curvatures`` for tensors, (..., k)."""
    if type(model).field is not Model.field:
        return -_eigenvalues(model.jacobian(theta)).real.sort(descending=True).values
    root = torch.tensor(model.metric, dtype=theta.dtype, device=theta.device).rsqrt()
    hessian = root * model.hessian(theta) * root.unsqueeze(-1)
    # on the CPU also for rows of a GPU, whose solver takes 200 kB for each small matrix
    return torch.linalg.eigvalsh(hessian.cpu()).to(theta.device)


def classify_critical(
    model: Model, theta: Tensor, decisive: bool = False, radius: Tensor | None = None
) -> Tensor:
    """Label critical points: as the model says, or else by their loss and curvature.

    The best loss: global minimum. A negative curvature: saddle. None negative and one positive:
    local minimum (minima here are curves and planes, flat along themselves). All zero: a point
    between minima and maxima of a critical plane, a saddle. Where float64 cannot tell the best loss
    from the trap's, the answer is unresolved. A model without end losses has no global minima, and
    the flow beside its critical points says what they are: see ``stability``.

    Args:
        model: any model.
        theta: critical points, shape (n, k).
        decisive: the points are critical only within an integrator's error: a curvature must be
            a thousandth of the largest to count, and a flat point is unresolved.
        radius: of a model without end losses, see ``stability``.

    Returns:
        ``Label`` values, int8, shape (n,).
    """
    end_losses = model.end_losses()
    if end_losses is None:
        return stability(model, theta, decisive, radius)
    known = None if end_losses.classify is None else end_losses.classify(theta, decisive)
    if known is not None:
        return known
    values = _curvatures(model, theta)
    largest = values.abs().amax(dim=-1)
    # the flow leaves saddles as slowly as the slowest rate, and in a plane as its square; where
    # there are no curvatures, rounding leaves some of 1e-16 of the slowest rate
    least = largest.clamp(max=end_losses.speed**2 if decisive else end_losses.speed)
    zero = (1e-3 if decisive else 1e-9) * least + 1e-15 * largest + 1e-14 * end_losses.speed
    local = (values[:, 0] >= -zero) & (values[:, -1] > zero)
    label = torch.where(local, Label.LOCAL_MINIMUM, Label.SADDLE)
    excess = end_losses.above(model, theta)
    if decisive:
        # next to p + q = 1 rounding hides the curvatures that decide; away from it, those of
        # weights that have run away hide nothing
        seen = zero > 1e-13 * largest.clamp(min=1.0, max=1e3)
        label = torch.where((largest > zero) & seen, label, Label.UNRESOLVED)
        # what creeps towards the least loss is at no other minimum
        creeps = (label == Label.LOCAL_MINIMUM) & (excess <= 0.01 * end_losses.difference)
        label = torch.where(creeps, Label.UNRESOLVED, label)
    label = torch.where(end_losses.reached(excess), Label.GLOBAL_MINIMUM, label)
    return label.to(torch.int8)


@quickly
def critical_points_in(
    model: Model, low: Numbers, high: Numbers, starts: int = STARTS
) -> tuple[Tensor, Tensor]:
    """The isolated critical points in a box of the model's coordinates, some of them held.

    Every point of a grid goes to a zero of dθ/dt by Levenberg and Marquardt's steps. Points of
    curves and planes of critical points, points with a curvature of zero, and points where the loss
    is not finite are left out. A point that no step of the grid leads to is not found.

    Args:
        model: any model.
        low, high: corners of the box, shape (k,); a coordinate is held where they are equal. A
            point in such a slice is critical in all coordinates, the held ones too.
        starts: of the grid along each free coordinate.

    Returns:
        The points, shape (m, k), in the order of their first coordinates, then of the next; and in
        how many directions the flow leaves each, int8, shape (m,): 0 of a minimum, k of a maximum,
        −1 of a centre of a field, about which the flow turns without a rate.

    >>> import flowsim
    >>> well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 + y**2, "well")
    >>> points, unstable = flowsim.landscape.critical_points_in(well, [-2, -2], [2, 2])
    >>> points[:, 0].round().abs().tolist(), unstable.tolist()
    ([1.0, 0.0, 1.0], [0, 1, 0])
    """
    bottom, top = (torch.as_tensor(x, dtype=torch.float64) for x in (low, high))
    width = top - bottom
    free = width > 0
    count = int(free.sum())
    unit = (torch.arange(starts, dtype=torch.float64) + 0.5) / starts
    centre, begun = (bottom + top) / 2, torch.zeros(starts**count, len(width)).to(width)
    begun[:, free] = torch.cartesian_prod(*[unit - 0.5] * count).reshape(-1, count)
    theta = centre + width * zeros_from(
        lambda x, _: model.field(centre + width * x),
        lambda x, _: model.jacobian(centre + width * x) * width, begun, far=1.5,
    )[0]  # fmt: skip
    field, jacobian = model.field(theta), model.jacobian(theta)
    newton = torch.linalg.solve_ex(jacobian, field.unsqueeze(-1))[0].squeeze(-1)
    inside = ((theta >= bottom) & (theta <= top)).all(1) & model.loss(theta).isfinite()
    size = torch.where(free, width, width.max())
    theta = theta[inside & (newton.abs() <= _ARRIVED * size).all(1)]
    rates = _rates(model, theta).abs()
    rest = theta[rates.amin(1) > _CURVED * rates.amax(1)]
    found: list[Tensor] = []
    while len(rest):
        found.append(rest[0])
        rest = rest[((rest - rest[0]).abs() > _APART * size).any(1)]
    found.sort(key=lambda point: (point / (_APART * size)).round().tolist())
    points = torch.stack(found) if found else theta[:0]
    rates = _rates(model, points)
    rounding = torch.finfo(theta.dtype).eps * torch.maximum(bottom.abs(), top.abs())
    points = torch.where(points.abs() <= rounding, 0.0, points)  # where a kink may have no rate
    unstable = (rates.real > 0).sum(1)
    turns = (rates.real.abs() <= _CURVED * rates.abs().amax(1, keepdim=True)).any(1)
    return points, torch.where(turns, -1, unstable).to(torch.int8)


def zeros_from(
    field: OfRows, jacobian: OfRows, begun: Tensor, far: float, steps: int = 100
) -> tuple[Tensor, Tensor]:
    """Search a zero of F from each row (n, d) by Levenberg and Marquardt's −(JᵀJ + μ)⁻¹JᵀF.

    ``field`` and ``jacobian`` give F (m, d) and J (m, d, d); every row has a μ of its own. A row is
    given up once a coordinate is further than ``far`` from 0, so that places are best in units of
    the region searched. Returns the last places (n, d), and a mask (n,) of the rows at a zero.
    """
    place, going = begun.clone(), torch.arange(len(begun))
    value, slope = field(place, going).detach(), jacobian(place, going).detach()
    damping = torch.ones(len(place), 1, 1).to(place)
    found = torch.zeros(len(place), dtype=torch.bool)
    for _ in range(steps):
        across = slope[going].mT
        square = across @ across.mT
        size = square.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
        matrix = square + damping[going] * size * torch.eye(place.shape[1]).to(place)
        step = torch.linalg.solve_ex(matrix, across @ value[going].unsqueeze(2))[0].squeeze(2)
        trial = place[going] - step
        there = field(trial, going).detach()
        better = there.norm(dim=1) <= value[going].norm(dim=1)
        rows = going[better]
        place[rows], value[rows] = trial[better], there[better]
        if len(rows):
            slope[rows] = jacobian(place[rows], rows).detach()
        part = torch.where(better, 0.1, 10.0)[:, None, None].to(place)
        damping[going] = (damping[going] * part).clamp(1 / _STUCK, _STUCK)
        free = damping[going].flatten()
        arrived = (step.abs() <= _SETTLED).all(1) & (free < _FREE)
        found[going[arrived]] = True
        stays = ~arrived & (free < _STUCK) & step.isfinite().all(1)
        going = going[stays & (place[going].abs() <= far).all(1)]
        if not len(going):
            break
    return place, found & place.isfinite().all(1)


def _rates(model: Model, theta: Tensor) -> Tensor:
    """Eigenvalues of the flow's Jacobian at points (n, k), complex, (n, k)."""
    if type(model).field is not Model.field and len(theta):
        return _eigenvalues(model.jacobian(theta))
    return torch.complex(-_curvatures(model, theta) if len(theta) else theta, 0 * theta)


def _eigenvalues(matrix: Tensor) -> Tensor:
    """Eigenvalues of matrices (..., k, k), complex, (..., k)."""
    whole = without_dust(matrix.reshape(-1, *matrix.shape[-2:]))
    return torch.linalg.eigvals(whole).reshape(matrix.shape[:-1])
