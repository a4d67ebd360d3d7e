"""Curves between basins, and the nearest places on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree

from flowsim.boundary.geometry import Lattice, find_crossings, march
from flowsim.boundary.manifolds import stable_manifolds
from flowsim.boundary.shooting import Shooting
from flowsim.interface import Model, Range

#: Places along a separatrix in closed form; and on a bisected curve for each of its points.
_SAMPLED, _FINER = 2001, 8
#: Labels at once that take a batched engine about as long as a few; and how often a way between two
#: points is parted at most, by other engines and by these.
_TOGETHER, _LEVELS = 500, (20, 5)
#: Halvings after which bisected crossings are thinned out; how far off a cubic may have been around
#: a way, and how short that is where it is parted no more, over the length of a bracket.
_ROUGH, _OFF, _SHORTEST = 2, 24.0, 10.0
#: Widths beside a cubic where a curve is sought, at first and then, over the length of the way.
_NARROW, _WIDE = 1 / 64, 1.0
#: First distance between crossings, in cells: of other engines, and of these.
_SPACED = (1.5, 0.4)
#: Part of the way between two points where it is sought: beside the middle, which may be a
#: critical point where the flow is symmetric.
_PART = 0.46
#: The cosine of the angle between neighbouring ways, below which a curve has a corner.
_STRAIGHT = 0.99
#: Distance from a saddle to ask where the flow leads from both sides, in parts of the window.
_BESIDE = 1e-3

#: Codes of the ends of places (m, 2) in the order of a window; not positive for no end.
Labels = Callable[[np.ndarray], np.ndarray]


class Edge(NamedTuple):
    """A curve between basins.

    Attributes:
        points: places along the curve, (m, 2), NaN between its parts.
        ends: codes of the ends on both sides of each place, (m, 2); not positive for no end.
    """

    points: np.ndarray
    ends: np.ndarray


def manifold_edges(
    model: Model, window: Mapping[str, Range], label: Labels, beyond: float
) -> list[Edge]:
    """The stable manifolds of saddles in a window that separate two ends, in two coordinates.

    Saddles are sought as far outside the window as ``beyond`` says, in parts of it.
    """
    wide = {
        name: (low - beyond * (high - low), high + beyond * (high - low))
        for name, (low, high) in window.items()
    }
    found = stable_manifolds(model, wide)
    if not found:
        return []
    order = [model.coordinates.index(name) for name in window]
    sides = [m.saddle + sign * _beside(window) * m.across for m in found for sign in (1, -1)]
    end_codes = label(torch.stack(sides)[:, order].numpy()).reshape(-1, 2)
    return [
        _edge(_within(window, manifold.points[:, order]), pair)
        for manifold, pair in zip(found, end_codes, strict=True)
        if pair[0] != pair[1] and (pair > 0).all()
    ]


def _beside(window: Mapping[str, Range]) -> float:
    """The distance from a boundary in a window at which the ends on both sides are asked for."""
    return _BESIDE * float(np.linalg.norm([high - low for low, high in window.values()]))


def _edge(points: np.ndarray, pair: np.ndarray) -> Edge:
    """A curve (m, 2) with the same two ends (2,) all along."""
    return Edge(points, np.broadcast_to(pair, points.shape))


def _within(window: Mapping[str, Range], points: np.ndarray) -> np.ndarray:
    """Cut a curve (m, 2) at a window's rim: NaN outside, but for the places where it crosses."""
    low, high = np.array([*window.values()]).T
    inside = ((points >= low) & (points <= high)).all(axis=1)
    whole = np.where(inside[:, None], points, np.nan)
    for leaves, step in ((inside[:-1] & ~inside[1:], 1), (inside[1:] & ~inside[:-1], -1)):
        last = np.flatnonzero(leaves) + (step < 0)
        way = points[last + step] - points[last]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = (np.where(way > 0, high, low) - points[last]) / way
        part[way == 0] = np.inf
        whole[last + step] = points[last] + part.min(axis=1, keepdims=True) * way
    return whole


def explains(edges: Sequence[Edge], axes: Sequence[np.ndarray], end_codes: np.ndarray) -> bool:
    """Return whether a curve passes between all neighbouring nodes whose ends are different.

    ``axes`` hold the nodes' coordinates, ``end_codes`` (n, m) the codes of their ends.
    """
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    middle, half, own = [], [], []
    for axis in range(2):
        one, other = (np.delete(end_codes, end, axis) for end in (-1, 0))
        first, last = (np.delete(nodes, end, axis) for end in (-1, 0))
        crossed = (one != other) & (one > 0) & (other > 0)
        middle += 2 * [(first[crossed] + last[crossed]) / 2]
        half += 2 * [np.linalg.norm(last[crossed] - first[crossed], axis=1) / 2]
        own += [one[crossed], other[crossed]]
    places = np.concatenate(middle)
    away = np.linalg.norm(nearest_on(edges, places, np.concatenate(own)) - places, axis=1)
    return bool((away <= np.concatenate(half) * (1 + 1e-6)).all())


def known_edges(
    model: Model, window: Mapping[str, Range], fixed: Mapping[str, float], label: Labels
) -> list[Edge]:
    """The separatrices that a model knows in a window of its plane; none in other windows."""
    if len(model.coordinates) < 2 or {*window} != {model.plane.x, model.plane.y}:
        return []
    curves = model.plane.curves(window, fixed, _SAMPLED, quick=True)
    found = []
    for curve in curves:
        if curve.kind != "separatrix" or curve.of:
            continue
        axes = {model.plane.x: np.asarray(curve.x), model.plane.y: np.asarray(curve.y)}
        points = _with_corners(np.stack([axes[name] for name in window], axis=1))
        inside = _within(window, points)
        there = np.flatnonzero(np.isfinite(inside[:, 0]))
        if len(there) < 3:
            continue
        middle = there[len(there) // 2]
        along = points[middle + 1] - points[middle - 1]
        normal = np.array([-along[1], along[0]]) / np.linalg.norm(along)
        pair = label(inside[middle] + _beside(window) * np.stack([normal, -normal]))
        if pair[0] != pair[1] and (pair > 0).all():
            found.append(_edge(inside, pair))
    return found


def _with_corners(points: np.ndarray) -> np.ndarray:
    """Insert corners into a curve (m, 2): where the straight ways before and after a bend meet."""
    way = np.diff(points, axis=0)
    before, after, gap = way[:-2], way[2:], way[1:-1]
    sizes = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    turn = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        bent = (before * after).sum(axis=1) < _STRAIGHT * sizes
        part = (gap[:, 0] * after[:, 1] - gap[:, 1] * after[:, 0]) / turn
    at = np.flatnonzero(bent & (part > 0) & (part < 10))
    met = points[at + 1] + part[at, None] * before[at]
    return np.insert(points, at + 2, met, axis=0)


def bisected_edges(
    label: Labels, axes: Sequence[np.ndarray], end_codes: np.ndarray, exact: float,
    batched: bool = False, shooting: Shooting | None = None,
) -> list[Edge]:  # fmt: skip
    """The curves between nodes with different ends, through crossings between them.

    Between crossings a cubic goes through four of them. Between two another one is sought across
    that cubic, and again on both sides where the cubic was too far off. Crossings are bisected
    where ``shooting``, of a flow that can be differentiated, finds none, to brackets of the length
    ``exact``. Cells with a corner of no end are left out.

    Labels that are ``batched`` take for hundreds about as long as for a few: more are asked at once
    than are needed, and ways between points are parted less often, as beside a corner.
    """
    lattice = Lattice(end_codes.shape, 0)
    cells = lattice.cells(0)
    around = end_codes.ravel()[lattice.corners(cells, 0)]
    mixed = (around != around[:, :1]).any(axis=1) & (around > 0).all(axis=1)
    cells, around = cells[mixed], around[mixed]
    marched, numbers = [], [np.zeros(0, int)]
    for end in np.unique(around)[:-1]:
        inside = around == end
        crossed = inside.any(axis=1) & ~inside.all(axis=1)
        marched.append(march(lattice, cells[crossed], inside[crossed]))
        curve = marched[-1].curve
        assert curve is not None
        numbers.append(curve + 1 + numbers[-1].max(initial=0))
    if not marched:
        return []
    nodes = [np.concatenate([getattr(m, side) for m in marched]) for side in ("inner", "outer")]
    inner, outer = (
        np.stack([v[lattice.places(row)[:, i]] for i, v in enumerate(axes)], axis=-1)
        for row in nodes
    )
    ends = np.stack([end_codes.ravel()[row] for row in nodes], axis=1)
    number = np.concatenate(numbers)
    if shooting is None:
        ahead = ahead_of(len(inner), batched)
        inner, outer = _halved(label, inner, outer, ends[:, 0], _ROUGH, ahead)
    points = (inner + outer) / 2
    spacing = _SPACED[batched] * min(float(np.diff(values).max()) for values in axes)
    keep = _thinned(points, ends, number, spacing)
    inner, outer, ends, number = inner[keep], outer[keep], ends[keep], number[keep]
    points = crossed_at(label, inner, outer, ends, exact, batched, shooting)
    keep = _thinned(points, ends, number, spacing)
    points, ends, number = _refined(
        label, points[keep], ends[keep], number[keep], exact, batched, shooting
    )
    return [_filled_in(points[number == i], ends[number == i]) for i in np.unique(number)]


def _thinned(
    points: np.ndarray, ends: np.ndarray, number: np.ndarray, spacing: float
) -> np.ndarray:
    """Indices of points (m, 2) to keep: at least ``spacing`` apart, and first and last of a part.

    ``number`` (m,) tells curves apart; a part is a stretch of one with the same ``ends`` (m, 2).
    """
    first = np.append(True, (np.diff(number) != 0) | (np.diff(ends, axis=0) != 0).any(axis=1))
    last = np.append(first[1:], True)
    kept: list[int] = []
    at = points[0]
    for i, place in enumerate(points):
        near = np.linalg.norm(place - at) < spacing
        if last[i] and near and kept and not first[kept[-1]]:
            kept.pop()
        if first[i] or last[i] or not near:
            kept.append(i)
            at = place
    return np.array(kept)


def crossed_at(
    label: Labels, inner: np.ndarray, outer: np.ndarray, ends: np.ndarray, exact: float,
    batched: bool, shooting: Shooting | None,
) -> np.ndarray:  # fmt: skip
    """Places (n, d) between ``inner`` and ``outer`` where the end changes, to the length ``exact``.

    ``ends`` (n, 2) are the codes at the two. They are found by ``shooting``, or else bisection.
    """
    inner, outer, found = inner.copy(), outer.copy(), np.full(inner.shape, np.nan)
    longest = float(np.linalg.norm(outer - inner, axis=1).max(initial=exact))
    halvings, rows = max(int(np.ceil(np.log2(longest / exact))), 1), np.arange(len(inner))
    # what is not shot is halved, at first as often as one call for labels allows, and shot again
    for last in (True,) if shooting is None else (False, True):
        if shooting is not None:
            middle, half = (inner[rows] + outer[rows]) / 2, (outer[rows] - inner[rows]) / 2
            found[rows] = shooting.crossings(middle, half, ends[rows], exact)
            rows = rows[np.isnan(found[rows, 0])]
        ahead = ahead_of(len(rows), batched)
        inner[rows], outer[rows] = _halved(
            label, inner[rows], outer[rows], ends[rows, 0], halvings if last else ahead, ahead
        )
        halvings -= ahead
    found[rows] = (inner[rows] + outer[rows]) / 2
    return found


def _halved(
    label: Labels, inner: np.ndarray, outer: np.ndarray, own: np.ndarray, halvings: int, ahead: int
) -> tuple[np.ndarray, np.ndarray]:
    """Halve brackets between places inside and outside, (n, d); their new ends, (n, d) each.

    ``own`` (n,) are the codes inside; ``ahead`` halvings are asked for together.
    """
    cross = find_crossings(label, inner, outer, halvings, ahead, own)
    part, half, way = cross.at[:, None], cross.width[:, None] / 2, outer - inner
    return inner + (part - half) * way, inner + (part + half) * way


def ahead_of(count: int, batched: bool) -> int:
    """The number of halvings of ``count`` brackets that are best asked for together."""
    return int(np.log2(_TOGETHER / max(count, 1)).clip(1, 7)) if batched else 1


def _cubic(points: np.ndarray, joined: np.ndarray, at: np.ndarray, part: float) -> np.ndarray:
    """Places (m, 2) at a ``part`` of the way from points number ``at`` (m,) to the next ones.

    On cubics through two points before and two after, as far as these are ``joined`` (n,), which
    says of every point whether the next one is on the same curve.
    """
    length = np.append(0.0, np.linalg.norm(np.diff(points, axis=0), axis=1).cumsum())
    before, after = joined[at - 1] & (at > 0), np.append(joined[1:], False)[at]
    known = np.stack([before, np.full(len(at), True), np.full(len(at), True), after], axis=1)
    nodes = (at[:, None] + np.arange(-1, 3)).clip(0, len(points) - 1)
    place = length[at] + part * (length[at + 1] - length[at])
    weight = known.astype(float)
    for j in range(4):
        for k in range(4):
            if j != k:
                span = length[nodes[:, k]] - length[nodes[:, j]]
                ratio = (place - length[nodes[:, j]]) / np.where(span == 0, 1.0, span)
                weight[:, k] *= np.where(known[:, j] & known[:, k], ratio, 1.0)
    found: np.ndarray = (weight[..., None] * points[nodes]).sum(axis=1)
    return found


def _joined(points: np.ndarray, ends: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Mask of points that are with the next one on a curve beside the same two ends."""
    alike = (np.diff(number) == 0) & (np.diff(ends, axis=0) == 0).all(axis=1)
    return np.append(alike & (np.diff(points, axis=0) != 0).any(axis=1), False)


def _refined(
    label: Labels, points: np.ndarray, ends: np.ndarray, number: np.ndarray, exact: float,
    batched: bool, shooting: Shooting | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Add further points to curves, where a cubic through their points does not predict them.

    Returns all points (m, 2), the ends beside each (m, 2), and the number of its curve (m,).
    """
    off = np.full(len(points), np.inf)  # how far off the cubic was around the way to the next point
    for _ in range(_LEVELS[batched]):
        joined = _joined(points, ends, number)
        chord = np.append(np.linalg.norm(np.diff(points, axis=0), axis=1), 0.0)
        at = np.flatnonzero(joined & (off > _OFF * exact) & (chord > _SHORTEST * exact))
        if not len(at):
            break
        guess = _cubic(points, joined, at, _PART)
        along = points[at + 1] - points[at]
        normal = np.stack([-along[:, 1], along[:, 0]], 1) / chord[at, None]
        inner, outer = np.full(guess.shape, np.nan), np.full(guess.shape, np.nan)
        found = inner.copy()
        if shooting is not None:
            wide = _WIDE * chord[at, None] * normal
            for sign in (1, -1):
                rows = np.flatnonzero(np.isnan(found[:, 0]))
                found[rows] = shooting.crossings(
                    guess[rows], sign * wide[rows], ends[at[rows]], exact
                )
        near = np.minimum(off[at], _NARROW * chord[at])
        for width in (np.full(len(at), _OFF * exact), near, _WIDE * chord[at]):
            rows = np.flatnonzero(np.isnan(found[:, 0]))
            if not len(rows):
                break
            beside = width[rows, None] * normal[rows]
            sides = np.stack([guess[rows] + beside, guess[rows] - beside])
            end_codes = label(sides.reshape(-1, 2)).reshape(2, -1)
            for i in (0, 1):
                codes = np.stack([end_codes[i], end_codes[1 - i]], axis=1)
                pair = (codes == ends[at[rows]]).all(axis=1)
                inner[rows[pair]], outer[rows[pair]] = sides[i, pair], sides[1 - i, pair]
            rows = rows[np.isfinite(inner[rows, 0])]
            found[rows] = crossed_at(
                label, inner[rows], outer[rows], ends[at[rows]], exact, batched, None
            )
        there = np.isfinite(found[:, 0])
        off[at[~there]] = 0.0
        at, guess, found = at[there], guess[there], found[there]
        away = np.linalg.norm(found - guess, axis=1)
        # where it falls no faster than in proportion to the way there is a corner
        off[at] = np.where(8 * away > off[at], _OFF / 2, 1.0) * away
        new = at + 1
        points = np.insert(points, new, found, axis=0)
        ends, number = np.insert(ends, new, ends[at], axis=0), np.insert(number, new, number[at])
        off = np.insert(off, new, off[at])
    return points, ends, number


def _filled_in(points: np.ndarray, ends: np.ndarray) -> Edge:
    """Put places of cubics between the points (m, 2) of one curve, with the ends beside them.

    NaN and no ends between points where the ends (m, 2) change.
    """
    joined = _joined(points, ends, np.zeros(len(points), int))
    at = np.flatnonzero(joined)
    parts, pairs = points[:, None].repeat(_FINER, 1), ends[:, None].repeat(_FINER, 1)
    parts[:-1, 1:], pairs[:-1, 1:] = np.nan, 0
    for i in range(1, _FINER):
        parts[at, i] = _cubic(points, joined, at, i / _FINER)
        pairs[at, i] = ends[at]
    return Edge(parts.reshape(-1, 2), pairs.reshape(-1, 2))


def nearest_on(edges: Sequence[Edge], points: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The nearest place on a curve beside the basin of each point's end, (n, 2); NaN without one.

    ``own`` are the codes (n,) of these ends. Between their places curves are parabolas.
    """
    found = np.full(points.shape, np.nan)
    if not edges:
        return found
    places = np.concatenate([np.append(e.points, [[np.nan] * 2], 0) for e in edges])
    pairs = np.concatenate([np.append(e.ends, [[0, 0]], 0) for e in edges])
    for code in np.unique(own[own > 0]):
        beside = np.isfinite(places).all(1) & (pairs == code).any(1)
        rows, there = np.flatnonzero(own == code), np.flatnonzero(beside)
        if not len(there):
            continue
        near = there[cKDTree(places[there]).query(points[rows])[1]]
        found[rows] = _on_parabola(places, beside, near, points[rows])
    return found


def _on_parabola(
    places: np.ndarray, beside: np.ndarray, near: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """The nearest places (n, 2) to points (n, 2) on curves through given places (p, 2).

    ``near`` (n,) are the indices of the nearest given places; ``beside`` (p,) is a mask of those on
    curves beside the points' own basin, which alone are used. The way is P(u), u from −1 to 1,
    through a place and its two neighbours, as far as both are on the curve; else a straight line to
    the one that is.
    """
    best = places[near]
    before, after = beside[near - 1], beside[near + 1]  # the first's and last's neighbours are NaN
    ahead, behind = places[near + 1] - best, places[near - 1] - best
    for way, there in ((ahead, after), (behind, before)):
        part = ((points - best) * way).sum(1) / np.maximum((way**2).sum(1), 1e-300)
        trial = places[near] + part.clip(0, 1)[:, None] * way
        nearer = there & (_away(trial, points) < _away(best, points))
        best = np.where(nearer[:, None], trial, best)
    rows = np.flatnonzero(before & after)
    one, other = np.linalg.norm(behind[rows], axis=1), np.linalg.norm(ahead[rows], axis=1)
    one, other = np.maximum(one, 1e-300), np.maximum(other, 1e-300)
    # P(s) = b s + c s², with s = −one and s = other at the neighbours
    slopes = -behind[rows] / one[:, None], ahead[rows] / other[:, None]
    c = (slopes[1] - slopes[0]) / (one + other)[:, None]
    b = slopes[0] + c * one[:, None]
    s, from_here = np.zeros(len(rows)), points[rows] - places[near[rows]]
    for _ in range(5):
        away = from_here - b * s[:, None] - c * s[:, None] ** 2
        way = b + 2 * c * s[:, None]
        bend = (way**2).sum(1) - 2 * (away * c).sum(1)
        size = (way**2).sum(1)
        s = s + (away * way).sum(1) / np.where(bend > 0.1 * size, bend, np.maximum(size, 1e-300))
        s = s.clip(-one, other)
    curved = places[near[rows]] + b * s[:, None] + c * s[:, None] ** 2
    # where the curve has a corner, the straight ways are the ones to trust
    smooth = (slopes[0] * slopes[1]).sum(1) > _STRAIGHT
    best[rows[smooth]] = curved[smooth]
    return best


def _away(places: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Distances between places and points (n, 2), (n,)."""
    found: np.ndarray = np.linalg.norm(places - points, axis=1)
    return found
