"""The orbit of one start: its path in the plane, what it does against time, and where it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.explorer.view import Start, View, Window
from flowsim.flow.hitting_times import settling_times
from flowsim.flow.limits import find_limits
from flowsim.flow.trajectories import trajectories
from flowsim.landscape.labels import Label
from flowsim.models.base import GapModel, ReducedModel, velocity
from flowsim.models.past_law import joint_law
from flowsim.models.rank_one import RankOneModel
from flowsim.models.rank_one_point import RankOnePoint
from flowsim.portraits.starts_in_plane import plane_starts, to_window

#: Part of the excess loss that is left at the end of the plots, and times along an orbit.
_LEFT, _TIMES = 1e-4, 160
#: Where a backward orbit ends: how far beyond the window in its sides, at what speed, and at steps
#: of what part of a side.
_BEYOND, _REST, _SHORTEST = 0.6, 1e-9, 5000


@dataclass(frozen=True)
class Path:
    """Points of an orbit in physical time: arrays of one length, time increasing.

    ``gap`` is the logit gap: of the models with attention its mean, E[f | x = 1] − E[f | x = 0].
    """

    time: np.ndarray
    e: np.ndarray
    w: np.ndarray
    loss: np.ndarray
    gap: np.ndarray
    others: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Orbit:
    """One start, followed.

    Attributes:
        label: of its limit.
        end: (e, w) of the limit, NaN where it is unresolved.
        end_loss: loss of the limit.
        forward: the path from the start on.
        backward: the path that leads to the start, if asked for and not at rest.
        view: what it belongs to, for whoever keeps it.
    """

    start: Start
    label: Label
    end: tuple[float, float]
    end_loss: float
    forward: Path
    backward: Path | None = None
    view: tuple[Any, ...] = ()


def follow_start(view: View, start: Start, stop: Callable[[], bool] = lambda: False) -> Orbit:
    """The orbit of a start in the view's model."""
    model = view.model
    e, w = (torch.tensor([x], dtype=torch.float64) for x in start)
    theta = plane_starts(model, e, w, view.held)
    limits = find_limits(model, theta)
    label = Label(int(limits.label[0]))
    horizon = _horizon(model, theta, limits)
    early = torch.logspace(-5, 0, _TIMES // 2, dtype=torch.float64)
    even = torch.linspace(0, 1, _TIMES // 2, dtype=torch.float64)
    times = horizon * torch.cat([early, even]).unique()
    rows = trajectories(model, theta[0], times)
    finite = rows.isfinite().all(dim=-1)
    resolved = label != Label.UNRESOLVED
    end = to_window(model, limits.theta)[0, :2].tolist() if resolved else [np.nan, np.nan]
    backward = _backward(view, theta[0], stop) if view.backward else None
    return Orbit(
        start,
        label,
        (end[0], end[1]),
        float(limits.loss[0]),
        _path(model, times[finite], rows[finite]),
        backward,
    )


def _horizon(model: ReducedModel, theta: Tensor, limits: object) -> float:
    """The time that is shown: until the loss has settled, or some e-folds of the slowest rate."""
    settled = float(settling_times(model, theta, _LEFT, limits=limits)[0])  # type: ignore[arg-type]
    if np.isfinite(settled) and settled > 0:
        return 1.15 * settled
    law = model.chain.stationary
    return 20 / (law[0] * law[-1] * max(abs(model.chain.second_eigenvalue), 0.05))


def _path(model: ReducedModel, times: Tensor, rows: Tensor) -> Path:
    plane = to_window(model, rows)
    names = {"a": 2} if plane.shape[-1] == 3 else {}
    others = {name: plane[:, i].numpy() for name, i in names.items()}
    for name in ("u", "b"):
        if name in model.coordinates:
            others[name] = rows[:, model.coordinates.index(name)].numpy()
    e, w = plane[:, 0].numpy(), plane[:, 1].numpy()
    return Path(times.numpy(), e, w, model.loss(rows).numpy(), mean_gap(model, rows), others)


def mean_gap(model: ReducedModel, theta: Tensor) -> np.ndarray:
    """The mean logit after a one minus that after a zero, shape (n,) of θ (n, k).

    The logit gap Δ itself of models that have one. Else, with logit_n of ``rank_one_point`` and the
    law of (x_n, S_n), S_n the ones among n symbols, E[logit_n | x_n = 1] − E[logit_n | x_n = 0]
    over all positions.
    """
    if isinstance(model, GapModel):
        return model.logit_gap(theta).numpy()
    attention = getattr(model, "attention", True)
    length = int(getattr(model, "length", 1)) if attention else 1
    if isinstance(model, RankOneModel):
        point = RankOnePoint.from_coordinates(theta, length, model.attention, model.tied)
    else:
        point = RankOnePoint.from_canonical(theta[:, :3], length)
    law = torch.from_numpy(joint_law(model.chain, length))  # type: ignore[arg-type]
    n = torch.arange(1, length + 1, dtype=torch.float64)
    share = torch.arange(length + 1) / n[:, None]
    found = torch.zeros(2, len(theta), dtype=torch.float64)
    w1, w2, wide = (x[:, None, None] for x in (point.w1, point.w2, point.o * point.v))
    for x in (0, 1):
        past = point.eps[:, None, None] * share + (point.rho.cumsum(-1) / n)[:, :, None]
        y = (point.eps[:, None] * x + point.rho)[:, :, None] + wide * past
        logit = point.c[:, None, None] * (y + 4 * w2 * (w1 * y).clamp(min=0))
        found[x] = (logit * law[:, x]).sum((1, 2)) / law[:, x].sum()
    return (found[1] - found[0]).numpy()


def _backward(view: View, theta: Tensor, stop: Callable[[], bool]) -> Path | None:
    """The way that leads to a start, by its length: dθ/ds = −v/‖v‖, dt/ds = −1/‖v‖.

    Length is the variable, since backward in time orbits run off to infinity at once. Classical
    Runge-Kutta steps, for the eye; one that would turn back, past a point where the flow rests or a
    ReLU's kink that two orbits leave, is halved. The way ends there, or outside the window, or when
    it has the length of two or three of its sides.
    """
    model = view.model
    side = max(view.window[1] - view.window[0], view.window[3] - view.window[2])
    count, sides = (120, 3) if model.loss_of_gap else (60, 2)
    step, left = side / count, sides * side
    back, size = _heading(model, theta)
    rows, times = [theta], [0.0]
    while left > 0 and step > side / _SHORTEST and size > _REST and not stop():
        here = rows[-1]
        second, _ = _heading(model, here + step / 2 * back)
        third, _ = _heading(model, here + step / 2 * second)
        fourth, _ = _heading(model, here + step * third)
        there = here + step / 6 * (back + 2 * second + 2 * third + fourth)
        ahead, faster = _heading(model, there)
        turns = min(float((x * back).sum()) for x in (second, third, fourth, ahead)) < 0
        if turns or not bool(there.isfinite().all()):
            step /= 2
            continue
        rows.append(there)
        times.append(times[-1] - step * (1 / size + 1 / max(faster, _REST)) / 2)
        back, size, left = ahead, faster, left - step
        if _outside(view.window, to_window(model, there[None])[0].numpy()) < 0:
            break
    if len(rows) < 2:
        return None
    return _path(model, torch.tensor(times[::-1]).double(), torch.stack(rows[::-1]))


def _heading(model: ReducedModel, theta: Tensor) -> tuple[Tensor, float]:
    """The unit vector against the flow, zero where it rests, and the flow's speed."""
    v = velocity(model, theta[None])[0]
    size = float(v.norm())
    return -v / max(size, _REST), size


def _outside(window: Window, plane: np.ndarray) -> float:
    """How far a point (e, w) lies within the window and a margin; negative beyond it."""
    w_low, w_high, e_low, e_high = window
    x = abs(plane[1] - (w_low + w_high) / 2) / (w_high - w_low)
    y = abs(plane[0] - (e_low + e_high) / 2) / (e_high - e_low)
    return 0.5 + _BEYOND - max(x, y)
