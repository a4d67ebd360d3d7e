"""Everything the three-dimensional view of a model with attention shows, in one record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.flow.limits import find_limits
from flowsim.flow.trajectories import trajectories
from flowsim.landscape.basins import minima_curve
from flowsim.landscape.curvature import critical_plane, saddle_points
from flowsim.landscape.labels import CriticalPoint, Label
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import feed_forward_gain
from flowsim.models.catalogue import model_attributes
from flowsim.models.linear import LinearAttentionModel
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance

PLANE_POINTS = 81
TIMES = 90
#: Starts of the orbits: (e, w, a) on a coarse lattice, and on a small one around the origin.
STARTS = list(product((-1.6, 0.5, 1.6), (-1.9, -1.1, -0.35, 0.35, 1.5), (-0.7, 0.1, 0.8)))
NEAR_STARTS = list(product((-0.12, 0.12), (-0.28, -0.1, 0.1, 0.28), (-0.28, 0.0, 0.28)))


def phase_space_record(
    model: ReducedModel,
    w_range: tuple[float, float] = (-2.5, 2.5),
    a_range: tuple[float, float] = (-1.0, 1.0),
    rtol: float = 1e-8,
    atol: float = 1e-10,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """Orbits, critical plane, saddle curve and global minima of a model with θ = (e, w, a).

    Args:
        model: with uniform or linear attention, bias at its optimum.
        w_range, a_range: part of the plane e = 0 that is shown.
        rtol, atol: error allowed per step.
        progress: called with the number of orbits done.

    Returns:
        Dataset with two families of orbits, ``orbit_*`` from afar and ``near_*`` from around the
        origin, each (time, orbit) in e, w, a with the limit as last entry, and the label of each;
        ``plane`` (plane_a, plane_w), the kind of the critical plane; the saddle curve in it; the
        curve of global minima (uniform attention, a = 0) or their surface over (a, w) (linear).
    """
    record = xr.Dataset()
    for family, points in (("orbit", STARTS), ("near", NEAR_STARTS)):
        start = torch.tensor(points, dtype=torch.float64)
        path, label = _paths(model, start, rtol, atol)
        for i, name in enumerate(model.coordinates):
            record[f"{family}_{name}"] = (("time", family), path[..., i].numpy())
        record[f"{family}_label"] = (family, label.numpy(), flags(Label))
        if progress is not None:
            progress(len(start))

    w = torch.linspace(*w_range, PLANE_POINTS, dtype=torch.float64)
    a = torch.linspace(*a_range, PLANE_POINTS, dtype=torch.float64)
    grid_a, grid_w = torch.meshgrid(a, w, indexing="ij")
    plane = torch.stack([torch.zeros_like(grid_a), grid_w, grid_a], dim=-1)
    record = record.assign_coords(plane_a=a.numpy(), plane_w=w.numpy())
    kind = critical_plane(model, plane).numpy()
    record["plane"] = (("plane_a", "plane_w"), kind, flags(CriticalPoint))
    saddles = torch.cat([saddle_points(model, line) for line in plane])
    record["saddle_w"] = ("saddle", saddles[:, 1].numpy())
    record["saddle_a"] = ("saddle", saddles[:, 2].numpy())
    if isinstance(model, LinearAttentionModel):
        squared = model.chain.target_logit_gap / ((1 + grid_a) * feed_forward_gain(grid_w))
        surface = torch.where(squared > 0, squared.sqrt(), torch.nan)
        record["minima_surface_e"] = (("plane_a", "plane_w"), surface.numpy())
    else:
        fine = torch.linspace(*w_range, 1201, dtype=torch.float64)
        record["minima_w"] = ("curve", fine.numpy())
        record["minima_e"] = ("curve", minima_curve(model.chain, fine).numpy())

    labels = np.concatenate([record["orbit_label"], record["near_label"]])
    settings: dict[str, object] = {
        "kind": "phase space",
        **model_attributes(model),
        "w_range": w_range,
        "a_range": a_range,
        "rtol": rtol,
        "atol": atol,
    }
    for code in Label:
        settings[f"orbits_{code.name.lower()}"] = int((labels == code).sum())
    record.attrs = provenance(settings)
    return record


def _paths(model: ReducedModel, start: Tensor, rtol: float, atol: float) -> tuple[Tensor, Tensor]:
    """Trajectories, each completed by its limit, and the limits' labels."""
    pi0, pi1 = model.chain.stationary
    horizon = 6 / (pi0 * pi1 * max(abs(model.chain.second_eigenvalue), 0.1))
    times = horizon * torch.cat([torch.zeros(1), torch.logspace(-4, 0, TIMES)]).double()
    path = trajectories(model, start, times, rtol, atol)
    limits = find_limits(model, start)
    return torch.cat([path, limits.theta.unsqueeze(0)]), limits.label
