"""The plane (α, β) of the induction model as a record: ends, plateau, valleys, orbits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torchdiffeq import odeint

from flowsim.flow.confirm import Stage
from flowsim.landscape.induction_ends import InductionLandscape, induction_landscape, valley
from flowsim.landscape.labels import Label
from flowsim.models.base import velocity
from flowsim.models.catalogue import model_attributes
from flowsim.models.in_context.induction import InductionModel
from flowsim.portraits.starts_in_plane import confirmed, mesh, usual_resolution
from flowsim.records.provenance import provenance
from flowsim.scan.follow import follow_grid
from flowsim.scan.plan import how_attributes
from flowsim.scan.starts import cell_centres

Window = tuple[float, float]

#: Starts of orbits within the window, in parts of its sides.
_STARTS = [(x, y) for y in (0.04, 0.96) for x in (0.1, 0.3, 0.5, 0.7, 0.9)]
_STARTS += [(0.03, 0.45), (0.35, 0.45), (0.45, 0.38)]
_ARROWS, _TIMES, _LINE = 21, 60, 240
#: Physical time of the orbits, and arc length of the separatrix to each side.
_HORIZON, _ARC = 1e5, 14.0


def induction_record(
    model: InductionModel,
    alpha_range: Window = (-6.0, 6.0),
    beta_range: Window = (-4.0, 6.0),
    resolution: int | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    integrator: str = "flowsim",
    confirm: int | None = None,
    stage: Stage | None = None,
) -> xr.Dataset:
    """Where starts (α, β) end, and what rules the plane; ``portrait_record`` gives it too.

    Args:
        model: the induction model.
        alpha_range, beta_range: the window.
        resolution: cells along each axis, by default 48.
        rtol, atol, progress, integrator, confirm, stage: as in ``portrait_record``.

    Returns:
        Dataset over (beta, alpha): what ``scan_basins`` gives for every cell's centre, and
        ``loss`` there; over alpha ``plateau_slope``, ∂L/∂β on β = 0, whose sign says which way the
        plateau is left, and the valleys ``valley_below`` and ``valley_above``, β of least loss on
        either side; ``saddle``; ``separatrix`` (what ends in the saddle), unit arrows, and orbits
        from torchdiffeq. Attributes hold settings, counts, the plateau's loss, Bayes's and those
        of the ends.
    """
    landscape, resolution = induction_landscape(model), resolution or usual_resolution(model)
    alpha, beta = cell_centres(*alpha_range, resolution), cell_centres(*beta_range, resolution)
    theta = torch.stack(mesh(beta, alpha)[::-1], dim=-1)
    axes = {"beta": beta, "alpha": alpha}
    record = follow_grid(model, theta, axes, rtol, atol, progress, integrator)
    curves = {
        "loss": (("beta", "alpha"), model.loss(theta).numpy()),
        **_along_alpha(model, alpha),
        **_separatrix(model, landscape, alpha_range),
        **_arrows(model, alpha_range, beta_range),
        **_orbits(model, alpha_range, beta_range),
    }
    record = record.assign(curves)
    settings: dict[str, object] = {
        "kind": "induction",
        **model_attributes(model),
        "alpha_range": alpha_range,
        "beta_range": beta_range,
        "resolution": resolution,
        **how_attributes(rtol, atol, integrator, None),
        "plateau_loss": landscape.plateau,
        "bayes_loss": model.bayes,
        **_ends(landscape),
        **confirmed(model, theta, record, integrator, confirm, stage),
    }
    for label in Label:
        settings[f"cells_{label.name.lower()}"] = int((record["label"] == label).sum())
    record.attrs = provenance(settings)
    return record


def _ends(landscape: InductionLandscape) -> dict[str, object]:
    """Share s, β and loss of both ends, by label."""
    found: dict[str, object] = {}
    for side, end in landscape.ends.items():
        name = "global_minimum" if side == landscape.best else "local_minimum"
        found |= {f"{name}_share": end.share, f"{name}_beta": end.beta, f"{name}_loss": end.loss}
    return found


def _along_alpha(model: InductionModel, alpha: np.ndarray) -> dict[str, object]:
    shares = torch.from_numpy(alpha).sigmoid()
    slope = model.by_share(shares, torch.zeros_like(shares))[2]
    found: dict[str, object] = {"plateau_slope": ("alpha", slope.numpy())}
    for name, side in (("valley_below", -1), ("valley_above", 1)):
        line = valley(model, side, shares.numpy())
        found[name] = ("alpha", np.full(len(alpha), np.nan) if line is None else line)
    return found


def _separatrix(
    model: InductionModel, landscape: InductionLandscape, alpha_range: Window
) -> dict[str, object]:
    """The orbits that end in the saddles, followed backwards by arc length.

    At a saddle on β = 0 the Hessian is [[0, h], [h, g]].
    """
    saddles = [x for x in landscape.saddles if alpha_range[0] < x < alpha_range[1]]
    lines = []
    for at in saddles:
        point = torch.tensor([at, 0.0], dtype=torch.float64)
        values, vectors = torch.linalg.eigh(model.hessian(point))
        towards = vectors[:, int(values.argmax())]
        arc = torch.linspace(0, _ARC, _LINE, dtype=torch.float64)
        for sign in (1, -1):
            start = point + sign * 1e-4 * towards
            lines.append(odeint(lambda _, theta: -_unit(model, theta), start, arc, rtol=1e-7))
    path = torch.stack(lines, dim=1).numpy() if lines else np.full((_LINE, 0, 2), np.nan)
    return {
        "saddle": ("saddles", np.array(saddles)),
        "separatrix_alpha": (("arc", "line"), path[..., 0]),
        "separatrix_beta": (("arc", "line"), path[..., 1]),
    }


def _unit(model: InductionModel, theta: Tensor) -> Tensor:
    field = velocity(model, theta)
    return field / field.norm(dim=-1, keepdim=True)


def _arrows(model: InductionModel, alpha_range: Window, beta_range: Window) -> dict[str, object]:
    alpha, beta = cell_centres(*alpha_range, _ARROWS), cell_centres(*beta_range, _ARROWS)
    direction = _unit(model, torch.stack(mesh(beta, alpha)[::-1], dim=-1)).numpy()
    return {
        "arrow_alpha": ("arrow_alpha", alpha),
        "arrow_beta": ("arrow_beta", beta),
        "direction_alpha": (("arrow_beta", "arrow_alpha"), direction[..., 0]),
        "direction_beta": (("arrow_beta", "arrow_alpha"), direction[..., 1]),
    }


def _orbits(model: InductionModel, alpha_range: Window, beta_range: Window) -> dict[str, object]:
    """Orbits in physical time by LSODA, all together."""
    low = np.array([alpha_range[0], beta_range[0]])
    size = np.array([alpha_range[1], beta_range[1]]) - low
    first = torch.zeros(1, dtype=torch.float64)
    last = float(np.log10(_HORIZON))
    times = torch.cat([first, torch.logspace(0, last, _TIMES - 1, dtype=torch.float64)])
    path = odeint(
        lambda _, theta: velocity(model, theta),
        torch.from_numpy(low + np.array(_STARTS) * size), times, rtol=1e-6, atol=1e-8,
        method="scipy_solver", options={"solver": "LSODA"},
    )  # fmt: skip
    whole = path.numpy()
    return {
        "time": ("time", times.numpy()),
        "orbit_alpha": (("time", "orbit"), whole[..., 0]),
        "orbit_beta": (("time", "orbit"), whole[..., 1]),
    }
