"""The boundary of the basins in a portrait, between the cells' labels and finer than they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from flowsim.boundary.bisection import find_crossings
from flowsim.boundary.lattice import Lattice
from flowsim.boundary.marching import march
from flowsim.landscape.labels import Label

#: Times that a cell's edge is halved to find where the boundary crosses it.
HALVINGS = 8


def with_boundary(
    record: xr.Dataset,
    label: Callable[[np.ndarray, np.ndarray], np.ndarray],
    halvings: int = HALVINGS,
) -> xr.Dataset:
    """The record with the boundary of the basin of the global minima in the (w, e) plane.

    The curves separate centres of cells in the basin from others (marching triangles); each of
    their points is found by bisection on the edge between two centres.

    Args:
        record: with ``label`` over the dimensions e and w.
        label: labels of starts with the given e and w, each of shape (n,).
        halvings: of every edge; 8 of them place a point to 2⁻⁸ of it.

    Returns:
        The record with ``boundary_w``, ``boundary_e``, ``boundary_curve`` (the number of the curve)
        and ``boundary_side`` (the label beside the basin), all over ``vertex``.
    """
    codes = record["label"].transpose("e", "w").to_numpy()
    axes = [record[name].to_numpy() for name in ("e", "w")]
    lattice = Lattice(codes.shape, 0)
    cells = lattice.cells(0)
    inside = (codes.ravel() == Label.GLOBAL_MINIMUM)[lattice.corners(cells, 0)]
    crossed = inside.any(axis=1) & ~inside.all(axis=1)
    found = march(lattice, cells[crossed], inside[crossed])
    inner, outer = (
        np.stack([v[lattice.places(nodes)[:, i]] for i, v in enumerate(axes)], axis=-1)
        for nodes in (found.inner, found.outer)
    )
    points = find_crossings(lambda x: label(x[:, 0], x[:, 1]), inner, outer, halvings).along(
        inner, outer
    )
    record["boundary_e"] = ("vertex", points[:, 0])
    record["boundary_w"] = ("vertex", points[:, 1])
    record["boundary_curve"] = ("vertex", found.curve)
    side = codes.ravel()[found.outer]
    record["boundary_side"] = ("vertex", side, record["label"].attrs)
    return record
