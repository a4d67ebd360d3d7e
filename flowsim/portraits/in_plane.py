"""Everything a phase portrait in the (w, e) plane shows, computed into one record."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.flow.limits import find_limits
from flowsim.flow.trajectories import trajectories
from flowsim.landscape.basins import SADDLE_ENERGY, analytic_basin, minima_curve, separatrix
from flowsim.landscape.curvature import critical_plane, saddle_points
from flowsim.landscape.labels import CriticalPoint, Label
from flowsim.models.base import ReducedModel, velocity
from flowsim.models.canonical import CanonicalModel, energy, feed_forward_gain
from flowsim.models.catalogue import ModelChoice, model_attributes
from flowsim.models.gap_loss import gap_slope
from flowsim.models.linear import LinearAttentionModel
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance
from flowsim.scan.basins import scan_basins
from flowsim.scan.starts import cell_centres

CURVE_POINTS = 1201
ARROWS = 23
ORBITS_PER_SIDE = 6


def portrait_record(
    model: ReducedModel,
    w_range: tuple[float, float] = (-3.0, 3.0),
    e_range: tuple[float, float] = (-3.0, 3.0),
    resolution: int = 208,
    rtol: float | None = None,
    atol: float = 1e-12,
    a: float = 0.0,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """Basins on a grid of cells, with the curves, arrows and orbits of a phase portrait.

    Labels come from the integrated flow of every cell's centre, in all the model's coordinates.
    Where the basins have a closed form it is only counted beside them: ``oracle_agree`` of
    ``oracle_cells`` cells agree, leaving aside the ``oracle_cut`` cells that a boundary crosses
    and the cells centred on e = 0.

    Args:
        model: the canonical model, or one with attention, of which the slice at ``a`` is shown.
        w_range, e_range: the window.
        resolution: cells along each axis.
        rtol, atol: error allowed per step, for labels and orbits; by default as ``find_limits``.
        a: attention of the slice, for models that have it.
        progress: called with the number of cells done.

    Returns:
        Dataset over (e, w) as ``scan_basins`` gives, plus the separatrix and the minima curve
        (NaN where there is no closed form), the kind of the critical line above each w, unit
        arrows, energy and orbits (time, orbit) of the canonical model, and attributes with every
        setting and count.
    """
    fixed = {"a": a} if "a" in model.coordinates else {}
    axes = {"e": cell_centres(*e_range, resolution), "w": cell_centres(*w_range, resolution)}
    record = scan_basins(model, axes, fixed, rtol=rtol, atol=atol, progress=progress)

    record = _with_landscape(record, model, w_range, e_range, a)
    drifts = [float(np.nanmax(record[f"drift_{n}"], initial=0)) for n in model.conserved_names]
    if isinstance(model, CanonicalModel):
        record["energy"] = (("e", "w"), energy(_starts(model, *_mesh(**axes), a)).numpy())
        orbits = _orbits(model, e_range, w_range, rtol, atol)
        record["orbit_e"] = (("time", "orbit"), orbits[..., 0].numpy())
        record["orbit_w"] = (("time", "orbit"), orbits[..., 1].numpy())
        drifts.append(float((energy(orbits) - energy(orbits[0])).abs().max()))

    settings: dict[str, object] = {
        "kind": "portrait",
        **model_attributes(model),
        **fixed,
        "w_range": w_range,
        "e_range": e_range,
        "resolution": resolution,
        "rtol": "default" if rtol is None else rtol,
        "atol": atol,
        "largest_energy_drift": max(drifts, default=float("nan")),
        **_compare(model, record, a),
    }
    for label in Label:
        settings[f"cells_{label.name.lower()}"] = int((record["label"] == label).sum())
    record.attrs = provenance(settings)
    return record


def portrait_of_scan(scan: xr.Dataset) -> xr.Dataset:
    """A scan over a grid in e and w as a portrait record: with its curves and arrows.

    Args:
        scan: record of ``write_scan`` over the dimensions e and w only, each with at least two
            evenly spaced values, of the canonical model or one with uniform or linear attention,
            bias at its optimum.

    Returns:
        What ``flowsim.draw_portrait`` draws; nothing is integrated.
    """
    settings = json.loads(scan.attrs["settings"])
    chain = BinaryChain(scan.attrs["p"], scan.attrs["q"])
    model = ModelChoice.from_settings(settings).on(chain)
    record = scan.transpose("e", "w", ...)
    a = float(scan["a"]) if "a" in scan else 0.0
    w_range, e_range = (tuple(_edges(scan[name].to_numpy())[[0, -1]].tolist()) for name in "we")
    record = _with_landscape(record, model, w_range, e_range, a)
    counts = {f"cells_{x.name.lower()}": scan.attrs[f"points_{x.name.lower()}"] for x in Label}
    return record.assign_attrs(counts, **({"a": a} if "a" in scan else {}))


def _edges(centres: np.ndarray) -> np.ndarray:
    """Where the cells around evenly spaced centres begin and end; 0 between −x and x."""
    half = (centres[1] - centres[0]) / 2
    between = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([centres[:1] - half, between, centres[-1:] + half])


def _with_landscape(
    record: xr.Dataset,
    model: ReducedModel,
    w_range: tuple[float, float],
    e_range: tuple[float, float],
    a: float,
) -> xr.Dataset:
    """The record with the window's curves, critical line, saddles and arrows."""
    w = torch.linspace(*w_range, CURVE_POINTS, dtype=torch.float64)
    line = _starts(model, torch.zeros_like(w), w, a)
    saddles = saddle_points(model, line)
    w = torch.cat([w, saddles[:, 1]]).sort().values
    curves = _curves(model, w, a)
    record["saddle_w"] = ("saddle", saddles[:, 1].numpy())
    record["curve_w"] = ("curve", w.numpy())
    record["separatrix_e"] = ("curve", curves[0].numpy())
    record["minima_e"] = ("curve", curves[1].numpy())
    line = _starts(model, torch.zeros_like(w), w, a)
    record["critical_line"] = ("curve", critical_plane(model, line).numpy(), flags(CriticalPoint))

    arrow_e, arrow_w = cell_centres(*e_range, ARROWS), cell_centres(*w_range, ARROWS)
    arrows = velocity(model, _starts(model, *_mesh(arrow_e, arrow_w), a))[..., :2]
    unit = torch.nan_to_num(arrows / arrows.norm(dim=-1, keepdim=True))
    record = record.assign_coords(arrow_e=arrow_e, arrow_w=arrow_w)
    record["direction_e"] = (("arrow_e", "arrow_w"), unit[..., 0].numpy())
    record["direction_w"] = (("arrow_e", "arrow_w"), unit[..., 1].numpy())
    return record


def _mesh(e: np.ndarray, w: np.ndarray) -> tuple[Tensor, Tensor]:
    grid_e, grid_w = np.meshgrid(e, w, indexing="ij")
    return torch.from_numpy(grid_e), torch.from_numpy(grid_w)


def _starts(model: ReducedModel, e: Tensor, w: Tensor, a: float) -> Tensor:
    """θ with the given e and w, and a where the model has it."""
    columns = [e, w, torch.full_like(e, a)] if "a" in model.coordinates else [e, w]
    return torch.stack(columns, dim=-1)


def _curves(model: ReducedModel, w: Tensor, a: float) -> tuple[Tensor, Tensor]:
    """The e ≥ 0 of the separatrix and of the global minima above each w, in the slice at ``a``."""
    chain, nowhere = model.chain, torch.full_like(w, torch.nan)
    if isinstance(model, CanonicalModel):
        return separatrix(chain, w), minima_curve(chain, w)
    if isinstance(model, LinearAttentionModel):
        share = 1 + a
        squared = chain.target_logit_gap / (share * feed_forward_gain(w))
        # the orbit changes side where e² passes 2(1 + a)² or the level of the saddle's energy
        level = w.square() - w.abs().log() + SADDLE_ENERGY
        level = torch.where(w < 0, level.clamp_min(0), torch.inf).clamp_max(2 * share**2)
        trapping = share * feed_forward_gain(w) * chain.second_eigenvalue < 0
        minima = torch.where(squared > 0, squared.sqrt(), torch.nan)
        return torch.where(trapping, level.sqrt(), torch.nan), minima
    return nowhere, minima_curve(chain, w) if a == 0 else nowhere


def _compare(model: ReducedModel, record: xr.Dataset, a: float) -> dict[str, int]:
    """How many labels agree with the closed form, away from the cells that a boundary cuts."""
    oracle = analytic_basin(model)
    if oracle is None:
        return {"oracle_cells": 0, "oracle_agree": 0, "oracle_wrong": 0, "oracle_cut": 0}
    e, w = (record[name].to_numpy() for name in "ew")
    expected = oracle(_starts(model, *_mesh(e, w), a)).numpy()
    corners = [_edges(x) for x in (e, w)]
    inside = oracle(_starts(model, *_mesh(*corners), a)).numpy()
    corner_sum = sum(
        inside[i : len(e) + i, j : len(w) + j].astype(int) for i in (0, 1) for j in (0, 1)
    )
    cut = (corner_sum % 4 != 0) | (e[:, None] == 0)
    label = record["label"].to_numpy()
    resolved = label != Label.UNRESOLVED
    agree = resolved & ((label == Label.GLOBAL_MINIMUM) == expected)
    return {
        "oracle_cells": int((~cut).sum()),
        "oracle_agree": int((agree & ~cut).sum()),
        "oracle_wrong": int((resolved & ~agree & ~cut).sum()),
        "oracle_cut": int(cut.sum()),
    }


def _orbits(
    model: CanonicalModel,
    e_range: tuple[float, float],
    w_range: tuple[float, float],
    rtol: float | None,
    atol: float,
) -> Tensor:
    """Trajectories from starts spread along the window's four sides, shape (time, orbit, 2).

    They run for a dozen e-folds of e near the origin, whose rate is 2|λ|π₀π₁, or a thousand times
    the fastest rate ℓ″(Δ)|∇Δ|² at their ends, whichever is shorter, and end with their limits.
    Starts lie within |e|, |w| ≤ 4, so that these times show them move.
    """
    inset = 0.04
    spread = torch.linspace(inset, 1 - inset, ORBITS_PER_SIDE, dtype=torch.float64)
    near, far = torch.full_like(spread, inset), torch.full_like(spread, 1 - inset)
    sides = [(near, spread), (far, spread), (spread, near), (spread, far)]
    unit = torch.cat([torch.stack(side, dim=-1) for side in sides]).unique(dim=0)
    low = torch.tensor([e_range[0], w_range[0]], dtype=torch.float64).clamp(-4, 4)
    high = torch.tensor([e_range[1], w_range[1]], dtype=torch.float64).clamp(-4, 4)
    start = low + unit * (high - low)
    limit = find_limits(model, start, rtol, atol).theta
    pi0, pi1 = model.chain.stationary
    horizon = 6 / (pi0 * pi1 * max(abs(model.chain.second_eigenvalue), 0.1))
    ends = torch.cat([start, limit])
    gap, step = model.logit_gap(ends), 1e-4
    bend = (gap_slope(model.chain, gap + step) - gap_slope(model.chain, gap - step)) / (2 * step)
    fastest = (bend * model.logit_gap_gradient(ends).square().sum(dim=1)).max()
    horizon = min(horizon, 1000 / float(fastest))
    times = horizon * torch.cat([torch.zeros(1), torch.logspace(-5, 0, 60)]).double()
    path = trajectories(model, start, times, rtol or 1e-11, atol)
    return torch.cat([path, limit.unsqueeze(0)])
