"""Nodes and cells of nested regular grids, as integers: what refinement needs to know of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass(frozen=True)
class Lattice:
    """The nodes of the finest grid and the cells of every coarser one that nests in it.

    A node is the flat (row-major) number of its place in ``shape``. A cell of a level is the node
    in its lower corner; its edges are ``step(level)`` = 2^(levels − level) nodes long.

    Attributes:
        coarse: nodes of the coarsest grid along each axis, each at least 2.
        levels: how many times its cells are halved.
    """

    coarse: tuple[int, ...]
    levels: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes of the finest grid along each axis."""
        return tuple(((n - 1) << self.levels) + 1 for n in self.coarse)

    @property
    def strides(self) -> np.ndarray:
        """What one node along each axis adds to a flat number, int64, shape (k,)."""
        tail = (*self.shape[1:], 1)
        return np.cumprod(np.array(tail[::-1], dtype=np.int64))[::-1]

    def step(self, level: int) -> int:
        """Finest nodes along the edge of a cell of this level."""
        return 1 << (self.levels - level)

    def places(self, nodes: np.ndarray) -> np.ndarray:
        """Integer place of each node along each axis, shape (..., k)."""
        return np.stack(np.unravel_index(nodes, self.shape), axis=-1)

    def nodes(self, level: int) -> np.ndarray:
        """All nodes of a level, sorted."""
        return self._mesh([np.arange(0, n, self.step(level)) for n in self.shape])

    def cells(self, level: int, axis: int | None = None, place: int = 0) -> np.ndarray:
        """All cells of a level, or those around ``place`` along one axis; sorted."""
        step = self.step(level)
        ranges = [np.arange(0, n - 1, step) for n in self.shape]
        if axis is not None:
            ranges[axis] = np.array([place // step * step])
        return self._mesh(ranges)

    def _mesh(self, ranges: list[np.ndarray]) -> np.ndarray:
        """Flat numbers of all combinations of places, without an array of places on the way."""
        found = np.zeros((), dtype=np.int64)
        for places, stride in zip(ranges, self.strides, strict=True):
            found = found[..., None] + places * stride
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
