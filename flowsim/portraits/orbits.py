"""The orbits that a portrait shows, from torchdiffeq's odeint."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torchdiffeq import odeint

from flowsim.flow.limits import find_limits
from flowsim.flow.reference import integrate
from flowsim.landscape.curvature import hessian
from flowsim.models.base import ReducedModel, velocity
from flowsim.models.rank_one import RankOneModel
from flowsim.portraits.starts_in_plane import mesh, plane_starts, to_window

ORBITS_PER_SIDE = 6
#: Times at which an orbit is recorded, where the loss is a function of the gap and elsewhere.
TIMES, FEWER_TIMES = 61, 31
#: Starts of the rank-one model: where its orbits move without being stiff.
_LATTICE = (-1.6, -0.55, 0.55, 1.6)
#: The rank-one model: step, times per round and rounds in units of the fastest rate, and how near
#: to its limit an orbit has to come to be joined with it.
_STEP, _ROUND, _ROUNDS, _NEAR = 0.5, 25.0, 12, 0.05


def window_starts(
    model: ReducedModel,
    w_range: tuple[float, float],
    e_range: tuple[float, float],
    fixed: dict[str, float],
) -> Tensor:
    """Starts of a portrait's orbits, within |e|, |w| ≤ 4, shape (n, k).

    They are spread along the window's four sides; those of the rank-one model over its part within
    |e|, |w| ≤ 1.75.
    """
    low = torch.tensor([e_range[0], w_range[0]], dtype=torch.float64).clamp(-4, 4)
    high = torch.tensor([e_range[1], w_range[1]], dtype=torch.float64).clamp(-4, 4)
    if not isinstance(model, RankOneModel):
        start = low + _around() * (high - low)
        return plane_starts(model, start[:, 0], start[:, 1], fixed)
    low, high = low.clamp(-1.75, 1.75), high.clamp(-1.75, 1.75)
    unit = torch.tensor(_LATTICE, dtype=torch.float64) / 3.5 + 0.5
    e, w = mesh(*((low[i] + unit * (high - low)[i]).numpy() for i in (0, 1)))
    return plane_starts(model, e.flatten(), w.flatten(), fixed)


def orbit_paths(
    model: ReducedModel,
    start: Tensor,
    rtol: float | None,
    atol: float,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """Orbits in (e, w), or (e, w, a), from torchdiffeq, and their limits' labels.

    All advance together; ``progress`` is called with how many that amounts to.

    Returns:
        (path, label): (time, n, 2 or 3) with the limits last, and (n,). An orbit that torchdiffeq
        cannot follow to its end is NaN from there on; the others are not affected.
    """
    limits, done = find_limits(model, start, rtol, atol), 0

    def reached(share: float) -> None:
        nonlocal done
        if progress is not None and int(share * len(start)) > done:
            progress(int(share * len(start)) - done)
            done = int(share * len(start))

    if isinstance(model, RankOneModel):
        path = to_window(model, _follow_kinks(model, start, reached))
    else:
        path = to_window(model, _follow(model, start, limits.theta, rtol, atol, reached))
    reached(1.0)
    last = to_window(model, limits.theta)
    arrived = path[-1].isfinite().all(dim=-1)
    if isinstance(model, RankOneModel):
        arrived &= (path[-1] - last).abs().amax(dim=-1) < _NEAR
    last = torch.where(arrived[:, None], last, torch.nan)
    return torch.cat([path, last.unsqueeze(0)]), limits.label


def _follow(
    model: ReducedModel,
    start: Tensor,
    limit: Tensor,
    rtol: float | None,
    atol: float,
    reached: Callable[[float], object],
) -> Tensor:
    """θ in physical time, shape (time, orbit, k).

    The orbits run for a dozen e-folds of e near the origin, whose rate is 2|λ|π₀π₁, or a thousand
    times a bound of the curvature at their starts and limits, whichever is shorter.
    """
    law = model.chain.stationary
    count = TIMES if model.loss_of_gap else FEWER_TIMES
    horizon = 6 / (law[0] * law[-1] * max(abs(model.chain.second_eigenvalue), 0.1))
    curvature = hessian(model, torch.cat([start, limit])).abs().sum(dim=-1) / min(model.metric)
    if (largest := float(curvature.nan_to_num().amax())) > 0:
        horizon = min(horizon, 1000 / largest)
    times = horizon * torch.cat([torch.zeros(1), torch.logspace(-5, 0, count - 1)]).double()
    rtol = rtol or (1e-11 if model.loss_of_gap else 1e-8)
    return integrate(model, start, times, rtol, atol, reached)


def _follow_kinks(model: RankOneModel, start: Tensor, reached: Callable[[float], object]) -> Tensor:
    """θ along the flow divided by its stiffness, shape (time, orbit, k); for the eye.

    A positive rescaling of time changes no orbit. Divided by the stiffness, the fastest rate is
    at most 1 everywhere, so that the classical Runge-Kutta method is stable with a fixed step and
    no orbit waits for another; at a ReLU's kink, where an adaptive step would shrink to nothing,
    it stays within a step of the kink. Orbits that slide for long are not followed to their ends.
    """

    def field(t: Tensor, theta: Tensor) -> Tensor:
        reached((len(parts) - 1 + float(t) / _ROUND) / _ROUNDS)
        return velocity(model, theta) / model.stiffness(theta).unsqueeze(-1)

    parts = [start.unsqueeze(0)]
    times = torch.linspace(0, _ROUND, 26, dtype=torch.float64)
    for _ in range(_ROUNDS):
        here = parts[-1][-1]
        if float(velocity(model, here).norm(dim=-1).max()) < 1e-4:
            break
        path = odeint(field, here, times, method="rk4", options={"step_size": _STEP})
        parts.append(path[1:])
    return torch.cat(parts)


def _around() -> Tensor:
    """Places a little inside the four sides of the unit square, shape (n, 2)."""
    inset = 0.04
    spread = torch.linspace(inset, 1 - inset, ORBITS_PER_SIDE, dtype=torch.float64)
    near, far = torch.full_like(spread, inset), torch.full_like(spread, 1 - inset)
    sides = [(near, spread), (far, spread), (spread, near), (spread, far)]
    return torch.cat([torch.stack(side, dim=-1) for side in sides]).unique(dim=0)
