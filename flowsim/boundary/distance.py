"""How far a refined boundary is from the analytic one, in cells of the finest grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flowsim.boundary.lattice import Lattice
from flowsim.boundary.marching import Boundary

#: Places in the finest grid, whole or between nodes, shape (..., k) -> whether in the basin.
Oracle = Callable[[np.ndarray], np.ndarray]

#: Lines per axis along which the closed form is searched, by the number of axes.
_LINES = {2: 64, 3: 16}


def compare(
    lattice: Lattice, boundary: Boundary, points: np.ndarray, oracle: Oracle | None
) -> dict[str, float | int]:
    """How far the boundary and the analytic one are apart, each from the other.

    Both nodes of a point are asked whether they are in the analytic basin. If one is and the other
    is not, the analytic boundary lies between them and is found by bisection; it is also looked
    for along lines that pass between the nodes.

    Args:
        lattice: of the finest grid.
        boundary: found in it, and the places of its ``points``, shape (n, k).
        oracle: the closed form of the basin at places of the grid, or None.

    Returns:
        refine_distance, refine_missed (finest cells, largest over the axes; NaN where there is
        nothing to compare) and refine_disagree, as ``refine_boundary`` records them.
    """
    nothing = {"refine_distance": np.nan, "refine_missed": np.nan, "refine_disagree": 0}
    if oracle is None:
        return nothing
    inner, outer = (
        lattice.places(nodes).astype(np.float64) for nodes in (boundary.inner, boundary.outer)
    )
    differ = oracle(inner) & ~oracle(outer)
    crossing = _bisect(oracle, inner[differ], outer[differ])
    away = np.abs(crossing - points[differ]).max(axis=1)
    analytic = _lines(lattice, oracle)
    missed = np.nan
    if len(analytic):
        missed = np.inf
        if len(points):
            from scipy.spatial import cKDTree

            missed = float(cKDTree(points).query(analytic, p=np.inf)[0].max())
    return {
        "refine_distance": float(away.max()) if len(away) else np.nan,
        "refine_missed": missed,
        "refine_disagree": int((~differ).sum()),
    }


def _lines(lattice: Lattice, oracle: Oracle) -> np.ndarray:
    """Places where the closed form changes along lines between the nodes, shape (m, k)."""
    k, found = len(lattice.shape), []
    for axis in range(k):
        # lines at an irrational part of a cell, so that they pass no nodes
        across = [
            np.unique(np.linspace(0, n - 2, min(_LINES[k], n - 1)).astype(int)) + 0.381966
            for n in lattice.shape
        ]
        across[axis] = np.arange(lattice.shape[axis], dtype=np.float64)
        places = np.stack(np.meshgrid(*across, indexing="ij"), axis=-1)
        places = np.moveaxis(places, axis, 0)
        inside = oracle(places)
        change = inside[1:] != inside[:-1]
        low, high = places[:-1][change], places[1:][change]
        was = inside[:-1][change][:, None]
        found.append(_bisect(oracle, np.where(was, low, high), np.where(was, high, low)))
    return np.concatenate(found)


def _bisect(oracle: Oracle, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Where the closed form changes between places inside and outside the basin, to 1e-9."""
    for _ in range(30):
        middle = (inner + outer) / 2
        inside = oracle(middle)[..., None]
        inner, outer = np.where(inside, middle, inner), np.where(inside, outer, middle)
    return (inner + outer) / 2
