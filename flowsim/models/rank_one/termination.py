"""Termination of rank-one rows without attention, and their ends.

The rank-one flow without attention is decided by a theorem (derived in docs/derivations/08.md):
its critical points, those on kinks and at infinity included, have one of two losses, the entropy
rate (global minima) and h(π₁) (no part of the symbol gets through). Loss falls along every orbit,
so that one below h(π₁) ends in the global minima. One above is trapped where e → 0 while every
mode around has (p + q − 1)·slope > 0, since there L − h(π₁) ≈ π₀π₁(p + q − 1)·slope·e² ≥ 0.
"""

from __future__ import annotations

from math import copysign, inf, sqrt

from flowsim.compiled import compiled
from flowsim.flow.return_codes import GOING, MINIMA, REST, TRAPPED
from flowsim.flow.rows.vectors import invert, multiply
from flowsim.flow.rows.workspace import TrajectoryWorkspace
from flowsim.models.rank_one.field import (
    BIAS,
    INFORMATION,
    LAMBDA,
    LENGTH,
    OPEN,
    SLIDING,
    excess,
)

#: Places in ``Row.memory``: conserved quantities, |(e, ρ)| at the start, and, when the loss falls
#: below h(π₁) or the row is trapped, the distances from the saddles e = 0 = slope and e = ρ = 0.
FEED_FORWARD_BALANCE, EMBEDDING_BALANCE, AMPLITUDE, NARROWEST, CENTRE = range(5)

#: Velocities below which the rest of the way is estimated, and how short it must be.
_SLOW, _REST = 1e-5, 1e-11
#: Rounding of the excess loss, in parts of the mutual information.
_ROUNDING = 1e-13
#: Rates of the flow below this count as none.
_NO_RATE = 1e-13
#: Tolerances of a trap: distance of e from it, distance of the logits from the unigram's,
#: how short the way of b is beside ρ and w, and how far from a kink e is, relative to ρ.
_TRAP, _LEVEL, _SMALL, _CLEAR = 1e-8, 1e-6, 0.1, 1e-3


@compiled(no_cpython_wrapper=True)
def newton_step_to_rest(row: TrajectoryWorkspace):
    """Write the step d = (c·I − J)⁻¹f to where the linearised flow rests, and return its size.

    d is in ``row.slope``; its size is the largest |d_i|/(1 + |y_i|), or 1 without an inverse.
    """
    k = len(row.y)
    for i in range(k):
        for j in range(k):
            row.work[0][i, j] = -row.derivative[i, j]
        row.work[0][i, i] += _NO_RATE
    if not invert(row.work[0], row.work[1]):
        return 1.0
    multiply(row.work[1], row.velocity, row.slope)
    largest = 0.0
    for i in range(k):
        largest = max(largest, abs(row.slope[i]) / (1.0 + abs(row.y[i])))
    return largest


@compiled(no_cpython_wrapper=True)
def check_termination(row: TrajectoryWorkspace):
    """Return GOING, or the code with which the row ends; ``row.y`` is then its limit."""
    y, mode, memory, reals = row.y, row.ints, row.memory, row.reals
    speed = 0.0
    for i in range(len(y)):
        speed = max(speed, abs(row.velocity[i]))
    if len(y) == 5 and reals[LAMBDA] != 0.0 and abs(y[0]) <= _TRAP and is_settled(row):
        return check_trap(row)  # where weights are large, rounding alone may keep e and b moving
    if speed > _SLOW and memory[NARROWEST] >= 0.0 and reals[LAMBDA] != 0.0:
        return GOING
    value = excess(y, mode, reals)
    if memory[NARROWEST] < 0.0 and is_below_unigram(value, reals):
        amplitude = sqrt(y[0] * y[0] + y[1] * y[1])
        slope = 1.0 + 4.0 * y[2] * y[3] if mode[0] == OPEN and mode[1] == OPEN else 1.0
        memory[NARROWEST] = max(abs(y[0]) / min(1.0, amplitude), abs(slope))
        memory[CENTRE] = amplitude / min(1.0, memory[AMPLITUDE])
    if reals[LAMBDA] == 0.0:
        return MINIMA if value <= 1e-15 else GOING
    if speed > _SLOW:
        return GOING
    if value < 1e-6 * reals[INFORMATION] and newton_step_to_rest(row) <= _REST:
        for i in range(len(y)):
            y[i] += row.slope[i]
        return MINIMA
    return GOING


@compiled(no_cpython_wrapper=True)
def is_below_unigram(value, reals):
    """Return whether a loss is below h(π₁); ``value`` is its excess over the entropy rate."""
    return value < (1.0 - _ROUNDING) * reals[INFORMATION]


@compiled(no_cpython_wrapper=True)
def is_settled(row: TrajectoryWorkspace):
    """Return whether only e and b will still move, with both logits the unigram's within 1e-6.

    y is (e, ρ, w₁, w₂, b). What b has left to go, ``way``, is at most 1e-6, or at most a tenth of
    ``room``, the size of ρ and the weights, which then hardly change.

    With large ρ and gain, e and b follow e·ρ·slope + b = log(π₁/π₀), very slowly. With the
    others kept the loss, b at its best, is ℓ(e²·slope), which has no other end than e = 0.
    """
    y, mode = row.y, row.ints
    way = y[4] - row.reals[BIAS]
    gain = 1.0 + 4.0 * y[2] * y[3]
    for x in range(2):
        inner = y[1] + (y[0] if x == 1 else 0.0)
        if abs(y[0] * inner * (gain if mode[x] == OPEN else 1.0) + way) > _LEVEL:
            return False
    weight = min(abs(y[2]), abs(y[3])) if mode[0] == OPEN else inf
    room = min(sqrt(row.reals[LENGTH]) * abs(y[1]), 2.0 * weight)
    return abs(way) <= _LEVEL or abs(way) <= _SMALL * room


@compiled(no_cpython_wrapper=True)
def move_to_trap(row: TrajectoryWorkspace, slope):
    """Move ``row.y`` in place to the limit of a trapped row: e = 0 and b = b*, the best bias.

    On the way Nρ² + (b − b*)² and both w² + ¼(1 − 1/slope)(b − b*)² stay the same.
    """
    y, length = row.y, row.reals[LENGTH]
    square = (y[4] - row.reals[BIAS]) ** 2
    y[1] = copysign(sqrt(y[1] * y[1] + square / length), y[1])
    grown = 0.25 * (1.0 - 1.0 / slope) * square
    for i in range(2, 4):
        y[i] = copysign(sqrt(max(y[i] * y[i] + grown, 0.0)), y[i])
    y[0] = 0.0
    y[4] = row.reals[BIAS]


@compiled(no_cpython_wrapper=True)
def check_trap(row: TrajectoryWorkspace):
    """Return TRAPPED where e → 0 for good, REST where e = ρ = 0 does not trap, else GOING.

    The plane e = ρ = 0 is invariant as well. ``row.y`` is moved to its limit unless GOING.
    """
    y, mode, memory, reals = row.y, row.ints, row.memory, row.reals
    sign = -1.0 if reals[LAMBDA] > 0.0 else 1.0
    gain = 1.0 + 4.0 * y[2] * y[3]
    around = min(sign, sign * gain)  # positive where all units' slopes trap
    memory[CENTRE] = inf if around > 0.0 else abs(y[1]) / min(1.0, memory[AMPLITUDE])
    sliding = mode[2] == 0 and (mode[0] == SLIDING or mode[1] == SLIDING)
    if sliding or (y[0] == 0.0 and y[1] == 0.0):  # to e = ρ = 0, where units open and close
        if around <= 0.0 and y[0] != 0.0:
            return GOING
        memory[NARROWEST] = abs(around)
        y[0] = y[1] = 0.0
        y[4] = reals[BIAS]
        return TRAPPED if around > 0.0 else REST
    if mode[2] == 1:
        gain = 1.0
    elif mode[0] != mode[1]:
        return GOING
    slope = gain if mode[0] == OPEN else 1.0
    if sign * slope <= 0.0 or abs(y[0]) > _CLEAR * abs(y[1]):
        return GOING
    memory[NARROWEST] = abs(slope)
    move_to_trap(row, slope)
    return TRAPPED
