"""Nested grids, and the curve or surface that separates some of their nodes from others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from flowsim.labels import Label


@dataclass(frozen=True)
class Lattice:
    """The nodes of the finest grid and the cells of every coarser one that nests in it.

    A node is the flat (row-major) number of its place in ``shape``. A cell of a level is the node
    in its lower corner; its edges are ``step(level)`` = 2^(halvings − level) nodes long.

    Attributes:
        coarse: nodes of the coarsest grid along each axis, each at least 2.
        halvings: how many times its cells are halved.
    """

    coarse: tuple[int, ...]
    halvings: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes of the finest grid along each axis."""
        return tuple(((n - 1) << self.halvings) + 1 for n in self.coarse)

    @property
    def strides(self) -> np.ndarray:
        """The difference of flat numbers from one node to the next along each axis, (k,)."""
        tail = (*self.shape[1:], 1)
        return np.cumprod(np.array(tail[::-1], dtype=np.int64))[::-1]

    def step(self, level: int) -> int:
        """Finest nodes along the edge of a cell of this level."""
        return 1 << (self.halvings - level)

    def places(self, nodes: np.ndarray) -> np.ndarray:
        """The index along each axis of nodes (...), shape (..., k)."""
        return np.stack(np.unravel_index(nodes, self.shape), axis=-1)

    def nodes(self, level: int) -> np.ndarray:
        """Flat numbers of all nodes of a level's grid, sorted."""
        return self._numbers([np.arange(0, n, self.step(level)) for n in self.shape])

    def cells(self, level: int, axis: int | None = None, place: int = 0) -> np.ndarray:
        """Flat numbers of a level's cells, sorted; a cell has that of its lower corner node.

        With ``axis``, only the layer that contains index ``place`` of the finest grid along it.
        """
        step = self.step(level)
        ranges = [np.arange(0, n - 1, step) for n in self.shape]
        if axis is not None:
            ranges[axis] = np.array([place // step * step])
        return self._numbers(ranges)

    def _numbers(self, ranges: list[np.ndarray]) -> np.ndarray:
        """Flat numbers of the nodes at all combinations of places along the axes, sorted."""
        found: np.ndarray = np.ravel_multi_index(np.ix_(*ranges), self.shape)
        return found.ravel()

    def corners(self, cells: np.ndarray, level: int) -> np.ndarray:
        """The 2^k corner nodes of each cell, shape (n, 2^k)."""
        offsets = np.array(list(product((0, 1), repeat=len(self.coarse)))) @ self.strides
        return cells[:, None] + self.step(level) * offsets

    def children(self, cells: np.ndarray, level: int) -> np.ndarray:
        """The cells of ``level`` that fill the given cells of the level before, sorted."""
        return np.unique(self.corners(cells, level))

    def neighbours(self, cells: np.ndarray, level: int) -> np.ndarray:
        """The given cells and all that touch them, also at a corner, sorted."""
        step, limit = self.step(level), np.array(self.shape) - 1
        around = np.array(list(product((-1, 0, 1), repeat=len(self.coarse))))
        places = (self.places(cells)[:, None] + step * around).reshape(-1, len(self.coarse))
        inside = ((places >= 0) & (places < limit)).all(axis=1)
        return np.unique(places[inside] @ self.strides)


#: Times that an edge is halved: the middle of the last bracket is within 2⁻¹⁰ of the crossing.
HALVINGS = 9


@dataclass
class Crossings:
    """Crossings of edges, as parts of them: 0 is the end in the basin, 1 the other.

    Attributes:
        at: middle of the bracket that is left of each edge, shape (n,).
        width: of that bracket; 2⁻⁹, or more where a start on the edge has no label.
        followed: how many starts that took.
    """

    at: np.ndarray
    width: np.ndarray
    followed: int

    def along(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        """The crossings of edges from ``inner`` to ``outer``, shape (n, k)."""
        return inner + self.at[:, None] * (outer - inner)


def find_crossings(
    label: Callable[[np.ndarray], np.ndarray],
    inner: np.ndarray,
    outer: np.ndarray,
    halvings: int = HALVINGS,
    ahead: int = 1,
    end: int | np.ndarray = Label.GLOBAL_MINIMUM,
    progress: Callable[[int], object] | None = None,
) -> Crossings:
    """Bisect edges between starts ``inner`` and ``outer`` (n, k), inside a basin and outside of it.

    An edge with a start that has no label keeps its bracket. Inside is the basin of the label
    ``end``, of all edges or of each. Labels of ``ahead`` halvings are asked for together, at all
    points that they may need: it pays where many labels cost as little as a few. ``progress`` is
    called with the halvings done, of all edges together.
    """
    own = np.broadcast_to(end, len(inner))
    low, high, followed = np.zeros(len(inner)), np.ones(len(inner)), 0
    waiting = np.arange(len(inner))
    for done in range(0, halvings, ahead):
        if not len(waiting):
            break
        together = min(ahead, halvings - done)
        parts = 2**together
        first, last = inner[waiting, None], outer[waiting, None]
        start, size = low[waiting, None], (high - low)[waiting, None]
        places = start + size * np.arange(1, parts) / parts
        found = label((first + places[..., None] * (last - first)).reshape(-1, inner.shape[1]))
        followed += places.size
        found, going = found.reshape(places.shape), np.ones(len(waiting), dtype=bool)
        left, right = np.zeros(len(waiting), dtype=int), np.full(len(waiting), parts)
        for _ in range(together):
            here = np.flatnonzero(going)
            middle = (left + right)[here] // 2
            codes = found[here, middle - 1]
            within, unknown = codes == own[waiting[here]], codes == Label.UNRESOLVED
            left[here[within]] = middle[within]
            right[here[~within & ~unknown]] = middle[~within & ~unknown]
            going[here[unknown]] = False
        low[waiting] = (start + size * left[:, None] / parts)[:, 0]
        high[waiting] = (start + size * right[:, None] / parts)[:, 0]
        waiting = waiting[going]
        if progress is not None:
            progress(together * len(inner))
    return Crossings((low + high) / 2, high - low, followed)


@dataclass
class Boundary:
    """Curves (two axes) or a triangulated surface (three).

    Attributes:
        inner, outer: the two nodes between which each vertex lies, inside and outside the set.
        pieces: three axes: vertices of each triangle, shape (m, 3).
        curve: two axes: number of the curve that each vertex belongs to. The vertices are then in
            order along their curve, and a closed curve ends with its first vertex again.
    """

    inner: np.ndarray
    outer: np.ndarray
    pieces: np.ndarray | None = None
    curve: np.ndarray | None = None


def march(lattice: Lattice, cells: np.ndarray, inside: np.ndarray) -> Boundary:
    """Separate the corners inside a set from those outside, in the finest cells given.

    Each cell is cut along its main diagonal into two triangles or six tetrahedra, alike in all
    cells (Kuhn's triangulation), so that neighbours match: curves and surfaces have no gaps and
    end only at the edge of the grid. A vertex stands for the middle of the edge between its nodes.
    Given are all finest cells whose corners differ, (n,), and for each corner, in the order of
    ``Lattice.corners``, whether it is inside, (n, 2^k), k = 2 or 3.
    """
    k = len(lattice.coarse)
    corners = lattice.corners(cells, lattice.halvings)
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
    return (_link if k == 2 else _orient)(lattice, pairs, pieces.reshape(-1, k))


#: Pieces in a simplex with so many of its vertices inside (they come first): each piece's
#: vertices as pairs (inner, outer) of the simplex's, by (axes, vertices inside).
_CUTS = {
    (2, 1): np.array([[(0, 1), (0, 2)]]),
    (2, 2): np.array([[(0, 2), (1, 2)]]),
    (3, 1): np.array([[(0, 1), (0, 2), (0, 3)]]),
    (3, 2): np.array([[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]]),
    (3, 3): np.array([[(0, 3), (1, 3), (2, 3)]]),
}


def _orient(lattice: Lattice, pairs: np.ndarray, triangles: np.ndarray) -> Boundary:
    """Turn triangles (m, 3) of vertices so that normals (right-hand rule) point out of the set.

    ``pairs`` (v, 2) are the nodes inside and outside between which each vertex lies.
    """
    inner, outer = lattice.places(pairs.T)
    corner = (inner + outer)[triangles]  # twice the place, exact
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    outwards = (outer - inner)[triangles].sum(axis=1)
    turned = (normal * outwards).sum(axis=1) < 0
    triangles[turned] = triangles[turned][:, ::-1]
    return Boundary(pairs[:, 0], pairs[:, 1], triangles)


def _link(_: Lattice, pairs: np.ndarray, segments: np.ndarray) -> Boundary:
    """Join segments (m, 2) of vertices to curves, open ones first, and order vertices along them.

    ``pairs`` (v, 2) are the nodes inside and outside between which each vertex lies.
    """
    beside = np.full(pairs.shape, -1)
    for a, b in segments:
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
    inner, outer = pairs[np.array(order, dtype=np.int64)].T
    return Boundary(inner, outer, curve=np.array(curve, dtype=np.int32))
