"""Paths of the flow with noise, all together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.interface import Model, starts_of
from flowsim.running import expect, quickly

#: A step times the fastest rate at the starts and at their ends, the least number of steps, and at
#: how many of the starts the rates are asked.
_PART, _LEAST, _ASKED = 0.05, 200, 64
#: The most steps of a path: minutes to hours.
_MOST = 1_000_000

#: A function of places, (n, k) to (n,), that is positive where a path has arrived.
Target = Callable[[Tensor], Tensor]


class Passages(NamedTuple):
    """First passages of paths through targets.

    Attributes:
        target: number of the target that was met first, int64, (n,); −1 where none was.
        time: when, (n,); NaN where none was.
        theta: where the path was then, or at last, (n, k).
    """

    target: Tensor
    time: Tensor
    theta: Tensor


@quickly
def diffuse(
    model: Model,
    starts: Numbers,
    temperature: float | Numbers,
    time: float,
    generator: torch.Generator,
    step: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Tensor:
    """Move starts under Langevin noise for a time: dθ = −G⁻¹∇L dt + √(2T) G^−½ dB.

    Steps are of Heun's method for additive noise, of weak order two (Kloeden and Platen, *Numerical
    Solution of Stochastic Differential Equations*, 1992, 15.1).

    Args:
        model: any model; of a field that is no gradient the field takes the place of −G⁻¹∇L.
        starts: shape (n, k), one path from each.
        temperature: T ≥ 0 of all paths or of each, (n,), in nats.
        time: of the flow.
        generator: of the noise.
        step: in time; by default 0.05 over the fastest rate at starts and ends, and a 200th of the
            time at most.
        progress: called with the number of steps done.

    Returns:
        θ at the time, (n, k).

    Raises:
        InputError: starts of a wrong shape, a negative temperature, a time or step that is not
            positive, or a time of more than 1 000 000 steps.

    >>> import flowsim, torch
    >>> well = flowsim.from_loss(lambda x: (x**2 - 1) ** 2 / 4, "well")
    >>> generator = torch.Generator().manual_seed(0)
    >>> found = flowsim.noise.diffuse(well, torch.full((2000, 1), 1.0), 0.02, 5.0, generator)
    >>> bool(((found.var() - 0.0112).abs() < 0.002).all())
    True
    """
    theta, spread = _prepared(model, starts, temperature, time)
    step = step_of(model, theta, time) if step is None else _positive("step", step)
    if time > _MOST * step:
        raise InputError(
            f"a time of {time:g} takes more than {_MOST} steps of {step:g}: take a shorter time or "
            "a larger step"
        )
    steps = max(math.ceil(time / step), 1)
    expect(progress, steps)
    for _ in range(steps):
        theta = _heun_step(model, theta, spread, time / steps, generator)
        if progress is not None:
            progress(1)
    return theta


@quickly
def first_passages(
    model: Model,
    starts: Numbers,
    temperature: float | Numbers,
    targets: Sequence[Target],
    longest: float,
    generator: torch.Generator,
    step: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Passages:
    """Find when and where paths under Langevin noise first meet one of several targets.

    A path that is on the near side before and after a step may have crossed between: with the
    chance exp(−2ab/(2T‖∇g‖²h)) of a Brownian bridge, where a and b are the values of a target g
    before and after a step h; exact where g is linear and the drift even.

    Args:
        model, starts, temperature, generator: as of ``diffuse``.
        targets: functions of places that are positive behind the target's surface.
        longest: time after which a path is left.
        step: as of ``diffuse``.
        progress: called with the number of paths that are done.

    Raises:
        InputError: as ``diffuse``.

    >>> import flowsim, torch
    >>> well = flowsim.from_loss(lambda x: (x**2 - 1) ** 2 / 4, "well")
    >>> generator, starts = torch.Generator().manual_seed(0), torch.zeros(1000, 1)
    >>> sides = [lambda x: x[:, 0] - 1, lambda x: -1 - x[:, 0]]
    >>> found = flowsim.noise.first_passages(well, starts, 0.05, sides, 100.0, generator)
    >>> bool(((found.target == 0).double().mean() - 0.5).abs() < 0.06)
    True
    """
    theta, spread = _prepared(model, starts, temperature, longest)
    step = step_of(model, theta, longest) if step is None else _positive("step", step)
    found = torch.full((len(theta),), -1)
    time = torch.full((len(theta),), torch.nan, dtype=torch.float64)
    last, rows, now = theta.clone(), torch.arange(len(theta)), 0.0
    expect(progress, len(theta))
    for number, target in enumerate(targets):
        found[(target(theta) >= 0) & (found < 0)] = number
    time[found >= 0] = 0.0
    here = found[rows] < 0
    theta, spread, rows = theta[here], spread[here], rows[here]
    while len(rows) and now < longest:
        new = _heun_step(model, theta, spread, step, generator)
        first = torch.full((len(rows),), -1)
        part = torch.ones(len(rows), dtype=torch.float64)
        for number, target in enumerate(targets):
            before, after, slope = _before_and_after(target, theta, new)
            square = (slope**2 * spread**2).sum(1) * step
            chance = torch.exp(-2 * before.clamp_max(0) * after.clamp_max(0) / square)
            drawn = torch.rand(len(rows), generator=generator, dtype=torch.float64)
            met = (after >= 0) | (drawn < chance)
            share = torch.where(after > 0, before / (before - after), 0.5)
            sooner = met & (share < part)
            first[sooner], part[sooner] = number, share[sooner]
        theta, done = new, first >= 0
        found[rows[done]] = first[done]
        time[rows[done]] = now + part[done] * step
        last[rows] = theta
        now += step
        if bool(done.any()):
            theta, spread, rows = theta[~done], spread[~done], rows[~done]
            if progress is not None:
                progress(int(done.sum()))
    return Passages(found, time, last)


def _prepared(
    model: Model, starts: Numbers, temperature: float | Numbers, time: float
) -> tuple[Tensor, Tensor]:
    """Check arguments; return starts and the noise's standard deviation over √time, both (n, k)."""
    theta = starts_of(model, starts)
    warmth = to_tensor(temperature, "temperature")
    if warmth.ndim > 1 or not bool((warmth >= 0).all()) or warmth.numel() not in (1, len(theta)):
        raise InputError("temperature must be at least 0: one number, or one for each start")
    _positive("time", time)
    metric = torch.tensor(model.metric, dtype=torch.float64)
    return theta, (2 * warmth.reshape(-1, 1) / metric).sqrt().expand(theta.shape)


def _positive(argument: str, value: float) -> float:
    """Return the value as a float; InputError unless it is positive and finite."""
    if not 0 < value < math.inf:
        raise InputError(f"{argument} must be positive, not {value}")
    return float(value)


def step_of(model: Model, theta: Tensor, time: float) -> float:
    """The usual step in time of paths from starts (n, k), as ``diffuse`` says."""
    sample = theta[:: max(len(theta) // _ASKED, 1)]
    ends = find_limits(model, sample).theta
    places = torch.cat([sample, ends[ends.isfinite().all(1)]])
    rates = torch.linalg.matrix_norm(model.jacobian(places).detach(), 2)
    fastest = float(rates[rates.isfinite()].max()) if bool(rates.isfinite().any()) else 0.0
    return min(_PART / max(fastest, 1e-300), time / _LEAST)


def _heun_step(
    model: Model, theta: Tensor, spread: Tensor, step: float, generator: torch.Generator
) -> Tensor:
    """Move places θ (n, k) by a step of Heun's method, with noise of that ``spread`` per √time."""
    normal = torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    noise = spread * math.sqrt(step) * normal
    here = model.field(theta).detach()
    there = model.field(theta + step * here + noise).detach()
    return theta + step / 2 * (here + there) + noise


def _before_and_after(target: Target, theta: Tensor, new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A target's values before and after a step, (n,), and its gradient before, (n, k)."""
    with torch.enable_grad():
        place = theta.detach().requires_grad_()
        before = target(place)
        (slope,) = torch.autograd.grad(before.sum(), place)
    return before.detach(), target(new).detach(), slope
