"""Folds, crossings, flips and Hopf points of branches, to rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.bifurcation.branches import Branch, Tracer

#: Steps of the search along a branch; and how near it comes to where the parameter turns, whose
#: value is then right to the square, and to where a rate vanishes.
_SEARCH, _TURNED, _VANISHED = 60, 1e-7, 1e-11
#: Half the width of difference quotients, in sizes of the coordinates.
_SMALL = 1e-4
#: A coefficient below this part of what it could be is zero.
_ZERO = 1e-5
#: Two events are one if so near in the scaled space.
_APART = 1e-5
#: Guesses of the other branch lie so far beside an event, in the scaled space.
_ASIDE = 0.02
#: A fold at the parameter of a pitchfork, so near to it, is seen on the branch that turns there.
_BESIDE = 1e-2


@dataclass
class Event:
    """A place where a branch changes.

    Attributes:
        kind: fold, pitchfork, transcritical, flip (period doubling), hopf or neimark-sacker.
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
    found = [*_located(tracer, branches, folds=False), *_located(tracer, branches, folds=True)]
    rank = {"pitchfork": 0, "transcritical": 0, "fold": 2}
    found.sort(key=lambda event: rank.get(event.kind, 1))
    kept: list[Event] = []
    for event in found:
        near = [(_place(tracer, event) - _place(tracer, other)).abs() for other in kept]
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


def _place(tracer: Tracer, event: Event) -> Tensor:
    """The scaled point of an event."""
    return tracer.joined(event.state[None], torch.tensor([event.value]).double())[0]


def _located(tracer: Tracer, branches: list[Branch], folds: bool) -> list[Event]:
    """Events of branches: with ``folds`` where the parameter turns, else where stability changes.

    A pitchfork is exact as a change of stability, on the branch that does not turn there.
    """
    places: dict[int, list[tuple[int, int]]] = {}  # by dimension of the continuum
    for b, branch in enumerate(branches):
        turns = branch.tangent[1:, -1] * branch.tangent[:-1, -1]
        changes = (branch.unstable.diff() != 0) & (turns > 0)
        for i in (turns < 0 if folds else changes).nonzero()[:, 0].tolist():
            places.setdefault(branch.dimension, []).append((b, i))
    found = []
    for dimension, where in places.items():
        ends = torch.stack([
            tracer.joined(branches[b].state[i : i + 2], branches[b].value[i : i + 2])
            for b, i in where
        ])  # fmt: skip
        kept = torch.stack([branches[b].kept[i] for b, i in where])
        counts = torch.stack([branches[b].unstable[i : i + 2] for b, i in where])
        most = counts.amax(1, keepdim=True) - 1  # the number of the rate that changes its sign

        def rate(slopes: Tensor, follows: Tensor, ways: Tensor, most: Tensor = most) -> Tensor:
            """The number that changes its sign at an event, (n,): dp/ds, or a rate of growth."""
            if folds:
                return ways[:, -1]
            return tracer.unstable(slopes, follows)[1].gather(1, most).squeeze(1)

        point, slopes, ways = searched(tracer, ends, kept, rate, _TURNED if folds else _VANISHED)
        state, value = tracer.split(point)
        for j, (b, _) in enumerate(where):
            if folds and float(ways[j, -1].abs()) > _TURNED**0.5:
                continue  # a jump of the tangent
            if folds:
                push, left = slopes[j, :, -1], _left_vector(slopes[j, :, :-1], dimension)
                crosses = float((left @ push).abs()) <= _ZERO * float(push.norm())
                kind, critical = (
                    "pitchfork" if crosses else "fold",
                    ways[j, :-1] / ways[j, :-1].norm(),
                )
            else:
                kind, critical = _kind(tracer, point[j], slopes[j], dimension)
            period = branches[b].period
            found.append(Event(kind, float(value[j]), state[j], b, critical, dimension, period))
    return found


def _left_vector(slope: Tensor, dimension: int) -> Tensor:
    """The left singular vector (size,) of ∂F/∂θ's least singular value that is no continuum's."""
    left: Tensor = torch.linalg.svd(slope)[0]
    return left[:, slope.shape[-1] - 1 - dimension]


def searched(
    tracer: Tracer, ends: Tensor, kept: Tensor, rate: Callable[..., Tensor], near: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Search a zero of a rate along branches, between two points of each, (n, 2, size + 1).

    By the Illinois form of regula falsi, to the part ``near`` of the way. ``rate`` gives (n,) from
    ∂F, directions kept along a continuum, and tangents. Returns the points (n, size + 1), ∂F
    (n, size, size + 1) and unit tangents (n, size + 1) there.
    """
    way = ends[:, 1] - ends[:, 0]
    along = way / way.norm(dim=1, keepdim=True)

    def at(part: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The points at parts (n,) of the ways; ∂F, tangents and rates there."""
        guess = ends[:, 0] + part.unsqueeze(1) * way
        point, _, slopes, _ = tracer.corrected(guess, along, kept, steps=12)
        follows = tracer.kept_on(slopes[..., :-1], kept)
        tangents = tracer.tangent(slopes, follows, along)
        return point, slopes, tangents, rate(slopes, follows, tangents)

    low, high = torch.zeros(len(ends)).double(), torch.ones(len(ends)).double()
    at_low, at_high = at(low)[3], at(high)[3]
    for _ in range(_SEARCH):
        part = (low * at_high - high * at_low) / (at_high - at_low)
        part = torch.where((part > low) & (part < high), part, (low + high) / 2)
        point, slopes, tangents, now = at(part)
        same = now * at_high > 0
        at_low = torch.where(same, 0.5 * at_low, now)
        at_high = torch.where(same, now, 0.5 * at_high)
        low, high = torch.where(same, low, part), torch.where(same, part, high)
        if bool(((high - low < near) | (now.abs() < 0.1 * near)).all()):
            break
    return point, slopes, tangents


def _kind(tracer: Tracer, point: Tensor, slope: Tensor, dimension: int) -> tuple[str, Tensor]:
    """The kind of a change of stability at a scaled point with ∂F, and the critical direction.

    The direction is a unit vector (size,), in sizes of the coordinates.
    """
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
    left = _left_vector(slope[:, :-1], dimension)
    second, third = (up - down) / (2 * _SMALL), (up - 2 * here + down) / _SMALL**2
    bends = float((left @ second).abs())
    symmetric = bends <= _ZERO * float(second.norm() + third.norm()) + 1e-9
    return ("pitchfork" if symmetric else "transcritical"), critical


def switched(tracer: Tracer, event: Event) -> tuple[Tensor, Tensor]:
    """States (m, size) and values (m,) on the other branch through an event, on both sides; m ≤ 2.

    Guesses beside the event, along its critical direction, are taken onto the branch by a corrector
    across it; what does not converge is left out. Of a flip the tracer is of twice the period.
    """
    place = _place(tracer, event)
    way = torch.nn.functional.pad(event.critical, (0, 1))
    guess = torch.stack([place + _ASIDE * way, place - _ASIDE * way])
    kept = tracer.continua(tracer.slope(place[None])[..., :-1])
    along = way.expand(2, -1)
    fixed = _other_directions(kept, event) if event.dimension else kept[..., :0].expand(2, -1, -1)
    point, done, _, _ = tracer.corrected(guess, along, fixed, steps=20)
    ok = done & (point[:, -1] > 0) & (point[:, -1] < 1)
    ok &= (point - place).norm(dim=1) < 10 * _ASIDE
    state, value = tracer.split(point[ok])
    return state, value


def _other_directions(kept: Tensor, event: Event) -> Tensor:
    """The directions along an event's continuum without the critical one, (2, size, d)."""
    own = kept[0] - event.critical.unsqueeze(1) * (event.critical @ kept[0])
    left: Tensor = torch.linalg.svd(own, full_matrices=False)[0]
    return left[:, : event.dimension].expand(2, -1, -1)
