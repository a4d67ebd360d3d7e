"""The orbit of one row with kinks: step, error, event, land, go on."""

from __future__ import annotations

from math import inf, nan, sqrt

from flowsim.compiled import compiled
from flowsim.flow.rows.codes import (
    ARRIVED,
    CRITICAL,
    DIVERGED,
    GOING,
    NOT_FINITE,
    OUT_OF_STEPS,
    TRAPPED,
)
from flowsim.flow.rows.kinked.kinked_step import step
from flowsim.flow.rows.kinked.kinked_verdict import (
    AMPLITUDE,
    CENTRE,
    EMBEDDING_BALANCE,
    FEED_FORWARD_BALANCE,
    NARROWEST,
    verdict,
)
from flowsim.flow.rows.kinked.kinks import UNIT0, UNIT1, choose_modes, dip, project, smallest_margin
from flowsim.flow.rows.kinked.rank_one_field import LENGTH, RTOL, jacobian, loss, velocity
from flowsim.flow.rows.kinked.row import CLOSED, OPEN, SLIDING, Found, Row
from flowsim.flow.rows.kinked.straight import straighten
from flowsim.flow.rows.tableau import ORDER
from flowsim.flow.rows.vectors import copy, largest_of

#: Places in the row's counts.
ATTEMPTS, KINKS, WRITTEN = range(3)
#: Kinks met before a row is given up.
_MOST_KINKS = 1000
#: The error allowed in a step that has been shortened to land.
_LANDING = 2.0
#: Trials when landing.
_TRIALS = 60
#: A start that moves slower than this, relative to its size, is critical.
_NO_SPEED = 1e-15
#: A row this many times larger than it was, or than 1, has diverged.
_FAR = 1e12


@compiled(internal=True)
def linearise(row: Row):
    """The velocity at y in the row's mode and its Jacobian, then with the coordinate replaced."""
    velocity(row.y, row.mode, row.reals, row.velocity)
    jacobian(row.y, row.mode, row.reals, row.derivative)
    straighten(row)


@compiled(internal=True)
def begin_row(row: Row, start):
    """Put the row at its start."""
    y, memory = row.y, row.memory
    copy(start, y)
    memory[FEED_FORWARD_BALANCE] = y[2] * y[2] - y[3] * y[3]
    memory[EMBEDDING_BALANCE] = embedding_balance(y, row.reals[LENGTH])
    memory[AMPLITUDE] = sqrt(y[0] * y[0] + y[1] * y[1])
    memory[NARROWEST] = memory[CENTRE] = -1.0
    choose_modes(y, row.mode, memory[FEED_FORWARD_BALANCE] < 0.0, row.reals)
    linearise(row)


@compiled(internal=True)
def embedding_balance(y, length):
    """e² + Nρ² − c², which an untied row keeps; 0 of a tied one."""
    return y[0] * y[0] + length * y[1] * y[1] - y[5] * y[5] if len(y) == 6 else 0.0


@compiled(internal=True)
def relative_change(y, change):
    """A change of y relative to y, (e, ρ, c) and (w₁, w₂) each taken together.

    Next to 0 the flow is homogeneous in either, so that nothing absolute would do.
    """
    inner, inner_change = y[0] * y[0] + y[1] * y[1], change[0] * change[0] + change[1] * change[1]
    if len(y) == 6:
        inner += y[5] * y[5]
        inner_change += change[5] * change[5]
    outer, outer_change = y[2] * y[2] + y[3] * y[3], change[2] * change[2] + change[3] * change[3]
    ratio = max(inner_change / (inner + 1e-300), outer_change / (outer + 1e-300))
    return sqrt(max(ratio, change[4] * change[4] / (1.0 + y[4] * y[4])))


@compiled(internal=True)
def event_value(row: Row, y, wanted):
    """What is positive before the wanted loss, or before a kink (NaN), and negative behind it."""
    if wanted == wanted:
        return loss(y, row.mode, row.reals) - wanted
    kinked = row.memory[FEED_FORWARD_BALANCE] < 0.0
    return smallest_margin(y, row.mode, kinked, row.reals, row.margins)


@compiled(internal=True)
def land(row: Row, h, wanted):
    """The length of the step that ends on the wanted loss or, NaN, on a kink, or just behind.

    By false position. The step of length h ends behind it. ``row.new`` becomes the point.
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
        if not step(row, middle):
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


@compiled(internal=True)
def meet_kink(row: Row):
    """At a kink that the row has just landed on: go on in the right modes; whether it is new.

    A row that stops sliding leaves to the side whose velocity has turned, which is zero here: its
    sign is rounding, and so is that of Y.
    """
    y, mode, margins = row.y, row.mode, row.margins
    event_value(row, y, nan)
    met = 0
    for i in range(1, 6):
        if margins[i] < margins[met]:
            met = i
    unit = UNIT0 if met < 2 else UNIT1
    leaves = False
    if met >= 4:
        fresh = mode[2] == 0
        y[2] = 0.0
    else:
        fresh = mode[unit] != SLIDING
        if fresh and mode[1 - unit] == SLIDING:
            y[0] = y[1] = 0.0
        elif fresh:
            y[1] = 0.0 if unit == UNIT0 else -y[0]
        else:
            leaves = mode[1 - unit] != SLIDING
            project(y, mode)
    choose_modes(y, mode, row.memory[FEED_FORWARD_BALANCE] < 0.0, row.reals)
    if leaves and mode[2] == 0:
        mode[unit] = OPEN if met % 2 == 0 else CLOSED
    return fresh


@compiled(internal=True)
def conserve(row: Row):
    """Put the row back on w₁² − w₂², on e² + Nρ² − c² and on its surfaces.

    The shortest way in the metric to first order, far below the step's error.
    """
    y, memory, length = row.y, row.memory, row.reals[LENGTH]
    size = y[2] * y[2] + y[3] * y[3]
    if size > 0.0 and row.mode[2] == 0:
        excess = y[2] * y[2] - y[3] * y[3] - memory[FEED_FORWARD_BALANCE]
        y[2] *= 1.0 - excess / (2.0 * size)
        y[3] *= 1.0 + excess / (2.0 * size)
    if len(y) == 6:
        size = y[0] * y[0] + length * y[1] * y[1] + y[5] * y[5]
        if size > 0.0:
            part = (embedding_balance(y, length) - memory[EMBEDDING_BALANCE]) / (2.0 * size)
            y[0] *= 1.0 - part
            y[1] *= 1.0 - part
            y[5] *= 1.0 + part
    project(y, row.mode)


@compiled(internal=True)
def write_path(row: Row, time, h, times, path, count):
    """Write y at the requested times up to ``time`` + h, each by a step of its own length."""
    first = count[WRITTEN]
    for i in range(first, len(times)):
        if times[i] > time + h:
            break
        step(row, times[i] - time)
        copy(row.new, path[i])
        count[WRITTEN] += 1
    if count[WRITTEN] > first:
        step(row, h)


@compiled(internal=True)
def first_step(row: Row):
    """A first length of step: a tenth of the largest rate's inverse."""
    rate = 1e-3
    for i in range(len(row.y)):
        for j in range(len(row.y)):
            rate = max(rate, abs(row.derivative[i, j]))
    return 0.1 / rate


@compiled(internal=True)
def _follow(row: Row, times, path, wanted, most, count, clock):
    """Follow the row from where ``begin_row`` put it; why it stopped (``codes``).

    Args:
        times, path: requested times (T,), and where to write y at them (T, k). With times the row
            is followed to the last of them, or to its rest.
        wanted: the loss at which the row has arrived, or −inf.
        most: attempted steps allowed.
        count: receives attempted steps, kinks met and times written, added to what it holds.
        clock: receives the time, and the time spent sliding.
    """
    y, new, mode, rtol = row.y, row.new, row.mode, row.reals[RTOL]
    h, size = first_step(row), _FAR * max(1.0, largest_of(y))
    if relative_change(y, row.velocity) <= _NO_SPEED:
        return CRITICAL
    rule = verdict(row)
    while count[ATTEMPTS] < most:
        if rule != GOING and (rule != TRAPPED or len(times) == 0):
            conserve(row)
            return rule
        count[ATTEMPTS] += 1
        ratio = relative_change(y, row.error) / rtol if step(row, h) else inf
        if not ratio <= 1.0:
            h *= max(0.1, 0.9 * ratio ** (-1.0 / ORDER)) if ratio < inf else 0.1
            if not h > 1e-15 * clock[0]:
                return NOT_FINITE
            continue
        longer = h * min(6.0, 0.9 * max(ratio, 1e-10) ** (-1.0 / ORDER))
        kinked = row.memory[FEED_FORWARD_BALANCE] < 0.0
        part = dip(y, row.velocity, new, row.slope, mode, kinked, h)
        if part < 1.0:
            h *= part
            step(row, h)
        landed = event_value(row, new, nan) < 0.0
        if landed:
            h = land(row, h, nan)
            if not relative_change(y, row.error) <= _LANDING * rtol:
                h *= 0.5  # a step's coordinates may be singular on the surface
                continue
        arrived = wanted > -inf and loss(new, mode, row.reals) <= wanted
        if arrived:
            h = land(row, h, wanted)
        write_path(row, clock[0], h, times, path, count)
        clock[0] += h
        if mode[0] == SLIDING or mode[1] == SLIDING or mode[2] == 1:
            clock[1] += h
        copy(new, y)
        if arrived or (len(times) > 0 and count[WRITTEN] == len(times)):
            return ARRIVED
        if landed and meet_kink(row):
            count[KINKS] += 1
        if count[KINKS] > _MOST_KINKS:
            return OUT_OF_STEPS
        conserve(row)
        linearise(row)
        if not largest_of(y) <= size:
            return DIVERGED
        h = 0.5 * longer if landed else longer
        rule = verdict(row)
    return OUT_OF_STEPS


@compiled
def follow_all(row: Row, starts, times, wanted, most, out: Found):
    """Follow every row of ``starts`` (n, k), one after the other; see ``_follow``."""
    for i in range(len(starts)):
        out.why[i] = NOT_FINITE
        copy(starts[i], row.y)
        if largest_of(row.y) < inf:
            begin_row(row, starts[i])
            if largest_of(row.velocity) < inf:
                out.why[i] = _follow(
                    row, times, out.paths[i], wanted[i], most, out.counts[i], out.clocks[i]
                )
            linearise(row)
            copy(row.velocity, out.velocities[i])
            out.clocks[i, 2] = row.memory[NARROWEST]
            out.clocks[i, 3] = row.memory[CENTRE]
        copy(row.y, out.ends[i])
