"""The loss's second derivatives, and the kind of a critical point."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.landscape.labels import CriticalPoint, Label
from flowsim.markov import GapChain
from flowsim.models.base import ReducedModel
from flowsim.models.in_context.induction import InductionModel


@accepts_arrays
def curvatures(model: ReducedModel, theta: Tensor) -> Tensor:
    """Eigenvalues of the loss's Hessian G^−½ ∇∇L G^−½, ascending, shape (..., k)."""
    root = torch.tensor(model.metric, dtype=theta.dtype, device=theta.device).rsqrt()
    return torch.linalg.eigvalsh(root * hessian(model, theta) * root.unsqueeze(-1))


def critical_plane(model: ReducedModel, theta: Tensor) -> Tensor:
    """What the points of the critical plane e = 0 are, by the sign of their curvature in e.

    ∂²L/∂e² is read off the gradient a little above the plane, where it is ∂L/∂e / e. With
    attention its sign is that of −λC(w, a), and C = 0 is the saddle curve (docs/derivations.md, 6).

    Args:
        model: a reduced model whose first coordinate is e.
        theta: points with e = 0, shape (..., k).

    Returns:
        ``CriticalPoint`` values, int8, shape (...).
    """
    if model.chain.second_eigenvalue == 0:
        return torch.full_like(theta[..., 0], CriticalPoint.GLOBAL_MINIMUM, dtype=torch.int8)
    curvature = plane_curvature(model, theta)
    law = model.chain.stationary
    flat = curvature.abs() < 1e-10 * law[0] * law[-1] * abs(model.chain.second_eigenvalue)
    return torch.where(flat, 0.0, torch.sign(curvature)).to(torch.int8)


def plane_curvature(model: ReducedModel, theta: Tensor) -> Tensor:
    """∂²L/∂e² at points of the plane e = 0, shape (...); the given e is ignored."""
    above = torch.cat([torch.full_like(theta[..., :1], 1e-6), theta[..., 1:]], dim=-1)
    return model.gradient(above)[..., 0] / 1e-6


def saddle_points(model: ReducedModel, line: Tensor) -> Tensor:
    """The points between neighbours of ``line`` where the plane's curvature changes its sign.

    Args:
        model: a reduced model whose first coordinate is e.
        line: points along a curve in the plane e = 0, shape (n, k).

    Returns:
        Points of the saddle curve, shape (m, k), to 1e-12 of their segment by bisection; none
        when p + q = 1.
    """
    if model.chain.second_eigenvalue == 0:
        return line[:0]
    value = plane_curvature(model, line)
    change = (value[1:] > 0) != (value[:-1] > 0)
    low, high, below = line[:-1][change], line[1:][change], value[:-1][change] > 0
    for _ in range(45):
        middle = (low + high) / 2
        same = ((plane_curvature(model, middle) > 0) == below).unsqueeze(-1)
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    return (low + high) / 2


def hessian(model: ReducedModel, theta: Tensor) -> Tensor:
    """∂²L, the model's own or by automatic differentiation of its gradient, shape (..., k, k)."""
    if hasattr(model, "hessian"):  # batched by the model itself, also through torch
        return model.hessian(theta)
    with torch.enable_grad():
        point = theta.detach().clone().requires_grad_()
        slopes = model.gradient(point).unbind(-1)
        rows = [torch.autograd.grad(s.sum(), point, retain_graph=True)[0] for s in slopes]
    return torch.stack(rows, dim=-2)


def is_blurred(chain: GapChain) -> bool:
    """Whether p + q is so close to 1, without being 1, that float64 tells no loss from another."""
    return 0 < chain.mutual_information < 1e-13


def classify_critical(model: ReducedModel, theta: Tensor, decisive: bool = False) -> Tensor:
    """The kind of a critical point, from its loss and curvature alone.

    The entropy rate as loss: global minimum. A negative curvature: saddle. None negative and one
    positive: local minimum (minima here are curves and planes, flat along themselves). All zero:
    a point between minima and maxima of a critical plane, a saddle. Where p + q is so close to one
    that loss cannot tell the entropy rate from h(π₁), the answer is unresolved.

    Args:
        model: the reduced model.
        theta: critical points, shape (n, k).
        decisive: the points are critical only within an integrator's error: a curvature must be
            a thousandth of the largest to count, and a flat point is unresolved.

    Returns:
        ``Label`` values, int8, shape (n,).
    """
    values = curvatures(model, theta)
    largest = values.abs().amax(dim=-1)
    if isinstance(model, InductionModel):  # whose minima are at no finite place that rows start at
        falls = values[:, 0] < -1e-9 * largest
        return torch.where(falls, Label.SADDLE, Label.UNRESOLVED).to(torch.int8)
    chain = model.chain
    zero = (1e-3 if decisive else 1e-9) * (chain.mutual_information + largest)
    excess = model.loss(theta) - chain.entropy_rate
    is_global = excess <= 1e-9 * chain.mutual_information + 1e-15
    local = (values[:, 0] >= -zero) & (values[:, -1] > zero)
    label = torch.where(local, Label.LOCAL_MINIMUM, Label.SADDLE)
    if decisive:
        label = torch.where(largest > zero, label, Label.UNRESOLVED)
    lowest = Label.UNRESOLVED if is_blurred(chain) else Label.GLOBAL_MINIMUM
    return torch.where(is_global, lowest, label).to(torch.int8)
