"""Hooks of the rows engine: a compiled function of the model for each of these names.

A model must have ``linearise``, ``velocity``, ``loss`` and ``check_termination``. Without another
one the body of its stub is used. A *surface* is where the field jumps: a row crosses it or
slides along it. ``status`` is 0, or −1 where something is not finite, or 1 + a level that the
model's table lacks. ``row`` is a ``TrajectoryWorkspace``; times are since the start.

A model that takes its steps in other coordinates than y (``CompiledModel.own_steps``) has
``to_step_coordinates``, ``stage_rhs`` and ``from_step_coordinates`` too.
"""

from __future__ import annotations

from math import inf

from flowsim.compiled import hook
from flowsim.flow.rows.vectors import largest_of


@hook
def begin(row, at_zero, signs):
    """Fill ``row.memory``, zero so far, and ``row.ints`` for the start ``row.y``; return a status.

    ``at_zero`` is 1.0 where θ₀ is 0 for ever, ``signs`` (k,) are those of θ.
    """
    return 0


@hook
def linearise(row):
    """Evaluate dy/dt and ∂(dy/dt)/∂y at ``row.y``; return a status.

    They go to ``row.velocity`` and ``row.derivative``, and, in the coordinates of the step, to
    ``row.field`` and ``row.jacobian``.
    """
    return -1


@hook
def velocity(y, reals, ints, memory, out):
    """Write dy/dt at y into ``out`` (k,); return a status."""
    return -1


@hook
def loss(y, reals, ints, memory):
    """Return the loss in nats at y, NaN where it cannot be evaluated."""
    return inf


@hook
def end_loss(row, rule):
    """Return the loss at the end of a row that stopped with the return code ``rule``.

    For an end at infinity it is the limit; NaN where it is not known.
    """
    return loss(row.y, row.reals, row.ints, row.memory)


@hook
def check_termination(row):
    """Return the code (``flow.return_codes``) with which the row ends at ``row.y``, or GOING.

    May move ``row.y`` to the limit of the orbit.
    """
    return 0


@hook
def is_terminal(rule, timed, wanted):
    """Return whether a row stops where ``check_termination`` gives the code ``rule``.

    ``timed``: the row is followed to given times; ``wanted``: until it has a given loss.
    """
    return not timed


@hook
def conserve(row, time):
    """Move ``row.y``, reached at ``time``, back to where what the flow conserves has its value."""


@hook
def is_critical(row):
    """Return whether the start ``row.y`` is a critical point, which never moves."""
    return largest_of(row.velocity) == 0.0


@hook
def error_ratio(y, new, error, absolute, relative):
    """Return the largest error of a step from y to ``new`` in units of what is allowed.

    ``error`` is that of each coordinate, ``absolute`` and ``relative`` what is allowed, all (k,).
    """
    largest = 0.0
    for i in range(len(y)):
        allowed = absolute[i] + relative[i] * max(abs(y[i]), abs(new[i]))
        ratio = abs(error[i]) / allowed
        if not ratio <= largest:
            largest = ratio
        if largest != largest:
            return largest
    return largest


@hook
def event_function(row, y):
    """Return the distance of y from the next surface, or the end of sliding; negative beyond."""
    return inf


@hook
def missed_crossing(row, h):
    """Return the fraction of a step, of length h to ``row.new``, at which it is beyond a surface.

    The step begins and ends before the surface; 1 where it never is beyond.
    """
    return 1.0


@hook
def handle_event(row):
    """Choose the field by which a row that has reached a surface, or the end of sliding, goes on.

    Returns 1 where it meets a surface anew, 0 otherwise, −1 where it cannot go on.
    """
    return 0


@hook
def slides(row):
    """Return whether the row slides along a surface."""
    return False


@hook
def saddle_distance(row, out):
    """Write into ``out`` (2,) how close the orbit, now at its end, came to saddles."""


@hook
def to_step_coordinates(row):
    """Turn ``row.origin``, a copy of y, in place into the coordinates of the step.

    By default these are y.
    """


@hook
def stage_rhs(row, point, out):
    """Write d(point)/dt into ``out`` and return a status, all in the coordinates of the step.

    May change ``point`` (k,), which is scratch.
    """
    return velocity(point, row.reals, row.ints, row.memory, out)


@hook
def from_step_coordinates(row):
    """Undo ``to_step_coordinates``, in place, in ``row.new``, ``row.error`` and ``row.slope``."""
