"""Everything a portrait in a model's plane shows, of the flow or of an optimizer, in one record."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.boundary.geometry import Boundary, Lattice, find_crossings, march
from flowsim.boundary.in_record import with_edge_distance
from flowsim.curves import CRITICAL, Curve, curves_of, with_curves
from flowsim.errors import InputError
from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.options import Limits, SolverOptions, Stage
from flowsim.flow.orbits import drawn_orbits, limits_by
from flowsim.flow.reference import confirm as confirm_labels
from flowsim.flow.reference import sample_size
from flowsim.flow.solver import solver_of
from flowsim.interface import (
    Model,
    Plane,
    Range,
    check_fixed,
    closed_basin,
    conserved_names,
    conserved_values,
    theta_at,
    theta_on_grid,
    with_axes,
)
from flowsim.labels import Label
from flowsim.landscape.critical import STARTS, critical_points_in
from flowsim.landscape.ends import Ends
from flowsim.portraits.phase_curves import further_curves, plane_velocity
from flowsim.records.attributes import described, fixed_attributes, meanings, provenance
from flowsim.records.ends import with_ends
from flowsim.records.model_attributes import model_attributes
from flowsim.records.netcdf import flags
from flowsim.running import quickly
from flowsim.scan.follow import as_dataset, follow, resolve_optimizer
from flowsim.scan.starts import Points, cell_centres
from flowsim.spec import model_from_attributes
from flowsim.training.optimizer_choice import OptimizerChoice

#: Orbits have one period where theirs differ by this part at most.
_ONE_PERIOD = 1e-3
#: Kinds of critical points, by whether the flow leaves them in no direction, in some, or in all; of
#: a flow that is no gradient flow, attracting and repelling points are minima and maxima.
_KINDS = ("minimum", "saddle", "maximum", "centre")
CURVE_POINTS = 1201
ARROWS = 23
#: Times that a cell's edge is halved at most to find where the boundary crosses it. Where the flow
#: is followed in torch: into how many parts a side of the window, as a figure shows no finer; and a
#: cell, over the cells along a side, as straight ways between the points are no closer; and the
#: error per step, which moves them less.
HALVINGS, _FINEST, _CHORDS, _ROUGH = 8, 2048, 8, 1e-4


@quickly
def portrait(
    model: Model,
    window: Mapping[str, Range] | None = None,
    resolution: int | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    fixed: dict[str, float] | None = None,
    progress: Callable[[int], object] | None = None,
    integrator: str = "flowsim",
    confirm: int | None = None,
    next_stage: Stage | None = None,
    optimizer: OptimizerChoice | None = None,
    device: str = "cpu",
    starts: Points | None = None,
    boundary: bool = True,
    max_steps: int | None = None,
    edge: bool = False,
    certify: bool = False,
    curves: Sequence[str] = (),
) -> xr.Dataset:
    """Find basins on a grid of cells, with the curves, arrows and orbits of a phase portrait.

    Labels come from the integrated flow of every cell's centre, in all the model's coordinates.
    A closed form of the basins only counts agreement: ``oracle_agree`` of
    ``oracle_cells`` cells agree, leaving aside the ``oracle_cut`` cells that a boundary crosses
    and the cells centred on e = 0. Without one the boundary is found numerically.

    Args:
        model: any reduced model. Starts of the rank-one model are lifted from the plane.
        window: ranges of the plane's axes by name, by default its own. Of a model without a plane
            of its own, the names choose the axes, the horizontal one first; ``fixed`` holds the
            other coordinates.
        resolution: cells along each axis, by default as the model's plane has it.
        rtol, atol: error allowed per step, for labels and orbits; by default as ``find_limits``.
        max_steps: attempted steps of each start, as in ``find_limits``.
        fixed: values of the coordinates beside the plane: a or v (by default 0), the unembedding u
            (by default e), a bias b that is a coordinate (by default at its optimum).
        progress: called with the number of cells done, or of steps taken by an optimizer;
            True shows a bar on stderr.
        integrator: "torchdiffeq" decides every cell by its odeint alone.
        confirm: cells of a random sample that torchdiffeq decides again; by default 256 where
            orbits are fast, 16 elsewhere, and none with torchdiffeq itself.
        next_stage: called before the boundary, the orbits, the sample and the flow beside an
            optimizer with what follows and how many; returns what to call with the number done.
        optimizer: trains the starts by its steps instead. With the rank-one model its ``nudge``
            should not be 0, see ``OptimizerChoice``.
        device: as in ``scan_basins``, for the cells and their boundary.
        starts: of the orbits, in the plane's two coordinates; by default usual ones.
        boundary: whether the boundary of the basins is sought, where they have no closed form.
        edge: also find how far every cell is from another end, ``edge_distance``.
        certify: also prove ends by interval bounds, ``certified``; see ``with_certificates``.
        curves: further ones: "nullclines", on which one component of the flow changes its sign, and
            "manifolds", the stable manifolds of saddles of a model of two coordinates.

    Returns:
        Dataset over (e, w), or the axes of the model's plane, as ``scan_basins`` gives, plus the
        table of the curves that are known (``flowsim.curves``), unit arrows, orbits (time, orbit),
        the conserved quantities where there are two coordinates, and for the rank-one model without
        attention ``differs``, 1 where the canonical model's start ends elsewhere. Attributes hold
        every setting and count; ``share_differs`` is the share of ``differs``. With an optimizer,
        beside what ``scan_basins`` gives: ``flow_label``, the boundary of the flow's basin, the
        global minima, and counts of cells.

    Raises:
        InputError: ``fixed`` names what the plane does not hold, ``window`` what are not its axes,
            ``starts`` other coordinates or beside an optimizer, or what ``scan_basins`` refuses.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.portrait(model, resolution=8, rtol=1e-5, confirm=0)
    >>> record.attrs["oracle_agree"], record.attrs["oracle_wrong"], record.attrs["oracle_cut"]
    (50, 0, 14)
    """
    options = SolverOptions(
        rtol, atol, max_steps, integrator, optimizer, confirm, progress, next_stage, device
    )
    options = resolve_optimizer(model, options)
    for what, asked in (
        ("starts are of orbits", starts is not None),
        ("edge distances are", edge),
        ("certificates are", certify),
    ):
        if asked and optimizer is not None:
            raise InputError(f"{what} of the flow; omit them with an optimizer")
    given = given_ranges(window)
    model = with_axes(model, *given)
    plane = model.plane
    fixed = check_fixed(plane, fixed)
    bounds = {name: given.get(name, plane.window[name]) for name in (plane.x, plane.y)}
    if starts is None:
        low, high = torch.tensor([bounds[plane.x], bounds[plane.y]], dtype=torch.float64).T
        places = low + torch.tensor(plane.defaults.orbits, dtype=torch.float64) * (high - low)
    elif sorted(starts.names) != sorted((plane.x, plane.y)):
        raise InputError(
            f"the orbits' starts must have the coordinates {plane.y}, {plane.x}; they have "
            f"{', '.join(starts.names)}"
        )
    else:
        order = [starts.names.index(plane.x), starts.names.index(plane.y)]
        places = torch.from_numpy(starts.block(0, *starts.shape))[:, order]
    further = further_curves(plane, bounds, fixed, curves)
    resolution = solver_of(model).defaults.resolution if resolution is None else resolution
    if not isinstance(resolution, Integral) or resolution < 1:
        raise InputError(f"resolution must be a whole number of at least 1, not {resolution!r}")
    y, x = (cell_centres(*bounds[name], resolution) for name in (plane.y, plane.x))
    theta = theta_on_grid(plane, x, y, fixed)
    rows = theta.flatten(0, -2)
    ends = Ends(model)

    def by_flow(theta: Tensor, options: SolverOptions) -> np.ndarray:
        """The codes (n,) of the ends to which the flow brings θ (n, k)."""
        return ends.identify(limits_by(model, theta, options)).numpy()

    def label(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The codes (n,) of the ends of starts y (n,) and x (n,), to place the boundary."""
        theta = theta_at(plane, torch.from_numpy(x), torch.from_numpy(y), fixed)
        quiet = replace(options, progress=None) if optimizer is None else SolverOptions()
        rough = _ROUGH if solver_of(model).batched else None
        return by_flow(theta, replace(quiet, rtol=quiet.rtol or rough, once=True))

    landscape = None
    if certify:
        from flowsim.certificates.cells import check_certifiable, with_certificates
        from flowsim.certificates.wells import landscape_in

        check_certifiable(model)
        if {*model.coordinates} == {*bounds} and model.end_losses() is None:
            landscape = landscape_in(model, bounds)
            stopping = RosenbrockSolver(
                model, solver_of(model).defaults, minima_below=landscape.minima_below
            )
            options = replace(options, solver=stopping)
    points = follow(model, rows, options)
    flow = None
    if optimizer is not None:
        counted = SolverOptions(progress=options.counted("cells by the flow", len(rows)))
        flow = by_flow(rows, counted).reshape(theta.shape[:-1])
    record = as_dataset(points, {plane.y: y, plane.x: x}, ends).assign_attrs(ends.attributes())
    if edge:
        record = with_edge_distance(
            record, model, bounds, fixed,
            lambda points: theta_at(plane, points[:, 1], points[:, 0], fixed), ends,
        )  # fmt: skip
    if certify:
        record = with_certificates(record, model, theta, bounds, landscape)
    record = with_ends(record)
    found: dict[str, object] = {}
    if flow is None:
        record = with_landscape(record, plane, bounds, fixed)
        counts = _compare(plane, record, fixed)
        if boundary and not counts["oracle_cells"] and resolution > 1:
            record = with_boundary(record, model, label, counted=options.counted)
        found |= _add_orbits(record, plane, places, fixed, options) | counts
        if len(model.coordinates) == 2:  # what is conserved is a function of the plane
            for name, value in model.conserved(theta).items():
                record[name] = ((plane.y, plane.x), value.numpy())
        found |= _differences(plane, record)
        labels = record["label"].to_numpy()
        usual = 0 if integrator == "torchdiffeq" else sample_size(model)
        count = usual if options.confirm is None else options.confirm
        if count:
            count = min(count, int((labels != Label.UNRESOLVED).sum()))
            done = options.counted("cells checked by torchdiffeq", count)
            found |= confirm_labels(model, theta, labels, count, progress=done, ends=ends)
    else:
        record["flow_label"] = ((plane.y, plane.x), flow, flags(ends.names, flow.dtype))
        if boundary:
            record = with_boundary(record, model, label, of="flow_label", counted=options.counted)
        beside = {name: value for name, value in fixed.items() if name != "b"}
        known = plane.curves(bounds, beside)
        record = in_plane(record, plane, [c for c in known if c.kind == "global minima"])
    if further:
        record = in_plane(record, plane, [*further, *curves_of(record, plane.x, plane.y)])
    settings: dict[str, object] = {
        "kind": "portrait",
        **model_attributes(model),
        **fixed_attributes(fixed),
        **{f"{name}_range": side for name, side in bounds.items()},
        "resolution": resolution,
        **options.attributes(),
        **_with_periods(ends.attributes(), record),
        **found,
        **_counts(record["label"], "cells"),
    }
    return described(record.assign_attrs(provenance(settings)), model.long_names)


def _with_periods(attributes: dict[str, object], record: xr.Dataset) -> dict[str, object]:
    """Add the periods of closed orbits to the words for them in attributes of ends."""
    names = json.loads(str(attributes.get("end_names", "{}")))
    if "periodic" not in names or record.get("period", record["label"]).dtype.kind != "f":
        return attributes
    low, high = float(record["period"].min()), float(record["period"].max())
    alike = high <= low * (1 + _ONE_PERIOD)
    names["periodic"] += f", period {low:.4g}" if alike else f", periods {low:.3g} to {high:.3g}"
    return {**attributes, "end_names": json.dumps(names, ensure_ascii=False)}


def _counts(label: xr.DataArray, prefix: str) -> dict[str, int]:
    """Count the starts of each label, by ``prefix`` and the label's name."""
    codes = label.to_numpy()
    return {f"{prefix}_{name}": int((codes == i).sum()) for i, name in enumerate(meanings(label))}


def portrait_of_scan(scan: xr.Dataset) -> xr.Dataset:
    """Make a portrait's record of a scan over a grid in the plane's axes; nothing is integrated."""
    plane = model_from_attributes(scan.attrs).plane
    if {str(name) for name in scan["label"].dims} != {plane.x, plane.y}:
        raise InputError(f"curves are known of scans over {plane.y} and {plane.x} alone")
    fixed_values = {str(name): float(v) for name, v in scan.coords.items() if not v.dims}
    record = scan.transpose(plane.y, plane.x, ...)
    edges = {name: _corners(scan[name].to_numpy())[[0, -1]] for name in (plane.x, plane.y)}
    window = {name: (float(low), float(high)) for name, (low, high) in edges.items()}
    record = with_landscape(record, plane, window, fixed_values)
    counts = {
        f"cells_{name}": scan.attrs[f"points_{name}"] for name in map(str, scan["basin"].to_numpy())
    }
    return record.assign_attrs(
        counts, **fixed_attributes(fixed_values), **_differences(plane, record)
    )


def with_landscape(
    record: xr.Dataset,
    plane: Plane,
    window: Mapping[str, Range],
    fixed_values: Mapping[str, float],
    points: int = CURVE_POINTS,
    arrows: int = ARROWS,
    quick: bool = False,
) -> xr.Dataset:
    """Add to a record the window's curves, critical points unless ``quick``, and the flow's arrows.

    ``points`` is about how many places a curve has, ``arrows`` how many there are along an axis.
    """
    curves = plane.curves(window, fixed_values, points, quick)
    unknown = CRITICAL.isdisjoint(curve.kind for curve in curves) and not quick
    if unknown and {*plane.model.coordinates} <= {*window, *fixed_values}:
        # no more than cells: on networks of many weights the search would outlast the labels
        starts = min(
            [STARTS, *(record.sizes[name] for name in (plane.x, plane.y) if name in record)]
        )
        names = plane.model.coordinates
        box = {**{name: (value, value) for name, value in fixed_values.items()}, **window}
        low, high = torch.tensor([box[name] for name in names], dtype=torch.float64).T
        found, unstable = critical_points_in(plane.model, low, high, starts)
        kinds = (unstable > 0).long() + (unstable == len(names)) + 3 * (unstable < 0)
        place = found[:, [names.index(plane.x), names.index(plane.y)]].numpy()
        curves += [Curve(_KINDS[kind], *place[[i]].T) for i, kind in enumerate(kinds.tolist())]
    record = in_plane(record, plane, curves)
    bounds = {name: cell_centres(*window[name], arrows) for name in (plane.y, plane.x)}
    unit = _directions(
        plane, theta_on_grid(plane, bounds[plane.x], bounds[plane.y], fixed_values)
    ).numpy()
    dims = (f"arrow_{plane.y}", f"arrow_{plane.x}")
    record = record.assign_coords({f"arrow_{name}": values for name, values in bounds.items()})
    record[f"direction_{plane.y}"] = (dims, unit[..., 0])
    record[f"direction_{plane.x}"] = (dims, unit[..., 1])
    return record


def in_plane(record: xr.Dataset, plane: Plane, curves: Sequence[Curve]) -> xr.Dataset:
    """Add a table of curves in the plane to a record."""
    columns = {plane.x: [curve.x for curve in curves], plane.y: [curve.y for curve in curves]}
    return with_curves(record, curves, **columns)


def _directions(plane: Plane, theta: Tensor) -> Tensor:
    """The flow's direction along (y, x), unit vectors of shape (..., 2); 0 where it rests."""
    along = plane_velocity(plane, theta)
    along = along.nan_to_num(nan=0.0)  # a root's slope at 0, where nothing moves
    size = along.abs().amax(dim=-1, keepdim=True)
    square_fits = (size > 1e-150) & (size < 1e150)
    along = torch.where(square_fits, along, along / size)
    return torch.nan_to_num(along / along.norm(dim=-1, keepdim=True))


def with_boundary(
    record: xr.Dataset,
    model: Model,
    label: Callable[[np.ndarray, np.ndarray], np.ndarray],
    halvings: int | None = None,
    of: str = "label",
    counted: Callable[[str, int], Callable[[int], object] | None] | None = None,
) -> xr.Dataset:
    """Add to a record the boundary of the global minima's basin, or of all basins that were found.

    Marching triangles separate the centres of cells; each of their points is found by bisection on
    the edge between two centres, for which ``label`` gives the codes (n,) of starts y and x, (n,).
    By default an edge is halved 8 times, or as a figure shows where starts are not compiled.

    The record's codes are its variable ``of``. New, over ``vertex``, are places along both axes,
    ``boundary_curve``, the number of the curve, and ``boundary_side``, the code on its other side.
    """
    codes, several = record[of].to_numpy(), "ends" in record.attrs
    batched = solver_of(model).batched
    if halvings is None:
        parts = min(_FINEST / len(codes), _CHORDS * len(codes))
        halvings = min(max(math.ceil(math.log2(parts)), 2), HALVINGS) if batched else HALVINGS
    names = [str(name) for name in record[of].dims]
    axes = [record[name].to_numpy() for name in names]
    lattice = Lattice(codes.shape, 0)
    cells = lattice.cells(0)
    marched: list[Boundary] = []
    ends = map(int, np.unique(codes[codes > 0])[:-1] if several else [Label.GLOBAL_MINIMUM])
    around = codes.ravel()[lattice.corners(cells, 0)]
    mixed = (around != around[:, :1]).any(axis=1)
    cells, around = cells[mixed], around[mixed]
    first = 0
    for end in ends:
        inside = around == end
        crossed = inside.any(axis=1) & ~inside.all(axis=1)
        found = march(lattice, cells[crossed], inside[crossed])
        assert found.curve is not None
        marched.append(replace(found, curve=found.curve + first))
        first += found.curve.max(initial=-1) + 1
    if not marched:
        return record
    nodes = np.concatenate([np.stack([found.inner, found.outer]) for found in marched], axis=1)
    inner, outer = (
        np.stack([v[lattice.places(row)[:, i]] for i, v in enumerate(axes)], axis=-1)
        for row in nodes
    )
    progress = None
    if counted is not None and len(inner):
        progress = counted("halvings to place the boundary", halvings * len(inner))
    # together: the engine for any loss takes about as long for some hundred starts as for a few
    crossings = find_crossings(
        lambda x: label(x[:, 0], x[:, 1]), inner, outer, halvings, 3 if batched else 1,
        codes.ravel()[nodes[0]], progress,
    )  # fmt: skip
    for name, column in zip(names, crossings.along(inner, outer).T, strict=True):
        record[f"boundary_{name}"] = ("vertex", column)
    record["boundary_curve"] = ("vertex", np.concatenate([x.curve for x in marched]))
    record["boundary_side"] = ("vertex", codes.ravel()[nodes[1]], record[of].attrs)
    return record


def given_ranges(window: Mapping[str, Range] | None) -> dict[str, Range]:
    """The ranges that are given, by name; InputError for one that does not increase."""
    if not isinstance(window, Mapping | None):
        raise InputError(f'window is a range by axis, such as {{"w": (-3, 3)}}, not {window!r}')
    found = dict(window or {})
    for name, (low, high) in found.items():
        if not -math.inf < low < high < math.inf:
            raise InputError(f"the window in {name} must be LOW < HIGH, not {low:g} to {high:g}")
    return found


def _corners(centres: np.ndarray) -> np.ndarray:
    """Edges (n + 1,) of the cells around evenly spaced centres; 0 between −x and x."""
    half = (centres[1] - centres[0]) / 2
    between = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([centres[:1] - half, between, centres[-1:] + half])


def _compare(plane: Plane, record: xr.Dataset, fixed_values: Mapping[str, float]) -> dict[str, int]:
    """Count the labels that agree with the closed form, away from cells that a boundary cuts.

    Returned are the attributes ``oracle_…``, all 0 where the basins have no closed form.
    """
    y, x = (record[name].to_numpy() for name in (plane.y, plane.x))
    basin = closed_basin(plane.model, theta_on_grid(plane, x, y, fixed_values))
    if basin is None or min(len(x), len(y)) < 2:
        return {"oracle_cells": 0, "oracle_agree": 0, "oracle_wrong": 0, "oracle_cut": 0}
    around = closed_basin(plane.model, theta_on_grid(plane, _corners(x), _corners(y), fixed_values))
    assert around is not None
    inside, expected = around.numpy().astype(int), basin.numpy()
    corner_sum = sum(inside[i : len(y) + i, j : len(x) + j] for i in (0, 1) for j in (0, 1))
    cut = (corner_sum % 4 != 0) | (y[:, None] == 0)
    label = record["label"].to_numpy()
    resolved = label != Label.UNRESOLVED
    agree = resolved & ((label == Label.GLOBAL_MINIMUM) == expected)
    return {
        "oracle_cells": int((~cut).sum()),
        "oracle_agree": int((agree & ~cut).sum()),
        "oracle_wrong": int((resolved & ~agree & ~cut).sum()),
        "oracle_cut": int(cut.sum()),
    }


def _add_orbits(
    record: xr.Dataset,
    plane: Plane,
    places: Tensor,
    fixed: Mapping[str, float],
    options: SolverOptions,
) -> dict[str, object]:
    """Put orbits from ``places`` (n, 2), x and y, into the record, and return two attributes.

    These are the largest drift of what is conserved, and how many orbits end early.
    """
    model, start = plane.model, theta_at(plane, places[:, 0], places[:, 1], fixed)
    counted = replace(options, progress=options.counted("orbits", len(start)))
    path, _ = orbit_paths(model, start, counted)
    for i, name in enumerate((plane.y, plane.x)):
        record[f"orbit_{name}"] = (("time", "orbit"), plane.project(path)[..., i].numpy())
    drifts = [  # NaN of starts that go to infinity
        float(np.nan_to_num(record[f"drift_{name}"], posinf=np.inf).max(initial=0))
        for name in conserved_names(model)
    ]
    if drifts and len(model.coordinates) == 2:
        moved = (conserved_values(model, path) - conserved_values(model, path[0])).abs()
        drifts.append(float(moved.nan_to_num().max()))
    return {
        "largest_energy_drift": max(drifts, default=float("nan")),
        "orbits_unfinished": int(path[-1].isnan().any(dim=-1).sum()),
    }


def _differences(plane: Plane, record: xr.Dataset) -> dict[str, object]:
    """Mark cells whose end the baseline model mistakes, and return their number and share.

    Unresolved cells and those on y = 0 are never marked; without a baseline nothing is done.
    """
    baseline = plane.defaults.baseline
    if baseline is None:
        return {}
    x, y = (record[name].to_numpy() for name in (plane.x, plane.y))
    expected = closed_basin(baseline, theta_on_grid(baseline.plane, x, y, {}))
    assert expected is not None
    label = record["label"].transpose(plane.y, plane.x).to_numpy()
    differs = (label == Label.GLOBAL_MINIMUM) != expected.numpy()
    differs &= (y[:, None] != 0) & (label != Label.UNRESOLVED)
    other = baseline.title.partition("\n")[0]
    look = {
        "drawn_as": "wrong prediction",
        "legend": f"the {other} predicts the other end",
        "remark": f"ends elsewhere than in the {other}",
    }
    record["differs"] = ((plane.y, plane.x), differs.astype(np.int8), look)
    return {"cells_differ": int(differs.sum()), "share_differs": float(differs.mean())}


def orbit_paths(model: Model, start: Tensor, options: SolverOptions) -> tuple[Tensor, Limits]:
    """Follow orbits from starts (n, k); return their places (time, n, k) and their limits.

    The last place is the limit unless the orbit is closed, and NaN if it is unfinished.
    """
    limits = limits_by(model, start, replace(options, device="cpu"))
    _, path = drawn_orbits(model, start, limits, options.rtol)
    arrived = path[-1].isfinite().all(dim=-1) & (limits.label != Label.UNRESOLVED)
    last = torch.where(limits.period.isfinite()[:, None], path[-1], limits.theta)
    last = torch.where(arrived[:, None], last, torch.nan)
    return torch.cat([path, last.unsqueeze(0)]), limits
