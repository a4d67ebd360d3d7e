"""The smallest linear space of weights that holds a start and that gradient descent never leaves.

The span of the start grows by what gradients at random points of it have outside it, until they
have nothing. Gradient flow and gradient descent from any of its points then stay in it, and the
loss restricted to it is a model of as many coordinates as the span has dimensions. Own derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.reduction.network import Network

#: Points whose gradients are looked at in one round, and those that the found span is tested at.
_PROBES, _FRESH = 12, 48
#: What is outside the span by less than this part of the gradient is rounding.
_ROUNDING = 1e-9
#: Directions are taken up together if they are not smaller than this part of the largest.
_TOGETHER = 1e-2
#: Gradients smaller than this part of their median are not divided by their own size.
_SMALL = 1e-2


@dataclass(frozen=True)
class Span:
    """A linear space of weights.

    Attributes:
        basis: orthonormal, (P, k).
        sizes: (dimensions so far, size of the largest new direction), round by round, the size in
            parts of the gradient.
    """

    basis: Tensor
    sizes: tuple[tuple[int, float], ...]


def points(network: Network, basis: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random points of a span, (count, P): of several sizes, half of them around the start."""
    k = basis.shape[1]
    drawn = torch.randn(count, k, generator=generator, dtype=torch.float64).to(basis)
    sizes = torch.tensor([0.5, 1.0, 2.0], dtype=basis.dtype).to(basis)[torch.arange(count) // 2 % 3]
    found = (drawn * (sizes * network.size / math.sqrt(max(1, k)))[:, None]) @ basis.T
    found[1::2] = 0.3 * found[1::2] + network.start
    return found


def outside(network: Network, basis: Tensor, at: Tensor) -> Tensor:
    """What the gradients at points (n, P) have outside a span, (n, P), in parts of their size.

    Raises:
        InputError: some are not finite.
    """
    gradient = network.gradients(at)
    if not bool(gradient.isfinite().all()):
        bad = int((~gradient.isfinite().all(1)).sum())
        raise InputError(
            f"gradients are not finite at {bad} of {len(at)} points of the span, of sizes around "
            f"that of the start, {network.size:.3g}"
        )
    size = gradient.norm(dim=1)
    gradient = gradient / torch.maximum(size, _SMALL * size.median()).clamp_min(1e-300)[:, None]
    for _ in range(2):  # twice is enough
        gradient = gradient - (gradient @ basis) @ basis.T
    return gradient


def grow(network: Network, most: int, seed: int = 0) -> Span:
    """The span of a network's start.

    Raises:
        InputError: it has more than ``most`` dimensions, or gradients are not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    start = network.start
    basis = start[:, None] / start.norm() if bool(start.any()) else start.new_zeros(len(start), 0)
    sizes: list[tuple[int, float]] = []
    while True:
        rest = outside(network, basis, points(network, basis, _PROBES, generator))
        directions, size, _ = torch.linalg.svd(rest.T, full_matrices=False)
        sizes.append((basis.shape[1], float(size[0])))
        new = directions[:, size > max(_ROUNDING, _TOGETHER * float(size[0]))]
        if not new.shape[1]:
            return Span(basis, tuple(sizes))
        basis = torch.linalg.qr(torch.cat([basis, new], 1))[0]
        if basis.shape[1] > most:
            every = max(1, len(sizes) // 6)
            fell = ", ".join(f"{s:.1e} at {k}" for k, s in sizes[::every])
            raise InputError(
                f"no small model: the span of the start has more than {most} of {len(start)} "
                f"dimensions; the largest new direction had, in parts of the gradient, {fell}"
            )


def off_span(network: Network, basis: Tensor, seed: int = 1) -> float:
    """The largest part of the gradient outside a span, at fresh points of it."""
    generator = torch.Generator().manual_seed(seed)
    rest = outside(network, basis, points(network, basis, _FRESH, generator))
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
