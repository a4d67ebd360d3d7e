"""The plane (α, β) of the induction model as a record: ends, plateau, valleys, orbits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torchdiffeq import odeint

from flowsim.flow.induction_limits import confirm_induction, induction_limits
from flowsim.landscape.induction_ends import InductionLandscape, induction_landscape, valley
from flowsim.landscape.labels import Label
from flowsim.models.base import velocity
from flowsim.models.in_context.induction import InductionModel
from flowsim.portraits.starts_in_plane import mesh
from flowsim.records.provenance import provenance
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
    resolution: int = 48,
    confirm: int = 16,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """Where starts (α, β) end, and what rules the plane.

    Args:
        model: the induction model.
        alpha_range, beta_range: the window.
        resolution: cells along each axis.
        confirm: cells of a random sample that torchdiffeq decides again.
        progress: called with the number of cells done.

    Returns:
        Dataset over (beta, alpha): ``label`` and ``loss`` of every cell's centre; over alpha
        ``plateau_slope``, ∂L/∂β on β = 0, whose sign says which way the plateau is left, and the
        valleys ``valley_below`` and ``valley_above``, β of least loss on either side; ``saddle``;
        ``separatrix`` (what ends in the saddle), unit arrows, and orbits from torchdiffeq.
        Attributes hold settings, counts, the plateau's loss, Bayes's and those of the ends.
    """
    landscape = induction_landscape(model)
    alpha, beta = cell_centres(*alpha_range, resolution), cell_centres(*beta_range, resolution)
    theta = torch.stack(mesh(beta, alpha)[::-1], dim=-1)
    labels = []
    for row in theta:
        labels.append(induction_limits(model, landscape, row).label)
        if progress is not None:
            progress(resolution)
    label = torch.stack(labels)
    names = [x.name.lower() for x in Label]
    flags = {"flag_values": np.arange(len(names), dtype=np.int8), "flag_meanings": " ".join(names)}
    data = {
        "label": (("beta", "alpha"), label.numpy(), flags),
        "loss": (("beta", "alpha"), model.loss(theta).numpy()),
        **_along_alpha(model, alpha),
        **_separatrix(model, landscape, alpha_range),
        **_arrows(model, alpha_range, beta_range),
        **_orbits(model, alpha_range, beta_range),
    }
    record = xr.Dataset(data, coords={"alpha": alpha, "beta": beta})
    counts = {f"cells_{name}": int((label == i).sum()) for i, name in enumerate(names)}
    settings: dict[str, object] = {
        "kind": "induction",
        "model": model.name,
        "length": model.length,
        "states": 2,
        "order": 1,
        "prior": type(model.prior).__name__,
        "alpha_range": alpha_range,
        "beta_range": beta_range,
        "resolution": resolution,
        "plateau_loss": landscape.plateau,
        "bayes_loss": model.bayes,
        **_ends(landscape),
        **counts,
        **confirm_induction(model, landscape, theta, label, confirm),
    }
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
        step = 1e-5 * torch.eye(2, dtype=torch.float64)
        hessian = (model.gradient(point + step) - model.gradient(point - step)) / 2e-5
        values, vectors = torch.linalg.eigh((hessian + hessian.mT) / 2)
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
    field = velocity(model, theta)  # type: ignore[arg-type]
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
        lambda _, theta: velocity(model, theta),  # type: ignore[arg-type]
        torch.from_numpy(low + np.array(_STARTS) * size), times, rtol=1e-6, atol=1e-8,
        method="scipy_solver", options={"solver": "LSODA"},
    )  # fmt: skip
    whole = path.numpy()
    return {
        "time": ("time", times.numpy()),
        "orbit_alpha": (("time", "orbit"), whole[..., 0]),
        "orbit_beta": (("time", "orbit"), whole[..., 1]),
    }
