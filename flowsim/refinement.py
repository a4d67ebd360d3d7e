"""Halving the cells of nested grids that a boundary of labels crosses, and only those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flowsim.lattice import Lattice


@dataclass
class Nodes:
    """Labels of the nodes evaluated so far, by node number, and the level that asked first."""

    evaluate: Callable[[np.ndarray], np.ndarray]
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    label: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int8))
    level: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int8))

    def add(self, nodes: np.ndarray, label: np.ndarray, level: int) -> None:
        """Put in new nodes."""
        every = np.concatenate([self.nodes, nodes])
        order = np.argsort(every)
        self.nodes = every[order]
        self.label = np.concatenate([self.label, label])[order]
        self.level = np.append(self.level, np.full(len(nodes), level, dtype=np.int8))[order]

    def labels(self, nodes: np.ndarray, level: int = 0) -> np.ndarray:
        """The labels of nodes, evaluated where they are not known yet, shape of ``nodes``."""
        wanted = np.unique(nodes)
        new = wanted[~np.isin(wanted, self.nodes, assume_unique=True)]
        if len(new):
            self.add(new, self.evaluate(new), level)
        return self.label[np.searchsorted(self.nodes, nodes)]


def crossed_cells(lattice: Lattice, known: Nodes, held: dict[int, int]) -> np.ndarray:
    """The crossed cells of the finest level, sorted; ``known`` holds all that was evaluated."""
    cells, crossed = lattice.cells(0), np.empty(0, dtype=np.int64)
    for level in range(lattice.levels + 1):
        found, new, looked_at = [cells[:0]], cells, cells
        while len(new):
            corners = known.labels(lattice.corners(new, level), level)
            found.append(new[(corners != corners[:, :1]).any(axis=1)])
            around = lattice.neighbours(found[-1], level)
            new = np.setdiff1d(around, looked_at, assume_unique=True)
            looked_at = np.concatenate([looked_at, new])
        crossed = np.concatenate(found)
        marked = [lattice.neighbours(crossed, level)]
        for axis, place in held.items():
            if place % lattice.step(level):
                marked.append(lattice.cells(level, axis, place))
        if level < lattice.levels:
            cells = lattice.children(np.unique(np.concatenate(marked)), level + 1)
    return np.sort(crossed)


def subdivide(values: np.ndarray, levels: int) -> np.ndarray:
    """The values with 2^levels − 1 more between neighbours, of which rounding beside 0 is 0."""
    place = np.arange(((len(values) - 1) << levels) + 1) / (1 << levels)
    fine = np.interp(place, np.arange(len(values)), values)
    fine[np.abs(fine) < 1e-9 * np.diff(fine).min()] = 0.0
    fine[:: 1 << levels] = values  # the given ones stay what they are
    return fine
