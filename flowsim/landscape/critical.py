"""Critical points: the loss's second derivatives, what kind a point is, and searches for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.landscape.stability import stability, without_dust
from flowsim.running import quickly

#: Starts along every axis of a window, and steps of each of them.
STARTS, _STEPS = 24, 100
#: A search goes no further after a step of this part of the window.
_SETTLED = 1e-13
#: The last step, and how far apart two points are, in parts of the window; the least curvature, in
#: parts of the largest, of a point that is not one of a curve of them.
_ARRIVED, _APART, _CURVED = 1e-9, 1e-6, 1e-6


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
    if type(model).field is not Model.field:
        return -_eigenvalues(model.jacobian(theta)).real.sort(descending=True).values
    root = torch.tensor(model.metric, dtype=theta.dtype, device=theta.device).rsqrt()
    hessian = root * model.hessian(theta) * root.unsqueeze(-1)
    # on the CPU also for rows of a GPU, whose solver takes 200 kB for each small matrix
    return torch.linalg.eigvalsh(hessian.cpu()).to(theta.device)


def classify_critical(
    model: Model, theta: Tensor, decisive: bool = False, radius: Tensor | None = None
) -> Tensor:
    """The kind of a critical point: what the model says, or else by its loss and curvature.

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


@dataclass
class CriticalSearch:
    """Results of a search of ∇L = 0.

    Attributes:
        starts: how many starts there were, and ``half_width`` of the box they filled.
        on_plane, global_minima: how many ended in the critical plane e = 0, if there is one, and
            at a global minimum: the lowest point found, if the model knows no
            end losses.
        not_found: how many ended where ‖∇L‖ is not below 1e-10.
        theta: the points that are neither, one of each kind, shape (m, k); see ``loss`` (nats)
            and ``curvature`` (eigenvalues, ascending, shape (m, k)).
    """

    starts: int
    half_width: tuple[float, ...]
    on_plane: int
    global_minima: int
    not_found: int
    theta: Tensor
    loss: Tensor
    curvature: Tensor


@quickly
def search_critical_points(
    model: Model,
    generator: torch.Generator,
    starts: int = 100,
    half_width: tuple[float, ...] = (2.0, 2.0, 0.95),
) -> CriticalSearch:
    """Minimise ‖∇L‖² by least squares from uniform starts in a box around the origin.

    Args:
        model: any reduced model.
        generator: draws the starts.
        starts: how many.
        half_width: of the box, one per coordinate.

    Returns:
        CriticalSearch; points closer than 1e-4 to one another are listed once.

    >>> import flowsim, torch
    >>> model, draws = flowsim.model("canonical", 0.5, 0.8), torch.Generator().manual_seed(0)
    >>> search = flowsim.landscape.search_critical_points
    >>> found = search(model, draws, starts=5, half_width=(2.0, 2.0))
    >>> found.on_plane + found.global_minima, found.not_found
    (5, 0)
    """
    k = len(model.coordinates)
    box = torch.tensor(half_width, dtype=torch.float64)
    points = box * (2 * torch.rand(starts, k, dtype=torch.float64, generator=generator) - 1)

    def gradient(x: np.ndarray) -> np.ndarray:
        return model.gradient(torch.from_numpy(x)).numpy()

    def jacobian(x: np.ndarray) -> np.ndarray:
        return model.hessian(torch.from_numpy(x)).numpy()

    ends = []
    for point in points:
        fit = least_squares(gradient, point.numpy(), jac=jacobian, method="lm", xtol=1e-14,
                            ftol=1e-15, gtol=1e-15, max_nfev=100)  # fmt: skip
        ends.append(torch.from_numpy(fit.x))
    theta = torch.stack(ends)
    still = model.gradient(theta).norm(dim=1) < 1e-10
    height = model.plane.project(theta)[:, 0]
    on_plane = still & (height.abs() < 1e-3)
    plane = model.plane
    curves = plane.curves(dict.fromkeys((plane.x, plane.y), (-1.0, 1.0)), {})
    if not any(len(curve.x) > 1 and not np.asarray(curve.y).any() for curve in curves):
        on_plane &= False  # it is no line of critical points
    end_losses = model.end_losses()
    if end_losses is None:
        loss = model.loss(theta)
        best = float(loss[still].min()) if still.any() else 0.0
        is_global = still & ~on_plane & (loss - best < 1e-9)
    else:
        is_global = still & ~on_plane & end_losses.reached(end_losses.above(model, theta))
    others = theta[still & ~on_plane & ~is_global]
    distinct: list[Tensor] = []
    for candidate in others:
        if all((candidate - seen).abs().max() > 1e-4 for seen in distinct):
            distinct.append(candidate)
    listed = torch.stack(distinct) if distinct else theta[:0]
    return CriticalSearch(
        starts,
        half_width,
        int(on_plane.sum()),
        int(is_global.sum()),
        int((~still).sum()),
        listed,
        model.loss(listed),
        curvatures(model, listed) if len(listed) else listed,
    )


def critical_points_in(
    model: Model, low: Tensor, high: Tensor, starts: int = STARTS
) -> tuple[Tensor, Tensor]:
    """The isolated critical points in a box of the model's coordinates, some of them held.

    Every point of a grid goes to a zero of dθ/dt by Levenberg and Marquardt's steps
    −(JᵀJ + μ)⁻¹Jᵀ dθ/dt with a μ of its own. Points of curves and planes of critical points,
    points with a curvature of zero, and points where the loss is not finite are left out. A point
    that no step of the grid leads to is not found.

    Args:
        model: any model.
        low, high: corners of the box, shape (k,); a coordinate is held where they are equal. A
            point in such a slice is critical in all coordinates, the held ones too.
        starts: of the grid along each free coordinate.

    Returns:
        The points, shape (m, k), in the order of their first coordinates, then of the next; and in
        how many directions the flow leaves each, int8, shape (m,): 0 of a minimum, k of a maximum,
        −1 of a centre of a field, about which the flow turns without a rate.
    """
    width = high - low
    free = width > 0
    count = int(free.sum())
    unit = (torch.arange(starts, dtype=torch.float64) + 0.5) / starts
    theta = low.repeat(starts**count, 1)
    theta[:, free] += width[free] * torch.cartesian_prod(*[unit] * count).reshape(-1, count)
    damping = torch.ones(len(theta), 1, 1, dtype=torch.float64)
    field, jacobian = model.field(theta), model.jacobian(theta)
    going = torch.arange(len(theta))
    for _ in range(_STEPS):
        across = jacobian[going][..., free].mT
        square = across @ across.mT
        size = square.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None]
        matrix = square + damping[going] * size * torch.eye(count).to(theta)
        trial, here = theta[going], field[going]
        step = torch.linalg.solve_ex(matrix, across @ here[..., None])[0].squeeze(-1)
        trial[:, free] -= step
        there = model.field(trial)
        better = there.norm(dim=1) <= here.norm(dim=1)
        index = going[better]
        theta[index], field[index] = trial[better], there[better]
        if len(index):
            jacobian[index] = model.jacobian(theta[index])
        part = torch.where(better, 0.1, 10.0)[:, None, None].to(damping)
        damping[going] = (damping[going] * part).clamp(1e-15, 1e15)
        # those that have arrived, are stuck, or have left the box by more than its width are done
        stays = (step.abs() > _SETTLED * width[free]).any(1) & (damping[going] < 1e15).flatten()
        stays &= ((theta[going] - (low + high) / 2).abs() <= 1.5 * width)[:, free].all(1)
        going = going[stays]
        if not len(going):
            break
    newton = torch.linalg.solve_ex(jacobian, field.unsqueeze(-1))[0].squeeze(-1)
    inside = ((theta >= low) & (theta <= high)).all(1) & model.loss(theta).isfinite()
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
    rounding = torch.finfo(theta.dtype).eps * torch.maximum(low.abs(), high.abs())
    points = torch.where(points.abs() <= rounding, 0.0, points)  # where a kink may have no rate
    unstable = (rates.real > 0).sum(1)
    turns = (rates.real.abs() <= _CURVED * rates.abs().amax(1, keepdim=True)).any(1)
    return points, torch.where(turns, -1, unstable).to(torch.int8)


def _rates(model: Model, theta: Tensor) -> Tensor:
    """Eigenvalues of the flow's Jacobian at points (n, k), complex, (n, k)."""
    if type(model).field is not Model.field and len(theta):
        return _eigenvalues(model.jacobian(theta))
    return torch.complex(-_curvatures(model, theta) if len(theta) else theta, 0 * theta)


def _eigenvalues(matrix: Tensor) -> Tensor:
    whole = without_dust(matrix.reshape(-1, *matrix.shape[-2:]))
    return torch.linalg.eigvals(whole).reshape(matrix.shape[:-1])
