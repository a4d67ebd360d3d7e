"""Curves between basins, and the nearest places on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from scipy.spatial import cKDTree

from flowsim.boundary.geometry import Lattice, find_crossings, march
from flowsim.boundary.manifolds import stable_manifolds
from flowsim.interface import Model

#: Places on a bisected curve for each of its vertices.
_FINER = 24
#: How far from a saddle it is asked where the flow leads from both sides, in parts of the window.
_BESIDE = 1e-3

Window = tuple[float, float]
Labels = Callable[[np.ndarray], np.ndarray]


class Edge(NamedTuple):
    """A curve between basins: its places (m, 2), and the codes of the ends on both sides, (m, 2).

    A code that is not positive belongs to no end.
    """

    points: np.ndarray
    ends: np.ndarray


def manifold_edges(
    model: Model, window: Mapping[str, Window], label: Labels, order: Sequence[int]
) -> list[Edge]:
    """The stable manifolds that separate two ends, of a model of two coordinates.

    Args:
        model, window: as of ``stable_manifolds``.
        label: codes of places whose columns are the coordinates of these numbers.
        order: the numbers.
    """
    found = stable_manifolds(model, window)
    if not found:
        return []
    beside = _BESIDE * float(np.linalg.norm([high - low for low, high in window.values()]))
    sides = [m.saddle + sign * beside * m.across for m in found for sign in (1, -1)]
    codes = label(torch.stack(sides)[:, list(order)].numpy()).reshape(-1, 2)
    return [
        Edge(manifold.points[:, list(order)], np.broadcast_to(pair, (len(manifold.points), 2)))
        for manifold, pair in zip(found, codes, strict=True)
        if pair[0] != pair[1] and (pair > 0).all()
    ]


def explains(edges: Sequence[Edge], axes: Sequence[np.ndarray], codes: np.ndarray) -> bool:
    """Return whether curves pass all neighbouring nodes, (n, m), that have different ends."""
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    for axis in range(2):
        one, other = (np.delete(codes, end, axis) for end in (-1, 0))
        first, last = (np.delete(nodes, end, axis) for end in (-1, 0))
        crossed = (one != other) & (one > 0) & (other > 0)
        middle = (first[crossed] + last[crossed]) / 2
        half = np.linalg.norm(last[crossed] - first[crossed], axis=1) / 2
        for own in (one[crossed], other[crossed]):
            away = np.linalg.norm(nearest_on(edges, middle, own) - middle, axis=1)
            if not (away <= half * (1 + 1e-6)).all():
                return False
    return True


def bisected_edges(
    label: Labels, axes: Sequence[np.ndarray], codes: np.ndarray, halvings: int
) -> list[Edge]:
    """The curves between nodes with different ends, through crossings found by bisection.

    Args:
        label: codes of places (m, 2), not positive for no end.
        axes: values of both coordinates at the nodes; ``codes``: theirs, in that order. Cells with
            a corner of no end are left out.
        halvings: as of ``find_crossings``.
    """
    lattice, edges = Lattice(codes.shape, 0), []
    cells = lattice.cells(0)
    around = codes.ravel()[lattice.corners(cells, 0)]
    mixed = (around != around[:, :1]).any(axis=1) & (around > 0).all(axis=1)
    cells, around = cells[mixed], around[mixed]
    marched = []
    for end in np.unique(around)[:-1]:
        inside = around == end
        crossed = inside.any(axis=1) & ~inside.all(axis=1)
        marched.append(march(lattice, cells[crossed], inside[crossed]))
    if not marched:
        return []
    nodes = [np.concatenate([getattr(m, side) for m in marched]) for side in ("inner", "outer")]
    inner, outer = (
        np.stack([v[lattice.places(row)[:, i]] for i, v in enumerate(axes)], axis=-1)
        for row in nodes
    )
    ends = np.stack([codes.ravel()[row] for row in nodes], axis=1)
    crossings = find_crossings(label, inner, outer, halvings, end=ends[:, 0])
    points = crossings.along(inner, outer)
    first = 0
    for found in marched:
        assert found.curve is not None
        for number in np.unique(found.curve):
            at = first + np.flatnonzero(found.curve == number)
            edges.append(_smooth(points[at], ends[at]))
        first += len(found.curve)
    return edges


def _smooth(points: np.ndarray, ends: np.ndarray) -> Edge:
    """A cubic spline through the points of a curve, where one pair of ends goes on to the next."""
    keep = np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))
    points, ends = points[keep], ends[keep]
    if len(points) < 4:
        return Edge(points, ends)
    length = np.append(0.0, np.linalg.norm(np.diff(points, axis=0), axis=1).cumsum())
    closed = bool((points[0] == points[-1]).all())
    spline = CubicSpline(length, points, bc_type="periodic" if closed else "not-a-knot")
    place = np.arange((len(points) - 1) * _FINER + 1) / _FINER
    left = place.astype(int)
    right = np.minimum(np.ceil(place).astype(int), len(points) - 1)
    part = place - left
    values = length[left] + part * (length[right] - length[left])
    pairs = np.where((ends[left] == ends[right]).all(axis=1)[:, None], ends[left], 0)
    whole = part == 0
    pairs[whole] = ends[left[whole]]
    return Edge(spline(values), pairs)


def nearest_on(edges: Sequence[Edge], points: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The nearest place on a curve beside the basin of each point's end, (n, 2); NaN without one.

    Args:
        edges: curves with many places.
        points, own: (n, 2), and their codes (n,).
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
        best, point = places[near], points[rows]
        for other in (near - 1, near + 1):
            joined = beside[other]  # the one after the last is NaN, and before the first too
            way = np.where(joined[:, None], places[other] - places[near], 0.0)
            square = np.maximum((way**2).sum(1), 1e-300)
            part = (((point - places[near]) * way).sum(1) / square).clip(0, 1)
            trial = places[near] + part[:, None] * way
            nearer = np.linalg.norm(trial - point, axis=1) < np.linalg.norm(best - point, axis=1)
            best = np.where(nearer[:, None], trial, best)
        found[rows] = best
    return found
