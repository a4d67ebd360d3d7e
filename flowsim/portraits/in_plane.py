"""Everything a phase portrait in the (w, e) plane shows, computed into one record."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.confirm import Stage
from flowsim.flow.limits import find_limits
from flowsim.landscape.basins import analytic_basin, reaches_global_minimum
from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel, energy
from flowsim.models.catalogue import model_attributes, model_of
from flowsim.models.in_context.induction import InductionModel
from flowsim.models.rank_one import RankOneModel
from flowsim.portraits.curves import with_landscape
from flowsim.portraits.induction_plane import induction_record
from flowsim.portraits.numerical_boundary import with_boundary
from flowsim.portraits.orbits import orbit_paths, window_starts
from flowsim.portraits.starts_in_plane import (
    check_fixed,
    confirmed,
    grid_starts,
    mesh,
    plane_starts,
    usual_resolution,
)
from flowsim.records.provenance import provenance
from flowsim.scan.follow import follow_grid
from flowsim.scan.starts import cell_centres

Window = tuple[float, float]
_WINDOW: Window = (-3.0, 3.0)


def portrait_record(
    model: ReducedModel,
    w_range: Window | None = None,
    e_range: Window | None = None,
    resolution: int | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    fixed: dict[str, float] | None = None,
    progress: Callable[[int], object] | None = None,
    integrator: str = "flowsim",
    confirm: int | None = None,
    stage: Stage | None = None,
) -> xr.Dataset:
    """Basins on a grid of cells, with the curves, arrows and orbits of a phase portrait.

    Labels come from the integrated flow of every cell's centre, in all the model's coordinates.
    Where the basins have a closed form it is only counted beside them: ``oracle_agree`` of
    ``oracle_cells`` cells agree, leaving aside the ``oracle_cut`` cells that a boundary crosses
    and the cells centred on e = 0. Where they have none, their boundary is found numerically.

    Args:
        model: any reduced model. Starts of the rank-one model are lifted from the plane. The
            induction model has a plane of its own: its portrait is that of ``induction_record``.
        w_range, e_range: the window, by default from −3 to 3; not of the induction model.
        resolution: cells along each axis, by default 208 where the loss is a function of the
            logit gap, 64 elsewhere.
        rtol, atol: error allowed per step, for labels and orbits; by default as ``find_limits``.
        fixed: values of the coordinates beside the plane: a or v (by default 0), the unembedding u
            (by default e), a bias b that is a coordinate (by default at its optimum).
        progress: called with the number of cells done.
        integrator: "torchdiffeq" decides every cell by its odeint alone.
        confirm: cells of a random sample that torchdiffeq decides again; by default 256 where the
            loss is a function of the logit gap, 16 elsewhere, and none with torchdiffeq itself.
        stage: called before the orbits and before the sample with what follows and how many;
            returns what to call with the number done.

    Returns:
        Dataset over (e, w) as ``scan_basins`` gives, plus the separatrix and the minima curve
        (NaN where there is no closed form), the kind of the critical line above each w, unit
        arrows, orbits (time, orbit), the energy of the canonical model, and for the rank-one
        model without attention ``differs``, 1 where the canonical model's start ends elsewhere.
        Attributes hold every setting and count; ``share_differs`` is the share of ``differs``.

    Raises:
        InputError: ``fixed`` names what the model has not, or what ``scan_basins`` refuses.
    """
    fixed = check_fixed(model, fixed)
    if isinstance(model, InductionModel):
        if (w_range, e_range) != (None, None):
            raise InputError("the induction model's plane is (alpha, beta): omit w_range, e_range")
        return induction_record(
            model,
            resolution=resolution,
            rtol=rtol,
            atol=atol,
            progress=progress,
            integrator=integrator,
            confirm=confirm,
            stage=stage,
        )
    w_range, e_range = w_range or _WINDOW, e_range or _WINDOW
    resolution = resolution or usual_resolution(model)
    e, w = cell_centres(*e_range, resolution), cell_centres(*w_range, resolution)
    theta = grid_starts(model, e, w, fixed)
    record = follow_grid(model, theta, {"e": e, "w": w}, rtol, atol, progress, integrator)
    record = with_landscape(record, model, w_range, e_range, fixed)
    counts = _compare(model, record, fixed)
    if not counts["oracle_cells"] and min(len(e), len(w)) > 1:
        record = with_boundary(record, lambda e, w: _labels(model, e, w, fixed, rtol, atol).numpy())
    start = window_starts(model, w_range, e_range, fixed)
    counted = stage("orbits", len(start)) if stage is not None else None
    orbits = orbit_paths(model, start, rtol, atol, counted)[0][..., :2]
    record["orbit_e"] = (("time", "orbit"), orbits[..., 0].numpy())
    record["orbit_w"] = (("time", "orbit"), orbits[..., 1].numpy())
    drifts = [float(np.nanmax(record[f"drift_{n}"], initial=0)) for n in model.conserved_names]
    if isinstance(model, CanonicalModel) and model.loss_of_gap:
        record["energy"] = (("e", "w"), energy(theta).numpy())
        moved = (energy(orbits) - energy(orbits[0])).abs().nan_to_num()
        drifts.append(float(moved.max()))
    settings: dict[str, object] = {
        "kind": "portrait",
        **model_attributes(model),
        **fixed,
        "w_range": w_range,
        "e_range": e_range,
        "resolution": resolution,
        "rtol": "default" if rtol is None else rtol,
        "atol": atol,
        **({} if integrator == "flowsim" else {"integrator": integrator}),
        "largest_energy_drift": max(drifts, default=float("nan")),
        "orbits_unfinished": int(orbits[-1].isnan().any(dim=-1).sum()),
        **counts,
        **_differences(model, record),
        **confirmed(model, theta, record, integrator, confirm, stage),
    }
    for label in Label:
        settings[f"cells_{label.name.lower()}"] = int((record["label"] == label).sum())
    record.attrs = provenance(settings)
    return record


def portrait_of_scan(scan: xr.Dataset) -> xr.Dataset:
    """A scan over a grid in e and w as a portrait record: with its curves and arrows.

    Args:
        scan: record of ``write_scan`` over the dimensions e and w only, each with at least two
            evenly spaced values.

    Returns:
        What ``flowsim.draw_portrait`` draws; nothing is integrated.
    """
    model = model_of(scan.attrs)
    fixed = {str(name): float(v) for name, v in scan.coords.items() if not v.dims}
    record = scan.transpose("e", "w", ...)
    low, high = ({n: float(_corners(scan[n].to_numpy())[end]) for n in "we"} for end in (0, -1))
    windows = {name: (low[name], high[name]) for name in "we"}
    record = with_landscape(record, model, windows["w"], windows["e"], fixed)
    counts = {f"cells_{x.name.lower()}": scan.attrs[f"points_{x.name.lower()}"] for x in Label}
    return record.assign_attrs(counts, **fixed, **_differences(model, record))


def _labels(
    model: ReducedModel,
    e: np.ndarray,
    w: np.ndarray,
    fixed: dict[str, float],
    rtol: float | None,
    atol: float,
) -> Tensor:
    theta = plane_starts(model, torch.from_numpy(e), torch.from_numpy(w), fixed)
    return find_limits(model, theta, rtol, atol).label


def _corners(centres: np.ndarray) -> np.ndarray:
    """Where the cells around evenly spaced centres begin and end; 0 between −x and x."""
    half = (centres[1] - centres[0]) / 2
    between = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([centres[:1] - half, between, centres[-1:] + half])


def _compare(model: ReducedModel, record: xr.Dataset, fixed: dict[str, float]) -> dict[str, object]:
    """How many labels agree with the closed form, away from the cells that a boundary cuts."""
    oracle = analytic_basin(model)
    e, w = (record[name].to_numpy() for name in "ew")
    if oracle is None or min(len(e), len(w)) < 2:
        return {"oracle_cells": 0, "oracle_agree": 0, "oracle_wrong": 0, "oracle_cut": 0}
    expected = oracle(grid_starts(model, e, w, fixed)).numpy()
    inside = oracle(grid_starts(model, _corners(e), _corners(w), fixed)).numpy()
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


def _differences(model: ReducedModel, record: xr.Dataset) -> dict[str, object]:
    """Where the canonical model predicts another end for the same start, and how often.

    Of the rank-one model without attention, tied; unresolved cells and those on e = 0 count as
    cells where nothing differs.
    """
    if not isinstance(model, RankOneModel) or model.attention or not model.tied:
        return {}
    e, w = mesh(record["e"].to_numpy(), record["w"].to_numpy())
    canonical = reaches_global_minimum(model.chain, torch.stack([e, w], dim=-1)).numpy()
    label = record["label"].transpose("e", "w").to_numpy()
    differs = ((label == Label.GLOBAL_MINIMUM) != canonical) & (e.numpy() != 0)
    differs &= label != Label.UNRESOLVED
    record["differs"] = (("e", "w"), differs.astype(np.int8))
    return {"cells_differ": int(differs.sum()), "share_differs": float(differs.mean())}
