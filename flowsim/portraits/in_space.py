"""Everything the view of a model in space shows, in one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import xarray as xr

from flowsim.curves import Curve, with_curves
from flowsim.errors import InputError
from flowsim.flow.options import SolverOptions, Stage
from flowsim.interface import Model, Plane, Range, axes_of
from flowsim.landscape.ends import Ends
from flowsim.portraits.in_plane import given_ranges, orbit_paths
from flowsim.records.attributes import described, provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.records.netcdf import flags
from flowsim.running import quickly

PLANE_POINTS = 81


@quickly
def phase_space(
    model: Model,
    window: Mapping[str, Range] | None = None,
    rtol: float | None = None,
    atol: float = 1e-10,
    progress: Callable[[int], object] | None = None,
    next_stage: Stage | None = None,
    max_steps: int | None = None,
) -> xr.Dataset:
    """Follow orbits of a model in space, with its critical plane and minima where they are known.

    Args:
        model: of three coordinates, such as one of your own; with uniform or linear attention in
            (e, w, a), bias at its optimum; or the rank-one model with attention, whose starts are
            lifted and whose orbits are projected.
        window: ranges of the axes by name, in which the orbits from afar start; by default
            (−3, 3), of (w, e, a) (−2.5, 2.5), (−2, 2) and (−1, 1).
        rtol, atol: error allowed per step; rtol is by default 1e-8 for orbits.
        max_steps: attempted steps of each start, as in ``find_limits``.
        progress: called with the number of orbits done; True shows a bar on stderr.
        next_stage: called before the curves with what follows, "planes of curves", and how many;
            returns what to call with the number done.

    Returns:
        Dataset with the orbits ``orbit_*`` from afar, and of (e, w, a) ``near_*`` from around the
        origin, each (time, orbit) along the three axes with the limit as last entry (NaN where
        the orbit was not followed to it), and the label of each; and the table of the curves that
        are known in planes of constant third coordinate (``flowsim.curves``).

    Raises:
        InputError: a model that has no view in space, or a window that is not along its axes.

    >>> import flowsim
    >>> model = flowsim.model("linear", 0.5, 0.8)
    >>> record = flowsim.portraits.phase_space(model, rtol=1e-3, atol=1e-3)
    >>> record.orbit_e.dims
    ('time', 'orbit')
    """
    options = SolverOptions(rtol or 1e-8, atol, max_steps, progress=progress, next_stage=next_stage)
    plane = model.plane
    if plane.defaults.third is None:
        raise InputError(
            f"the {model.name} model, as chosen, has no view in space, which needs uniform, linear "
            "or rank-one attention, or three coordinates"
        )
    names = (plane.x, plane.y, plane.defaults.third)
    given = given_ranges(window)
    if others := given.keys() - {*names}:
        raise InputError(f"the view has the axes {', '.join(names)}, not {', '.join(others)}")
    usual, axes = plane.defaults.space, axes_of(plane)
    window = {name: given.get(name, usual[name]) for name in names}
    sides = [(*usual[name], *window[name]) for name in axes]
    far = [  # moved from the usual window to this one
        tuple(
            to + (x - low) / (high - low) * (end - to)
            for x, (low, high, to, end) in zip(start, sides, strict=True)
        )
        for start in plane.defaults.far
    ]
    start = torch.tensor([*far, *plane.defaults.near], dtype=torch.float64)
    theta = plane.embed(dict(zip(axes, start.unbind(-1), strict=True)))
    path, limits = orbit_paths(model, theta, options)
    ends = Ends(model)
    label = ends.identify(limits)
    codes, places = label.numpy(), plane.project(path).numpy()
    families = {"orbit": slice(len(far))}
    if plane.defaults.near:
        families["near"] = slice(len(far), None)
    record = xr.Dataset()
    for family, rows in families.items():
        for i, name in enumerate(axes):
            record[f"{family}_{name}"] = (("time", family), places[:, rows, i])
        record[f"{family}_label"] = (family, codes[rows], flags(ends.names, codes.dtype))
    if type(plane).curves is not Plane.curves:
        third, curves, heights = plane.defaults.third, list[Curve](), list[np.ndarray]()
        low, high = window[third]
        zero = [0.0] if low < 0 < high else []
        values = np.unique([*np.linspace(low, high, PLANE_POINTS), *zero])
        done = options.counted("planes of curves", len(values))
        for value in values.tolist():
            known = plane.curves(window, {third: value}, PLANE_POINTS)
            shown = [curve for curve in known if curve.kind != "separatrix"]
            curves += shown
            heights += [np.full(len(curve.x), value) for curve in shown]
            if done is not None:
                done(1)
        columns = {plane.x: [c.x for c in curves], plane.y: [c.y for c in curves], third: heights}
        record = with_curves(record, curves, **columns)
    settings: dict[str, object] = {
        "kind": "phase space",
        **model_attributes(model),
        **{f"{name}_range": side for name, side in window.items()},
        **options.attributes(),
        **ends.attributes(),
        "orbits_unfinished": int(path[-1].isnan().any(dim=-1).sum()),
        **{f"orbits_{name}": int((label == i).sum()) for i, name in enumerate(ends.names)},
    }
    return described(record.assign_attrs(provenance(settings)), model.long_names)
