"""Halving the cells of nested grids that a boundary of labels crosses, and only those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flowsim.boundary.bisection import HALVINGS
from flowsim.boundary.lattice import Lattice

#: Cells whose corners are held at once.
_BLOCK = 2**18


@dataclass
class KnownLabels:
    """Labels of the nodes evaluated so far, by node number, and the level that asked first."""

    evaluate: Callable[[np.ndarray], np.ndarray]
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    label: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int8))
    level: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int8))

    def add(self, nodes: np.ndarray, label: np.ndarray, level: int) -> None:
        """Put in new nodes, which are sorted."""
        at = np.searchsorted(self.nodes, nodes)
        self.nodes = np.insert(self.nodes, at, nodes)
        self.label = np.insert(self.label, at, label)
        self.level = np.insert(self.level, at, np.int8(level))

    def labels(self, nodes: np.ndarray, level: int = 0) -> np.ndarray:
        """The labels of nodes, evaluated where they are not known yet, shape of ``nodes``."""
        new = _missing(np.unique(nodes), self.nodes)
        if len(new):
            self.add(new, self.evaluate(new), level)
        return self.label[np.searchsorted(self.nodes, nodes)]


def crossed_cells(lattice: Lattice, known: KnownLabels, held: dict[int, int]) -> np.ndarray:
    """The crossed cells of the finest level, sorted; ``known`` holds all that was evaluated.

    Args:
        lattice: the grids.
        known: what evaluates nodes, and what is known of them beforehand.
        held: place, along some axes, of a plane that is to lie on nodes.
    """
    cells, crossed = lattice.cells(0), np.empty(0, dtype=np.int64)
    for level in range(lattice.levels + 1):
        found, new, looked_at = [cells[:0]], cells, cells
        while len(new):
            found.append(_crossed(lattice, known, new, level))
            new = _missing(lattice.neighbours(found[-1], level), looked_at)
            if len(new):
                looked_at = np.sort(np.concatenate([looked_at, new]))
        crossed = np.concatenate(found)
        marked = [lattice.neighbours(crossed, level)]
        for axis, place in held.items():
            if place % lattice.step(level):
                marked.append(lattice.cells(level, axis, place))
        if level < lattice.levels:
            cells = lattice.children(np.unique(np.concatenate(marked)), level + 1)
    return np.sort(crossed)


def expected_starts(crossed: int, dimensions: int, levels: int) -> int:
    """About how many starts beside the coarsest grid's nodes a refined boundary follows in all.

    The boundary crosses 2^(k−1) times as many cells of k dimensions at every level; found were four
    to eight new nodes for each of them, and in the plane three edges to be halved for each of the
    finest. What is returned is eight, and the halvings of four edges, or eight in space.

    Args:
        crossed: how many cells of the coarsest grid are crossed.
        dimensions: k.
        levels: how many times they are halved.
    """
    nodes = sum(8 * crossed << level * (dimensions - 1) for level in range(1, levels + 1))
    edges = (4 if dimensions == 2 else 8) * crossed << levels * (dimensions - 1)
    return nodes + HALVINGS * edges


def count_crossed(labels: np.ndarray) -> int:
    """How many cells between labelled nodes have corners of different labels."""
    low = high = labels
    for axis in range(labels.ndim):
        here, there = (np.delete(np.arange(labels.shape[axis]), end) for end in (-1, 0))
        low = np.minimum(low.take(here, axis), low.take(there, axis))
        high = np.maximum(high.take(here, axis), high.take(there, axis))
    return int((low != high).sum())


def _crossed(lattice: Lattice, known: KnownLabels, cells: np.ndarray, level: int) -> np.ndarray:
    """Those of the cells whose corners have different labels, looked for block by block."""
    found = [cells[:0]]
    for low in range(0, len(cells), _BLOCK):
        block = cells[low : low + _BLOCK]
        corners = known.labels(lattice.corners(block, level), level)
        found.append(block[(corners != corners[:, :1]).any(axis=1)])
    return np.concatenate(found)


def _missing(wanted: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Those of ``wanted`` that the sorted array ``there`` lacks."""
    at = np.searchsorted(there, wanted)
    inside = at < len(there)
    inside[inside] = there[at[inside]] == wanted[inside]
    return wanted[~inside]
