"""Where a boundary crosses edges of which one end is in the basin of the global minima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flowsim.labels import Label

#: Times that an edge is halved: the middle of what is left is within 2⁻¹⁰ < 1e-3 of the crossing.
HALVINGS = 9


@dataclass
class Crossings:
    """Where edges are crossed, as parts of them: 0 is the end in the basin, 1 the other.

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
) -> Crossings:
    """Bisect edges between starts inside and outside the basin of the global minima.

    Where a start has no label the edge keeps the bracket it has.

    Args:
        label: labels of points, shape (n, k) -> (n,).
        inner, outer: ends of the edges, shape (n, k).
        halvings: how many times every edge is halved.
    """
    low, high, followed = np.zeros(len(inner)), np.ones(len(inner)), 0
    waiting = np.arange(len(inner))
    for _ in range(halvings):
        if not len(waiting):
            break
        middle = (low[waiting] + high[waiting]) / 2
        first, last = inner[waiting], outer[waiting]
        found = label(first + middle[:, None] * (last - first))
        followed += len(waiting)
        within = found == Label.GLOBAL_MINIMUM
        low[waiting[within]] = middle[within]
        without = ~within & (found != Label.UNRESOLVED)
        high[waiting[without]] = middle[without]
        waiting = waiting[within | without]
    return Crossings((low + high) / 2, high - low, followed)
