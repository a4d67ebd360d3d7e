"""Orbits in physical time: paths at given times, and the time until a given logit gap."""

from __future__ import annotations

import math

import numpy as np

from flowsim.compiled import template
from flowsim.flow.gap.dense import (
    NODES,
    duration,
    place,
    point_at,
    prepare,
    tail,
)
from flowsim.flow.gap.hooks import (
    Law,
    Point,
    gap,
    is_far,
    is_level,
    loss,
    margins,
    point_of,
    rates,
    size,
    slope,
    theta_of,
    turns_back,
)
from flowsim.flow.gap.orbit import LANDED, ROUNDING, land, on_minima
from flowsim.flow.gap.step import (
    error,
    first_length,
    growth,
    next_length,
    reach,
    shorter,
    step,
    towards,
)
from flowsim.models.elementary import LARGEST, exponential

#: The least error in u that can be asked for: what rounding leaves.
_UNSURE = 2e-13
#: The error in log u with which a time is placed on a step, over rtol.
_PLACED = 1e-6

Scratch = tuple[np.ndarray, np.ndarray, np.ndarray]


def scratch_arrays() -> Scratch:
    """Room for the values at the nodes, the course and the power series of one step."""
    return np.zeros((4, NODES)), np.zeros((4, NODES)), np.zeros((3, 5))


@template(internal=True)
def trace(
    far: bool,
    law: Law,
    start: Point,
    wanted: float,
    times: np.ndarray,
    rtol: float,
    atol: float,
    max_steps: int,
    scratch: Scratch,
    path: np.ndarray,
) -> float:
    """Follow an orbit until Δ = ``wanted``, the last of ``times``, or its end.

    Args:
        far, law: the chart of the row, and the model's data.
        start: θ as three numbers.
        wanted: the gap at which to stop; NaN for none.
        times: since the start, increasing.
        rtol, atol, max_steps: error allowed per step, of Δ's remaining way too, and attempts.
        scratch: from ``scratch_arrays``.
        path: to be filled with θ at the times, shape (T, k).

    Returns:
        The physical time until the end of the way, infinite if it is a critical point; NaN where
        it could not be followed.
    """
    work, course, series = scratch
    close = math.sqrt(_PLACED * rtol)
    target, count, done, time = law[0], len(times), 0, 0.0
    sign, x, y, z = point_of(far, start[0], start[1], start[2])
    end = 0.0 if turns_back(far, sign, x, y, z, target) else target
    now = gap(far, sign, x, y, z)
    aim = wanted if (wanted - now) * (wanted - end) <= 0.0 else end
    x0, y0, z0 = rates(far, sign, x, y, z)
    length = min(first_length(now, end, rtol), reach(far, y, y0))
    h = towards(length, aim - now)
    last_h, last_grow = 0.0, 1.0
    for _ in range(max_steps):
        x1, y1, z1, kx, ky, kz = step(far, sign, h, x, y, z, x0, y0, z0)
        before, after, slopes, stages = (x, y, z), (x1, y1, z1), (x0, y0, z0), (kx, ky, kz)
        ratio = error(far, h, before, after, slopes, stages, rtol, atol)
        aimed, landed, pole, left = h == aim - now, False, end, 0.0
        if aimed and ratio <= 1.0:
            left = aim - gap(far, sign, x1, y1, z1)
            landed = abs(left) <= max(LANDED * abs(h), ROUNDING * size(far, x1, y1, z1))
        if landed:
            on_plane = False
            if aim == 0.0 and end == 0.0:
                plane, other = margins(far, sign, x1, y1, z1)
                on_plane = plane < other
                pole = 0.0 if on_plane else target
            after = land(far, sign, x1, y1, z1, aim, on_plane)
        if ratio <= 1.0:
            if pole != 0.0 and not (landed and aim == pole) and 0.0 < now / pole < 0.5:
                pole = 0.0  # behind
            log_part, unsure = prepare(
                far, sign, law, now, h, pole, before, after, slopes, stages, atol / rtol,
                work, course,
            )  # fmt: skip
            ratio = max(ratio, unsure / max(rtol, _UNSURE))
        if not ratio <= 1.0:
            h = shorter(h, ratio)
            if h == 0.0:
                return math.nan
            continue
        fall = h / (pole - now)
        ended = time + duration(course, log_part, fall)
        done = _write(far, sign, start, course, log_part, fall, after, series,
                      times, time, ended, done, close, path)  # fmt: skip
        if landed and (aim == wanted or fall == 1.0):
            return ended
        if count > 0 and done == count:
            return ended
        time = ended
        x, y, z = after
        now = gap(far, sign, x, y, z)
        if landed:  # on Δ = 0, and on the way to Δ*
            end = target
            aim = wanted if (wanted - now) * (wanted - end) <= 0.0 else end
        x0, y0, z0 = rates(far, sign, x, y, z)
        grow = growth(ratio)
        length = next_length(h, grow, last_h, last_grow)
        last_h, last_grow = h, grow
        h = towards(min(length, reach(far, y, y0)), aim - now)
    return math.nan


@template(internal=True)
def _write(
    far: bool,
    sign: float,
    start: Point,
    course: np.ndarray,
    log_part: float,
    fall: float,
    after: Point,
    series: np.ndarray,
    times: np.ndarray,
    began: float,
    ended: float,
    done: int,
    close: float,
    path: np.ndarray,
) -> int:
    """θ at all times on the step that began at ``began``; how many times are done then."""
    if done == len(times) or times[done] >= ended:
        return done
    late, origin = math.inf, 0.0
    if fall == 1.0:
        origin, late = tail(course, log_part, after, close * close, series)
    s, last, fast, change = 0.0, 0.0, 0.0, 0.0
    while done < len(times) and times[done] < ended and not times[done] - began > late:
        t = times[done] - began
        if last > 0.0:  # s as the tangent and its bend go on
            s += (t - last) * (fast + 0.5 * (t - last) * change)
        s, u, kappa = place(course, log_part, fall, t, s, close)
        change = (-1.0 / kappa - fast) / (t - last) if last > 0.0 else 0.0
        last, fast = t, -1.0 / kappa
        v = 1.0 - (1.0 - u) / fall
        x, y, z = point_at(course, after, max(v, 0.0))
        _put(theta_of(far, sign, x, y, z, start[0], start[1]), path[done])
        done += 1
    if fall != 1.0:
        return done
    for i in range(done, len(times)):  # a loop of its own, so that it uses vectors
        path[i, 0] = exponential(max((origin - (times[i] - began)) / log_part, -LARGEST))
    for i in range(done, len(times)):
        x, y, z = power_series(series, path[i, 0])
        _put(theta_of(far, sign, x, y, z, start[0], start[1]), path[i])
    return len(times)


@template(internal=True)
def _put(theta: Point, row: np.ndarray) -> None:
    """Write the first two or three of θ's coordinates into a row of a path."""
    row[0], row[1] = theta[0], theta[1]
    if len(row) == 3:
        row[2] = theta[2]


@template(fused=True, internal=True)
def power_series(series: np.ndarray, power: float) -> Point:
    """Three polynomials of degree 4 in ``power``, the constant coefficient first: (x, y, z)."""
    x, y, z = series[0, 4], series[1, 4], series[2, 4]
    for i in range(3, -1, -1):
        x, y, z = x * power + series[0, i], y * power + series[1, i], z * power + series[2, i]
    return x, y, z


@template(internal=True)
def gap_at(law: Law, start: float, end: float, wanted: float) -> float:
    """The gap between start and end, where ℓ is monotone, with ℓ(Δ) = wanted.

    Newton's method, bracketed, until it moves no more.
    """
    above, below = start, end  # where the loss is above and below what is wanted
    gap = 0.5 * (start + end)
    for _ in range(200):
        excess = loss(law, gap) - wanted
        if excess > 0.0:
            above = gap
        else:
            below = gap
        last, steep = gap, slope(law, gap - law[0])
        gap = gap - excess / steep if steep != 0.0 else math.nan
        if not (min(above, below) <= gap <= max(above, below)):
            gap = 0.5 * (above + below)
        if abs(gap - last) <= 1e-16 * abs(gap):
            break
    return gap


@template
def find_paths(
    law: Law,
    starts: np.ndarray,
    times: np.ndarray,
    rtol: float,
    atol: float,
    max_steps: int,
    scratch: Scratch,
    path: np.ndarray,
) -> None:
    """θ of all rows, shape (n, k), at increasing times since the start: ``path`` (n, T, k).

    A row that cannot be followed is NaN from the first time on that is not known.
    """
    k, target = starts.shape[1], law[0]
    for n in range(len(starts)):
        path[n] = math.nan
        start = starts[n, 0], starts[n, 1], starts[n, 2] if k == 3 else 0.0
        if not math.isfinite(start[0] + start[1] + start[2]):
            continue
        far = is_far(start[0], start[1], start[2], target)
        sign, x, y, z = point_of(far, start[0], start[1], start[2])
        if is_level(far, start, sign, x, y, z) or on_minima(far, sign, x, y, z, target, rtol):
            for i in range(len(times)):
                for j in range(k):
                    path[n, i, j] = starts[n, j]
            continue
        trace(far, law, start, math.nan, times, rtol, atol, max_steps, scratch, path[n])


@template
def find_times(
    law: Law,
    starts: np.ndarray,
    ends: np.ndarray,
    fraction: float,
    rtol: float,
    max_steps: int,
    scratch: Scratch,
    found: np.ndarray,
) -> None:
    """The time until ``fraction`` of the excess loss is left, shape (n,).

    Starts have shape (n, k) and move; ``ends`` holds the gap at which each orbit ends, shape (n,).
    A time is NaN where the excess at the start is lost in rounding, or the orbit is.
    """
    k = starts.shape[1]
    for n in range(len(starts)):
        start = starts[n, 0], starts[n, 1], starts[n, 2] if k == 3 else 0.0
        far = is_far(start[0], start[1], start[2], law[0])
        sign, x, y, z = point_of(far, start[0], start[1], start[2])
        now, lowest = gap(far, sign, x, y, z), loss(law, ends[n])
        excess = loss(law, now) - lowest
        if not excess > 0.0:
            found[n] = math.nan
            continue
        wanted = gap_at(law, now, ends[n], lowest + fraction * excess)
        found[n] = trace(
            far, law, start, wanted, ends[:0], rtol, 1e-2 * rtol, max_steps, scratch,
            starts[n : n + 1],
        )  # fmt: skip
