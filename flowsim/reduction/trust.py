"""How far a found model can be trusted beside its span: growth of what is off it, noise, runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.flow.reference import integrate
from flowsim.interface import Model
from flowsim.reduction.found import Found, of_found

#: The most weights whose curvature is written out.
_MOST_WEIGHTS = 2000
#: Directions and radii, in parts of the noise, at which the basin's boundary is looked for.
_RAYS, _RADII = 16, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: Losses of two ends are the same if they differ by less, in parts of 1 + their size.
_SAME_END = 1e-3
#: Steps of training between two looks at the curvature, and its inverse in parts of a step.
_LOOK, _STEP = 10, 0.5


@dataclass(frozen=True)
class Growth:
    """What small displacements off the span do along an orbit.

    Attributes:
        times, gains: the largest factor by which any displacement at time 0 has grown, over time.
        gain, time: its maximum, and when.
        where: the orbit's coordinates at that time, (k,).
        seed, grown: shares of the squared size, by the name of the weights, of the displacement
            that grows most, at time 0 and when it is largest.
        direction: that displacement at time 0, of unit length, (P,).
    """

    times: Tensor
    gains: Tensor
    gain: float
    time: float
    where: Tensor
    seed: dict[str, float]
    grown: dict[str, float]
    direction: Tensor


@of_found
def transverse_growth(
    model: Found, start: Numbers | None = None, until: float = 100.0, pieces: int = 64
) -> Growth:
    """Small displacements off the span along the orbit of a start: δ′ = −∂²L δ, to first order.

    The curvature does not mix the span with what is orthogonal to it, where the equation is solved
    by exponentials, one for each piece of the orbit; each piece is some 11 % of the time before it.

    Args:
        model: what ``reduce`` found.
        start: coordinates (k,); by default the model's own start.
        until: the time up to which it is followed.
        pieces: of the orbit; the error falls with their square, on kinks with their number.

    Raises:
        InputError: more than 2 000 weights; an orbit that cannot be followed.

    Beside y = 0 the displacement y decays or grows like exp(x t), where x stays at 1:

    >>> import torch, flowsim
    >>> saddle = lambda w: (w["x"] - 1) ** 2 / 2 - w["x"] * (w["y"] ** 2).sum() / 2
    >>> model = flowsim.reduce(saddle, {"x": torch.ones(1)[0], "y": torch.zeros(2)})
    >>> growth = flowsim.transverse_growth(model, until=2.0)
    >>> round(growth.gain, 3), round(growth.grown["y"], 3)
    (7.389, 1.0)
    """
    network, basis = model.network, model.basis
    p, k = basis.shape
    if p > _MOST_WEIGHTS:
        raise InputError(f"growth off the span is followed up to {_MOST_WEIGHTS} weights, not {p}")
    at = model.start if start is None else to_tensor(start, "start")
    times = torch.cat([torch.zeros(1), torch.logspace(-3, 0, pieces) * until]).double()
    orbit = integrate(model, at, times, rtol=1e-5, atol=1e-8)
    if not bool(orbit.isfinite().all()):
        raise InputError("the orbit cannot be followed so far")
    across = torch.linalg.qr(torch.cat([basis, torch.eye(p).to(basis)], 1))[0][:, k:p]
    moved = torch.eye(p - k).to(basis)
    gains, best = [1.0], (1.0, 0, moved)
    for i in range(1, len(times)):
        middle = basis @ (orbit[i - 1] + orbit[i]) / 2
        curved = across.T @ network.curvature(middle, across.T.contiguous()).T
        rates, axes = torch.linalg.eigh((curved + curved.T) / 2)
        decay = torch.exp(-rates * float(times[i] - times[i - 1]))
        moved = axes @ (decay[:, None] * (axes.T @ moved))
        gains.append(float(torch.linalg.matrix_norm(moved, 2)))
        if gains[-1] > best[0]:
            best = gains[-1], i, moved
    left, _, right = torch.linalg.svd(best[2])
    first, last = across @ right[0], across @ left[:, 0]
    return Growth(
        times, torch.tensor(gains, dtype=torch.float64), best[0], float(times[best[1]]),
        orbit[best[1]], _shares(model, first), _shares(model, last), first,
    )  # fmt: skip


def _shares(model: Found, vector: Tensor) -> dict[str, float]:
    """Shares of a vector's squared size, by the name of the weights, the largest first."""
    parts = {n: float(w.square().sum()) for n, w in model.network.named(vector).items()}
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Prediction:
    """What noise on all weights will do at one start.

    Attributes:
        growth: of what is off the span.
        boundary: the distance from the start to the boundary of its basin in the span, the least
            of those met on 16 random rays; infinite if none is met.
        reach: the noise's deviation times the larger of 1 and the gain.
        freed: whether ``reach`` is at least ``boundary``: some runs are expected to end elsewhere.
    """

    growth: Growth
    boundary: float
    reach: float
    freed: bool


@of_found
def predict_noise(
    model: Found, start: Numbers, noise: float, until: float = 100.0, seed: int = 0
) -> Prediction:
    """Whether noise of a deviation on all weights will free a start from its basin.

    It is a rule of thumb, to first order: what grows off the span to the size of the basin may
    leave it. It does not tell well which starts are freed (docs/results/reduced.md).

    Args:
        model: what ``reduce`` found.
        start: its coordinates (k,).
        noise: the deviation, at least 0.
        until: the time up to which growth is followed.
        seed: of the rays along which the boundary is looked for.

    >>> import torch, flowsim
    >>> wells = lambda w: ((w["x"] ** 2 - 1) ** 2).sum() + (w["y"] ** 2).sum()
    >>> model = flowsim.reduce(wells, {"x": torch.tensor([0.5]), "y": torch.zeros(2)})
    >>> flowsim.predict_noise(model, [0.5], noise=0.01, until=5.0).freed
    False
    """
    at = to_tensor(start, "start")
    growth = transverse_growth(model, at, until)
    radii = noise * torch.tensor(_RADII, dtype=torch.float64)
    boundary = distance_to_boundary(model, at, radii, _RAYS, seed)
    reach = noise * max(1.0, growth.gain)
    return Prediction(growth, boundary, reach, reach >= boundary)


def distance_to_boundary(
    model: Model, at: Tensor, radii: Tensor, count: int, seed: int = 0
) -> float:
    """The least of the radii at which a start, on one of random rays, ends elsewhere than ``at``.

    Distances are those of the weights, by the model's metric; infinite if every start ends alike.
    """
    generator = torch.Generator().manual_seed(seed)
    rays = torch.randn(count, len(at), generator=generator, dtype=torch.float64)
    rays = rays / rays.norm(dim=1, keepdim=True) / at.new_tensor(model.metric).sqrt()
    placed = at + radii[:, None, None] * rays
    limits = find_limits(model, torch.cat([at[None], placed.reshape(-1, len(at))]))
    other = _differ(limits.loss[1:], limits.loss[0]).reshape(len(radii), count).any(1)
    return float(radii[other][0]) if bool(other.any()) else math.inf


def _differ(loss: Tensor, other: Tensor) -> Tensor:
    """Whether losses are those of other ends."""
    return (loss - other).abs() > _SAME_END * (1 + other.abs())


@dataclass(frozen=True)
class Agreement:
    """How often the reduced flow foretold where training of all weights ends.

    Attributes:
        predicted: the loss at which the reduced flow ends, (n,).
        ended: the loss of all weights at the end of each run, (n, runs).
        right: whether both are the same, (n, runs).
        undecided: whether a run was still under way: its loss would still have fallen by more than
            what tells two ends apart in the time that it had taken.
    """

    predicted: Tensor
    ended: Tensor
    right: Tensor
    undecided: Tensor

    @property
    def share(self) -> float:
        """Right ones of all decided ones."""
        return float(self.right[~self.undecided].double().mean())


@of_found
def agreement(
    model: Found,
    starts: Numbers,
    noise: float = 0.0,
    runs: int = 1,
    until: float = 1000.0,
    most: int = 20_000,
    seed: int = 0,
) -> Agreement:
    """Train all weights from starts of the span, with noise, and compare with the reduced flow.

    Training is gradient descent in steps of half the inverse of the curvature, so that it follows
    the gradient flow.

    Args:
        model: what ``reduce`` found.
        starts: (n, k).
        noise: deviation of what is added to every weight.
        runs: of each start, with noise of their own.
        until, most: the time and the steps after which a run ends.
        seed: of the noise.

    >>> import torch, flowsim
    >>> wells = lambda w: ((w["x"] ** 2 - 1) ** 2).sum() + (w["y"] ** 2).sum()
    >>> model = flowsim.reduce(wells, {"x": torch.tensor([0.5]), "y": torch.zeros(2)})
    >>> flowsim.agreement(model, [[0.5], [-0.5]], noise=0.01, runs=3).share
    1.0
    """
    points = to_tensor(starts, "starts")
    predicted = find_limits(model, points).loss
    generator = torch.Generator().manual_seed(seed)
    theta = (points @ model.basis.T).repeat_interleave(runs, 0)
    drawn = torch.randn(theta.shape, generator=generator, dtype=torch.float64).to(theta)
    theta = theta + noise * drawn
    clock, speed = _train(model, theta, until, most)
    ended = model.network.rows(theta).detach()
    right = ~_differ(ended, predicted.repeat_interleave(runs))
    undecided = speed * clock > _SAME_END * (1 + ended.abs())
    return Agreement(predicted, *(x.reshape(-1, runs) for x in (ended, right, undecided)))


def _train(model: Found, theta: Tensor, until: float, most: int) -> tuple[Tensor, Tensor]:
    """Descend from rows (m, P), in place; the time and the fall of the loss per time at the end."""
    clock, speed = theta.new_zeros(len(theta)), theta.new_full((len(theta),), torch.inf)
    along = torch.ones_like(theta)
    steep = theta.new_ones(len(theta))
    for step in range(most):
        rows = ((clock < until) & (speed > 1e-20)).nonzero()[:, 0]
        if not len(rows):
            break
        here = theta[rows]
        gradient = model.network.gradients(here)
        if step % _LOOK == 0:
            for _ in range(20 if step == 0 else 2):
                size = along[rows].norm(dim=1, keepdim=True)
                move = 1e-5 * model.network.size * along[rows] / size
                change = model.network.gradients(here + move) - gradient
                steep[rows] = change.norm(dim=1) / move.norm(dim=1)
                along[rows] = change + 1e-2 * change.norm(dim=1, keepdim=True) * along[rows] / size
        length = torch.minimum(_STEP / steep[rows].clamp_min(1e-12), until - clock[rows])
        length = length.clamp(max=until / 50)
        theta[rows] = here - length[:, None] * gradient
        clock[rows] += length
        speed[rows] = gradient.square().sum(1)
    return clock, speed
