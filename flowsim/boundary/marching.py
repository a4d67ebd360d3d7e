"""The boundary of a set of nodes as curves or as a surface: marching triangles and tetrahedra."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from flowsim.boundary.lattice import Lattice


@dataclass
class Boundary:
    """Curves (two axes) or a triangulated surface (three).

    Attributes:
        inner, outer: the two nodes between which each vertex lies, inside and outside the set.
        pieces: vertices of each segment or triangle, shape (m, 2) or (m, 3).
        curve: two axes: number of the curve that each vertex belongs to. The vertices are then in
            order along their curve, and a closed curve ends with its first vertex again.
    """

    inner: np.ndarray
    outer: np.ndarray
    pieces: np.ndarray
    curve: np.ndarray | None = None


def march(lattice: Lattice, cells: np.ndarray, inside: np.ndarray) -> Boundary:
    """Separate the corners inside a set from those outside, in the finest cells given.

    Each cell is cut along its main diagonal into two triangles or six tetrahedra, alike in all
    cells (Kuhn's triangulation), so that neighbours match: curves and surfaces have no gaps and
    end only at the edge of the grid. A vertex stands for the middle of the edge between its nodes.

    Args:
        lattice: of two or three axes.
        cells: every finest cell whose corners differ, shape (n,).
        inside: bool for each corner of each, in the order of ``Lattice.corners``, shape (n, 2^k).
    """
    k = len(lattice.coarse)
    corners = lattice.corners(cells, lattice.levels)
    bits = 1 << np.arange(k)[::-1]  # the corner's number: its first axis is the highest bit
    ends: list[np.ndarray] = []
    for order in permutations(range(k)):
        path = np.cumsum([0, *bits[list(order)]])
        nodes, within = corners[:, path], inside[:, path]
        count = within.sum(axis=1)
        for many in range(1, k + 1):
            chosen = count == many
            # those inside first, each kind in the order of the path
            rank = np.argsort(~within[chosen], axis=1, kind="stable")
            ranked = np.take_along_axis(nodes[chosen], rank, axis=1)
            ends += [ranked[:, _CUTS[k, many][piece]] for piece in range(len(_CUTS[k, many]))]
    edges = np.concatenate(ends) if ends else np.empty((0, k, 2), dtype=np.int64)
    pairs, pieces = np.unique(edges.reshape(-1, 2), axis=0, return_inverse=True)
    pieces = pieces.reshape(-1, k)
    found = Boundary(pairs[:, 0], pairs[:, 1], pieces)
    return _link(found) if k == 2 else _orient(lattice, found)


#: Pieces in a simplex with so many of its vertices inside (they come first): each piece's
#: vertices as pairs (inner, outer) of the simplex's, by (axes, vertices inside).
_CUTS = {
    (2, 1): np.array([[(0, 1), (0, 2)]]),
    (2, 2): np.array([[(0, 2), (1, 2)]]),
    (3, 1): np.array([[(0, 1), (0, 2), (0, 3)]]),
    (3, 2): np.array([[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]]),
    (3, 3): np.array([[(0, 3), (1, 3), (2, 3)]]),
}


def _orient(lattice: Lattice, surface: Boundary) -> Boundary:
    """Turn the triangles so that their normals (right-hand rule) point out of the set."""
    inner, outer = lattice.places(surface.inner), lattice.places(surface.outer)
    corner = (inner + outer)[surface.pieces]  # twice the place, exact
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    outwards = (outer - inner)[surface.pieces].sum(axis=1)
    turned = (normal * outwards).sum(axis=1) < 0
    surface.pieces[turned] = surface.pieces[turned][:, ::-1]
    return surface


def _link(loose: Boundary) -> Boundary:
    """Order the vertices of segments along their curves: open ones first, then closed ones."""
    beside = np.full((len(loose.inner), 2), -1)
    for a, b in loose.pieces:
        for start, end in ((a, b), (b, a)):
            beside[start, int(beside[start, 0] >= 0)] = end
    ends = np.flatnonzero(beside[:, 1] < 0)
    seen = np.zeros(len(beside), dtype=bool)
    order: list[int] = []
    curve: list[int] = []
    number = 0
    for first in [*ends, *range(len(beside))]:
        if seen[first]:
            continue
        walk, here = [int(first)], int(first)
        seen[first] = True
        while (following := [n for n in beside[here] if n >= 0 and not seen[n]]) != []:
            here = int(following[0])
            seen[here] = True
            walk.append(here)
        if len(walk) > 2 and first in beside[here]:
            walk.append(int(first))
        order += walk
        curve += [number] * len(walk)
        number += 1
    index, curves = np.array(order, dtype=np.int64), np.array(curve, dtype=np.int32)
    joined = np.flatnonzero(curves[1:] == curves[:-1])
    pieces = np.stack([joined, joined + 1], axis=1)
    return Boundary(loose.inner[index], loose.outer[index], pieces, curves)
