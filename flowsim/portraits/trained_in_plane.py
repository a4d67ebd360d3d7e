"""The basins of an optimizer in the (w, e) plane, beside those of the flow, as one record."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.flow.limits import find_limits
from flowsim.landscape.basins import minima_curve
from flowsim.landscape.labels import Label, Status
from flowsim.models.base import ReducedModel
from flowsim.models.catalogue import model_attributes
from flowsim.portraits.curves import CURVE_POINTS
from flowsim.portraits.numerical_boundary import with_boundary
from flowsim.portraits.starts_in_plane import check_fixed, grid_starts, plane_starts
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance
from flowsim.scan.follow import follow_grid
from flowsim.scan.starts import cell_centres
from flowsim.scan.trained_points import check_training
from flowsim.training.optimizer_choice import OptimizerChoice

Window = tuple[float, float]
Report = Callable[[int], object]


def trained_portrait(
    model: ReducedModel,
    optimizer: OptimizerChoice,
    w_range: Window = (-3.0, 3.0),
    e_range: Window = (-3.0, 3.0),
    resolution: int = 64,
    fixed: dict[str, float] | None = None,
    progress: Report | None = None,
    flow_progress: Report | None = None,
) -> xr.Dataset:
    """Where an optimizer takes every cell of the plane, and where gradient flow takes it.

    Args:
        model: the rank-one model; starts are lifted from the plane.
        optimizer: what trains; its ``nudge`` should not be 0, see ``OptimizerChoice``.
        w_range, e_range: the window.
        resolution: cells along each axis.
        fixed: values of a and b; by default 0 and the optimum.
        progress: called with how many more steps were taken, summed over the cells.
        flow_progress: called with how many more cells the flow has been followed from.

    Returns:
        Dataset over (e, w): what ``scan_basins`` gives with an optimizer; flow_label; the boundary
        of the flow's basin, boundary_w and boundary_e (vertex); the curve of global minima.
        Attributes hold every number of the optimizer and counts of cells.

    Raises:
        InputError: another model, or what ``scan_basins`` refuses.
    """
    check_training(model, optimizer, None, None, "flowsim")
    fixed = check_fixed(model, fixed)
    e, w = cell_centres(*e_range, resolution), cell_centres(*w_range, resolution)
    theta = grid_starts(model, e, w, fixed)
    axes = {"e": e, "w": w}
    record = follow_grid(model, theta, axes, progress=progress, optimizer=optimizer)
    flow = find_limits(model, theta, progress=flow_progress).label
    record = record.merge(_flow(model, e, w, flow, fixed))
    curve = torch.linspace(*w_range, CURVE_POINTS, dtype=torch.float64)
    minima = minima_curve(model.chain, curve)
    flat = fixed.get("a", 0.0) == 0.0
    record["curve_w"] = ("curve", curve.numpy())
    record["minima_e"] = ("curve", (minima if flat else torch.full_like(minima, torch.nan)).numpy())
    settings: dict[str, object] = {
        "kind": "portrait",
        **model_attributes(model),
        **fixed,
        **optimizer.attributes(),
        "w_range": w_range,
        "e_range": e_range,
        "resolution": resolution,
        **_counts(record),
    }
    record.attrs = provenance(settings)
    return record


def _flow(
    model: ReducedModel, e: np.ndarray, w: np.ndarray, label: Tensor, fixed: dict[str, float]
) -> xr.Dataset:
    """The flow's labels as ``flow_label``, and the boundary of its basin."""

    def labels(at_e: np.ndarray, at_w: np.ndarray) -> np.ndarray:
        theta = plane_starts(model, torch.from_numpy(at_e), torch.from_numpy(at_w), fixed)
        return find_limits(model, theta).label.numpy()

    values = (("e", "w"), label.numpy(), flags(Label))
    found = with_boundary(xr.Dataset({"label": values}, {"e": e, "w": w}), labels)
    return found.rename(label="flow_label")


def _counts(record: xr.Dataset) -> dict[str, object]:
    """Cells by label, by what else is known of them, and by the flow's label."""
    label, flow = record["label"].to_numpy(), record["flow_label"].to_numpy()
    status = record["status"].to_numpy()
    counts = {f"cells_{x.name.lower()}": int((label == x).sum()) for x in Label}
    counts["cells_on_plateau"] = int(record["on_plateau_at_end"].sum())
    for code in (Status.PERIODIC, Status.DIVERGED):
        counts[f"cells_{code.name.lower()}"] = int((status == code).sum())
    counts |= {f"cells_flow_{x.name.lower()}": int((flow == x).sum()) for x in Label}
    return dict(counts)
