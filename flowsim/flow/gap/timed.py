"""Orbits in physical time: paths at given times, and the time until a given logit gap.

On a step from Δₐ to Δ_b let v fall from 1 to 0, let r be the distance of Δ from a pole and
u = r/rₐ = 1 − φ(1 − v), φ = (Δ_b − Δₐ)/rₐ. Physical time obeys dt = −κ du/u with
κ = r/(|ℓ′(Δ)| ‖∇Δ‖²), and κ stays smooth and positive up to the end of the way if the pole is
there: at Δ*, or at Δ = 0 if the plane e = 0 is met there. Away from that plane the pole is Δ = 0
until Δ* is nearer: φ and κ are negative, u grows. With A near κ's value at the pole,
G = (κ − A)/u, and every coordinate y with y′ = dy/dΔ,

    t(v) = tₐ − A log u + φ ∫ᵥ¹ G dv′,        y(v) = y_b − (Δ_b − Δₐ) ∫₀ᵛ y′ dv′,

where both integrals are those of polynomials through Gauss nodes. Towards the pole, where the
orbit takes for ever, y is a power series in e^{−t/A}. Source: docs/derivations/02.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre
from scipy.integrate import DOP853

from flowsim.compiled import template
from flowsim.elementary import LARGEST, exponential
from flowsim.flow.gap.hooks import (
    LossParameters,
    Point,
    gap,
    is_level,
    loss,
    margins,
    rates,
    sign_of_z,
    size,
    slope,
    steepness,
    theta_of,
    turns_back,
)
from flowsim.flow.gap.loops import (
    LANDED,
    ROUNDING,
    Stages,
    as_triple,
    clip_step,
    error,
    first_length,
    initial_point,
    locate_event,
    max_step,
    next_step,
    on_minima,
    reject_step,
    stage13,
    stage14,
    stage15,
    step,
    store,
)
from flowsim.flow.options import Steps

#: Gauss nodes on a step, and so the number of coefficients of its polynomials.
NODES = 8
#: φ above which the pole is taken out of κ/u; far from it κ/u is as smooth as κ.
_POLE_NEAR = 0.1
#: Relative size of the neglected part of a step's time, against its last Legendre coefficients.
_NEGLECTED = 1 / (16 * NODES)
#: The power series is used where its variable, times the growth of its coefficients, to the fifth
#: power, is below this part of what is allowed.
_SMALL = 0.1
#: The least error in u that can be asked for: what rounding leaves.
_UNSURE = 2e-13
#: The error in log u with which a time is placed on a step, over rtol.
_PLACED = 1e-6

#: Buffers for the values at the nodes, the course, and the power series of one step.
Scratch = tuple[np.ndarray, np.ndarray, np.ndarray]


def _tables() -> tuple[np.ndarray, ...]:
    """Node places v, and the matrices that act on values at the nodes.

    Returns:
        v and its barycentric weights, shape (NODES,); the interpolant's weights of stages 0 and 5
        to 15 at the nodes, (12, NODES); from values at the nodes, as a row, to the coefficients in
        z = 2v − 1 of their means over [0, v] and over [v, 1], both (NODES, NODES); to the last two
        Legendre coefficients, (2, NODES).
    """
    z, weights = legendre.leggauss(NODES)
    v, weights = (z + 1) / 2, weights / 2
    whole = np.append(DOP853.B, np.zeros(4))
    at_start, at_end = np.eye(16)[[0, 12]]
    inside = np.zeros((NODES, 16))  # scipy's interpolant at x = 1 − v
    parts = [whole, at_start - whole, 2 * whole - at_start - at_end, *DOP853.D]
    for i, part in enumerate(reversed(parts)):
        inside = (inside + part) * (v if i % 2 else 1 - v)[:, None]
    degrees = np.arange(NODES)
    to_legendre = (2 * degrees[:, None] + 1) * legendre.legvander(z, NODES - 1).T * weights
    integrals = [legendre.legint(row, lbnd=-1) / 2 for row in np.eye(NODES)]
    below = np.stack([legendre.legval(z, row) for row in integrals], axis=1)
    total = np.array([legendre.legval(1.0, row) for row in integrals])
    to_powers = np.linalg.inv(np.vander(z, increasing=True))
    before = to_powers @ (below / v[:, None]) @ to_legendre
    after = to_powers @ ((total - below) / (1 - v)[:, None]) @ to_legendre
    barycentric = 1 / np.prod(v[:, None] - v + np.eye(NODES), axis=1)
    used = [0, *range(5, 16)]
    found = [v, barycentric, inside[:, used].T, before.T, after.T, to_legendre[-2:]]
    return tuple(np.ascontiguousarray(array) for array in found)


_V, _BARYCENTRIC, _INSIDE, BEFORE, AFTER, LAST = _tables()
#: From coefficients in z = 2v − 1 to the leading ones in v.
_TAYLOR = np.array(
    [[math.comb(j, i) * 2.0**i * (-1) ** (i + j) for j in range(NODES)] for i in range(4)]
)


@template(no_cpython_wrapper=True)
def prepare(
    far: bool,
    sign: float,
    params: LossParameters,
    now: float,
    h: float,
    pole: float,
    before: Point,
    after: Point,
    k0: Point,
    stages: Stages,
    near_zero: float,
    work: np.ndarray,
    course: np.ndarray,
) -> tuple[float, float]:
    """Make the course of a step from Δ = ``now`` to ``now + h``.

    Args:
        pole: where u = 0, ahead or behind.
        before, after: both ends of the step.
        k0, stages: dy/dΔ at its start, and at its stages 5 to 11.
        near_zero: the size of z below which its error is absolute.
        work: scratch, shape (4, NODES).
        course: to be filled with coefficients in z = 2v − 1, shape (4, NODES): φ times the mean of
            G over [v, 1], and (Δ_b − Δₐ) times the means of x′, y′ and z′ over [0, v].

    Returns:
        A, and the error that the time may have, in u and relative in the coordinates; infinite
        for a step that ends at the pole, but not with κ > 0 there.
    """
    k12 = rates(far, sign, *after)
    k13 = rates(far, sign, *stage13(before, h, k0, *stages, k12))
    k14 = rates(far, sign, *stage14(before, h, k0, *stages, k12, k13))
    k15 = rates(far, sign, *stage15(before, h, k0, *stages, k12, k13, k14))
    count = 2 if sign_of_z() == 0 else 3
    slopes = (k0, *stages, k12, k13, k14, k15)
    interpolate(0, before, h, slopes, work[0])
    interpolate(1, before, h, slopes, work[1])
    if count == 3:
        interpolate(2, before, h, slopes, work[2])
    first = pole - now
    fall, least_change = h / first, 1.0 / abs(first)
    kappa, log_part, total, shaky = work[3], 0.0, 0.0, 0.0
    for i in range(NODES):
        x, y, z = work[0, i], work[1, i], work[2, i]
        u = 1.0 - fall * (1.0 - _V[i])
        speed = slope(params, pole - params[0] - first * u) * steepness(far, sign, x, y, z)
        kappa[i] = -first * u / speed
        x1, y1, z1 = rates(far, sign, x, y, z)
        change = max(relative(x1, x), abs(y1) if far else relative(y1, y))
        change = max(change, relative(z1, abs(z) + near_zero))
        shaky = max(shaky, abs(speed) * max(least_change, change))
        work[0, i], work[1, i], work[2, i] = x1, y1, z1
        weight = _BARYCENTRIC[i] / u  # of the value at u = 0
        log_part += weight * kappa[i]
        total += weight
    near = abs(fall) > _POLE_NEAR
    log_part = log_part / total if near else 0.0
    last, top = 0.0, 0.0
    for i in range(NODES):
        u = 1.0 - fall * (1.0 - _V[i])
        kappa[i] = fall * (kappa[i] - log_part) / u
        last += LAST[0, i] * kappa[i]
        top += LAST[1, i] * kappa[i]
    transform(AFTER, kappa, 1.0, course[0])
    for i in range(count):
        transform(BEFORE, work[i], h, course[1 + i])
    unsure = _NEGLECTED * (abs(top) + (abs(last) if near else 0.0)) * shaky
    if not unsure < math.inf or (fall == 1.0 and not log_part > 0.0):
        return log_part, math.inf
    return log_part, unsure


@template(no_cpython_wrapper=True)
def relative(rate: float, value: float) -> float:
    """|rate/value|; 0 where the value stays 0."""
    return abs(rate / value) if rate != 0.0 else 0.0


@template(no_cpython_wrapper=True, inline=True)
def interpolate(c: int, p: Point, h: float, k: tuple[Point, ...], values: np.ndarray) -> None:
    """Coordinate c at the nodes, from the slopes at stages 0 and 5 to 15."""
    w = _INSIDE
    k0, k1, k2, k3, k4, k5 = k[0][c], k[1][c], k[2][c], k[3][c], k[4][c], k[5][c]
    k6, k7, k8, k9, k10, k11 = k[6][c], k[7][c], k[8][c], k[9][c], k[10][c], k[11][c]
    for i in range(NODES):
        total = w[0, i] * k0 + w[1, i] * k1 + w[2, i] * k2 + w[3, i] * k3 + w[4, i] * k4
        total += w[5, i] * k5 + w[6, i] * k6 + w[7, i] * k7 + w[8, i] * k8
        total += w[9, i] * k9 + w[10, i] * k10 + w[11, i] * k11
        values[i] = p[c] + h * total


@template(no_cpython_wrapper=True)
def transform(m: np.ndarray, values: np.ndarray, factor: float, found: np.ndarray) -> None:
    """``factor`` times the values times the matrix m."""
    v0, v1, v2, v3 = values[0], values[1], values[2], values[3]
    v4, v5, v6, v7 = values[4], values[5], values[6], values[7]
    for i in range(NODES):
        half = v0 * m[0, i] + v1 * m[1, i] + v2 * m[2, i] + v3 * m[3, i]
        rest = v4 * m[4, i] + v5 * m[5, i] + v6 * m[6, i] + v7 * m[7, i]
        found[i] = factor * (half + rest)


@template(no_cpython_wrapper=True)
def duration(course: np.ndarray, log_part: float, fall: float) -> float:
    """Physical time of the whole step, infinite where it ends at the pole."""
    if fall == 1.0:
        return math.inf
    return polynomial(course[0], -1.0) - log_part * math.log1p(-fall)


@template(contract=True, no_cpython_wrapper=True)
def polynomial(coefficients: np.ndarray, z: float) -> float:
    """Σ cᵢ zⁱ."""
    value = coefficients[NODES - 1]
    for i in range(NODES - 2, -1, -1):
        value = value * z + coefficients[i]
    return value


@template(contract=True, no_cpython_wrapper=True)
def late_by(
    course: np.ndarray, log_part: float, fall: float, s: float, t: float
) -> tuple[float, float, float]:
    """At s = log u: the time since the step's start minus t, κ = −dt/ds, and u."""
    u = math.exp(s)
    v = 1.0 - (1.0 - u) / fall
    z = 2.0 * v - 1.0
    value, rise = course[0, NODES - 1], 0.0
    for i in range(NODES - 2, -1, -1):
        rise = rise * z + value
        value = value * z + course[0, i]
    rest = 1.0 - v
    kappa = log_part + (value - 2.0 * rest * rise) * u / fall
    return rest * value - log_part * s - t, kappa, u


@template(no_cpython_wrapper=True)
def place(
    course: np.ndarray, log_part: float, fall: float, t: float, s: float, close: float
) -> tuple[float, float, float]:
    """s = log u at time t after the step's start, u, and κ there.

    Newton's method from a guess, bracketed, until a move is at most ``close``, the root of the
    error that remains, of a long step, or that part of a short one.
    """
    close *= min(abs(fall), 1.0)
    before, after = 0.0, math.log1p(-fall) if fall < 1.0 else -700.0
    s, u, move, kappa = min(max(s, min(before, after)), max(before, after)), 1.0, 0.0, 1.0
    for _ in range(100):
        late, kappa, u = late_by(course, log_part, fall, s, t)
        if late > 0.0:
            after = s
        else:
            before = s
        move = late / kappa
        if not min(before, after) <= s + move <= max(before, after):
            move = 0.5 * (before + after) - s
        s += move
        if abs(move) <= close:
            break
    return s, u * (1.0 + move), kappa


@template(no_cpython_wrapper=True)
def point_at(course: np.ndarray, after: Point, v: float) -> Point:
    """x, y, z at v."""
    z = 2.0 * v - 1.0
    third = 0.0 if sign_of_z() == 0 else after[2] - v * polynomial(course[3], z)
    return after[0] - v * polynomial(course[1], z), after[1] - v * polynomial(course[2], z), third


@template(no_cpython_wrapper=True)
def tail(
    course: np.ndarray, log_part: float, after: Point, allowed: float, series: np.ndarray
) -> tuple[float, float]:
    """A step that ends at the pole, as a power series.

    With t = −A log v + H(v), X = exp(−(t − H(0))/A) is v exp(−(H(v) − H(0))/A), and v(X) is its
    inverse series (Lagrange), of which four terms are kept.

    Args:
        course, log_part, after: of the step.
        allowed: the error that it may have.
        series: to be filled with the coefficients of x, y, z in X, shape (3, 5).

    Returns:
        H(0), and the time from the step's start after which the series is exact enough.
    """
    g0, g1, g2, g3 = _leading(course[0])
    h1, h2, h3 = (g1 - g0) / log_part, (g2 - g1) / log_part, (g3 - g2) / log_part
    b2, b3 = h1, h2 + 1.5 * h1**2
    b4 = h3 + 4.0 * h1 * h2 + 8.0 / 3.0 * h1**3
    for i in range(3):
        r0, r1, r2, r3 = _leading(course[1 + i])
        series[i, 0], series[i, 1], series[i, 2] = after[i], -r0, -(r0 * b2 + r1)
        series[i, 3] = -(r0 * b3 + 2.0 * r1 * b2 + r2)
        series[i, 4] = -(r0 * b4 + r1 * (2.0 * b3 + b2**2) + 3.0 * r2 * b2 + r3)
    grow = max(abs(b2), math.sqrt(abs(b3)), abs(b4) ** (1.0 / 3.0), 2.0)
    return g0, g0 + log_part * math.log(grow / (_SMALL * allowed) ** 0.2)


@template(no_cpython_wrapper=True)
def _leading(coefficients: np.ndarray) -> tuple[float, float, float, float]:
    """The first four coefficients in v of a polynomial in z = 2v − 1."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(NODES):
        a += _TAYLOR[0, j] * coefficients[j]
        b += _TAYLOR[1, j] * coefficients[j]
        c += _TAYLOR[2, j] * coefficients[j]
        d += _TAYLOR[3, j] * coefficients[j]
    return a, b, c, d


@template(no_cpython_wrapper=True)
def trace(
    params: LossParameters,
    start: Point,
    wanted: float,
    times: np.ndarray,
    allowed: Steps,
    scratch: Scratch,
    path: np.ndarray,
) -> float:
    """Follow an orbit until Δ = ``wanted``, the last of ``times``, or its end.

    Args:
        law: the model's data.
        start: θ as three numbers.
        wanted: the gap at which to stop; NaN for none.
        times: since the start, increasing.
        allowed: to its steps, and of Δ's remaining way too.
        scratch: buffers for one step, see ``Scratch``.
        path: to be filled with θ at the times, shape (T, k).

    Returns:
        The physical time until the end of the way, infinite if it is a critical point; NaN where
        it could not be followed.
    """
    work, course, series = scratch
    rtol, near_zero = allowed.rtol, allowed.atol / allowed.rtol
    close = math.sqrt(_PLACED * rtol)
    target, count, done, time = params[0], len(times), 0, 0.0
    far, sign, p = initial_point(start, target)
    end = 0.0 if turns_back(far, sign, *p, target) else target
    now, k0, last = gap(far, sign, *p), rates(far, sign, *p), (0.0, 1.0)
    aim = wanted if (wanted - now) * (wanted - end) <= 0.0 else end
    h = clip_step(min(first_length(now, end, rtol), max_step(far, p, k0)), aim - now)
    for _ in range(allowed.most):
        after, stages = step(far, sign, h, p, k0)
        ratio = error(far, h, p, after, k0, stages, allowed)
        aimed, landed, pole = h == aim - now, False, end
        if aimed and ratio <= 1.0:
            left = aim - gap(far, sign, *after)
            landed = abs(left) <= max(LANDED * abs(h), ROUNDING * size(far, *after))
        if landed:
            on_plane = False
            if aim == 0.0 and end == 0.0:
                plane, other = margins(far, sign, *after)
                on_plane = plane < other
                pole = 0.0 if on_plane else target
            after = locate_event(far, sign, after, aim, on_plane)
        if ratio <= 1.0:
            if pole != 0.0 and not (landed and aim == pole) and 0.0 < now / pole < 0.5:
                pole = 0.0  # behind
            log_part, unsure = prepare(
                far, sign, params, now, h, pole, p, after, k0, stages, near_zero, work, course
            )
            ratio = max(ratio, unsure / max(rtol, _UNSURE))
        if not ratio <= 1.0:
            h = reject_step(h, ratio)
            if h == 0.0:
                return math.nan
            continue
        fall = h / (pole - now)
        ended = time + duration(course, log_part, fall)
        done = _write(far, sign, start, course, log_part, fall, after, series,
                      times, time, ended, done, close, path)  # fmt: skip
        if (landed and (aim == wanted or fall == 1.0)) or (count > 0 and done == count):
            return ended
        time, p, now = ended, after, gap(far, sign, *after)
        if landed:  # on Δ = 0, and on the way to Δ*
            end = target
            aim = wanted if (wanted - now) * (wanted - end) <= 0.0 else end
        k0 = rates(far, sign, *p)
        h, last = next_step(far, p, k0, h, ratio, last, aim - now)
    return math.nan


@template(no_cpython_wrapper=True)
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
        p = point_at(course, after, max(v, 0.0))
        store(theta_of(far, sign, *p, start[0], start[1]), path[done])
        done += 1
    if fall != 1.0:
        return done
    for i in range(done, len(times)):  # a loop of its own, so that it uses vectors
        path[i, 0] = exponential(max((origin - (times[i] - began)) / log_part, -LARGEST))
    for i in range(done, len(times)):
        p = power_series(series, path[i, 0])
        store(theta_of(far, sign, *p, start[0], start[1]), path[i])
    return len(times)


@template(contract=True, no_cpython_wrapper=True)
def power_series(series: np.ndarray, power: float) -> Point:
    """Three polynomials of degree 4 in ``power``, the constant coefficient first: (x, y, z)."""
    x, y, z = series[0, 4], series[1, 4], series[2, 4]
    for i in range(3, -1, -1):
        x, y, z = x * power + series[0, i], y * power + series[1, i], z * power + series[2, i]
    return x, y, z


@template(no_cpython_wrapper=True)
def gap_at(params: LossParameters, start: float, end: float, wanted: float) -> float:
    """The gap between start and end, where ℓ is monotone, with ℓ(Δ) = wanted.

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
    params: LossParameters,
    starts: np.ndarray,
    times: np.ndarray,
    allowed: Steps,
    scratch: Scratch,
    path: np.ndarray,
) -> None:
    """θ of all rows, shape (n, k), at increasing times since the start, (n, T): ``path`` (n, T, k).

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
            trace(params, start, math.nan, times[n], allowed, scratch, path[n])


@template
def find_times(
    params: LossParameters,
    starts: np.ndarray,
    ends: np.ndarray,
    fraction: float,
    allowed: Steps,
    scratch: Scratch,
    found: np.ndarray,
) -> None:
    """The time until ``fraction`` of the excess loss is left, shape (n,).

    Starts have shape (n, k) and move; ``ends`` holds the gap at which each orbit ends, shape (n,).
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
        found[n] = trace(params, start, wanted, ends[:0], allowed, scratch, starts[n : n + 1])
