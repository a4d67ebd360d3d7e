"""Everything a phase portrait of the canonical model shows, computed into one record."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from flowsim.basins import cell_centres, scan_basins
from flowsim.flow import integrate
from flowsim.landscape import (
    SADDLE_W,
    CriticalPoint,
    Label,
    critical_line,
    minima_curve,
    reaches_global_minimum,
    separatrix,
)
from flowsim.models import CanonicalModel, energy, velocity
from flowsim.results import flags, provenance

CURVE_POINTS = 1201
ARROWS = 23
ORBITS_PER_SIDE = 6


def portrait_record(
    model: CanonicalModel,
    w_range: tuple[float, float] = (-3.0, 3.0),
    e_range: tuple[float, float] = (-3.0, 3.0),
    resolution: int = 208,
    rtol: float = 1e-11,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """Basins on a grid of cells, with the curves, arrows and orbits of a phase portrait.

    Labels come from the integrated flow of every cell's centre. The analytic basin is only counted
    beside them: ``oracle_agree`` of ``oracle_cells`` cells agree, leaving aside the
    ``oracle_cut`` cells that the separatrix crosses and the cells centred on e = 0.

    Args:
        model: canonical model with the bias at its optimum.
        w_range, e_range: the window.
        resolution: cells along each axis.
        rtol, atol: error allowed per step, for labels and orbits.
        progress: called with the number of cells done.

    Returns:
        Dataset over (e, w) as ``scan_basins`` gives, plus energy(e, w), the separatrix, the minima
        curve, the kind of the critical line above each w, unit arrows, orbits (time, orbit), and
        attributes with every setting and count.
    """
    chain = model.chain
    axes = {"e": cell_centres(*e_range, resolution), "w": cell_centres(*w_range, resolution)}
    record = scan_basins(model, axes, rtol=rtol, atol=atol, progress=progress)
    grid = _grid(axes["e"], axes["w"])
    record["energy"] = (("e", "w"), energy(grid).numpy())

    w = torch.linspace(*w_range, CURVE_POINTS, dtype=torch.float64)
    w = torch.cat([w, w.new_tensor([SADDLE_W])]).sort().values
    record["curve_w"] = ("curve", w.numpy())
    record["separatrix_e"] = ("curve", separatrix(chain, w).numpy())
    record["minima_e"] = ("curve", minima_curve(chain, w).numpy())
    record["critical_line"] = ("curve", critical_line(chain, w).numpy(), flags(CriticalPoint))

    arrow_e, arrow_w = cell_centres(*e_range, ARROWS), cell_centres(*w_range, ARROWS)
    arrows = velocity(model, _grid(arrow_e, arrow_w))
    unit = torch.nan_to_num(arrows / arrows.norm(dim=-1, keepdim=True))
    record = record.assign_coords(arrow_e=arrow_e, arrow_w=arrow_w)
    record["direction_e"] = (("arrow_e", "arrow_w"), unit[..., 0].numpy())
    record["direction_w"] = (("arrow_e", "arrow_w"), unit[..., 1].numpy())

    orbits = _orbits(model, e_range, w_range, rtol, atol)
    record["orbit_e"] = (("time", "orbit"), orbits[..., 0].numpy())
    record["orbit_w"] = (("time", "orbit"), orbits[..., 1].numpy())
    orbit_drift = (energy(orbits) - energy(orbits[0])).abs().max()

    settings = {
        "kind": "portrait",
        "model": "canonical",
        "p": chain.p,
        "q": chain.q,
        "regime": chain.regime,
        "w_range": w_range,
        "e_range": e_range,
        "resolution": resolution,
        "rtol": rtol,
        "atol": atol,
        "largest_energy_drift": max(
            float(np.nanmax(record["drift_energy"], initial=0.0)), float(orbit_drift)
        ),
        **_oracle(model, record, grid),
    }
    for label in Label:
        settings[f"cells_{label.name.lower()}"] = int((record["label"] == label).sum())
    record.attrs = provenance(settings)
    return record


def _grid(e: np.ndarray, w: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack(np.meshgrid(e, w, indexing="ij"), axis=-1))


def _oracle(model: CanonicalModel, record: xr.Dataset, grid: torch.Tensor) -> dict[str, int]:
    """How many labels agree with the analytic basin, away from the cells it cuts."""
    expected = reaches_global_minimum(model.chain, grid).numpy()
    e, w = (record[name].to_numpy() for name in "ew")
    corners = _grid(*(np.append(x, 2 * x[-1] - x[-2]) - (x[1] - x[0]) / 2 for x in (e, w)))
    inside = reaches_global_minimum(model.chain, corners).numpy()
    corner_sum = sum(
        inside[i : len(e) + i, j : len(w) + j].astype(int) for i in (0, 1) for j in (0, 1)
    )
    cut = (corner_sum % 4 != 0) | (e[:, None] == 0)
    agree = (record["label"].to_numpy() == Label.GLOBAL_MINIMUM) == expected
    return {
        "oracle_cells": int((~cut).sum()),
        "oracle_agree": int((agree & ~cut).sum()),
        "oracle_cut": int(cut.sum()),
    }


def _orbits(
    model: CanonicalModel,
    e_range: tuple[float, float],
    w_range: tuple[float, float],
    rtol: float,
    atol: float,
) -> torch.Tensor:
    """Trajectories from starts spread along the window's four sides, shape (time, orbit, 2).

    They run for a dozen e-folds of e near the origin, whose rate is 2|λ|π₀π₁.
    """
    pi0, pi1 = model.chain.stationary
    horizon = 6 / (pi0 * pi1 * max(abs(model.chain.second_eigenvalue), 0.1))
    inset = 0.04
    spread = torch.linspace(inset, 1 - inset, ORBITS_PER_SIDE, dtype=torch.float64)
    near, far = torch.full_like(spread, inset), torch.full_like(spread, 1 - inset)
    sides = [(near, spread), (far, spread), (spread, near), (spread, far)]
    unit = torch.cat([torch.stack(side, dim=-1) for side in sides]).unique(dim=0)
    low = torch.tensor([e_range[0], w_range[0]], dtype=torch.float64)
    high = torch.tensor([e_range[1], w_range[1]], dtype=torch.float64)
    times = horizon * torch.cat([torch.zeros(1), torch.logspace(-5, 0, 60)]).double()
    return integrate(model, low + unit * (high - low), times, rtol, atol)
