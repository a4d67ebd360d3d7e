"""The smallest affine space of weights through a start that gradient descent never leaves.

Points of the span are the start and a sum of its directions. It grows by what gradients at some of
its points have outside it, until they have nothing: at random points around the start, and along
gradient descent in it from the start, which goes to where the flow ends. Gradient flow and gradient
descent from any of its points then stay in it, and the loss restricted to it is a model of as many
coordinates as the span has dimensions. Weights that never move add none. Own derivation.

A gradient's remainder outside the span can be rounding. Hence two spans are grown together, by
the same random numbers, from starts that differ in their last bits: where they differ, it is
rounding, and a direction is new where it is far larger, in the tensor where that is clearest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.reduction.network import Network

#: Points whose gradients are looked at in one round, and by how much the second start differs.
_POINTS, LAST_BITS = 48, 4e-16
#: New directions are so many times rounding; less than the other number of times is none.
_NEW, _NONE = 1e3, 100.0
#: Directions are taken up together if they are not smaller than this part of the largest, and not
#: almost parallel to those before them.
_TOGETHER, _ACROSS = 1e-3, 0.1
#: Entries of a direction below so many times its rounding are zero.
_ENTRY = 30.0
#: Gradients smaller than this part of their median are not divided by their own size.
_SMALL = 1e-2
#: Attempted steps of the descent in the span; a step has to lower the loss by this part of what the
#: gradient promises.
_DESCENT, _FALL = 200, 0.5
#: A rise of the loss by this part of it is rounding.
_NOISE = 1e-12
#: Number of times that equal steps are halved until they stay finite.
_SHORTER = 40


def points(start: Tensor, basis: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random points of spans, (..., count, P): of several sizes, half of them around the start.

    The spans go through starts (..., P) along the orthonormal directions (..., P, k).
    """
    k, size = basis.shape[-1], float(start.norm(dim=-1).max()) or 1.0
    drawn = torch.randn(count, k, generator=generator, dtype=torch.float64).to(basis)
    sizes = torch.tensor([0.5, 1.0, 2.0], dtype=basis.dtype).to(basis)[torch.arange(count) // 2 % 3]
    found = (drawn * (sizes * size / math.sqrt(max(1, k)))[:, None]) @ basis.mT
    found[..., 1::2, :] = 0.3 * found[..., 1::2, :] + start[..., None, :]
    found[..., ::2, :] += origin_of(start, basis)[..., None, :]
    return found


def origin_of(start: Tensor, basis: Tensor) -> Tensor:
    """The points (..., P) of spans through starts (..., P) that are orthogonal to the bases."""
    found = start
    for _ in range(2):
        found = found - (basis @ (basis.mT @ found[..., None]))[..., 0]
    return found


def descent(network: Network, bases: Tensor, starts: Tensor, count: int) -> Tensor:
    """Descend the loss in a span from its start: weights along the way, (2, 2 count, P).

    There are two spans with bases (2, P, k) and starts (2, P). The descent is computed in the first
    and its coordinates are taken over to the second. It goes
    by gradients, as the flow does, and then on by BFGS, which reaches the end also where rates
    differ much.
    """
    basis, origins = bases[0], origin_of(starts, bases)

    def evaluate(at: Tensor) -> tuple[Tensor, Tensor]:
        """L and ∇L by the coordinates (k,) of the first span."""
        loss, gradient = network.losses_and_gradients((origins[0] + basis @ at)[None])
        return loss[0], gradient[0] @ basis

    along = _descend(evaluate, basis.T @ starts[0], 0.1 * network.size, learns=False)
    further = _descend(evaluate, along[-1], 0.1 * network.size, learns=True)
    further = torch.cat([further, (further[1:] + further[:-1]) / 2])
    chosen = [path[torch.linspace(0, len(path) - 1, count).round().long()]
              for path in (along, further)]  # fmt: skip
    return torch.cat(chosen) @ bases.mT + origins[:, None]


def _descend(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]], at: Tensor, first: float, learns: bool
) -> Tensor:
    """Descend a loss of coordinates from ``at`` (k,); all points of the way, (n, k).

    ``evaluate`` gives loss and gradient, ``first`` is the length of the first step. Steps go along
    the gradient, or if it ``learns`` by BFGS.
    """
    loss, gradient = evaluate(at)
    step = first / float(gradient.norm().clamp_min(1e-300))
    inverse, path = torch.eye(len(at)).to(at), [at]
    for _ in range(_DESCENT):
        ahead = -inverse @ gradient
        there = at + step * ahead
        new, slope = evaluate(there)
        promised = -step * float(gradient @ ahead)
        good = bool(slope.isfinite().all()) and float(loss - new) >= _FALL * promised > 0
        if good and learns:
            moved, turned = there - at, slope - gradient
            across = float(moved @ turned)
            if across > 0:
                if len(path) == 1:  # its scale, before the first step is learned from
                    inverse, step = inverse * across / float(turned @ turned), 1.0
                part = torch.eye(len(at)).to(at) - torch.outer(moved, turned) / across
                inverse = part @ inverse @ part.T + torch.outer(moved, moved) / across
        if good:
            at, loss, gradient = there, new, slope
            path.append(at)
        if learns and len(path) > 1:
            step = 1.0 if good else 0.5 * step
        else:
            step *= 1.5 if good else 0.5
    return torch.stack(path)


def residual_outside(network: Network, basis: Tensor, at: Tensor) -> Tensor:
    """The components of gradients at points (..., n, P) outside spans with bases (..., P, k).

    (..., n, P), divided by the gradients' sizes; of several spans, by those in the first.
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


def grow(network: Network, most: int) -> tuple[Tensor, tuple[tuple[int, float, float], ...]]:
    """Find the span that gradient flow from a network's start never leaves, as said at the top.

    Returns its orthonormal directions (P, k), and the ``sizes`` of ``Exactness``.
    InputError if it has more than ``most`` dimensions.
    """
    generator = torch.Generator().manual_seed(0)
    start = network.start
    drawn = torch.randn(len(start), generator=generator, dtype=torch.float64).to(start)
    last_bits = 1 + LAST_BITS * drawn
    starts = torch.stack([start, start * last_bits])
    bases = starts.new_zeros(2, len(start), 0)
    sizes: list[tuple[int, float, float]] = []
    along = False  # whether gradients are looked at along the descent
    while True:
        k = bases.shape[2]
        at = descent(network, bases, starts, _POINTS) if along else points(
            starts, bases, _POINTS, generator)  # fmt: skip
        rest = residual_outside(network, bases, at)
        if not k:  # at zero the starts are equal, so that their gradients differ
            rest[1] *= last_bits
        level = network.scales(rest[0] - rest[1])
        shares, told, _ = torch.linalg.svd(rest[0] / level, full_matrices=False)
        told = told / torch.linalg.matrix_norm((rest[0] - rest[1]) / level, 2).clamp_min(1.0)
        sizes.append((k, float(rest[0].norm(dim=1).max()), float(told[0])))
        new = shares[:, told > max(_NEW, _TOGETHER * float(told[0]))]
        for vector in (new.T @ rest).unbind(1):  # those far from the directions so far
            vector = vector / vector[0].norm()
            for _ in range(2):
                vector = vector - (bases @ (bases.mT @ vector[..., None]))[..., 0]
            vector[:, vector[0].abs() < _ENTRY * network.scales(vector[0] - vector[1])] = 0
            if float(vector[0].norm()) > _ACROSS:
                vector = vector / vector.norm(dim=1, keepdim=True)
                bases = torch.cat([bases, vector[..., None]], 2)
        if bases.shape[2] > most:
            every = max(1, len(sizes) // 6)
            fell = ", ".join(f"{s:.1e} at {k}" for k, s, _ in sizes[::every])
            raise InputError(
                f"no small model: the span of the start has more than {most} of {len(start)} "
                f"dimensions; the largest new direction had, in parts of the gradient, {fell}"
            )
        if bases.shape[2] > k:
            along = False
        elif told[0] > _NONE:
            raise InputError(
                f"rounding hides how many dimensions the span of the start has: beside {k} the "
                f"largest new direction is {sizes[-1][1]:.1e} of the gradient, "
                f"{float(told[0]):.0f} times rounding, too small to be one and too large to be none"
            )
        elif not k:
            raise InputError(
                "the start is a critical point of the loss: its gradient is zero, no weight moves, "
                "and there is no coordinate"
            )
        elif along:
            return bases[0], tuple(sizes)
        else:
            along = True


def off_span(network: Network, basis: Tensor) -> float:
    """The largest part of the gradient outside a span (P, k), at fresh points of it."""
    generator = torch.Generator().manual_seed(1)
    rest = residual_outside(network, basis, points(network.start, basis, _POINTS, generator))
    return float(rest.norm(dim=1).max())


def equal_steps(network: Network, basis: Tensor, steps: int) -> tuple[float, float]:
    """Take equal steps of gradient descent in all weights and in a span, and measure the distance.

    The length of a step is a fifth of the inverse of the start's largest curvature in the span, or
    shorter where the first would be longer than the start or where such steps raise the loss.
    Returns, in parts of the largest weight, how far the two are apart in the end; and how far all
    weights come apart if the start differs in its last bits (of no meaning where the two are the
    same to rounding, as no steps are taken for it then).
    """
    start, origin = network.start, origin_of(network.start, basis)
    curved = basis.T @ network.curvature(start, basis.T.contiguous()).T
    largest = float(torch.linalg.eigvalsh((curved + curved.T) / 2).abs().max())
    slope = float(network.gradients(start[None]).norm())
    step = min(0.2 / max(largest, 1e-300), network.size / max(slope, 1e-300))
    for _ in range(_SHORTER):
        theta, point, falls = start, basis.T @ start, True
        before = torch.full_like(start[:1], torch.inf)
        for _ in range(steps):
            rows = torch.stack([theta, origin + basis @ point])
            loss, gradient = network.losses_and_gradients(rows)
            falls = falls and bool((loss <= before + _NOISE * before.abs()).all())
            theta, point, before = (
                theta - step * gradient[0],
                point - step * (gradient[1] @ basis),
                loss,
            )
        if falls and bool(theta.isfinite().all() & point.isfinite().all()):
            break
        step /= 2
    large = theta.abs().max().clamp_min(1e-300)
    differ = float((theta - origin - basis @ point).abs().max() / large)
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randn(len(start), generator=generator, dtype=torch.float64).to(start)
    moved = start + LAST_BITS * start.abs().max() * drawn
    for _ in range(steps if differ > _NOISE else 0):
        moved = moved - step * network.gradients(moved[None])[0]
    return differ, float((theta - moved).abs().max() / large)
