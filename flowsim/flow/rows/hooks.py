"""Hooks of the rows engine: a compiled function of the model for each of these names.

A model must have ``linearise``, ``velocity``, ``loss`` and ``check_termination``. Without another
one the body of its stub is used. A *surface* is where the field jumps: a row crosses it or
slides along it. ``status`` is 0, or −1 where something is not finite, or 1 + a level that the
model's table lacks.
"""

from __future__ import annotations

from math import inf

from flowsim.compiled import hook
from flowsim.flow.rows.vectors import largest_of


@hook
def begin(row, at_zero, signs):
    """Prepare ``row.memory``, which is zero, and ``row.ints`` for the start ``row.y``; a status.

    ``at_zero`` is 1.0 where θ₀ is 0 for ever, ``signs`` (k,) are those of θ.
    """
    return 0


@hook
def linearise(row):
    """Fill ``row.velocity`` and ``row.derivative``, then ``row.field`` and ``row.jacobian``."""
    return -1


@hook
def velocity(y, reals, ints, memory, out):
    """dy/dt at y into ``out``; a status."""
    return -1


@hook
def loss(y, reals, ints, memory):
    """The loss in nats at y, NaN where it cannot be evaluated."""
    return inf


@hook
def end_loss(row, rule):
    """The loss of the row's end, which at infinity is a limit; NaN where it is not known."""
    return loss(row.y, row.reals, row.ints, row.memory)


@hook
def check_termination(row):
    """GOING, or the return code that ends the row; may move ``row.y`` to its limit."""
    return 0


@hook
def is_terminal(rule, timed, wanted):
    """Return whether a row with that code stops: ``timed`` for times, ``wanted`` for a loss."""
    return not timed


@hook
def conserve(row, time):
    """Put the row, at ``time``, back on what the flow conserves."""


@hook
def is_critical(row):
    """Return whether a start never moves."""
    return largest_of(row.velocity) == 0.0


@hook
def error_ratio(y, new, error, absolute, relative):
    """The error of a step from y to ``new`` in units of what is allowed."""
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
    """Distance of y from the next surface, or from the end of sliding; negative beyond."""
    return inf


@hook
def missed_crossing(row, h):
    """The fraction of the step of length h to ``row.new`` at which it is beyond a surface, else 1.

    The step begins and ends before the surface.
    """
    return 1.0


@hook
def handle_event(row):
    """Decide how the row on a surface goes on: 1 where the surface is a new one, 0, or −1."""
    return 0


@hook
def slides(row):
    """Return whether the row slides along a surface."""
    return False


@hook
def saddle_distance(row, out):
    """Write how close the orbit came to saddles (two numbers) at its end."""


@hook
def to_step_coordinates(row):
    """Turn ``row.origin``, which is y, into the coordinates of the step."""


@hook
def stage_rhs(row, point, out):
    """d(point)/dt into ``out``, both in the coordinates of the step; a status. May change point."""
    return velocity(point, row.reals, row.ints, row.memory, out)


@hook
def from_step_coordinates(row):
    """Turn ``row.new``, ``row.error`` and ``row.slope`` back from the coordinates of the step."""
