"""The boundary of the basins, found by halving only the cells that it crosses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np
import xarray as xr

from flowsim.boundary.bisection import HALVINGS, Crossings, find_crossings
from flowsim.boundary.cells import KnownLabels, crossed_cells
from flowsim.boundary.distance import compare
from flowsim.boundary.marching import Boundary, march
from flowsim.boundary.window import Window
from flowsim.errors import InputError
from flowsim.flow.how import How
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.models.catalogue import model_attributes
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance


def refine_boundary(
    model: Model,
    axes: dict[str, np.ndarray],
    fixed: dict[str, float] | None = None,
    levels: int = 0,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    labels: np.ndarray | None = None,
) -> xr.Dataset:
    """The basin boundary to the resolution of a grid 2^levels finer, at a part of its cost.

    The values of the axes are nodes; cells lie between them. A cell is crossed where the labels
    of its corners are not all the same, whichever they are: saddle and unresolved count. Crossed
    cells and their neighbours are halved along every axis, ``levels`` times. At each level the
    neighbours of every crossed cell are looked at too, until no crossed one has a neighbour that
    was not; and cells that hold a plane θᵢ = 0 which the flow never crosses are halved until the
    plane lies on nodes, so that starts on it are labelled for what they are.

    What this guarantees: at every level the crossed cells found are whole connected pieces (cells
    are connected where they touch) of those of the full grid of that level. The full 2^levels
    grid can differ only by a piece that touches none of them, lying between the nodes of the
    coarser grid: an island, or a tongue thinner than a coarse cell along its whole length.

    Args:
        model: the reduced model.
        axes: increasing values of two or three varied coordinates, at least two each.
        fixed: value of every other coordinate. Starts of the rank-one model may be canonical, as
            in ``scan_basins``; they are lifted.
        levels: K, how many times crossed cells are halved.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done (their total is not known beforehand).
        labels: labels of the nodes of ``axes`` if a scan has them already, in their shape.

    Returns:
        Dataset. ``node_<c>``, ``node_label``, ``node_level``, ``node_number``: all evaluated
        nodes, with the level that first needed each and its row-major place in the finest grid,
        whose axes are ``fine_<c>``. ``cell_<c>``: lower corners of the crossed finest cells.
        ``boundary_<c>``: points of the boundary of the basin of the global minima, each between
        two corners of one finest cell of which one is in the basin, found by bisection to 1e-3 of
        the cell; ``boundary_width``, in finest cells, is the bracket that the bisection left,
        wider where a start on the way has no label; ``boundary_side`` is the label of the other
        corner. Two axes: ``boundary_curve`` numbers the curves, along which the points are
        ordered. Three: ``boundary_face`` holds triangles, normals out of the basin.

        Attributes: the settings; refine_levels; refine_evaluated of refine_full nodes, their
        ratio refine_fraction, and refine_unresolved of them without a label; refine_cells;
        refine_bisected, further starts that were followed to place the points, and
        refine_unplaced, points with a wider bracket. In the unit of finest cells (the largest
        over the axes): refine_distance, the farthest that a point is from the analytic boundary,
        and refine_missed, the farthest that the analytic boundary, looked for along lines through
        the grid, is from a point. refine_disagree counts the points between whose nodes the
        closed form does not change. Without a closed form, or without a boundary, the distances
        are NaN.

    Raises:
        InputError: axes or levels that are not as above, names that are not the model's
            coordinates, or labels of another shape.
    """
    how = How(rtol, atol, progress=progress)
    window = Window.over(model, axes, fixed or {}, levels)
    lattice = window.lattice
    shape = tuple(map(len, axes.values()))
    if labels is not None and np.shape(labels) != shape:
        raise InputError(f"labels of shape {np.shape(labels)} do not fit axes of shape {shape}")
    label = partial(window.labels, how=how)
    known = KnownLabels(lambda nodes: label(lattice.places(nodes)))
    if labels is not None and window.ends.named:  # codes of another record are numbered apart
        known.add(lattice.nodes(0), np.asarray(labels, dtype=np.int8).ravel(), 0)
    cells = crossed_cells(lattice, known, window.held())
    inside = known.labels(lattice.corners(cells, levels)) == Label.GLOBAL_MINIMUM
    boundary = march(lattice, cells, inside)
    inner, outer = lattice.places(boundary.inner), lattice.places(boundary.outer)
    crossings = find_crossings(label, inner.astype(np.float64), outer.astype(np.float64))
    points = crossings.along(inner, outer)

    record = _record(window, known, cells, boundary, crossings, points)
    settings: dict[str, object] = {
        "kind": "boundary",
        **model_attributes(model),
        **window.ends.attributes(),
        **window.fixed,
        **how.attributes(),
        **_counts(window, known, cells, crossings),
        **compare(lattice, boundary, points, window.closed_form()),
    }
    record.attrs = provenance(settings)
    return record


def refined_labels(record: xr.Dataset) -> xr.DataArray:
    """The labels of all nodes of the finest grid: evaluated ones, and uncrossed cells filled in.

    Args:
        record: from ``refine_boundary``.

    Returns:
        Labels, int8, over the axes ``fine_<c>``. It has refine_full entries.
    """
    names = [str(name) for name in record.variables if str(name).startswith("fine_")]
    shape, levels = tuple(record.sizes[n] for n in names), int(record.attrs["refine_levels"])
    nodes, level = record["node_number"].to_numpy(), record["node_level"].to_numpy()
    label = record["node_label"].to_numpy()
    dense = np.empty(shape, dtype=np.int8)
    for now in range(levels + 1):
        step = 1 << (levels - now)
        chosen = level == now
        places = np.unravel_index(nodes[chosen], shape)
        # a node fills the cell above it; where that is halved, later nodes fill it again
        for offset in np.ndindex(*(step,) * len(shape)):
            target = [p + o for p, o in zip(places, offset, strict=True)]
            fits = np.all([t < n for t, n in zip(target, shape, strict=True)], axis=0)
            dense[tuple(t[fits] for t in target)] = label[chosen][fits]
    dense.reshape(-1)[nodes] = label
    attributes = record["node_label"].attrs
    return xr.DataArray(dense, {n: record[n] for n in names}, names, "label", attributes)


def _counts(
    window: Window, known: KnownLabels, cells: np.ndarray, crossings: Crossings
) -> dict[str, int | float]:
    """The attributes refine_… that say what was followed."""
    full = prod(window.lattice.shape)
    return {
        "refine_levels": window.lattice.levels,
        "refine_evaluated": len(known.nodes),
        "refine_full": full,
        "refine_fraction": len(known.nodes) / full,
        "refine_cells": len(cells),
        "refine_unresolved": int((known.label == Label.UNRESOLVED).sum()),
        "refine_bisected": crossings.followed,
        "refine_unplaced": int((crossings.width > 2.0**-HALVINGS).sum()),
    }


def _record(
    window: Window,
    known: KnownLabels,
    cells: np.ndarray,
    boundary: Boundary,
    crossings: Crossings,
    points: np.ndarray,
) -> xr.Dataset:
    lattice, fine = window.lattice, window.fine
    coords = {**window.fixed, **{f"fine_{n}": values for n, values in fine.items()}}
    record = xr.Dataset(coords=coords)
    nodes = np.unravel_index(known.nodes, lattice.shape)  # as many as a coarse grid has
    lower, placed = lattice.places(cells), window.values(points)
    for i, (name, values) in enumerate(fine.items()):
        record[f"node_{name}"] = ("node", values[nodes[i]])
        record[f"cell_{name}"] = ("cell", values[lower[:, i]])
        record[f"boundary_{name}"] = ("vertex", placed[:, i])
    record["node_label"] = ("node", known.label, flags(window.ends.names))
    record["node_level"] = ("node", known.level)
    record["node_number"] = ("node", known.nodes)
    record["boundary_side"] = ("vertex", known.labels(boundary.outer), flags(window.ends.names))
    record["boundary_width"] = ("vertex", crossings.width)
    if boundary.curve is not None:
        record["boundary_curve"] = ("vertex", boundary.curve)
    else:
        record["boundary_face"] = (("face", "corner"), boundary.pieces.astype(np.int32))
    return record
