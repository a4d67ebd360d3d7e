"""The uniform-attention loss about a point to second order, from one pass over the nodes.

The law of the past falls into classes, by the current symbol x and by o = 1 where the ReLU is open.
Within a class the logit is affine in m, f = β + C + K m with γ = 4w|w| and

    C = e²[x + (x − ½)γ o],   K = e² a (1 + γ o),   β = b − e²/2,

so with the residual ω = σ(f) − t and v = σ(f)σ(−f) all first and second derivatives are made of
Σω, Σωm, Σv, Σvm and Σvm² of each class. Where the bias is minimised out, the second derivatives are
a Schur complement.
Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.models.bias import residual_and_slope
from flowsim.models.uniform.nodes import KINKED, SMOOTH, Nodes

#: Sums per class, in this order: Σω, Σωm, Σv, Σvm, Σvm².
SUMS = 5


class Expansion(NamedTuple):
    """The loss about θ, one entry per row.

    ``gradient`` (n, k); ``hessian`` (n, k, k), or None if it was not wanted.
    """

    gradient: Tensor
    hessian: Tensor | None


def class_sums(chain: BinaryChain, nodes: Sequence[Nodes], affine: Tensor, shift: Tensor) -> Tensor:
    """The five sums of every class, shape (rows, 2 or 4, 5), classes as in SMOOTH or KINKED.

    Args:
        chain: the data.
        nodes: of the law given x = 0 and x = 1, for rows that share them.
        affine: of these rows, from :func:`flowsim.models.uniform.nodes.affine_logits`.
        shift: β, shape (rows,).
    """
    sums = []
    for law in nodes:
        f = law.logits(affine, shift)
        omega, slope = residual_and_slope(chain, law.x, f)
        for weight in law.by_class:
            first = _products(omega, weight[..., :2])
            sums.append(torch.cat([first, _products(slope, weight)], dim=1))
    return torch.stack(sums, dim=1)


def _products(values: Tensor, weights: Tensor) -> Tensor:
    """Σ_j values_j weights_jc, shape (rows, c), for weights (J, c) or (rows, J, c)."""
    return values @ weights if weights.ndim == 2 else torch.bmm(values[:, None], weights)[:, 0]


def expand(sums: Tensor, theta: Tensor, second: bool = True) -> Expansion:
    """The expansion at θ from the sums there.

    Args:
        sums: from :func:`class_sums`, shape (n, c, 5); at the optimal bias, unless it is given.
        theta: (e, w, a), for the bias minimised out, or (e, w, a, b); shape (n, 3 or 4).
        second: whether the Hessian is wanted.
    """
    n, count, _ = sums.shape
    classes = SMOOTH if count == len(SMOOTH) else KINKED
    jacobian = _first_derivatives(theta, classes)
    by_logit = sums[:, :, :2].reshape(n, 2 * count)
    gradient = torch.bmm(by_logit[:, None], jacobian)[:, 0]
    if not second:
        return Expansion(gradient, None)
    curvature = sums.new_zeros(n, count, 2, count, 2)
    for i in range(count):
        curvature[:, i, :, i] = sums[:, i, [2, 3, 3, 4]].view(n, 2, 2)
    curvature = curvature.view(n, 2 * count, 2 * count)
    if theta.shape[1] == 3:
        stiffness = sums[:, :, 2].sum(1)
        stiffness = torch.where(stiffness > 1e-290, stiffness, torch.inf)
        mixed = sums[:, :, 2:4].reshape(n, 2 * count)
        curvature = curvature - mixed[:, :, None] * (mixed / stiffness[:, None])[:, None]
    hessian = torch.bmm(jacobian.mT, torch.bmm(curvature, jacobian))
    bent = _second_derivatives(theta, classes).flatten(2)
    hessian = hessian + torch.bmm(by_logit[:, None], bent).view_as(hessian)
    return Expansion(gradient, hessian)


def _first_derivatives(theta: Tensor, classes: Sequence[tuple[int, int]]) -> Tensor:
    """∂(C, K)/∂θ of every class in turn, (n, 2c, k); with the bias a coordinate, C includes β."""
    k = theta.shape[1]
    e, w, a = theta[:, :3].unbind(-1)
    square, zero, one = e * e, torch.zeros_like(e), torch.ones_like(e)
    gamma, by_w = 4 * w * w.abs(), 8 * square * w.abs()
    columns = []
    for x, o in classes:
        gain = 1 + gamma if o else one
        level = x - 0.5 * (k == 4) + o * (x - 0.5) * gamma
        columns += [2 * e * level, o * (x - 0.5) * by_w, zero, one][:k]
        columns += [2 * e * a * gain, a * by_w if o else zero, square * gain, zero][:k]
    return torch.stack(columns, dim=1).view(-1, 2 * len(classes), k)


def _second_derivatives(theta: Tensor, classes: Sequence[tuple[int, int]]) -> Tensor:
    """∂²(C, K)/∂θ² of every class in turn, (n, 2c, k, k)."""
    n, k = theta.shape
    e, w, a = theta[:, :3].unbind(-1)
    gamma, by_w = 4 * w * w.abs(), 8 * e * e * w.abs()
    cross, by_ww = 16 * e * w.abs(), 8 * e * e * torch.sign(w)
    result = theta.new_zeros(n, len(classes), 2, k, k)
    for i, (x, o) in enumerate(classes):
        of_c, of_k = result[:, i, 0], result[:, i, 1]
        gain, half = 1 + o * gamma, o * (x - 0.5)
        of_c[:, 0, 0] = 2 * (x - 0.5 * (k == 4) + half * gamma)
        of_c[:, 1, 1] = half * by_ww
        of_c[:, 0, 1] = of_c[:, 1, 0] = half * cross
        of_k[:, 0, 0] = 2 * a * gain
        of_k[:, 1, 1] = o * a * by_ww
        of_k[:, 0, 1] = of_k[:, 1, 0] = o * a * cross
        of_k[:, 0, 2] = of_k[:, 2, 0] = 2 * e * gain
        of_k[:, 1, 2] = of_k[:, 2, 1] = o * by_w
    return result.flatten(1, 2)
