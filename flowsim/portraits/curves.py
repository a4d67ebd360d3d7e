"""What the window of a portrait shows beside its basins: curves, critical line, arrows."""

from __future__ import annotations

import math

import torch
import xarray as xr
from torch import Tensor

from flowsim.landscape.basins import SADDLE_ENERGY, minima_curve, separatrix
from flowsim.landscape.curvature import critical_plane, saddle_points
from flowsim.landscape.labels import CriticalPoint
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel, feed_forward_gain
from flowsim.models.linear import LinearAttentionModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.states.states_attention import StatesAttentionModel
from flowsim.models.states.states_plane import StatesModel
from flowsim.models.untied import UntiedModel
from flowsim.portraits.starts_in_plane import grid_starts, plane_starts, plane_velocity
from flowsim.records.netcdf import flags
from flowsim.scan.starts import cell_centres

CURVE_POINTS = 1201
ARROWS = 23


def with_landscape(
    record: xr.Dataset,
    model: ReducedModel,
    w_range: tuple[float, float],
    e_range: tuple[float, float],
    fixed: dict[str, float],
    points: int = CURVE_POINTS,
    arrows: int = ARROWS,
    critical: bool = True,
) -> xr.Dataset:
    """The record with the window's curves, critical line, saddles and arrows.

    ``separatrix_e`` and ``minima_e`` (curve) are the closed forms above each ``curve_w``, for both
    signs of e unless the variable's attribute ``mirrored`` is 0; NaN where there is none. For the
    rank-one model without attention the separatrix is that of the canonical model.
    ``critical_line`` is the kind of the points (0, w), where all of them are critical; it and the
    saddles are left out unless ``critical``, since they are slow to find with uniform attention.
    ``points`` along each curve, ``arrows`` a side.
    """
    w = torch.linspace(*w_range, points, dtype=torch.float64)
    saddles = _saddles(model, w, fixed) if critical else w[:0]
    if len(saddles):  # none of them twice
        w = w[(w.unsqueeze(-1) - saddles).abs().amin(dim=-1) > 1e-9]
    w = torch.cat([w, saddles]).sort().values
    border, minima, mirrored = _curves(model, w, fixed)
    record["saddle_w"] = ("saddle", saddles.numpy())
    record["curve_w"] = ("curve", w.numpy())
    record["separatrix_e"] = ("curve", border.numpy())
    record["minima_e"] = ("curve", minima.numpy(), {"mirrored": int(mirrored)})
    kind = _critical_line(model, w, fixed) if critical else None
    if kind is not None:
        record["critical_line"] = ("curve", kind.numpy(), flags(CriticalPoint))

    arrow_e, arrow_w = cell_centres(*e_range, arrows), cell_centres(*w_range, arrows)
    unit = plane_velocity(model, grid_starts(model, arrow_e, arrow_w, fixed))
    record = record.assign_coords(arrow_e=arrow_e, arrow_w=arrow_w)
    record["direction_e"] = (("arrow_e", "arrow_w"), unit[..., 0].numpy())
    record["direction_w"] = (("arrow_e", "arrow_w"), unit[..., 1].numpy())
    return record


def _line_is_critical(model: ReducedModel, fixed: dict[str, float]) -> bool:
    """Whether the points (0, w) are all critical and their kind is known.

    They are not with an unembedding or a bias of its own; of the rank-one model with attention the
    kind is not known.
    """
    lifted = isinstance(model, RankOneModel) and (model.attention or not model.tied)
    return not ("b" in fixed or "u" in model.coordinates or lifted)


def _saddles(model: ReducedModel, w: Tensor, fixed: dict[str, float]) -> Tensor:
    """The w of the saddles on e = 0 in the window, shape (m,)."""
    if not _line_is_critical(model, fixed):
        return w[:0]
    if isinstance(model, RankOneModel):
        edge = torch.tensor([-0.5], dtype=w.dtype)
        inside = bool(w[0] < -0.5 < w[-1]) and model.chain.second_eigenvalue != 0
        return edge if inside else w[:0]
    line = plane_starts(model, torch.zeros_like(w), w, fixed)
    return saddle_points(model, line)[:, model.coordinates.index("w")]


def _critical_line(model: ReducedModel, w: Tensor, fixed: dict[str, float]) -> Tensor | None:
    """The kind of (0, w) above each ``w``, int8; None where it is not known."""
    if not _line_is_critical(model, fixed):
        return None
    if isinstance(model, RankOneModel):
        return lifted_line(model, w)
    return critical_plane(model, plane_starts(model, torch.zeros_like(w), w, fixed))


def lifted_line(model: RankOneModel, w: Tensor) -> Tensor:
    """The kind of the lifts of (0, w) in the tied rank-one model without attention, int8.

    Near such a point, with e and ρ small and w₁w₂ = w|w| as lifted, the logit gap is
    Δ = e(e + 4w₂[ReLU(w₁(e + ρ)) − ReLU(w₁ρ)]): homogeneous, and over all ρ it takes every value
    between e² and e²(1 + 4w|w|). The loss falls where Δ has the sign of Δ*. So for p + q > 1 the
    point is a local minimum iff 1 + 4w|w| ≥ 0, that is w ≥ −1/2, and a saddle below; for
    p + q < 1 there is none: it is a maximum for w ≥ −1/2 and a saddle below. Source: own
    derivation.
    """
    sign = model.chain.second_eigenvalue
    if sign == 0:
        return torch.full_like(w, CriticalPoint.GLOBAL_MINIMUM, dtype=torch.int8)
    other = CriticalPoint.LOCAL_MINIMUM if sign < 0 else CriticalPoint.LOCAL_MAXIMUM
    return torch.where(w > -0.5, other, CriticalPoint.SADDLE).to(torch.int8)


def _curves(model: ReducedModel, w: Tensor, fixed: dict[str, float]) -> tuple[Tensor, Tensor, bool]:
    """Separatrix, global minima above each w, and whether both are there for −e too."""
    if isinstance(model, StatesModel):
        per_e, per_w = model.to_canonical
        border, minima = separatrix(model.chain, per_w * w), minima_curve(model.chain, per_w * w)
        return border / per_e, minima / (per_e * math.sqrt(model.gap_factor)), True
    chain, nowhere, a = model.chain, torch.full_like(w, torch.nan), fixed.get("a", 0.0)
    if isinstance(model, StatesAttentionModel):
        return nowhere, nowhere if fixed.get("v") else _curves(model.plane, w, {})[1], True
    minima = minima_curve(chain, w)
    if "b" in fixed:
        return nowhere, nowhere, True
    if isinstance(model, LinearAttentionModel):
        share = 1 + a
        squared = chain.target_logit_gap / (share * feed_forward_gain(w))
        # the orbit changes side where e² passes 2(1 + a)² or the level of the saddle's energy
        level = w.square() - w.abs().log() + SADDLE_ENERGY
        level = torch.where(w < 0, level.clamp_min(0), torch.inf).clamp_max(2 * share**2)
        trapping = share * feed_forward_gain(w) * chain.second_eigenvalue < 0
        border = torch.where(trapping, level.sqrt(), torch.nan)
        border = border if not model.dynamic_bias else nowhere
        return border, torch.where(squared > 0, squared.sqrt(), torch.nan), True
    if isinstance(model, UntiedModel):
        if "u" not in fixed:
            return nowhere, minima, True
        return nowhere, chain.target_logit_gap / (fixed["u"] * feed_forward_gain(w)), False
    if isinstance(model, RankOneModel):
        canonical = separatrix(chain, w) if not model.attention else nowhere
        return canonical, minima if a == 0 else nowhere, True
    if isinstance(model, CanonicalModel):
        return (separatrix(chain, w) if not model.dynamic_bias else nowhere), minima, True
    return nowhere, minima if a == 0 else nowhere, True
