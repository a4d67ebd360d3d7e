"""All branches: zeros are searched at every value, and each that lies on no branch begins one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flowsim.bifurcation.branches import FLAT, Branch, Tracer, zeros_from
from flowsim.bifurcation.events import Event, events_of, switched
from flowsim.bifurcation.system import System
from flowsim.curves import CRITICAL
from flowsim.errors import InputError
from flowsim.interface import check_fixed, theta_at

#: Rows of a search at all values together, and at each at least.
_ROWS, _FEWEST = 8000, 16
#: Rounds in which branches are followed from what the last ones left over, and branches at most.
_ROUNDS, _MOST = 8, 400
#: Two zeros are one if so near, in sizes of the coordinates.
_SAME = 1e-5
#: Rates are nothing below this part of what they usually are; between ``FLAT`` and the second,
#: in parts of the largest, it is not clear whether they are nothing.
_VANISHES, _UNCLEAR = 1e-5, 1e-4
#: Steps have diverged so many times as far as the farthest start.
_DIVERGED = 100.0
#: Values at which known curves of critical points are asked for, and places on each.
_ASKED, _PLACES = 5, 7
#: Places between two points of a continuum at which it is asked whether they are connected.
_BETWEEN = 9
#: Largest distance of a branch from the segment between two of its points, in sizes of the
#: coordinates.
_BESIDE = 0.1
#: A branch ends so near to a jump, in parts of the range.
_BEYOND = 1e-6
#: A step along a continuum, in sizes of the coordinates.
_ASIDE = 1e-2
#: Longest period of the points of a step map.
LONGEST = 4


@dataclass
class Diagram:
    """The branches of a system and their events; of a step map also those of its periods.

    ``moving`` says that continua which move with the parameter were met, and not followed;
    ``sizes`` are those of the coordinates, (size,), by period.
    """

    branches: list[Branch]
    events: list[Event]
    moving: bool = False
    sizes: dict[int, Tensor] = field(default_factory=dict)


def diagram(system: System, values: Tensor, starts: Tensor, ends: Sequence[Tensor]) -> Diagram:
    """Search zeros at values (m,) of the parameter, follow their branches, and switch at crossings.

    They are searched from starts (n, k) and, at each value, from ``ends`` (·, k), such as limits.
    """
    state, value = _guesses(system, values, starts, ends)
    found = Diagram([], [])
    seeds: tuple[Tensor, Tensor] = state[:0], value[:0]
    while True:
        tracer, state, value = _zeros(system, state, value)
        one = _one_period(tracer, values, *_without_shorter_period(system, state, value), *seeds)
        flips = [event for event in found.events if event.kind == "flip"]
        born = {round(flip.value, 6) for flip in flips}
        shift = len(found.branches)
        for event in one.events:
            event.branch += shift
        one.events = [event for event in one.events if event.period == 1 or not (
            event.kind in ("fold", "pitchfork") and round(event.value, 6) in born)]  # fmt: skip
        found.branches += one.branches
        found.events += one.events
        found.moving |= one.moving
        found.sizes[1 if system.step is None else system.step.period] = tracer.size
        if system.step is None or 2 * system.step.period > LONGEST:
            return found
        system = system.with_period(2 * system.step.period)
        doubled = Tracer(system, tracer.size)
        new = [switched(doubled, event) for event in one.events if event.kind == "flip"]
        seeds = (
            torch.cat([system.lift(starts[:0]), *(state for state, _ in new)]),
            torch.cat([values[:0], *(value for _, value in new)]),
        )
        state, value = _guesses(system, values, starts, ends)


def _guesses(
    system: System, values: Tensor, starts: Tensor, ends: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Places from which zeros are searched: starts, ends, and what the models know.

    States (n, size), and the value of the parameter of each, (n,).
    """
    many = min(len(starts), max(_FEWEST, _ROWS // len(values)))
    state, value = [starts[:many].repeat(len(values), 1)], [values.repeat_interleave(many)]
    for place, at in zip(ends, values.tolist(), strict=True):
        near = place.isfinite() & (place.abs() <= _DIVERGED * (1 + starts.abs().amax()))
        state.append(place[near.all(1)])
        value.append(torch.full((len(state[-1]),), at, dtype=values.dtype))
    for at in values[sampled(values)].tolist() if len(system.coordinates) > 1 else ():
        known = _known_critical_points(system, at)
        state.append(known)
        value.append(torch.full((len(known),), at, dtype=values.dtype))
    return system.lift(torch.cat(state)), torch.cat(value)


def sampled(values: Tensor) -> Tensor:
    """Indices of at most ``_ASKED`` values, evenly from the first to the last."""
    return torch.linspace(0, len(values) - 1, min(_ASKED, len(values))).round().long().unique()


def _known_critical_points(system: System, value: float) -> Tensor:
    """Places on the curves of critical points that the model at a value knows, (m, k)."""
    model = system.model(value)
    plane = model.plane
    places = []
    for curve in plane.curves(plane.window, check_fixed(plane, {}), 41, quick=True):
        x, y = (torch.as_tensor(side).double() for side in (curve.x, curve.y))
        there = (x.isfinite() & y.isfinite()).nonzero()[:, 0]
        if curve.kind in CRITICAL and not curve.of and len(there):
            chosen = there[torch.linspace(0, len(there) - 1, min(_PLACES, len(there))).long()]
            places.append(theta_at(plane, x[chosen], y[chosen], check_fixed(plane, {})))
    return torch.cat(places) if places else torch.zeros(0, len(system.coordinates)).double()


def _zeros(system: System, state: Tensor, value: Tensor) -> tuple[Tracer, Tensor, Tensor]:
    """Search zeros of F from states (n, size) at values (n,).

    Returns a tracer that measures by the spread of what was found, the zeros (m, size), and the
    value of each (m,).
    """
    spread = state.amax(0) - state.amin(0)
    size = torch.where(spread > 0, spread / 2, 1.0)
    found, ok = zeros_from(system, state, value, size)
    if not bool(ok.any()):
        raise InputError(
            "no critical point was found from these starts: give others, or other values"
        )
    found, value = found[ok], value[ok]
    low, high = found.quantile(found.new_tensor([0.1, 0.9]), dim=0)  # some are far out
    spread = torch.where(high - low > 1e-3 * (found.amax(0) - found.amin(0)), high - low,
                         found.amax(0) - found.amin(0))  # fmt: skip
    size = torch.where(spread > 1e-6 * size, spread / 2, size)
    return Tracer(system, size), found, value


def _without_shorter_period(system: System, state: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The states, and their values, that do not come back after half the period of the steps."""
    if system.step is None or system.step.period == 1:
        return state, value
    half = system.with_period(system.step.period // 2)
    moves = half.field(state, value).norm(dim=1) > 1e-6 * (1 + state.norm(dim=1))
    return state[moves], value[moves]


def _one_period(
    tracer: Tracer, values: Tensor, state: Tensor, value: Tensor, more: Tensor, at: Tensor
) -> Diagram:
    """Follow the branches of one period through zeros of F, and find their events.

    Zeros are ``more`` at the parameter's values ``at``, and ``state`` (n, size) at ``value`` (n,).
    A zero on no branch so far begins one. ``values`` are all at which zeros were searched.
    """
    state, value, dimension = _distinct(tracer, torch.cat([more, state]), torch.cat([at, value]))
    few = (dimension == 0) | torch.isin(value, values[sampled(values)])  # of continua
    stays = _stays_put(tracer, values, state, dimension)
    few &= stays
    step = tracer.system.step
    if step is not None and step.period > 1:
        few &= dimension == 0  # where steps on a quadratic flip, all come back after two
    elif step is not None and bool((dimension > 0).any()):
        raise InputError(
            "fixed points of these steps form a continuum, on which each flips at a rate of its "
            "own: only isolated ones are followed"
        )
    elif len(few) and not bool(few.any()):
        raise InputError(
            "all critical points that were found lie on continua that move with the parameter, "
            "which are not followed"
        )
    state, value, dimension = state[few], value[few], dimension[few]
    left = torch.ones(len(state), dtype=torch.bool)
    branches: list[Branch] = []
    events: list[Event] = []
    done: list[Event] = []
    for _ in range(_ROUNDS):
        seeds = _first_of_each(tracer, state, value, dimension, left)
        if not len(seeds) or len(branches) >= _MOST:
            break
        new = _without_repeats(tracer, tracer.trace(state[seeds], value[seeds]))
        left[seeds] = False
        branches += new
        _strike_out(tracer, new, state, value, dimension, left)
        events = events_of(tracer, branches)
        crosses = [x for x in events if x.kind in ("pitchfork", "transcritical")]
        fresh = [x for x in crosses if not any(_at_one_place(tracer, x, y) for y in done)]
        done += fresh
        crossing = [switched(tracer, event) for event in fresh]
        if any(len(value) for _, value in crossing):
            more, at, other = _distinct(
                tracer, torch.cat([x for x, _ in crossing]), torch.cat([y for _, y in crossing])
            )
            free = _stays_put(tracer, values, more, other)
            _strike_out(tracer, branches, more, at, other, free)
            state, value = torch.cat([state, more]), torch.cat([value, at])
            dimension, left = torch.cat([dimension, other]), torch.cat([left, free])
    return Diagram(branches, events, not bool(stays.all()))


def _stays_put(tracer: Tracer, values: Tensor, state: Tensor, dimension: Tensor) -> Tensor:
    """Mask (n,) of states (n, size) that are isolated zeros, or zeros at all ``sampled`` values.

    A continuum that moves has no point of its own to follow, and may change its shape.
    """
    stays = torch.ones(len(state), dtype=torch.bool)
    rows = (dimension > 0).nonzero()[:, 0]
    for at in (values[sampled(values)] if len(rows) else values[:0]).tolist():
        there = torch.full((len(rows),), at, dtype=values.dtype)
        slope = tracer.system.jacobian(state[rows], there) * tracer.size
        moved = tracer.system.field(state[rows], there).norm(dim=1)
        stays[rows] &= moved <= 1e-8 * (1 + slope.flatten(1).norm(dim=1))
    return stays


def _at_one_place(tracer: Tracer, one: Event, other: Event) -> bool:
    """Return whether two events are at one place."""
    near = abs(one.value - other.value) <= 1e-6 * tracer.span
    return near and float((one.state - other.state).abs().max()) <= 1e-4


def _distinct(tracer: Tracer, state: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Remove repeated zeros (n, size), and those that cannot begin a branch.

    Returns the others' states (m, size) and values (m,), and the dimension of the continuum that
    each is on (m,), 0 of an isolated one.
    """
    if not len(state):
        return state, value, torch.zeros(0, dtype=torch.long)
    grid = torch.cat([(state / tracer.size / _SAME).round(), value.unsqueeze(1)], 1)
    _, which = torch.unique(grid, dim=0, return_inverse=True)
    first = torch.full((int(which.max()) + 1,), len(which))
    first.scatter_reduce_(0, which, torch.arange(len(which)), "amin")
    first = first.sort().values
    state, value = state[first], value[first]
    sizes = torch.linalg.svdvals(tracer.system.jacobian(state, value) * tracer.size)
    part = sizes / sizes[:, :1]
    dimension = (part <= FLAT).sum(1)
    # places where all rates vanish, where it is not clear how many do, and outside of where the
    # loss is defined, begin no branch
    sure = sizes[:, 0] > _VANISHES * sizes[:, 0].median()
    sure &= tracer.system.loss(state, value).isfinite()
    if tracer.system.step is not None:  # cycles so steep that rounding decides
        sure &= sizes[:, 0] * FLAT < tracer.size.max()
    sure &= ~((part > FLAT) & (part < _UNCLEAR)).any(1)
    sure &= (dimension == 0) | _has_zeros_beside(tracer, state, value, dimension)
    return state[sure], value[sure], dimension[sure]


def _has_zeros_beside(tracer: Tracer, state: Tensor, value: Tensor, dimension: Tensor) -> Tensor:
    """Mask (n,) of zeros (n, size) that have other zeros along their flat directions.

    An isolated zero at which a rate vanishes, as at a fold or flip, has none.
    """
    goes = torch.zeros(len(state), dtype=torch.bool)
    rows = (dimension > 0).nonzero()[:, 0]
    if not len(rows):
        return goes
    slope = tracer.system.jacobian(state[rows], value[rows]) * tracer.size
    aside = _ASIDE * tracer.continua(slope)[..., 0] * tracer.size
    found, ok = zeros_from(tracer.system, state[rows] + aside, value[rows], tracer.size)
    moved = ((found - state[rows]) / tracer.size).norm(dim=1)
    slope = tracer.system.jacobian(found, value[rows]) * tracer.size
    sizes = torch.linalg.svdvals(slope)
    level = (sizes <= _UNCLEAR * sizes[:, :1]).any(1)
    goes[rows] = ok & level & (moved > 0.5 * _ASIDE) & (moved < 2 * _ASIDE)
    return goes


def _first_of_each(
    tracer: Tracer, state: Tensor, value: Tensor, dimension: Tensor, left: Tensor
) -> Tensor:
    """Indices of zeros to follow: of those ``left``, the ones at the value where most are left.

    All isolated ones, and one of each continuum, whose others are struck from ``left``.
    """
    if not bool(left.any()):
        return left.nonzero()[:0, 0]
    at = value[left].mode().values
    rows = (left & (value == at)).nonzero()[:, 0]
    alone, chosen = rows[dimension[rows] == 0], []
    rest = rows[dimension[rows] > 0]
    while len(rest):
        chosen.append(int(rest[0]))
        joined = _connected(tracer, state[rest], state[rest[:1]].expand(len(rest), -1), value[rest])
        joined[0] = True
        left[rest[joined]] = False
        rest = rest[~joined]
    return torch.cat([alone, torch.tensor(chosen, dtype=torch.long)])


def _connected(tracer: Tracer, one: Tensor, other: Tensor, value: Tensor) -> Tensor:
    """Mask (n,) of pairs of zeros (n, size), each at one value, that are on one continuum.

    Points of the segment between them are projected onto the zeros: no gap may be left, nor the
    number of unstable directions change.
    """
    n = len(one)
    part = torch.linspace(0, 1, _BETWEEN + 2, dtype=one.dtype)[:, None, None]
    path = one + part * (other - one)
    rows, values = path.reshape(-1, one.shape[1]), value.repeat(_BETWEEN + 2)
    rows, ok = zeros_from(tracer.system, rows, values, tracer.size)
    slope = tracer.system.jacobian(rows, values) * tracer.size
    count = tracer.unstable(slope, tracer.continua(slope))[0].reshape(_BETWEEN + 2, n)
    path = rows.reshape(_BETWEEN + 2, *one.shape) / tracer.size
    gaps, length = path.diff(dim=0).norm(dim=2).amax(0), (path[-1] - path[0]).norm(dim=1)
    same = (count == count[0]).all(0) & ok.reshape(_BETWEEN + 2, n).all(0)
    return same & (gaps <= 0.5 * length + 1e-9)


def _crossings(branch: Branch, at: Tensor, near: float) -> tuple[Tensor, Tensor]:
    """Interpolate the states at which a branch passes values (m,) of the parameter.

    Returns the states (·, size), and the index of the value of each. A value so ``near`` to the
    next point of the branch counts as passed.
    """
    low, high = branch.value[:-1].unsqueeze(1), branch.value[1:].unsqueeze(1)
    inside = (at >= torch.minimum(low, high) - near) & (at <= torch.maximum(low, high) + near)
    step, which = inside.nonzero().unbind(1)
    width = (high - low).squeeze(1)[step]
    safe = torch.where(width.abs() > 1e-14, width, 1.0)
    part = ((at[which] - branch.value[step]) / safe).clamp(0, 1).unsqueeze(1)
    return branch.state[step] + part * (branch.state[step + 1] - branch.state[step]), which


def _strike_out(
    tracer: Tracer, branches: list[Branch], state: Tensor, value: Tensor, dimension: Tensor,
    left: Tensor,
) -> None:  # fmt: skip
    """Remove the zeros that lie on these branches from the mask ``left``."""
    for branch in branches:
        rows = (left & (dimension == branch.dimension)).nonzero()[:, 0]
        at = value[rows].unique()
        if not len(rows) or len(branch.value) < 2:
            continue
        guess, which = _crossings(branch, at, _BEYOND * tracer.span)
        mine, place = (value[rows].unsqueeze(1) == at[which]).nonzero().unbind(1)
        if not branch.dimension:
            away = (state[rows[mine]] - guess[place]) / tracer.size
            near = away.norm(dim=1) < 2 * _BESIDE
            mine, place = mine[near], place[near]
        there, ok = zeros_from(tracer.system, guess[place], at[which[place]], tracer.size, steps=12)
        ok &= ((there - guess[place]) / tracer.size).norm(dim=1) < _BESIDE
        one, other = state[rows[mine]], torch.where(ok.unsqueeze(1), there, guess[place])
        on = ((one - other) / tracer.size).abs().amax(1) < 10 * _SAME
        if branch.dimension:
            on |= _connected(tracer, one, other, at[which[place]])
        left[rows[mine[on]]] = False


def _without_repeats(tracer: Tracer, branches: list[Branch]) -> list[Branch]:
    """The branches, longest first, without those whose middle point lies on a longer one."""
    kept: list[Branch] = []
    for branch in sorted(branches, key=lambda branch: -len(branch.value)):
        i = len(branch.value) // 2
        state, value = branch.state[i : i + 1], branch.value[i : i + 1]
        free = torch.ones(1, dtype=torch.bool)
        _strike_out(tracer, kept, state, value, torch.tensor([branch.dimension]), free)
        if bool(free[0]):
            kept.append(branch)
    return kept
