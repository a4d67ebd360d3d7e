"""The boundary of the basins, found by halving only the cells that it crosses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.boundary.cells import KnownLabels, crossed_cells, subdivide
from flowsim.boundary.distance import Oracle, compare
from flowsim.boundary.lattice import Lattice
from flowsim.boundary.marching import Boundary, march
from flowsim.errors import InputError
from flowsim.flow.limits import find_limits
from flowsim.landscape.basins import analytic_basin
from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel
from flowsim.models.catalogue import model_attributes
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance

MAX_LEVELS = 20


def refine_boundary(
    model: ReducedModel,
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
        fixed: value of every other coordinate.
        levels: K, how many times crossed cells are halved.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done (their total is not known beforehand).
        labels: labels of the nodes of ``axes`` if a scan has them already, in their shape.

    Returns:
        Dataset. ``node_<c>``, ``node_label``, ``node_level``, ``node_number``: all evaluated
        nodes, with the level that first needed each and its row-major place in the finest grid,
        whose axes are ``fine_<c>``. ``cell_<c>``: lower corners of the crossed finest cells.
        ``boundary_<c>``: points of the boundary of the basin of the global minima, each midway
        between two corners of one finest cell of which one is in the basin; ``boundary_side`` is
        the label of the other. Two axes: ``boundary_curve`` numbers the curves, along which the
        points are ordered. Three: ``boundary_face`` holds triangles, normals out of the basin.

        Attributes: the settings; refine_levels; refine_evaluated of refine_full nodes, their
        ratio refine_fraction, and refine_unresolved of them without a label; refine_cells. In the
        unit of finest cells (the largest over the axes): refine_distance, the farthest that a
        point is from the analytic boundary, and refine_missed, the farthest that the analytic
        boundary, looked for along lines through the grid, is from a point. refine_disagree counts
        the points between whose nodes the closed form does not change. Without a closed form,
        or without a boundary, the distances are NaN.

    Raises:
        InputError: axes or levels that are not as above, names that are not the model's
            coordinates, or labels of another shape.
    """
    fixed = fixed or {}
    _check(model, axes, fixed, levels, labels)
    lattice = Lattice(tuple(len(values) for values in axes.values()), levels)
    if float(np.prod(np.array(lattice.shape, dtype=float))) > 2.0**62:
        raise InputError(f"{levels} levels on this grid are more nodes than can be numbered")
    fine = [subdivide(np.asarray(v, dtype=np.float64), levels) for v in axes.values()]

    def theta(values: list[np.ndarray]) -> Tensor:
        given = dict(zip(axes, values, strict=True))
        columns = [given.get(c, np.full(values[0].shape, fixed.get(c))) for c in model.coordinates]
        return torch.from_numpy(np.stack([np.asarray(c, dtype=np.float64) for c in columns], -1))

    def label(nodes: np.ndarray) -> np.ndarray:
        places = lattice.places(nodes)
        start = theta([values[places[:, i]] for i, values in enumerate(fine)])
        return find_limits(model, start, rtol, atol, progress=progress).label.numpy()

    known = KnownLabels(label)
    if labels is not None:
        known.add(lattice.nodes(0), np.asarray(labels, dtype=np.int8).ravel(), 0)
    held = {
        i: int(place)
        for i, (name, values) in enumerate(zip(axes, fine, strict=True))
        if model.keeps_sign[model.coordinates.index(name)]
        for place in np.flatnonzero(values == 0)
    }
    cells = crossed_cells(lattice, known, held)
    inside = known.labels(lattice.corners(cells, levels)) == Label.GLOBAL_MINIMUM
    boundary = march(lattice, cells, inside)

    record = _record(lattice, dict(zip(axes, fine, strict=True)), fixed, known, cells, boundary)
    full = int(np.prod(np.array(lattice.shape, dtype=object)))
    settings: dict[str, object] = {
        "kind": "boundary",
        **model_attributes(model),
        **fixed,
        "rtol": "default" if rtol is None else rtol,
        "atol": atol,
        "refine_levels": levels,
        "refine_evaluated": len(known.nodes),
        "refine_full": full,
        "refine_fraction": len(known.nodes) / full,
        "refine_cells": len(cells),
        "refine_unresolved": int((known.label == Label.UNRESOLVED).sum()),
        **compare(lattice, boundary, _in_places(analytic_basin(model), fine, theta)),
    }
    record.attrs = provenance(settings)
    return record


def add_boundary(
    record: xr.Dataset,
    model: ReducedModel,
    levels: int,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """A scan's record with the refined boundary in it; the scan's own starts are the nodes.

    Args:
        record: of a scan of ``model`` over a grid in two or three of its coordinates; of what is
            read from a file only when it is used, that is labels and coordinates.
        model, levels, rtol, atol, progress: as in ``refine_boundary``.

    Returns:
        The record with the variables of ``refine_boundary`` and its attributes refine_….

    Raises:
        InputError: the record is no such grid or has its boundary already, or what
            ``refine_boundary`` raises.
    """
    if "refine_levels" in record.attrs:
        times = record.attrs["refine_levels"]
        raise InputError(f"the record has its boundary already, refined {times} times")
    dims = [str(name) for name in record["label"].dims]
    if not set(dims) <= set(model.coordinates):
        wanted = ", ".join(model.coordinates)
        raise InputError(f"a boundary needs a scan over a grid in {wanted}, not {', '.join(dims)}")
    axes = {name: record[name].to_numpy() for name in dims}
    fixed = {c: float(record[c]) for c in model.coordinates if c not in dims and c in record}
    label = record["label"].to_numpy()
    found = refine_boundary(model, axes, fixed, levels, rtol, atol, progress, label)
    attributes = {k: v for k, v in found.attrs.items() if k.startswith("refine_")}
    return record.merge(
        found, compat="equals", join="exact", combine_attrs="override"
    ).assign_attrs(attributes)


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


def _check(
    model: ReducedModel,
    axes: dict[str, np.ndarray],
    fixed: dict[str, float],
    levels: int,
    labels: np.ndarray | None,
) -> None:
    if sorted([*axes, *fixed]) != sorted(model.coordinates):
        wanted = ", ".join(model.coordinates)
        raise InputError(f"axes and fixed values must together be {wanted}")
    if len(axes) not in (2, 3):
        raise InputError(f"a boundary is refined along two or three axes, not {len(axes)}")
    for name, values in axes.items():
        values = np.asarray(values, dtype=np.float64)
        rising = values.ndim == 1 and len(values) > 1 and bool((np.diff(values) > 0).all())
        if not (rising and np.isfinite(values).all()):
            raise InputError(f"the axis {name} needs at least two finite, increasing values")
    if not 0 <= levels <= MAX_LEVELS:
        raise InputError(f"levels must be an integer from 0 to {MAX_LEVELS}, not {levels}")
    shape = tuple(len(values) for values in axes.values())
    if labels is not None and np.shape(labels) != shape:
        raise InputError(f"labels of shape {np.shape(labels)} do not fit axes of shape {shape}")


def _record(
    lattice: Lattice,
    fine: dict[str, np.ndarray],
    fixed: dict[str, float],
    known: KnownLabels,
    cells: np.ndarray,
    boundary: Boundary,
) -> xr.Dataset:
    record = xr.Dataset(coords={**fixed, **{f"fine_{n}": values for n, values in fine.items()}})
    nodes = np.unravel_index(known.nodes, lattice.shape)  # as many as a coarse grid has
    lower = lattice.places(cells)
    ends = lattice.places(boundary.inner), lattice.places(boundary.outer)
    for i, (name, values) in enumerate(fine.items()):
        record[f"node_{name}"] = ("node", values[nodes[i]])
        record[f"cell_{name}"] = ("cell", values[lower[:, i]])
        middle = (values[ends[0][:, i]] + values[ends[1][:, i]]) / 2
        record[f"boundary_{name}"] = ("vertex", middle)
    record["node_label"] = ("node", known.label, flags(Label))
    record["node_level"] = ("node", known.level)
    record["node_number"] = ("node", known.nodes)
    record["boundary_side"] = ("vertex", known.labels(boundary.outer), flags(Label))
    if boundary.curve is not None:
        record["boundary_curve"] = ("vertex", boundary.curve)
    else:
        record["boundary_face"] = (("face", "corner"), boundary.pieces.astype(np.int32))
    return record


def _in_places(
    basin: Callable[[Tensor], Tensor] | None,
    fine: list[np.ndarray],
    theta: Callable[[list[np.ndarray]], Tensor],
) -> Oracle | None:
    """The closed form as a function of places in the finest grid, whole or between nodes."""
    if basin is None:
        return None

    def inside(places: np.ndarray) -> np.ndarray:
        values = [np.interp(places[..., i], np.arange(len(v)), v) for i, v in enumerate(fine)]
        return basin(theta(values)).numpy()

    return inside
