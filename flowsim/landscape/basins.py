"""The canonical loss landscape: separatrix, minima, basins, and the kind of a critical point."""

from __future__ import annotations

import math
from enum import IntEnum

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.models.canonical import ReducedModel, energy

#: The saddle (e, w) = (0, −1/√2) of the canonical model and its energy −(1 + log 2)/2.
SADDLE_W = -math.sqrt(0.5)
SADDLE_ENERGY = -(1 + math.log(2)) / 2


class Label(IntEnum):
    """What a trajectory did. A saddle is any critical point from which the loss can descend."""

    UNRESOLVED = 0
    GLOBAL_MINIMUM = 1
    LOCAL_MINIMUM = 2
    SADDLE = 3


class CriticalPoint(IntEnum):
    """What a point of the critical line or plane e = 0 is."""

    LOCAL_MAXIMUM = -1
    SADDLE = 0
    LOCAL_MINIMUM = 1
    GLOBAL_MINIMUM = 2


def separatrix(chain: BinaryChain, w: Tensor) -> Tensor:
    """The e ≥ 0 of the basin boundary E(e, w) = E_s above each w.

    e² = w² − log|w| + E_s on the branch that flows into the saddle: −1/√2 ≤ w < 0 for p + q > 1,
    w ≤ −1/√2 for p + q < 1. Source: LG (energy); spec 3.1.

    Args:
        chain: the data; only the sign of 1 − p − q matters.
        w: any shape.

    Returns:
        e, shape of ``w``; NaN off that branch, and everywhere when p + q = 1 (no bad minima).
    """
    if chain.second_eigenvalue == 0:
        return torch.full_like(w, torch.nan)
    on_branch = w >= SADDLE_W if chain.second_eigenvalue < 0 else w <= SADDLE_W
    squared = w.square() - w.abs().log() + SADDLE_ENERGY
    return torch.where(on_branch & (w < 0), squared.clamp_min(0).sqrt(), torch.nan)


def minima_curve(chain: BinaryChain, w: Tensor) -> Tensor:
    """The e > 0 of the global minima above each w: e² = Δ*/(1 + 2w|w|), NaN where there is none.

    For p + q = 1 the minima are the two lines e = 0 and w = −1/√2 instead. Source: spec 3.1.
    """
    squared = chain.target_logit_gap / (1 + 2 * w * w.abs())
    return torch.where(squared > 0, squared.sqrt(), torch.nan)


def reaches_global_minimum(chain: BinaryChain, theta: Tensor) -> Tensor:
    """The analytic basin of the global minima in the canonical model, the oracle of the tests.

    p + q < 1: w > −1/√2, or E > E_s. p + q > 1: w < −1/√2, or w < 0 and E > E_s. p + q = 1:
    everything. The line e = 0 never moves and belongs to no basin unless p + q = 1.

    Args:
        chain: the data.
        theta: (e, w), shape (..., 2).

    Returns:
        bool, shape (...). Source: spec 3.1 (E is conserved, the saddle is the only one).
    """
    e, w = theta[..., 0], theta[..., 1]
    if chain.second_eigenvalue == 0:
        return torch.ones_like(e, dtype=torch.bool)
    above = energy(theta) > SADDLE_ENERGY
    if chain.second_eigenvalue > 0:
        return (e != 0) & ((w > SADDLE_W) | ((w <= SADDLE_W) & above))
    return (e != 0) & ((w < SADDLE_W) | ((w < 0) & above))


def curvatures(model: ReducedModel, theta: Tensor) -> Tensor:
    """Eigenvalues of the loss's Hessian G^−½ ∇∇L G^−½, ascending, shape (..., k)."""
    root = torch.tensor(model.metric, dtype=theta.dtype, device=theta.device).rsqrt()
    return torch.linalg.eigvalsh(root * hessian(model, theta) * root.unsqueeze(-1))


def critical_plane(model: ReducedModel, theta: Tensor) -> Tensor:
    """What the points of the critical plane e = 0 are, by the sign of their curvature in e.

    ∂²L/∂e² is read off the gradient a little above the plane, where it is ∂L/∂e / e. With
    attention its sign is that of −λC(w, a), and C = 0 is the saddle curve (spec 3.2).

    Args:
        model: a reduced model whose first coordinate is e.
        theta: points with e = 0, shape (..., k).

    Returns:
        ``CriticalPoint`` values, int8, shape (...).
    """
    if model.chain.second_eigenvalue == 0:
        return torch.full_like(theta[..., 0], CriticalPoint.GLOBAL_MINIMUM, dtype=torch.int8)
    curvature = plane_curvature(model, theta)
    pi0, pi1 = model.chain.stationary
    flat = curvature.abs() < 1e-10 * pi0 * pi1 * abs(model.chain.second_eigenvalue)
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
    """∂²L by forward differentiation of the model's gradient (torch.func), shape (..., k, k)."""
    if hasattr(model, "hessian"):  # batched by the model itself, also through torch
        return model.hessian(theta)
    rows = theta.reshape(-1, theta.shape[-1])
    found = torch.func.vmap(torch.func.jacfwd(model.gradient))(rows)
    return found.reshape(*theta.shape, theta.shape[-1])


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
    chain = model.chain
    values = curvatures(model, theta)
    largest = values.abs().amax(dim=-1)
    zero = (1e-3 if decisive else 1e-9) * (chain.mutual_information + largest)
    excess = model.loss(theta) - chain.entropy_rate
    is_global = excess <= 1e-9 * chain.mutual_information + 1e-15
    # so close to p + q = 1 that the two losses are one number in float64
    blurred = 0 < chain.mutual_information < 1e-13
    local = (values[:, 0] >= -zero) & (values[:, -1] > zero)
    label = torch.where(local, Label.LOCAL_MINIMUM, Label.SADDLE)
    if decisive:
        label = torch.where(largest > zero, label, Label.UNRESOLVED)
    lowest = Label.UNRESOLVED if blurred else Label.GLOBAL_MINIMUM
    return torch.where(is_global, lowest, label).to(torch.int8)
