"""Folds, crossings, flips and Hopf points of branches, to rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.bifurcation.branches import Branch, Tracer

#: Steps of Newton's method on an extended system, and of the search along a branch.
_NEWTON, _SEARCH = 14, 60
#: Half the width of difference quotients, in sizes of the coordinates.
_SMALL = 1e-4
#: A coefficient below this part of what it could be is zero.
_ZERO = 1e-5
#: Two events are one if so near in the scaled space.
_APART = 1e-5
#: A fold at the parameter of a pitchfork, so near to it, is seen on the branch that turns there.
_BESIDE = 1e-2


@dataclass
class Event:
    """A place where a branch changes.

    Attributes:
        kind: fold, pitchfork, transcritical, flip (period doubling), or hopf.
        value: of the parameter; ``state`` there, (size,).
        branch: number of the branch on which it was seen.
        critical: the direction in which states leave, (size,), in sizes of the coordinates.
        dimension: of the continuum that it is on.
        period: of the points of a step map.
    """

    kind: str
    value: float
    state: Tensor
    branch: int
    critical: Tensor
    dimension: int
    period: int


def events_of(tracer: Tracer, branches: list[Branch]) -> list[Event]:
    """The events of all branches of one period, each once."""
    found = [*_changes(tracer, branches), *_folds(tracer, branches)]  # the first are the exact ones
    rank = {"pitchfork": 0, "transcritical": 0, "fold": 2}
    found.sort(key=lambda event: rank.get(event.kind, 1))
    kept: list[Event] = []
    for event in found:
        place = tracer.joined(event.state[None], torch.tensor([event.value]).double())[0]
        others = [tracer.joined(x.state[None], torch.tensor([x.value]).double())[0] for x in kept]
        near = [(place - other).abs() for other in others]
        if any(bool((away < _APART).all()) for away in near):
            continue
        # a branch turns where another one crosses it, and does so along a continuum
        crossed = [away for away, x in zip(near, kept, strict=True) if x.kind == "pitchfork"]
        if event.kind == "fold" and any(
            float(away[-1]) < _APART and (event.dimension or float(away.max()) < _BESIDE)
            for away in crossed
        ):
            continue
        kept.append(event)
    return sorted(kept, key=lambda event: event.value)


def _turns(branch: Branch) -> Tensor:
    """Negative between points where the parameter turns, (m − 1,)."""
    return branch.tangent[1:, -1] * branch.tangent[:-1, -1]


def _places(
    branches: list[Branch], mask: Callable[[Branch], Tensor]
) -> dict[int, list[tuple[int, int]]]:
    """By dimension of the continuum: numbers of branches, and of points before those masked."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, branch in enumerate(branches):
        for i in mask(branch).nonzero()[:, 0].tolist():
            found.setdefault(branch.dimension, []).append((number, i))
    return found


def _folds(tracer: Tracer, branches: list[Branch]) -> list[Event]:
    """Places where the parameter turns: F = 0, F_θ v = 0, |v| fixed, solved together."""
    found = []
    for dimension, places in _places(branches, lambda branch: _turns(branch) < 0).items():
        point = torch.stack([_between(tracer, branches[b], i) for b, i in places])
        kept = torch.stack([branches[b].kept[i] for b, i in places])
        way = torch.stack([_turning(branches[b], i) for b, i in places])
        point, way, done = _extended(tracer, point, way, kept)
        state, value = tracer.split(point)
        slope = tracer.slope(point)
        left = _left(slope[..., :-1], dimension)
        push = (left * slope[..., -1]).sum(1).abs()
        crosses = push <= _ZERO * slope[..., -1].norm(dim=1)
        for j, (b, _) in enumerate(places):
            inside = -1e-9 <= float(point[j, -1]) <= 1 + 1e-9
            if not (bool(done[j]) and inside):
                continue
            kind = "pitchfork" if bool(crosses[j]) else "fold"
            period = branches[b].period
            found.append(Event(kind, float(value[j]), state[j], b, way[j], dimension, period))
    return found


def _between(tracer: Tracer, branch: Branch, i: int) -> Tensor:
    """The scaled point between points i and i + 1 where the tangent's last entry would vanish."""
    ends = tracer.joined(branch.state[i : i + 2], branch.value[i : i + 2])
    one, other = branch.tangent[i, -1], branch.tangent[i + 1, -1]
    part = one / (one - other)
    return ends[0] + part * (ends[1] - ends[0])


def _turning(branch: Branch, i: int) -> Tensor:
    """The direction of the branch where it turns, (size,), of length 1."""
    one, other = branch.tangent[i, -1].abs(), branch.tangent[i + 1, -1].abs()
    way = (other * branch.tangent[i] + one * branch.tangent[i + 1])[:-1]
    return way / way.norm()


def _extended(
    tracer: Tracer, point: Tensor, way: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Newton's method on the fold's equations; points, null directions, and which converged."""
    n, k = way.shape
    fixed, done = way.clone(), torch.zeros(n, dtype=torch.bool)
    last = torch.nn.functional.pad(kept.mT, (0, 1))
    none = way.new_zeros(n, k, k)
    for _ in range(_NEWTON):
        value, slope = tracer.linearised(point)
        turned = (slope[..., :-1] @ way.unsqueeze(2)).squeeze(2)
        second = way.new_zeros(n, k, k + 1)
        for j in range(k + 1):
            part = torch.zeros_like(point)
            part[:, j] = 1e-5
            ends = [tracer.by_state(point + sign * part) for sign in (1, -1)]
            width = way.new_full((n, 1), 2e-5)
            if j == k:  # the parameter stays in its range
                sides = [(point[:, -1] + sign * 1e-5).clamp(0, 1) for sign in (1, -1)]
                width = (sides[0] - sides[1]).unsqueeze(1)
            second[..., j] = ((ends[0] - ends[1]) @ way.unsqueeze(2)).squeeze(2) / width
        zero, m = way.new_zeros(n, last.shape[1], k), last.shape[1]
        top = torch.cat([slope, none], 2)
        middle = torch.cat([second, slope[..., :-1]], 2)
        norm = torch.nn.functional.pad(fixed, (k + 1, 0)).unsqueeze(1)
        gauge = torch.cat([last, zero], 2)
        across = torch.cat([torch.zeros_like(last), kept.mT], 2)
        right = [-value, -turned, 1 - (fixed * way).sum(1, keepdim=True),
                 way.new_zeros(n, m), -(kept.mT @ way.unsqueeze(2)).squeeze(2)]  # fmt: skip
        step = tracer.solved([top, middle, norm, gauge, across], right)
        fine = step.isfinite().all(1) & (step.norm(dim=1) < 10)
        point = torch.where(fine.unsqueeze(1), point + step[:, : k + 1], point)
        way = torch.where(fine.unsqueeze(1), way + step[:, k + 1 :], way)
        done = fine & (step[:, : k + 1].norm(dim=1) < 1e-8)
        if bool((step[fine].norm(dim=1) < 1e-13).all()):
            break
    return point, way / way.norm(dim=1, keepdim=True), done


def _left(slope: Tensor, dimension: int) -> Tensor:
    """The left singular vector (n, size) of the least singular value that is no continuum's."""
    left: Tensor = torch.linalg.svd(slope)[0]
    return left[..., slope.shape[-1] - 1 - dimension]


def _changes(tracer: Tracer, branches: list[Branch]) -> list[Event]:
    """Places where the number of unstable directions changes and the parameter does not turn."""

    def changes(branch: Branch) -> Tensor:
        return (branch.unstable[1:] != branch.unstable[:-1]) & (_turns(branch) > 0)

    found = []
    for dimension, places in _places(branches, changes).items():
        ends = torch.stack([
            tracer.joined(branches[b].state[i : i + 2], branches[b].value[i : i + 2])
            for b, i in places
        ])  # fmt: skip
        kept = torch.stack([branches[b].kept[i] for b, i in places])
        counts = torch.tensor([branches[b].unstable[i : i + 2].tolist() for b, i in places])
        point, slopes = _searched(tracer, ends, kept, counts.amax(1))
        state, value = tracer.split(point)
        for j, (b, _) in enumerate(places):
            kind, critical = _kind(tracer, point[j], slopes[j], dimension)
            period = branches[b].period
            found.append(Event(kind, float(value[j]), state[j], b, critical, dimension, period))
    return found


def _searched(tracer: Tracer, ends: Tensor, kept: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
    """Points between two ends (n, 2, size + 1) where the rate of that rank is zero.

    By the Illinois form of regula falsi on the branch, between ends on which the sign differs.
    """
    way = ends[:, 1] - ends[:, 0]
    along = way / way.norm(dim=1, keepdim=True)

    def at(part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        guess = ends[:, 0] + part.unsqueeze(1) * way
        point, _, slopes, _ = tracer.corrected(guess, along, kept, steps=12)
        follows = tracer.kept_on(slopes[..., :-1], kept)
        rates = tracer.unstable(slopes, follows)[1]
        return point, slopes, rates.gather(1, (rank - 1).unsqueeze(1)).squeeze(1)

    low, high = torch.zeros(len(ends)).double(), torch.ones(len(ends)).double()
    at_low, at_high = at(low)[2], at(high)[2]
    for _ in range(_SEARCH):
        part = (low * at_high - high * at_low) / (at_high - at_low)
        part = torch.where((part > low) & (part < high), part, (low + high) / 2)
        point, slopes, rate = at(part)
        same = rate * at_high > 0
        at_low = torch.where(same, 0.5 * at_low, rate)
        at_high = torch.where(same, rate, 0.5 * at_high)
        low, high = torch.where(same, low, part), torch.where(same, part, high)
        if bool(((high - low < 1e-11) | (rate.abs() < 1e-12)).all()):
            break
    return point, slopes


def _kind(tracer: Tracer, point: Tensor, slope: Tensor, dimension: int) -> tuple[str, Tensor]:
    """The kind of a change of stability at a point, and its critical direction."""
    inner = slope[:, :-1] / tracer.size[:, None]
    values, vectors = torch.linalg.eig(inner)
    step = tracer.system.step is not None
    sizes = ((1 + values).abs() - 1 if step else values.real).abs()
    if dimension:  # the continuum's own are zero
        sizes = sizes + torch.where(
            values.abs() <= values.abs().sort().values[dimension - 1], 1e9, 0.0
        )
    i = int(sizes.argmin())
    critical = vectors[:, i].real / vectors[:, i].real.norm()
    size = 1.0 if step else float(inner.norm())
    if float(values[i].imag.abs()) > 1e-6 * size:
        return ("neimark-sacker" if step else "hopf"), critical
    if step and float(values[i].real) < -1:
        return "flip", critical
    part = torch.nn.functional.pad(_SMALL * critical, (0, 1))
    places = torch.stack([point + part, point, point - part])
    up, here, down = (s @ critical for s in tracer.slope(places)[..., :-1])
    left = _left(slope[None, :, :-1], dimension)[0]
    second, third = (up - down) / (2 * _SMALL), (up - 2 * here + down) / _SMALL**2
    bends = float((left @ second).abs())
    symmetric = bends <= _ZERO * float(second.norm() + third.norm()) + 1e-9
    return ("pitchfork" if symmetric else "transcritical"), critical


def switched(tracer: Tracer, event: Event, part: float = 0.02) -> tuple[Tensor, Tensor]:
    """Guesses of states and values on the other branch through an event, (2, size) and (2,).

    For a flip they are of twice the period. The guesses lie to both sides along the critical
    direction; a corrector across it takes them onto the branch.
    """
    place = tracer.joined(event.state[None], torch.tensor([event.value]).double())[0]
    way = torch.nn.functional.pad(event.critical, (0, 1))
    guess = torch.stack([place + part * way, place - part * way])
    kept = tracer.continua(tracer.slope(place[None])[..., :-1])
    along = way.expand(2, -1)
    none = kept[..., :0].expand(2, -1, -1) if not event.dimension else _gauge(kept, event)
    point, done, _, _ = tracer.corrected(guess, along, none, steps=20)
    ok = done & (point[:, -1] > 0) & (point[:, -1] < 1)
    ok &= (point - place).norm(dim=1) < 10 * part
    state, value = tracer.split(point[ok])
    return state, value


def _gauge(kept: Tensor, event: Event) -> Tensor:
    """The directions along the continuum at an event, without the critical one, (2, size, d)."""
    own = kept[0] - event.critical.unsqueeze(1) * (event.critical @ kept[0])
    left: Tensor = torch.linalg.svd(own, full_matrices=False)[0]
    return left[:, : event.dimension].expand(2, -1, -1)
