"""Everything the three-dimensional view of a model with attention shows, in one record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
import xarray as xr

from flowsim.errors import InputError
from flowsim.flow.confirm import Stage
from flowsim.landscape.basins import minima_curve
from flowsim.landscape.curvature import critical_plane, saddle_points
from flowsim.landscape.labels import CriticalPoint, Label
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import feed_forward_gain
from flowsim.models.catalogue import model_attributes
from flowsim.models.linear import LinearAttentionModel
from flowsim.models.rank_one import RankOneModel
from flowsim.portraits.orbits import orbit_paths
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance

PLANE_POINTS = 81
#: The window by default.
WINDOW = {"e": (-2.0, 2.0), "w": (-2.5, 2.5), "a": (-1.0, 1.0)}
#: Starts of the orbits: (e, w, a) on a coarse lattice in ``WINDOW``, and on one at the origin.
STARTS = list(product((-1.6, 0.5, 1.6), (-1.9, -1.1, -0.35, 0.35, 1.5), (-0.7, 0.1, 0.8)))
NEAR_STARTS = list(product((-0.12, 0.12), (-0.28, -0.1, 0.1, 0.28), (-0.28, 0.0, 0.28)))


def phase_space_record(
    model: ReducedModel,
    w_range: tuple[float, float] = WINDOW["w"],
    e_range: tuple[float, float] = WINDOW["e"],
    a_range: tuple[float, float] = WINDOW["a"],
    rtol: float | None = None,
    atol: float = 1e-10,
    progress: Callable[[int], object] | None = None,
    stage: Stage | None = None,
) -> xr.Dataset:
    """Orbits, critical plane, saddle curve and global minima of a model in (e, w, a).

    Args:
        model: with uniform or linear attention, bias at its optimum; or the rank-one model with
            attention, whose starts are lifted and whose orbits are projected.
        w_range, e_range, a_range: the window, in which the orbits from afar start.
        rtol, atol: error allowed per step; rtol is by default 1e-8 for orbits.
        progress: called with the number of orbits done.
        stage: called before the critical plane with what follows, "lines of the plane e = 0", and
            how many; returns what to call with the number done.

    Returns:
        Dataset with two families of orbits, ``orbit_*`` from afar and ``near_*`` from around the
        origin, each (time, orbit) in e, w, a with the limit as last entry (NaN where torchdiffeq
        did not reach it), and the label of each. Without the rank-one model, ``plane`` (plane_a,
        plane_w), the kind of the critical plane, and the saddle curve in it. The curve of global
        minima at a = 0, or for linear attention their surface over (a, w).

    Raises:
        InputError: a model without attention, or with its bias or unembedding as a coordinate.
    """
    lifted = isinstance(model, RankOneModel) and model.attention and model.tied
    if not lifted and model.coordinates != ("e", "w", "a"):
        raise InputError("a view in space needs uniform, linear or rank-one attention")
    window = {"e": e_range, "w": w_range, "a": a_range}
    start = torch.tensor([*_starts(window), *NEAR_STARTS], dtype=torch.float64)
    theta = model.from_canonical(start) if isinstance(model, RankOneModel) else start
    path, label = orbit_paths(model, theta, rtol or 1e-8, atol, progress)
    record = xr.Dataset()
    for family, rows in (("orbit", slice(len(STARTS))), ("near", slice(len(STARTS), None))):
        for i, name in enumerate(("e", "w", "a")):
            record[f"{family}_{name}"] = (("time", family), path[:, rows, i].numpy())
        record[f"{family}_label"] = (family, label[rows].numpy(), flags(Label))
    record = _with_landscape(record, model, w_range, a_range, stage)
    settings: dict[str, object] = {
        "kind": "phase space",
        **model_attributes(model),
        **{f"{name}_range": window[name] for name in "wea"},
        "rtol": rtol or 1e-8,
        "atol": atol,
        "orbits_unfinished": int(path[-1].isnan().any(dim=-1).sum()),
    }
    for code in Label:
        settings[f"orbits_{code.name.lower()}"] = int((label == code).sum())
    record.attrs = provenance(settings)
    return record


def _starts(window: dict[str, tuple[float, float]]) -> list[tuple[float, ...]]:
    """``STARTS``, moved from ``WINDOW`` to another window."""
    moved = []
    for start in STARTS:
        part = [(x - WINDOW[n][0]) / (WINDOW[n][1] - WINDOW[n][0])
                for n, x in zip("ewa", start, strict=True)]  # fmt: skip
        moved.append(tuple(window[n][0] + x * (window[n][1] - window[n][0])
                           for n, x in zip("ewa", part, strict=True)))  # fmt: skip
    return moved


def _with_landscape(
    record: xr.Dataset,
    model: ReducedModel,
    w_range: tuple[float, float],
    a_range: tuple[float, float],
    stage: Stage | None,
) -> xr.Dataset:
    """The record with the critical plane, its saddle curve and the global minima."""
    if isinstance(model, RankOneModel):
        return _with_minima_curve(record, model, w_range)
    w = torch.linspace(*w_range, PLANE_POINTS, dtype=torch.float64)
    a = torch.linspace(*a_range, PLANE_POINTS, dtype=torch.float64)
    grid_a, grid_w = torch.meshgrid(a, w, indexing="ij")
    plane = torch.stack([torch.zeros_like(grid_a), grid_w, grid_a], dim=-1)
    record = record.assign_coords(plane_a=a.numpy(), plane_w=w.numpy())
    lines, saddles, done = [], [], stage("lines of the plane e = 0", len(plane)) if stage else None
    for line in plane:
        lines.append(critical_plane(model, line))
        saddles.append(saddle_points(model, line))
        if done is not None:
            done(1)
    kind, found = torch.stack(lines).numpy(), torch.cat(saddles)
    record["plane"] = (("plane_a", "plane_w"), kind, flags(CriticalPoint))
    record["saddle_w"] = ("saddle", found[:, 1].numpy())
    record["saddle_a"] = ("saddle", found[:, 2].numpy())
    if isinstance(model, LinearAttentionModel):
        squared = model.chain.target_logit_gap / ((1 + grid_a) * feed_forward_gain(grid_w))
        surface = torch.where(squared > 0, squared.sqrt(), torch.nan)
        record["minima_surface_e"] = (("plane_a", "plane_w"), surface.numpy())
        return record
    return _with_minima_curve(record, model, w_range)


def _with_minima_curve(
    record: xr.Dataset, model: ReducedModel, w_range: tuple[float, float]
) -> xr.Dataset:
    """The record with the global minima at a = 0; a lift has the same loss."""
    w = torch.linspace(*w_range, 1201, dtype=torch.float64)
    record["minima_w"] = ("curve", w.numpy())
    record["minima_e"] = ("curve", minima_curve(model.chain, w).numpy())
    return record
