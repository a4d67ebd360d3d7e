"""The orbits that a portrait shows, from torchdiffeq's odeint."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torchdiffeq import odeint

from flowsim.flow.ends import Limits
from flowsim.flow.how import How
from flowsim.flow.limits import find_limits
from flowsim.flow.reference import integrate
from flowsim.interface import Model

#: Times at which an orbit is recorded: of fast or plane ones, and of others.
TIMES, FEWER_TIMES = 61, 31
#: Kinked fields: step, times per round and rounds in units of the fastest rate, and how near to its
#: limit an orbit has to come to be joined with it.
_STEP, _ROUND, _ROUNDS, _NEAR = 0.5, 25.0, 12, 0.05


def orbit_paths(
    model: Model, start: Tensor, how: How, progress: Callable[[int], object] | None
) -> tuple[Tensor, Limits]:
    """Orbits from torchdiffeq, and their limits.

    All advance together; ``progress`` is called with how many that amounts to.

    Returns:
        (path, limits): θ (time, n, k) with the limits last. An orbit that torchdiffeq cannot
        follow to its end is NaN from there on; the others are not affected.
    """
    limits, done = find_limits(model, start, how.rtol, how.atol), 0

    def reached(share: float) -> None:
        nonlocal done
        if progress is not None and int(share * len(start)) > done:
            progress(int(share * len(start)) - done)
            done = int(share * len(start))

    if model.stiffness(start) is None:
        path = _follow(model, start, limits.theta, how, reached)
        arrived = path[-1].isfinite().all(dim=-1)
    else:
        path = _follow_kinks(model, start, reached)
        last, limit = model.plane.project(path[-1]), model.plane.project(limits.theta)
        arrived = (last - limit).abs().amax(dim=-1) < _NEAR
    reached(1.0)
    last = torch.where(arrived[:, None], limits.theta, torch.nan)
    return torch.cat([path, last.unsqueeze(0)]), limits


def _follow(
    model: Model, start: Tensor, limit: Tensor, how: How, reached: Callable[[float], object]
) -> Tensor:
    """θ in physical time, shape (time, orbit, k).

    The orbits run for six times the inverse of the model's pace, or a thousand times a bound of the
    curvature at their starts and limits, whichever is shorter.
    """
    smooth = model.fast or len(model.coordinates) == 2
    horizon, count = 6 / model.pace(), TIMES if smooth else FEWER_TIMES
    bends = model.hessian(torch.cat([start, limit])).abs().sum(dim=-1) / min(model.metric)
    if (largest := float(bends.nan_to_num().amax())) > 0:
        horizon = min(horizon, 1000 / largest)
    times = horizon * torch.cat([torch.zeros(1), torch.logspace(-5, 0, count - 1)]).double()
    rtol = how.rtol or (1e-11 if model.fast else 1e-8)
    path: Tensor = integrate(model, start, times, rtol, how.atol, reached)
    return path


def _follow_kinks(model: Model, start: Tensor, reached: Callable[[float], object]) -> Tensor:
    """θ along the flow divided by its stiffness, shape (time, orbit, k); for the eye.

    A positive rescaling of time changes no orbit. Divided by the stiffness, the fastest rate is
    at most 1 everywhere, so that the classical Runge-Kutta method is stable with a fixed step and
    no orbit waits for another; at a ReLU's kink, where an adaptive step would shrink to nothing,
    it stays within a step of the kink. Orbits that slide for long are not followed to their ends.
    """

    def field(t: Tensor, theta: Tensor) -> Tensor:
        reached((len(parts) - 1 + float(t) / _ROUND) / _ROUNDS)
        stiffness = model.stiffness(theta)
        assert stiffness is not None
        return model.field(theta) / stiffness.unsqueeze(-1)

    parts = [start.unsqueeze(0)]
    times = torch.linspace(0, _ROUND, 26, dtype=torch.float64)
    for _ in range(_ROUNDS):
        here = parts[-1][-1]
        if float(model.field(here).norm(dim=-1).max()) < 1e-4:
            break
        path = odeint(field, here, times, method="rk4", options={"step_size": _STEP})
        parts.append(path[1:])
    return torch.cat(parts)
