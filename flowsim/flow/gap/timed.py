"""Orbits in physical time: paths at given times, and the time until a given logit gap.

The steps are those of ``loops`` in physical time, dΔ/dt = −ℓ′(Δ)‖∇Δ‖² and dy/dt = (dy/dΔ)(dΔ/dt)
of every coordinate y. Times within a step are answered by its interpolant.
Next to its end an orbit is a straight line on which r, the distance of Δ from the end, obeys
dt = −A(r) dr/r with A linear in r: from there on path and time have a closed form.
Source: docs/derivations/02.md.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import DOP853

from flowsim.compiled import template
from flowsim.flow.gap.hooks import (
    LossParameters,
    Point,
    gap,
    is_level,
    loss,
    rates,
    sign_of_z,
    slope,
    theta_of,
    turns_back,
)
from flowsim.flow.gap.loops import (
    END,
    Stages,
    as_triple,
    error,
    first_length,
    initial_point,
    locate_event,
    max_step,
    moved,
    next_step,
    on_minima,
    reject_step,
    speed,
    stage13,
    stage14,
    stage15,
    step,
    store,
    velocity,
)
from flowsim.flow.options import Steps

#: The last four vectors of the interpolant (Hairer, Nørsett & Wanner, II.6).
dense3, dense4, dense5, dense6 = (moved(row, (*END, *range(12, 16))) for row in DOP853.D)
#: The tail begins where A changes by less than this many times √rtol on its way.
_STRAIGHT = 0.3


@template(no_cpython_wrapper=True)
def tail(
    far: bool, sign: float, params: LossParameters, p: Point, end: float, rtol: float
) -> tuple[bool, Point, float, float]:
    """Try whether the rest of the way, from p to Δ = ``end``, is a straight line within rtol.

    Returns whether it is, the last point, and A = (end − Δ)/(dΔ/dt), a time, there and at p.
    """
    left = end - gap(far, sign, *p)
    k, rate = rates(far, sign, *p), speed(far, sign, params, *p)
    here = left / rate
    near = math.sqrt(rtol)
    if not here > 0.0 or abs(k[1] * left) > 1e-2 * (1.0 if far else p[1]):
        return False, p, here, here
    last = locate_event(far, sign, p, end, False)
    middle = (0.5 * (p[0] + last[0]), 0.5 * (p[1] + last[1]), 0.5 * (p[2] + last[2]))
    half = (end - gap(far, sign, *middle)) / speed(far, sign, params, *middle)
    k_last = rates(far, sign, *last)
    bent = max(
        abs((k_last[0] - k[0]) * left) / p[0],
        abs((k_last[1] - k[1]) * left) / (1.0 if far else max(p[1], 1e-300)),
        abs((k_last[2] - k[2]) * left) / max(abs(p[2]), 1.0),
    )
    straight = bent <= rtol and abs(half - here) <= _STRAIGHT * near * here
    return straight, last, 2.0 * half - here, here


@template(no_cpython_wrapper=True)
def between(p: Point, after: Point, h: float, x: float, dense: tuple[Point, ...]) -> Point:
    """Interpolate within a step from p to ``after``, at the part x of it (0 to 1).

    ``dense`` is what ``dense_vectors`` returns.
    """
    return (
        _nested(p[0], after[0], x, 0, dense), _nested(p[1], after[1], x, 1, dense),
        0.0 if sign_of_z() == 0 else _nested(p[2], after[2], x, 2, dense),
    )  # fmt: skip


@template(no_cpython_wrapper=True)
def _nested(before: float, after: float, x: float, c: int, dense: tuple[Point, ...]) -> float:
    """Return coordinate c of ``between``, which is ``before`` at x = 0 and ``after`` at x = 1."""
    d1, d2, d3, d4, d5, d6 = dense
    y = 1.0 - x
    late = d3[c] + x * (d4[c] + y * (d5[c] + x * d6[c]))
    return before + x * (after - before + y * (d1[c] + x * (d2[c] + y * late)))


@template(no_cpython_wrapper=True)
def dense_vectors(
    far: bool, sign: float, params: LossParameters, p: Point, after: Point, h: float,
    k0: Point, stages: Stages,
) -> tuple[Point, ...]:  # fmt: skip
    """Return the six vectors d1 … d6 by which ``between`` interpolates within a step.

    The step has length h, goes from p, where the slope is k0, to ``after``, and had these stages.
    """
    k12 = velocity(far, sign, params, *after)
    k13 = velocity(far, sign, params, *stage13(p, h, k0, *stages, k12))
    k14 = velocity(far, sign, params, *stage14(p, h, k0, *stages, k12, k13))
    k15 = velocity(far, sign, params, *stage15(p, h, k0, *stages, k12, k13, k14))
    zero = (0.0, 0.0, 0.0)
    change = (after[0] - p[0], after[1] - p[1], after[2] - p[2])
    d1 = (h * k0[0] - change[0], h * k0[1] - change[1], h * k0[2] - change[2])
    d2 = (
        2.0 * change[0] - h * (k12[0] + k0[0]), 2.0 * change[1] - h * (k12[1] + k0[1]),
        2.0 * change[2] - h * (k12[2] + k0[2]),
    )  # fmt: skip
    return (
        d1, d2, dense3(zero, h, k0, *stages, k12, k13, k14, k15),
        dense4(zero, h, k0, *stages, k12, k13, k14, k15),
        dense5(zero, h, k0, *stages, k12, k13, k14, k15),
        dense6(zero, h, k0, *stages, k12, k13, k14, k15),
    )  # fmt: skip


@template(no_cpython_wrapper=True)
def time_on_step(
    far: bool, sign: float, params: LossParameters, p: Point, k0: Point, h: float, part: float,
    wanted: float,
) -> float:  # fmt: skip
    """Return the time, within a step of length h from p, after which Δ = ``wanted``.

    By Newton's method, bracketed, which begins at the fraction ``part`` of the step.
    """
    low, high, s = 0.0, h, part * h
    for _ in range(60):
        point = step(far, sign, params, s, p, k0)[0]
        left, rate = wanted - gap(far, sign, *point), speed(far, sign, params, *point)
        if left * rate > 0.0:
            low = s
        else:
            high = s
        last, s = s, s + left / rate
        if not low <= s <= high:
            s = 0.5 * (low + high)
        if abs(s - last) <= 1e-15 * h:
            break
    return s


@template(no_cpython_wrapper=True)
def trace(
    params: LossParameters,
    start: Point,
    wanted: float,
    times: np.ndarray,
    allowed: Steps,
    path: np.ndarray,
) -> float:
    """Follow an orbit from θ until Δ = ``wanted`` (NaN: for ever), or to the last of ``times``.

    Writes θ at these times (T,) since the start into ``path`` (T, k). Returns the physical time
    until Δ = ``wanted``, NaN where it could not be followed.
    """
    target, count, done, time = params[0], len(times), 0, 0.0
    far, sign, p = initial_point(start, target)
    end = 0.0 if turns_back(far, sign, *p, target) else target
    now, k0, last = gap(far, sign, *p), velocity(far, sign, params, *p), (0.0, 1.0)
    h = first_length(now, end, allowed.rtol) / abs(speed(far, sign, params, *p))
    h = min(h, max_step(far, p, k0))
    for _ in range(allowed.most):
        after, stages = step(far, sign, params, h, p, k0)
        ratio = error(far, h, p, after, k0, stages, allowed)
        if not ratio <= 1.0:
            h = reject_step(h, ratio)
            if h == 0.0:
                return math.nan
            continue
        before, now = now, gap(far, sign, *after)
        if (wanted - before) * (wanted - now) <= 0.0:
            part = (wanted - before) / (now - before) if now != before else 0.0
            return time + time_on_step(far, sign, params, p, k0, h, part, wanted)
        if done < count and times[done] <= time + h:
            dense = dense_vectors(far, sign, params, p, after, h, k0, stages)
            while done < count and times[done] <= time + h:
                q = between(p, after, h, (times[done] - time) / h, dense)
                store(theta_of(far, sign, *q, start[0], start[1]), path[done])
                done += 1
        if 0 < count == done:
            return math.nan
        time, p = time + h, after
        if end != target and now * target > 0.0:  # the way has led over Δ = 0
            end = target
        k0 = velocity(far, sign, params, *p)
        straight, rest, slow, fast = tail(far, sign, params, p, end, allowed.rtol)
        if straight:
            _follow_tail(far, sign, start, p, rest, slow, fast, times, time, done, path)
            part = (end - wanted) / (end - now)
            return time - slow * math.log(part) + (fast - slow) * (1.0 - part)
        h, last = next_step(far, p, k0, h, ratio, last, math.inf)
    return math.nan


@template(no_cpython_wrapper=True)
def _follow_tail(
    far: bool, sign: float, start: Point, p: Point, rest: Point, slow: float, fast: float,
    times: np.ndarray, began: float, done: int, path: np.ndarray,
) -> None:  # fmt: skip
    """Write θ at ``times``, from number ``done`` on, on the straight way from p to ``rest``.

    The way begins at the time ``began``; ``slow`` and ``fast`` are A at ``rest`` and at p.
    """
    for i in range(done, len(times)):
        since = times[i] - began
        part = math.exp(-since / slow)
        part = math.exp(-(since - (fast - slow) * (1.0 - part)) / slow)
        x = rest[0] + part * (p[0] - rest[0])
        y = rest[1] + part * (p[1] - rest[1])
        z = rest[2] + part * (p[2] - rest[2])
        store(theta_of(far, sign, x, y, z, start[0], start[1]), path[i])


@template(no_cpython_wrapper=True)
def gap_at(params: LossParameters, start: float, end: float, wanted: float) -> float:
    """Return the gap Δ with ℓ(Δ) = ``wanted`` between ``start`` and ``end``, where ℓ is monotone.

    Newton's method, bracketed, until it moves no more.
    """
    above, below = start, end  # where the loss is above and below what is wanted
    gap = 0.5 * (start + end)
    for _ in range(200):
        excess = loss(params, gap) - wanted
        if excess > 0.0:
            above = gap
        else:
            below = gap
        last, steep = gap, slope(params, gap - params[0])
        gap = gap - excess / steep if steep != 0.0 else math.nan
        if not (min(above, below) <= gap <= max(above, below)):
            gap = 0.5 * (above + below)
        if abs(gap - last) <= 1e-16 * abs(gap):
            break
    return gap


@template
def find_paths(
    params: LossParameters, starts: np.ndarray, times: np.ndarray, allowed: Steps, path: np.ndarray
) -> None:
    """Write θ of all rows at ``times`` into ``path`` (n, T, k).

    Starts have shape (n, k); times since the start, (n, T), increase.

    A row that cannot be followed is NaN from the first time on that is not known.
    """
    for n in range(len(starts)):
        path[n] = math.nan
        start = as_triple(starts[n])
        if not math.isfinite(start[0] + start[1] + start[2]):
            continue
        far, sign, p = initial_point(start, params[0])
        if is_level(far, start, sign, *p) or on_minima(far, sign, p, params[0], allowed.rtol):
            for i in range(times.shape[1]):
                store(start, path[n, i])
        else:
            trace(params, start, math.nan, times[n], allowed, path[n])


@template
def find_times(
    params: LossParameters, starts: np.ndarray, ends: np.ndarray, fraction: float, allowed: Steps,
    found: np.ndarray,
) -> None:  # fmt: skip
    """Write the times until ``fraction`` of the excess loss is left into ``found`` (n,).

    Starts have shape (n, k) and are not at rest; ``ends`` (n,) holds the gap at each orbit's end.
    A time is NaN where the excess at the start is lost in rounding, or the orbit is.
    """
    for n in range(len(starts)):
        start = as_triple(starts[n])
        far, sign, p = initial_point(start, params[0])
        now, lowest = gap(far, sign, *p), loss(params, ends[n])
        excess = loss(params, now) - lowest
        if not excess > 0.0:
            found[n] = math.nan
            continue
        wanted = gap_at(params, now, ends[n], lowest + fraction * excess)
        found[n] = trace(params, start, wanted, ends[:0], allowed, starts[n : n + 1])
