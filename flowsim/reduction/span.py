"""The smallest linear space of weights that holds a start and that gradient descent never leaves.

The span of the start grows by what gradients at random points of it have outside it, until they
have nothing. Gradient flow and gradient descent from any of its points then stay in it, and the
loss restricted to it is a model of as many coordinates as the span has dimensions. Own derivation.

What is left of a gradient outside the span can be rounding. So two spans are grown side by side, by
the same random numbers, from starts that differ in their last bits: where they differ, it is
rounding, and a direction is new where it is far larger, in the tensor where that is clearest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.reduction.network import Network

#: Points whose gradients are looked at in one round, and by how much the second start differs.
_POINTS, _LAST_BITS = 48, 4e-16
#: New directions are so many times rounding; less than the other number of times is none.
_NEW, _NONE = 1e3, 100.0
#: Directions are taken up together if they are not smaller than this part of the largest, and not
#: almost parallel to those before them.
_TOGETHER, _ACROSS = 1e-3, 0.1
#: Entries of a direction below so many times its rounding are zero.
_ENTRY = 30.0
#: Gradients smaller than this part of their median are not divided by their own size.
_SMALL = 1e-2


@dataclass(frozen=True)
class Span:
    """A linear space of weights.

    Attributes:
        basis: orthonormal, (P, k).
        sizes: (dimensions so far, size of the largest new direction, the same in parts of what
            rounding makes), round by round, the size in parts of the gradient.
    """

    basis: Tensor
    sizes: tuple[tuple[int, float, float], ...]


def points(start: Tensor, basis: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random points of spans, (..., count, P): of several sizes, half of them around the start."""
    k, size = basis.shape[-1], float(start.norm(dim=-1).max()) or 1.0
    drawn = torch.randn(count, k, generator=generator, dtype=torch.float64).to(basis)
    sizes = torch.tensor([0.5, 1.0, 2.0], dtype=basis.dtype).to(basis)[torch.arange(count) // 2 % 3]
    found = (drawn * (sizes * size / math.sqrt(max(1, k)))[:, None]) @ basis.mT
    found[..., 1::2, :] = 0.3 * found[..., 1::2, :] + start[..., None, :]
    return found


def outside(network: Network, basis: Tensor, at: Tensor) -> Tensor:
    """What gradients at points (..., n, P) have outside a span, in parts of the first one's sizes.

    Raises:
        InputError: some are not finite.
    """
    gradient = network.gradients(at.reshape(-1, at.shape[-1])).reshape(at.shape)
    finite = gradient.isfinite().all(-1)
    if not bool(finite.all()):
        raise InputError(
            f"gradients are not finite at {int((~finite).sum())} of {finite.numel()} points of "
            f"the span, of sizes around that of the start, {network.size:.3g}"
        )
    size = gradient.reshape(-1, *at.shape[-2:])[0].norm(dim=1)
    gradient = gradient / torch.maximum(size, _SMALL * size.median()).clamp_min(1e-300)[:, None]
    for _ in range(2):  # twice is enough
        gradient = gradient - (gradient @ basis) @ basis.mT
    return gradient


def grow(network: Network, most: int, seed: int = 0) -> Span:
    """The span of a network's start.

    Raises:
        InputError: it has more than ``most`` dimensions; rounding hides how many it has; or
            gradients are not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    start = network.start
    drawn = torch.randn(len(start), generator=generator, dtype=torch.float64).to(start)
    last_bits = 1 + _LAST_BITS * drawn
    starts = torch.stack([start, start * last_bits])
    bases = (
        starts[..., None] / network.size
        if bool(start.any())
        else starts.new_zeros(2, len(start), 0)
    )
    sizes: list[tuple[int, float, float]] = []
    while True:
        rest = outside(network, bases, points(starts, bases, _POINTS, generator))
        if not bases.shape[2]:  # at zero the starts are equal, so that their gradients differ
            rest[1] *= last_bits
        level = network.levels(rest[0] - rest[1])
        shares, told, _ = torch.linalg.svd(rest[0] / level, full_matrices=False)
        told = told / torch.linalg.matrix_norm((rest[0] - rest[1]) / level, 2).clamp_min(1.0)
        k = bases.shape[2]
        sizes.append((k, float(rest[0].norm(dim=1).max()), float(told[0])))
        new = shares[:, told > max(_NEW, _TOGETHER * float(told[0]))]
        bases = _with(network, bases, new.T @ rest)
        if bases.shape[2] > most:
            every = max(1, len(sizes) // 6)
            fell = ", ".join(f"{s:.1e} at {k}" for k, s, _ in sizes[::every])
            raise InputError(
                f"no small model: the span of the start has more than {most} of {len(start)} "
                f"dimensions; the largest new direction had, in parts of the gradient, {fell}"
            )
        if bases.shape[2] == k:
            break
    if told[0] > _NONE:
        raise InputError(
            f"rounding hides how many dimensions the span of the start has: beside {k} the largest "
            f"new direction is {sizes[-1][1]:.1e} of the gradient, {float(told[0]):.0f} times "
            "rounding, too small to be one and too large to be none"
        )
    return Span(bases[0], tuple(sizes))


def _with(network: Network, bases: Tensor, new: Tensor) -> Tensor:
    """Two spans (2, P, k) with those of some new directions (2, m, P) that are far from them."""
    for vector in new.unbind(1):
        vector = vector / vector[0].norm()
        for _ in range(2):
            vector = vector - (bases @ (bases.mT @ vector[..., None]))[..., 0]
        vector[:, vector[0].abs() < _ENTRY * network.levels(vector[0] - vector[1])] = 0
        if float(vector[0].norm()) > _ACROSS:
            vector = vector / vector.norm(dim=1, keepdim=True)
            bases = torch.cat([bases, vector[..., None]], 2)
    return bases


def off_span(network: Network, basis: Tensor, seed: int = 1) -> float:
    """The largest part of the gradient outside a span, at fresh points of it."""
    generator = torch.Generator().manual_seed(seed)
    rest = outside(network, basis, points(network.start, basis, _POINTS, generator))
    return float(rest.norm(dim=1).max())


def equal_steps(network: Network, basis: Tensor, steps: int) -> float:
    """How far all weights and the span's coordinates are apart after equal steps of descent.

    Their length is a fifth of the inverse of the start's largest curvature in the span; the result
    is in parts of the largest weight.
    """
    theta, point = network.start.clone(), basis.T @ network.start
    curved = basis.T @ network.curvature(theta, basis.T.contiguous()).T
    step = 0.2 / max(float(torch.linalg.eigvalsh((curved + curved.T) / 2).abs().max()), 1e-12)
    for _ in range(steps):
        gradient = network.gradients(torch.stack([theta, basis @ point]))
        theta, point = theta - step * gradient[0], point - step * (gradient[1] @ basis)
    return float((theta - basis @ point).abs().max() / theta.abs().max().clamp_min(1e-300))
