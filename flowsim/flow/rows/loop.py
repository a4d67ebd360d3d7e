"""The loop of the rows engine over one row: step, error, surface, land, go on.

A step is linearly implicit, of the method Rodas5P. With J = ∂f/∂y at y and W = I/(γh) − J, the
eight stages solve

    W k_i = f(y + Σ_{j<i} a_ij k_j) + Σ_{j<i} (c_ij/h) k_j,

the result is the last stage's point plus k_8, and k_8 is the error estimate. The method is L-stable
and stiffly accurate: as h grows, a step tends to where the linearised flow ends. The coefficients
are in ``flow.tableau``.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

import numpy as np

from flowsim.compiled import template
from flowsim.flow.return_codes import (
    ARRIVED,
    CRITICAL,
    DIVERGED,
    GOING,
    NEEDS_TABLE_LEVEL,
    NOT_FINITE,
    OUT_OF_STEPS,
)
from flowsim.flow.rows.hooks import (
    begin,
    check_termination,
    conserve,
    end_loss,
    error_ratio,
    event_function,
    from_step_coordinates,
    handle_event,
    is_critical,
    is_terminal,
    linearise,
    loss,
    missed_crossing,
    saddle_distance,
    slides,
    stage_rhs,
    to_step_coordinates,
    velocity,
)
from flowsim.flow.rows.vectors import copy, invert, largest_of, multiply
from flowsim.flow.rows.workspace import TrajectoryWorkspace
from flowsim.flow.tableau import GAMMA, ORDER, STAGES, A, C

#: Places in a row's counts, and in its numbers, which ``Followed`` has in this order.
ATTEMPTS, KINKS, WRITTEN = range(3)
TIME, SLIDING, SLOWEST, PASSED, LOSS = range(5)
#: Surfaces met before a row is given up.
_MOST_KINKS = 1000
#: The error allowed in a step that has been shortened to land.
_LANDING = 2.0
#: Trials when landing.
_TRIALS = 60
#: A row this many times larger than it was, or than 1, has diverged.
_FAR = 1e12
#: A speed this many times one met before means that a saddle was passed.
_SPEEDS_UP = 3.0


class TrajectoryBuffers(NamedTuple):
    """Buffers of ``follow_all`` for n rows.

    Attributes:
        ends, velocities: where the rows stopped and dy/dt there, (n, k).
        paths: y at the requested times, (n, T, k).
        why: a value of ``flow.return_codes``, (n,).
        counts: attempted steps, surfaces met and times written, (n, 3).
        numbers: time, time spent sliding, the smallest speed met, the smallest that was followed by
            one three times as large (infinite without one), and the loss at the end, (n, 5).
        near: what ``saddle_distance`` writes, (n, 2).
    """

    ends: np.ndarray
    velocities: np.ndarray
    paths: np.ndarray
    why: np.ndarray
    counts: np.ndarray
    numbers: np.ndarray
    near: np.ndarray


@template(no_cpython_wrapper=True)
def step(row, h):
    """Attempt a step of length h from ``row.y``; return a status, 0 unless it failed.

    Its end goes to ``row.new``, its error to ``row.error`` and dy/dt next to its end to
    ``row.slope``. ``row.field`` and ``row.jacobian`` must be those at ``row.y``.
    """
    new, stages, matrix, inverse = row.new, row.stages, row.work[0], row.work[1]
    jacobian, slope, error = row.jacobian, row.slope, row.error
    origin, point = row.origin, row.point
    k = len(new)
    diagonal, rate = 1.0 / (GAMMA * h), 1.0 / h
    for i in range(k):
        for j in range(k):
            matrix[i, j] = -jacobian[i, j]
        matrix[i, i] += diagonal
    copy(row.y, origin)
    if not invert(matrix, inverse):
        return -1
    to_step_coordinates(row)
    multiply(inverse, row.field, stages[0])
    for s in range(1, STAGES):
        for i in range(k):
            value = origin[i]
            for j in range(s):
                value += A[s, j] * stages[j, i]
            new[i] = value
            point[i] = value
        status = stage_rhs(row, point, slope)
        if status != 0:
            return status
        for i in range(k):
            value = 0.0
            for j in range(s):
                value += C[s, j] * stages[j, i]
            error[i] = slope[i] + value * rate
        multiply(inverse, error, stages[s])
    for i in range(k):
        error[i] = stages[STAGES - 1, i]
        new[i] += error[i]
    from_step_coordinates(row)
    return 0


@template(no_cpython_wrapper=True)
def event_value(row: TrajectoryWorkspace, y, wanted):
    """Return a number that is positive at a y before an event and negative behind it.

    The event is that the loss falls to ``wanted``, or, where that is NaN, a surface.
    """
    if wanted == wanted:
        return loss(y, row.reals, row.ints, row.memory) - wanted
    return event_function(row, y)


@template(no_cpython_wrapper=True)
def locate_event(row: TrajectoryWorkspace, h, wanted):
    """Return the length of the step that ends on an event (see ``event_value``) or just behind it.

    By false position (Illinois), within a step of length h that ends behind it. ``row.new`` becomes
    the point.
    """
    low, before = 0.0, max(event_value(row, row.y, wanted), 1e-300)
    high, behind = h, event_value(row, row.new, wanted)
    last = 0
    for trial in range(_TRIALS):
        if high - low <= 1e-15 * high or behind == 0.0:
            break
        middle = low + (high - low) * before / (before - behind)
        if trial % 5 == 4 or not low < middle < high:
            middle = 0.5 * (low + high)
        if step(row, middle) != 0:
            break
        value = event_value(row, row.new, wanted)
        if value > 0.0:
            low, before = middle, value
            behind *= 0.5 if last == 1 else 1.0
            last = 1
        else:
            high, behind = middle, value
            before *= 0.5 if last == -1 else 1.0
            last = -1
    step(row, high)
    return high


@template(no_cpython_wrapper=True)
def write_path(row: TrajectoryWorkspace, time, h, times, path, count):
    """Write y at the requested times (T,) up to ``time`` + h into ``path`` (T, k).

    ``row.y`` is where the row is at ``time``: each y is reached from there by a step of its own.
    """
    first = count[WRITTEN]
    for i in range(first, len(times)):
        if times[i] > time + h:
            break
        step(row, times[i] - time)
        copy(row.new, path[i])
        count[WRITTEN] += 1
    if count[WRITTEN] > first:
        step(row, h)


@template(no_cpython_wrapper=True)
def first_step(row: TrajectoryWorkspace):
    """Return the length of the first step: 0.1 over the largest |∂(dyᵢ/dt)/∂yⱼ|, or 100."""
    rate = 1e-3
    for i in range(len(row.y)):
        for j in range(len(row.y)):
            rate = max(rate, abs(row.derivative[i, j]))
    return 0.1 / rate


@template(no_cpython_wrapper=True)
def factor(ratio, most):
    """Return by what to multiply a step's length, at most ``most``.

    ``ratio`` is that of the step's error to the tolerance.
    """
    if not ratio < inf:
        return 0.1
    return min(most, max(0.1, 0.9 * max(ratio, 1e-10) ** (-1.0 / ORDER)))


@template(no_cpython_wrapper=True)
def why_not(status):
    """Return the code (``flow.return_codes``) of a row that stops for a hook's ``status`` ≠ 0."""
    return NOT_FINITE if status < 0 else NEEDS_TABLE_LEVEL + status - 1


@template(no_cpython_wrapper=True)
def speeds_up(velocity, derivative):
    """Return whether |dy/dt| grows along the orbit, given dy/dt and its Jacobian at a point."""
    growth = 0.0
    for i in range(len(velocity)):
        for j in range(len(velocity)):
            growth += velocity[i] * derivative[i, j] * velocity[j]
    return growth > 0.0


@template(no_cpython_wrapper=True)
def note_speed(row: TrajectoryWorkspace, number):
    """Update, in ``number``, the smallest speed met and the smallest that a larger one followed.

    At the larger speed the row must be speeding up: what is only the error of a stiff step decays.
    """
    speed = largest_of(row.velocity)
    if speed > _SPEEDS_UP * number[SLOWEST] and speeds_up(row.velocity, row.derivative):
        number[PASSED] = min(number[PASSED], number[SLOWEST])
    number[SLOWEST] = min(number[SLOWEST], speed)


@template(no_cpython_wrapper=True)
def follow(row: TrajectoryWorkspace, absolute, relative, times, path, wanted, most, count, number):
    """Follow the row from the start ``row.y``; return why it stopped (``flow.return_codes``).

    It stops after ``most`` steps, at the loss ``wanted``, or at the last of ``times`` (T,), at
    which y is written into ``path`` (T, k). ``absolute`` and ``relative`` (k,) errors are allowed
    per step. ``count`` and ``number`` receive what ``TrajectoryBuffers`` calls counts and numbers.
    """
    y, new = row.y, row.new
    status = linearise(row)
    if status != 0:
        return why_not(status)
    if not largest_of(row.velocity) < inf:
        return NOT_FINITE
    if is_critical(row):
        return CRITICAL
    number[SLOWEST], number[PASSED] = largest_of(row.velocity), inf
    h, size = first_step(row), _FAR * max(1.0, largest_of(y))
    rule = check_termination(row)
    while count[ATTEMPTS] < most:
        if rule != GOING and is_terminal(rule, len(times) > 0, wanted > -inf):
            conserve(row, number[TIME])
            return rule
        count[ATTEMPTS] += 1
        status = step(row, h)
        if status > 0:
            return why_not(status)
        ratio = error_ratio(y, new, row.error, absolute, relative) if status == 0 else inf
        if not ratio <= 1.0:
            h *= factor(ratio, 1.0)
            if not h > 1e-15 * number[TIME]:
                return NOT_FINITE
            continue
        longer = h * factor(ratio, 6.0)
        part = missed_crossing(row, h)
        if part < 1.0:
            h *= part
            step(row, h)
        landed = event_function(row, new) < 0.0
        if landed:
            h = locate_event(row, h, nan)
            if not error_ratio(y, new, row.error, absolute, relative) <= _LANDING:
                h *= 0.5  # a step's coordinates may be singular on the surface
                continue
        arrived = wanted > -inf and loss(new, row.reals, row.ints, row.memory) <= wanted
        if arrived:
            h = locate_event(row, h, wanted)
        write_path(row, number[TIME], h, times, path, count)
        number[TIME] += h
        number[SLIDING] += h if slides(row) else 0.0
        copy(new, y)
        if arrived or (len(times) > 0 and count[WRITTEN] == len(times)):
            return ARRIVED
        if landed:
            met = handle_event(row)
            count[KINKS] += max(met, 0)
            if met < 0 or count[KINKS] > _MOST_KINKS:
                return NOT_FINITE if met < 0 else OUT_OF_STEPS
        conserve(row, number[TIME])
        status = linearise(row)
        if status != 0:
            return why_not(status)
        if not largest_of(y) <= size:
            return DIVERGED
        note_speed(row, number)
        h = 0.5 * longer if landed else longer
        rule = check_termination(row)
    return OUT_OF_STEPS


@template
def follow_all(
    row: TrajectoryWorkspace,
    rows,
    starts,
    at_zero,
    signs,
    absolute,
    relative,
    times,
    wanted,
    most,
    out: TrajectoryBuffers,
):
    """Follow the starts (n, k) whose numbers are in ``rows``, one by one, and fill ``out``.

    ``at_zero`` (n,) and ``signs`` (n, k) are for ``begin``; ``times`` (n, T), ``wanted`` (n,) and
    the others are as in ``follow``.
    """
    for i in rows:
        count, number, path = out.counts[i], out.numbers[i], out.paths[i]
        copy(starts[i], row.y)
        out.why[i] = NOT_FINITE
        if largest_of(row.y) < inf:
            for j in range(len(row.memory)):
                row.memory[j] = 0.0
            status = begin(row, 1.0 if at_zero[i] else 0.0, signs[i])
            if status == 0:
                out.why[i] = follow(
                    row, absolute, relative, times[i], path, wanted[i], most, count, number
                )
            else:
                out.why[i] = why_not(status)
            if out.why[i] < NEEDS_TABLE_LEVEL:
                number[LOSS] = end_loss(row, out.why[i])
                velocity(row.y, row.reals, row.ints, row.memory, row.velocity)
                copy(row.velocity, out.velocities[i])
                saddle_distance(row, out.near[i])
        copy(row.y, out.ends[i])
