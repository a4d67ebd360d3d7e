"""The orbit of one row in a smooth field: linearise, step, error, verdict, go on."""

from __future__ import annotations

from math import inf

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.rows.codes import (
    ARRIVED,
    CRITICAL,
    DIVERGED,
    FELL,
    GOING,
    MISSING,
    NOT_FINITE,
    OUT_OF_STEPS,
)
from flowsim.flow.rows.landing import LOSS, NOTHING, SHORTER, land, meet, pulls, turn
from flowsim.flow.rows.smooth.smooth_fields import (
    begin,
    conserve,
    linearise,
    loss,
    velocity,
    verdict,
)
from flowsim.flow.rows.smooth.smooth_step import step
from flowsim.flow.rows.tableau import ORDER, STAGES
from flowsim.flow.rows.vectors import copy, largest_of

#: A row this many times larger than it was, or than 1, has diverged.
_FAR = 1e12
#: A speed this many times one met before means that a saddle was passed.
_PASSED = 3.0


@compiled(internal=True)
def error_ratio(y, new, error, absolute, relative):
    """The error in units of what is allowed."""
    largest = 0.0
    for i in range(len(y)):
        allowed = absolute[i] + relative[i] * max(abs(y[i]), abs(new[i]))
        ratio = abs(error[i]) / allowed
        if not ratio <= largest:
            largest = ratio
        if largest != largest:
            return largest
    return largest


@compiled(late=True)
def write_path(kind, y, field, jacobian, h, time, times, written, path, tools):
    """Write the points of a step of length h at the requested times; how many are written then.

    A point is the end of a shorter step from y. The new point stays that of the whole step, or the
    last that was requested.
    """
    new = tools[3]
    while written < len(times) and times[written] <= time + h:
        step(kind, y, field, jacobian, times[written] - time, *tools)
        copy(new, path[written])
        written += 1
        if written < len(times) and times[written] > time + h:
            step(kind, y, field, jacobian, h, *tools)
    return written


@compiled(internal=True)
def shortened(h, ratio):
    """The length after a step refused for the ratio of its error to the tolerance, or a corner."""
    if ratio <= 1.0:
        return 0.25 * h
    return h * (max(0.1, 0.9 * ratio ** (-1.0 / ORDER)) if ratio < inf else 0.1)


@compiled(internal=True)
def record_speed(record, speed):
    """Keep the smallest speed met, and the smallest that was followed by a larger one."""
    if speed > _PASSED * record[2]:
        record[3] = min(record[3], record[2])
    record[2] = min(record[2], speed)


@compiled(internal=True, makes_arrays=True)
def follow(kind, y, reals, ints, memory, absolute, relative, times, path, wanted, most, record):
    """Follow the row at y, which moves along, to its end; why it stopped.

    Args:
        times, path: requested times (T,), and where to write y at them (T, k). With times the row
            is followed to the last of them, and rests where it has come to its end.
        wanted: the loss at which the row has arrived, or −inf.
        most: attempted steps allowed.
        record: receives attempted steps, time, and the smallest speed met and the smallest that
            was followed by one three times as large.
    """
    written, time, k = 0, 0.0, len(y)
    field, jacobian, new = np.empty(k), np.empty((k, k)), np.empty(k)
    stages, pivots = np.empty((STAGES, k)), np.empty(k, dtype=np.int64)
    work, slope = np.empty((2, k, k)), np.empty(k)
    tools = (reals, ints, memory, new, stages, work, slope, pivots)
    status = linearise(y, reals, ints, memory, field, jacobian, *kind)
    at = kind[0], kind[1], kind, y, reals, ints, memory, slope
    if status == 0 and turn(y, pulls(*at), memory) > 0:
        status = linearise(y, reals, ints, memory, field, jacobian, *kind)
    if status != 0:
        return NOT_FINITE if status < 0 else MISSING + status - 1
    speed = largest_of(field)
    record[2], record[3] = speed, inf
    if speed == 0.0:
        return CRITICAL
    while written < len(times) and times[written] <= 0.0:
        copy(y, path[written])
        written += 1
    h, size = 0.1 / speed, _FAR * max(1.0, largest_of(y))
    rule = verdict(y, field, jacobian, reals, ints, memory, work, *kind)
    for _ in range(most):
        if rule != GOING and len(times) == 0 and not (rule == FELL and wanted > -inf):
            return rule
        record[0] += 1
        status = step(kind, y, field, jacobian, h, *tools)
        if status > 0:
            return MISSING + status - 1
        ratio, aim, target = inf, NOTHING, 0.0
        if status == 0:
            ratio = error_ratio(y, new, stages[STAGES - 1], absolute, relative)
        if ratio <= 1.0:
            aim, target = meet(y, new, field, h, memory)
        if aim == SHORTER or not ratio <= 1.0:
            h = shortened(h, ratio)
            if not h > 1e-15 * time:
                return NOT_FINITE
            continue
        longer = h * min(6.0, 0.9 * max(ratio, 1e-10) ** (-1.0 / ORDER))
        h = land(kind, y, field, jacobian, h, aim, target, tools)
        arrived = wanted > -inf and loss(new, reals, ints, memory, *kind) <= wanted
        h = land(kind, y, field, jacobian, h, LOSS if arrived else NOTHING, wanted, tools)
        written = write_path(kind, y, field, jacobian, h, time, times, written, path, tools)
        time += h
        record[1] = time
        copy(new, y)
        if arrived or (len(times) > 0 and written == len(times)):
            return ARRIVED
        conserve(kind, y, time, ints, memory)
        status = turn(y, pulls(*at), memory)
        if status >= 0:
            status = linearise(y, reals, ints, memory, field, jacobian, *kind)
        if status != 0:
            return NOT_FINITE if status < 0 else MISSING + status - 1
        if not largest_of(y) <= size:
            return DIVERGED
        record_speed(record, largest_of(field))
        h = longer
        rule = verdict(y, field, jacobian, reals, ints, memory, work, *kind)
    return OUT_OF_STEPS


@compiled(makes_arrays=True)
def follow_all(
    kind,
    starts,
    held,
    signs,
    reals,
    ints,
    room,
    absolute,
    relative,
    times,
    wanted,
    most,
    ends,
    paths,
    why,
    records,
    slopes,
):
    """Follow every row of ``starts`` (n, k), one after the other; see ``follow``.

    For ``held`` (n,) and ``signs`` (n, k) see ``begin``; ``room`` is the size of a row's memory.
    Receives ``ends`` (n, k), ``paths`` (n, T, k), ``why`` (n,), ``records`` (n, 5), whose last
    entry is the loss at the end, and ``slopes`` (n, k), dy/dt there.
    """
    memory = np.empty(room)
    for i in range(len(starts)):
        copy(starts[i], ends[i])
        why[i] = NOT_FINITE
        if largest_of(starts[i]) < inf:
            begin(kind, starts[i], 1.0 if held[i] else 0.0, signs[i], ints, memory)
            why[i] = follow(
                kind,
                ends[i],
                reals,
                ints,
                memory,
                absolute,
                relative,
                times,
                paths[i],
                wanted[i],
                most,
                records[i],
            )
            if why[i] < MISSING:
                records[i, 4] = loss(ends[i], reals, ints, memory, *kind)
                velocity(ends[i], reals, ints, memory, slopes[i], *kind)
