"""Where a step of a smooth row must end: on a loss, on a corner, where sliding along one ends.

At a corner the rates of a on both sides are compared. Both of one sign: the row crosses. Both
towards the corner: it slides, a stays, and the other coordinates, whose rates do not jump, move on;
until one of the two rates changes its sign. Both away (a start only): it leaves to the faster side.
Source: Filippov's definition; docs/derivations.md, 6.
"""

from __future__ import annotations

from math import inf, nan

from flowsim.compiled import compiled
from flowsim.flow.rows.corners import HIGH, LOW, ORDER, SLIDES, enclose, nearest
from flowsim.flow.rows.smooth.smooth_fields import loss, velocity
from flowsim.flow.rows.smooth.smooth_step import step

#: What a step lands on; or nothing, or it left a corner, came back and must be shorter.
LOSS, CORNER, RELEASE, NOTHING, SHORTER = range(5)
#: Trials when landing.
_TRIALS = 60


@compiled(late=True)
def land(kind, y, field, jacobian, h, aim, target, tools):
    """The length of the step that ends on what is aimed at, which one of length h passes.

    A step that slides and may go on has its whole length.

    By false position (Illinois). ``tools`` are the arguments of ``step`` that follow its length;
    their fourth, the new point, becomes the end.
    """
    if aim == NOTHING:
        return h
    reals, ints, memory, new, slope = tools[0], tools[1], tools[2], tools[3], tools[6]
    low, high, before, behind, last = 0.0, h, 0.0, 0.0, 0
    for trial in range(-2, _TRIALS):
        point = y if trial == -2 else new
        if trial >= 0:
            if high - low <= 1e-14 * high or behind == 0.0:
                break
            middle = low + (high - low) * before / (before - behind)
            if trial % 5 == 4 or not low < middle < high:
                middle = 0.5 * (low + high)
            if step(kind, y, field, jacobian, middle, *tools):
                break
        if aim == LOSS:
            value = loss(point, reals, ints, memory, *kind) - target
        elif aim == CORNER:
            value = point[2] - target if y[2] > target else target - point[2]
        else:
            above, below = pulls(kind[0], kind[1], kind, point, reals, ints, memory, slope)
            value = min(-above, below)
        if trial == -2:
            before = value
        elif trial == -1:
            behind = value
            if aim == RELEASE and value >= 0.0:
                return h  # it slides on
        elif value > 0.0:
            low, before = middle, value
            behind *= 0.5 if last == 1 else 1.0
            last = 1
        else:
            high, behind = middle, value
            before *= 0.5 if last == -1 else 1.0
            last = -1
    step(kind, y, field, jacobian, high, *tools)
    return high


@compiled(late=True)
def pulls(uniform, gap, kind, y, reals, ints, memory, slope):
    """da/dt at the corner that y is on or beyond, from above and from below; NaN without one."""
    if uniform is None and gap is None:
        return nan, nan
    corner = nearest(y[2], memory) if memory[ORDER] > 0.0 else inf
    if corner == inf:
        return nan, nan
    a, low, high, slides = y[2], memory[LOW], memory[HIGH], memory[SLIDES]
    y[2], memory[SLIDES], above = corner, 0.0, nan
    for side in range(2):
        above = slope[2] if side == 1 else nan
        enclose(corner, 1.0 - 2.0 * side, memory)
        if velocity(y, reals, ints, memory, slope, *kind) != 0:
            slope[2] = nan
    y[2], memory[LOW], memory[HIGH], memory[SLIDES] = a, low, high, slides
    return above, slope[2]


@compiled(late=True)
def meet(y, new, field, h, memory):
    """What the step of length h to ``new`` may have to land on, and at which a."""
    if memory[ORDER] == 0.0:
        return NOTHING, 0.0
    if memory[SLIDES] == 1.0:
        return RELEASE, 0.0
    low, high = memory[LOW], memory[HIGH]
    if low < new[2] < high:
        # the parabola through both ends turns back at its extreme, maybe beyond a corner
        slope = h * field[2]
        bend, extreme = new[2] - y[2] - slope, new[2]
        if slope * (slope + 2.0 * bend) < 0.0:
            extreme = y[2] - 0.25 * slope * slope / bend
        return NOTHING if low < extreme < high else SHORTER, 0.0
    target = low if new[2] <= low else high
    return CORNER if y[2] != target else SHORTER, target


@compiled(late=True)
def turn(y, pulled, memory):
    """Decide how a row at a corner goes on: 1 if it is at one, −1 if that is not known, else 0."""
    corner = nearest(y[2], memory) if memory[ORDER] > 0.0 else inf
    if corner == inf:
        return 0
    above, below = pulled
    if not above + below < inf:
        return -1
    y[2] = corner
    enclose(corner, 1.0 if above + below > 0.0 else -1.0, memory)
    memory[SLIDES] = 1.0 if above < 0.0 < below or above == 0.0 == below else 0.0
    return 1
