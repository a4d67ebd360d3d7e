"""torchdiffeq on the rescaled field, for models whose loss is a function of the logit gap."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.flow.chart import Chart
from flowsim.flow.ends import Limits
from flowsim.labels import Label, Status
from flowsim.landscape.curvature import classify_critical
from flowsim.models.gap_family.base import GapModel

#: Steps in one stretch of time, the first stretch, and what none reaches.
_STEPS, _STRETCH, _HORIZON = 1000, 4.0, 1e6
#: How sharply the rescaled field slows down around Δ*, in units of the chart.
_SHARPNESS = 2.0
#: ‖∇Δ‖ where the curvature decides. Orbits that only pass a saddle stay far above it: what keeps
#: them from it, the rounding of their start at least, grows as fast as their distance falls.
_STEEPNESS = 1e-10


def follow_by_gap(
    model: GapModel, found: Limits, index: Tensor, rtol: float, atol: float, ends: bool
) -> None:
    """Follow rows on the rescaled field, in stretches of time that double, until decided.

    Args:
        model: whose loss is ℓ(Δ), bias at its optimum.
        found: where labels, points and evaluations are put.
        index: rows of ``found``, not critical.
        rtol: error allowed per step for coordinates that are integrated as logarithms.
        atol: absolute error allowed for the others.
        ends: take rows that reach the minima to Δ = Δ*; else they are left beyond it.
    """
    stretch = _STRETCH
    side = torch.sign(model.chain.target_logit_gap - model.logit_gap(found.theta[index]))
    steep = model.logit_gap_gradient(found.theta[index]).norm(dim=1)
    while len(index) and stretch < _HORIZON:
        theta, calls, moved = _stretch_of_gap(model, found.theta[index], side, stretch, rtol, atol)
        found.evaluations[index] += calls
        found.status[index[~moved]] = Status.FAILED
        index, side, theta = index[moved], side[moved], theta[moved]
        before = steep[moved]
        found.theta[index] = theta
        past = side * (model.logit_gap(theta) - model.chain.target_logit_gap) >= 0
        label = torch.where(past, Label.GLOBAL_MINIMUM, Label.UNRESOLVED).to(torch.int8)
        steep = model.logit_gap_gradient(theta).norm(dim=1)
        still = ~past & (steep < _STEEPNESS)
        if bool(still.any()):
            kind = classify_critical(model, theta[still], decisive=True)
            held = steep < before / 2
            kind[(kind == Label.SADDLE) & ~held[still]] = Label.UNRESOLVED
            label[still] = kind
        if ends and bool(past.any()):
            _land(model, found, index[past], rtol, atol)
        found.label[index] = label
        open_ = label == Label.UNRESOLVED
        index, side, steep = index[open_], side[open_], steep[open_]
        stretch *= 2


def _stretch_of_gap(
    model: GapModel,
    theta: Tensor,
    side: Tensor,
    duration: float,
    rtol: float,
    atol: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows after some rescaled time, evaluations of each, and which of them could be moved.

    In the chart v = ±G⁻¹∇Δ; the field is v/(1 + ‖v‖), times σ(−2z/(1 + ‖v‖)) where z is how far Δ
    has passed Δ*, so that rows come to a stop soon after. If the rows cannot be moved together
    they are tried in halves, so that a bad row costs itself only.
    """
    chart, target, calls = Chart.at(model, theta), model.chain.target_logit_gap, 0
    metric = _metric(model, theta)

    def field(_: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        point = chart.to_theta(y)
        v = side[:, None] * chart.push(point, model.logit_gap_gradient(point) / metric)
        speed = 1 + v.norm(dim=1)
        beyond = side * (model.logit_gap(point) - target)
        return v * ((-_SHARPNESS * beyond / speed).sigmoid() / speed)[:, None]

    try:
        end = chart.odeint(field, theta, _until(duration, theta), rtol, atol, _STEPS)[-1]
    except AssertionError:  # torchdiffeq: "underflow in dt", too many steps, not finite
        spent, moved = torch.full_like(side, calls).long(), torch.zeros_like(side).bool()
        if len(theta) == 1:
            return theta, spent, moved
        half = len(theta) // 2
        parts = [
            _stretch_of_gap(model, theta[part], side[part], duration, rtol, atol)
            for part in (slice(None, half), slice(half, None))
        ]
        end, more, moved = (torch.cat(columns) for columns in zip(*parts, strict=True))
        return end, spent + more, moved
    return end, torch.full_like(side, calls).long(), torch.ones_like(side).bool()


def _land(model: GapModel, found: Limits, index: Tensor, rtol: float, atol: float) -> None:
    """Take rows that have passed Δ* back to it; they stay where they are if that fails.

    Time u is the gap, Δ = Δ* + (Δ₀ − Δ*)(1 − u)⁴: dθ/du = (dΔ/du) v/⟨∇Δ, v⟩, v = G⁻¹∇Δ.
    """
    theta = found.theta[index]
    chart = Chart.at(model, theta)
    length = model.chain.target_logit_gap - model.logit_gap(theta)
    metric = _metric(model, theta)

    def field(u: Tensor, y: Tensor) -> Tensor:
        point = chart.to_theta(y)
        slope = model.logit_gap_gradient(point)
        ahead = slope / metric
        rate = 4 * (1 - u) ** 3 * length / (slope * ahead).sum(dim=1)
        return chart.push(point, rate[:, None] * ahead)

    try:
        end = chart.odeint(field, theta, _until(1.0, theta), rtol, atol, _STEPS)[-1]
        found.theta[index] = end
    except AssertionError:
        if len(index) > 1:
            for half in index.chunk(2):
                _land(model, found, half, rtol, atol)


def _metric(model: GapModel, theta: Tensor) -> Tensor:
    return torch.tensor(model.metric, dtype=theta.dtype, device=theta.device)


def _until(end: float, theta: Tensor) -> Tensor:
    return torch.tensor([0.0, end], dtype=torch.float64, device=theta.device)
