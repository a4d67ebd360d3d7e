"""The boundary of the basins, found by halving only the cells that it crosses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.boundary.geometry import HALVINGS, Boundary, Crossings, Lattice, find_crossings, march
from flowsim.errors import InputError
from flowsim.flow.options import SolverOptions
from flowsim.flow.orbits import limits_by
from flowsim.interface import Model, closed_basin
from flowsim.labels import Label
from flowsim.landscape.ends import Ends
from flowsim.records.attributes import described, provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.records.netcdf import flags
from flowsim.running import quickly
from flowsim.scan.follow import starting_coordinates, to_model


@quickly
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

    Only cells that the boundary crosses, and their neighbours, are halved again and again. The
    result can miss only an island, or a tongue thinner than a coarse cell along its whole length.

    Args:
        model: the reduced model.
        axes: increasing values of two or three varied coordinates, at least two each.
        fixed: value of every other coordinate. Starts of the rank-one model may be canonical, as
            in ``scan_basins``; they are lifted.
        levels: K, how many times crossed cells are halved.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done (their total is not known beforehand);
            True shows a bar on stderr.
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
        refine_unplaced, points with a wider bracket; and refine_disagree, points between whose
        nodes the closed form of the basin does not change, 0 without one.

    Raises:
        InputError: axes or levels that are not as above, names that are not the model's
            coordinates, or labels of another shape.

    The values of the axes are nodes; cells lie between them. A cell is crossed where the
    labels of its corners are not all the same, whichever they are: saddle and unresolved count.
    Crossed cells and their neighbours are halved along every axis, ``levels`` times. At each level
    the neighbours of every crossed cell are looked at too, until no crossed one has a neighbour
    that was not; and cells that hold a plane θᵢ = 0 which the flow never crosses are halved until
    the plane lies on nodes, so that starts on it are labelled for what they are.

    Guarantee: at every level the crossed cells found are whole connected pieces (cells
    are connected where they touch) of those of the full grid of that level. The full 2^levels
    grid can differ only by a piece that touches none of them, lying between the nodes of the
    coarser grid: an island, or a tongue thinner than a coarse cell along its whole length.

    >>> import flowsim, numpy as np
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), np.linspace(-2, 2, 9)
    >>> record = flowsim.refine_boundary(model, {"e": axis, "w": axis}, levels=3)
    >>> record.attrs["refine_full"], record.attrs["refine_disagree"]
    (4225, 0)
    """
    options = SolverOptions(rtol, atol, progress=progress)
    window = Window.over(model, axes, fixed or {}, levels)
    lattice = window.lattice
    shape = tuple(map(len, axes.values()))
    if labels is not None and np.shape(labels) != shape:
        raise InputError(f"labels of shape {np.shape(labels)} do not fit axes of shape {shape}")
    label = partial(window.labels, options=options)
    none = label(np.empty((0, len(axes))))  # of the type that labels have
    known = KnownLabels(lambda nodes: label(lattice.places(nodes)), label=none)
    if labels is not None and window.ends.named:  # codes of another record are numbered apart
        known.add(lattice.nodes(0), np.asarray(labels).ravel(), 0)
    cells = crossed_cells(lattice, known, window.on_nodes())
    inside = known.labels(lattice.corners(cells, levels)) == Label.GLOBAL_MINIMUM
    boundary = march(lattice, cells, inside)
    inner, outer = lattice.places(boundary.inner), lattice.places(boundary.outer)
    crossings = find_crossings(label, inner.astype(np.float64), outer.astype(np.float64))
    points = crossings.along(inner, outer)

    record = _record(window, known, cells, boundary, crossings, points)
    full = prod(lattice.shape)
    settings: dict[str, object] = {
        "kind": "boundary",
        **model_attributes(model),
        **window.ends.attributes(),
        **window.fixed,
        **options.attributes(),
        "refine_levels": levels,
        "refine_evaluated": len(known.nodes),
        "refine_full": full,
        "refine_fraction": len(known.nodes) / full,
        "refine_cells": len(cells),
        "refine_unresolved": int((known.label == Label.UNRESOLVED).sum()),
        "refine_bisected": crossings.followed,
        "refine_unplaced": int((crossings.width > 2.0**-HALVINGS).sum()),
        "refine_disagree": window.disagree(inner, outer),
    }
    record.attrs = provenance(settings)
    return described(record, model.long_names)


def refined_labels(record: xr.Dataset) -> xr.DataArray:
    """The labels of all nodes of the finest grid: evaluated ones, and uncrossed cells filled in.

    Args:
        record: from ``refine_boundary``.

    Returns:
        Labels over the axes ``fine_<c>``. It has refine_full entries.

    >>> import flowsim, numpy as np
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), np.linspace(-2, 2, 9)
    >>> record = flowsim.refine_boundary(model, {"e": axis, "w": axis}, levels=2)
    >>> flowsim.boundary.refined_labels(record).shape
    (33, 33)
    """
    names = [str(name) for name in record.variables if str(name).startswith("fine_")]
    shape, levels = tuple(record.sizes[n] for n in names), int(record.attrs["refine_levels"])
    nodes, level = record["node_number"].to_numpy(), record["node_level"].to_numpy()
    label = record["node_label"].to_numpy()
    dense = np.empty(shape, dtype=label.dtype)
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


def _record(
    window: Window, known: KnownLabels, cells: np.ndarray, boundary: Boundary,
    crossings: Crossings, points: np.ndarray,
) -> xr.Dataset:  # fmt: skip
    """The nodes, crossed cells and vertices of a boundary as the variables of a record."""
    lattice, fine = window.lattice, window.fine
    coords = {**window.fixed, **{f"fine_{n}": values for n, values in fine.items()}}
    record = xr.Dataset(coords=coords)
    nodes = np.unravel_index(known.nodes, lattice.shape)  # as many as a coarse grid has
    lower, placed = lattice.places(cells), window.values(points)
    for i, (name, values) in enumerate(fine.items()):
        record[f"node_{name}"] = ("node", values[nodes[i]])
        record[f"cell_{name}"] = ("cell", values[lower[:, i]])
        record[f"boundary_{name}"] = ("vertex", placed[:, i])
    record["node_label"] = ("node", known.label, flags(window.ends.names, known.label.dtype))
    record["node_level"] = ("node", known.level)
    record["node_number"] = ("node", known.nodes)
    side = known.labels(boundary.outer)
    record["boundary_side"] = ("vertex", side, flags(window.ends.names, side.dtype))
    record["boundary_width"] = ("vertex", crossings.width)
    if boundary.curve is not None:
        record["boundary_curve"] = ("vertex", boundary.curve)
    if boundary.pieces is not None:
        record["boundary_face"] = (("face", "corner"), boundary.pieces.astype(np.int32))
    return record


#: Cells whose corners are held at once.
_BLOCK = 2**18


@dataclass
class KnownLabels:
    """Labels of the nodes evaluated so far.

    Attributes:
        evaluate: gives the labels of nodes by their numbers.
        nodes: numbers of the nodes evaluated, sorted, (m,).
        label, level: the label of each, and the level of the grid that asked for it first, (m,).
    """

    evaluate: Callable[[np.ndarray], np.ndarray]
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    label: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    level: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int8))

    def add(self, nodes: np.ndarray, label: np.ndarray, level: int) -> None:
        """Put in new nodes (m,), sorted, their labels (m,), and the level that asked for them."""
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


def crossed_cells(lattice: Lattice, known: KnownLabels, on_nodes: dict[int, int]) -> np.ndarray:
    """Find the finest cells whose corners have different labels, level by level; sorted.

    ``known`` evaluates the nodes and keeps their labels. ``on_nodes`` has, by axis, the place of a
    plane that is to lie on nodes: cells that hold it are halved too.
    """
    cells, crossed = lattice.cells(0), np.empty(0, dtype=np.int64)
    for level in range(lattice.halvings + 1):
        found, new, looked_at = [cells[:0]], cells, cells
        while len(new):
            found.append(_crossed(lattice, known, new, level))
            new = _missing(lattice.neighbours(found[-1], level), looked_at)
            if len(new):
                looked_at = np.sort(np.concatenate([looked_at, new]))
        crossed = np.concatenate(found)
        marked = [lattice.neighbours(crossed, level)]
        for axis, place in on_nodes.items():
            if place % lattice.step(level):
                marked.append(lattice.cells(level, axis, place))
        if level < lattice.halvings:
            cells = lattice.children(np.unique(np.concatenate(marked)), level + 1)
    return np.sort(crossed)


def expected_starts(crossed: int, dimensions: int, halvings: int) -> int:
    """About how many starts beside the coarsest grid's nodes a refined boundary follows in all.

    The boundary crosses 2^(k−1) times as many cells of k dimensions at every level; found were four
    to eight new nodes for each of them, and in the plane three edges to be halved for each of the
    finest. What is returned is eight, and the halvings of four edges, or eight in space.
    """
    nodes = sum(8 * crossed << level * (dimensions - 1) for level in range(1, halvings + 1))
    edges = (4 if dimensions == 2 else 8) * crossed << halvings * (dimensions - 1)
    return nodes + HALVINGS * edges


def count_crossed(labels: np.ndarray) -> int:
    """Number of cells between labelled nodes with corners of different labels."""
    low = high = labels
    for axis in range(labels.ndim):
        here, there = (np.delete(np.arange(labels.shape[axis]), end) for end in (-1, 0))
        low = np.minimum(low.take(here, axis), low.take(there, axis))
        high = np.maximum(high.take(here, axis), high.take(there, axis))
    return int((low != high).sum())


def _crossed(lattice: Lattice, known: KnownLabels, cells: np.ndarray, level: int) -> np.ndarray:
    """Cells whose corners have different labels, looked for block by block."""
    found = [cells[:0]]
    for low in range(0, len(cells), _BLOCK):
        block = cells[low : low + _BLOCK]
        corners = known.labels(lattice.corners(block, level), level)
        found.append(block[(corners != corners[:, :1]).any(axis=1)])
    return np.concatenate(found)


def _missing(wanted: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Elements of ``wanted`` that the sorted array ``there`` lacks."""
    at = np.searchsorted(there, wanted)
    inside = at < len(there)
    inside[inside] = there[at[inside]] == wanted[inside]
    return wanted[~inside]


MAX_LEVELS = 20
#: Starts followed at once, which bounds the memory that their orbits need.
_AT_ONCE = 2**16


@dataclass(frozen=True)
class Window:
    """Starts of a model over a lattice, and what they are labelled.

    Attributes:
        model: the reduced model.
        lattice: of the nodes; places in it are whole at nodes and anything between them.
        fine: values of each varied coordinate at the nodes of the finest grid.
        fixed: value of every other coordinate.
        ends: of the model.
    """

    model: Model
    lattice: Lattice
    fine: dict[str, np.ndarray]
    fixed: dict[str, float]
    ends: Ends

    @classmethod
    def over(
        cls, model: Model, axes: dict[str, np.ndarray], fixed: dict[str, float], halvings: int
    ) -> Window:
        """The window with the nodes ``axes`` and cells halved ``halvings`` times; or InputError."""
        starting_coordinates(model, [*axes, *fixed])
        if len(axes) not in (2, 3):
            raise InputError(f"a boundary is refined along two or three axes, not {len(axes)}")
        values = {name: np.asarray(v, dtype=np.float64) for name, v in axes.items()}
        for name, v in values.items():
            rising = v.ndim == 1 and len(v) > 1 and bool((np.diff(v) > 0).all())
            if not (rising and np.isfinite(v).all()):
                raise InputError(f"the axis {name} needs at least two finite, increasing values")
        if not 0 <= halvings <= MAX_LEVELS:
            raise InputError(f"levels must be an integer from 0 to {MAX_LEVELS}, not {halvings}")
        lattice = Lattice(tuple(len(v) for v in values.values()), halvings)
        if float(np.prod(np.array(lattice.shape, dtype=float))) > 2.0**62:
            raise InputError(f"{halvings} levels on this grid are more nodes than can be numbered")
        fine = {n: subdivide(v, halvings) for n, v in values.items()}
        return cls(model, lattice, fine, fixed, Ends(model))

    def values(self, places: np.ndarray) -> np.ndarray:
        """The varied coordinates at places, shape (..., axes)."""
        columns = [
            np.interp(places[..., i], np.arange(len(v)), v)
            for i, v in enumerate(self.fine.values())
        ]
        return np.stack(columns, axis=-1)

    def theta(self, places: np.ndarray) -> Tensor:
        """Starts at places, in the model's coordinates, shape (..., k)."""
        varied = self.values(places).reshape(-1, len(self.fine))
        on_nodes = np.broadcast_to(list(self.fixed.values()), (len(varied), len(self.fixed)))
        rows = torch.from_numpy(np.concatenate([varied, on_nodes], axis=1))
        theta = to_model(self.model, [*self.fine, *self.fixed], rows)
        return theta.reshape(*places.shape[:-1], theta.shape[-1])

    def labels(self, places: np.ndarray, options: SolverOptions) -> np.ndarray:
        """Follow the starts at places (n, axes) and label their ends, (n,).

        By the labels of ``find_limits``, int8, or by the codes of ends that were found, int32.
        """
        label = np.empty(len(places), dtype=np.int8 if self.ends.named else np.int32)
        for low in range(0, len(places), _AT_ONCE):
            start = self.theta(places[low : low + _AT_ONCE])
            found = limits_by(self.model, start, options)
            codes = self.ends.identify(found)
            label[low : low + _AT_ONCE] = codes.numpy()
        return label

    def on_nodes(self) -> dict[int, int]:
        """The planes θᵢ = 0 that the flow never crosses and on which nodes lie: axis ↦ place.

        Starts given by other names than the plane's coordinates are not known beforehand.
        """
        order = starting_coordinates(self.model, [*self.fine, *self.fixed])
        if order == self.model.coordinates:
            never = {n for n, keeps in zip(order, self.model.keeps_sign, strict=True) if keeps}
        else:
            never = set(self.model.plane.defaults.never_crossed)
        return {
            i: int(place)
            for i, (name, values) in enumerate(self.fine.items())
            if name in never
            for place in np.flatnonzero(values == 0)
        }

    def disagree(self, inner: np.ndarray, outer: np.ndarray) -> int:
        """Count pairs of places that contradict the basin's closed form; 0 without such a form.

        It should have the places ``inner`` (n, axes) inside and ``outer`` outside.
        """
        inside, beyond = (closed_basin(self.model, self.theta(places)) for places in (inner, outer))
        if inside is None or beyond is None:
            return 0
        return int((~inside | beyond).sum())


def subdivide(values: np.ndarray, halvings: int) -> np.ndarray:
    """Insert 2^halvings − 1 values between neighbours; rounding errors beside 0 become 0."""
    place = np.arange(((len(values) - 1) << halvings) + 1) / (1 << halvings)
    fine = np.interp(place, np.arange(len(values)), values)
    fine[np.abs(fine) < 1e-9 * np.diff(fine).min()] = 0.0
    fine[:: 1 << halvings] = values  # the given ones stay what they are
    return fine
