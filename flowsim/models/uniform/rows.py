"""Uniform attention for the rows engine: field, Jacobian and loss of one row, from one pass.

The hooks are those of ``flow.rows.hooks``. The row's coordinates are y = (log|e|, log|w|, a),
followed by b − log(π₁/π₀) where the bias is dynamic; the sign of w is kept in its memory. With γ =
4w|w| and, for each class (x, o), G = 1 + γ o, c = (x − ½)G, k = aG, ω and v as in
``models.uniform.sums``, and all sums at the optimal bias,

    (log|e|)′ = −2 Σ ω(c + k m),   (log|w|)′ = −8 sign(w) e² Σ_{o=1} ω(x − ½ + a m),
    a′ = −e² Σ ω G m,              b′ = −Σ ω.

Derivatives follow from ∂ω = v ∂f, f = b + e²(c + k m), with ∂b = −Σ v ∂f / Σ v where the bias is
minimised out. Source: own derivation.

The field has *corners*, values of a at which ReLUs of many pasts switch at once. Uniform attention
adds s = x − ½ + a m with m = k/n − ½, k of the n symbols so far being ones, the current one x among
them. So ReLU(s) has its kink for pasts of n symbols at

    a = n/j,   j = −n, −n + 2, …, n − 2 without 0,

whatever the other coordinates; at n = 1 it is a = −1, which linear attention has too. There ∂L/∂a
jumps, and nothing else does, since s = 0. Between two corners the field is smooth, and it goes on
smoothly past both if the ReLUs stay open or shut. Source: docs/derivations/06.md.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.flow.rows.vectors import lowest_between
from flowsim.models.uniform.sums import EACH, SUMS, class_sums, excess_of_ranges, newton_shift
from flowsim.models.uniform.table import DYNAMIC, ENTROPY_RATE, LENGTH, gather
from flowsim.models.uniform.table import MEMORY as RANGES

#: Corners of pasts of up to this many symbols are met one by one; those of longer pasts weigh
#: less, and steps across them are as short as the error demands.
MOST = 8
#: The last places in a row's memory: the largest n whose corners count (0: none), the corners
#: beside the row, and whether it slides along a = LOW or HIGH.
ORDER, LOW, HIGH, SLIDES, ROOM = -4, -3, -2, -1, 4
#: Relative distance from a corner within which a is on it.
WIDTH = 1e-12
#: Places in a row's memory: whether e is 0 for ever and the sign of w (both set before the row
#: begins), whether a shift is known,
#: β at the last evaluation, where that was, ∂β/∂y there, where the step begins, and the excess loss
#: far out on the way to infinity.
SIGN, KNOWN, SHIFT, PLACE, SLOPE, ORIGIN = 1, 2, 3, 4, 8, RANGES
HELD, LIMIT, MEMORY = RANGES + 4, RANGES + 5, RANGES + 6 + ROOM
#: An evaluation further than this from where the step begins, in log|e| and log|w|, or relative in
#: a and b, belongs to a step that will be rejected anyway, and steep logits are expensive.
_FAR = 3.0
#: log|w| below which w no longer enters the logits.
_NO_W = -25.0


@compiled(no_cpython_wrapper=True)
def write_corners_beside(a, side, memory):
    """Write the next corner below a and the next above to memory.

    If a is a corner itself, it counts as below (``side`` > 0) or above (< 0).
    """
    low, high = -math.inf, math.inf
    for n in range(1, int(memory[ORDER]) + 1):
        for j in range(-n, n - 1, 2):
            corner = n / j if j != 0 else math.inf
            if corner < a or (corner == a and side > 0):
                low = max(low, corner)
            else:
                high = min(high, corner)
    memory[LOW], memory[HIGH] = low, high


@compiled(no_cpython_wrapper=True)
def corner_reached(a, memory):
    """Return the corner that a is on or beyond, to rounding; infinity if there is none."""
    low, high = memory[LOW], memory[HIGH]
    if low > -math.inf and a <= low + WIDTH * abs(low):
        return low
    if high < math.inf and a >= high - WIDTH * abs(high):
        return high
    return math.inf


@compiled(no_cpython_wrapper=True)
def kept_between_corners(a, memory):
    """Return the value next to a between its corners, which so says which ReLUs are open."""
    if memory[ORDER] == 0.0:
        return a
    low, high = memory[LOW], memory[HIGH]
    if low > -math.inf:
        a = max(a, low + WIDTH * abs(low))
    if high < math.inf:
        a = min(a, high - WIDTH * abs(high))
    return a


@compiled(no_cpython_wrapper=True)
def _is_far(y, memory):
    """Return whether y is so far from where the step begins that the step will be rejected."""
    for j in range(len(y)):
        if j == 1 and max(y[1], memory[ORIGIN + 1]) < _NO_W:
            continue
        far = _FAR if j < 2 else 1.0 + 10.0 * abs(memory[ORIGIN + j])
        if not abs(y[j] - memory[ORIGIN + j]) < far:
            return True
    return False


@compiled(no_cpython_wrapper=True)
def _sums_at(y, square, gamma, reals, ints, memory):
    """Write the sums of all classes at y to memory; return a status and Newton's last step of b."""
    if memory[KNOWN] != 0.0 and _is_far(y, memory):
        return -1, 0.0
    status = gather(square, gamma, y[2], kept_between_corners(y[2], memory), reals, ints, memory)
    if status != 0:
        return status, 0.0
    if ints[DYNAMIC] == 1:
        class_sums(square, gamma, y[2], y[3] - square / 2, reals, memory)
        return 0, 0.0
    guess = math.nan
    if memory[KNOWN] != 0.0:
        guess = memory[SHIFT]
        for j in range(3):
            guess += memory[SLOPE + j] * (y[j] - memory[PLACE + j])
    shift, step = newton_shift(square, gamma, y[2], guess, reals, memory)
    memory[SHIFT] = shift + step
    return 0, step


@compiled(no_cpython_wrapper=True)
def _gamma(y, memory):
    """Return γ = 4w|w|; zero where w = 0."""
    return 4.0 * memory[SIGN] * math.exp(2.0 * y[1]) if memory[SIGN] != 0.0 else 0.0


@compiled
def write_flow(y, reals, ints, memory, out, jacobian, second):
    """Write dy/dt to ``out`` and, where ``second`` is 1.0, its derivative to ``jacobian``.

    Returns 0, or −1 where not finite, or 1 + a level that the table lacks.
    """
    square, gamma = math.exp(2.0 * y[0]), _gamma(y, memory)
    status, step = _sums_at(y, square, gamma, reals, ints, memory)
    if status != 0:
        return status
    memory[KNOWN] = 1.0
    for i in range(len(y)):
        memory[PLACE + i] = y[i]
        if second:
            memory[ORIGIN + i] = y[i]
    write_flow_from_sums(square, gamma, y[2], step, memory, out, jacobian, second)
    if memory[HELD] == 1.0:
        out[0] = 0.0
        if second:
            jacobian[0] = 0.0
    if memory[SLIDES] == 1.0:
        out[2] = 0.0
        if second:
            jacobian[2] = 0.0
    return 0


@compiled
def write_flow_from_sums(square, gamma, a, step, memory, out, jacobian, second):
    """Write dy/dt to ``out``, and with ``second`` its derivative, from the sums in memory.

    ``step`` is Newton's last step of b.
    """
    k = len(out)
    stiffness = bias_e = bias_w = bias_a = 0.0
    for c in range(4):
        gain, half = 1.0 + gamma * (c % 2), c // 2 - 0.5
        v0, v1 = memory[SUMS + EACH * c + 2], memory[SUMS + EACH * c + 3]
        stiffness += v0
        bias_e -= 2.0 * square * gain * (half * v0 + a * v1)
        bias_w -= 2.0 * square * gamma * (c % 2) * (half * v0 + a * v1)
        bias_a -= square * gain * v1
    inverse = 1.0 / stiffness if stiffness > 1e-290 else 0.0
    if k == 4:
        inverse = 0.0
    bias_e, bias_w, bias_a = bias_e * inverse, bias_w * inverse, bias_a * inverse
    memory[SLOPE], memory[SLOPE + 1], memory[SLOPE + 2] = bias_e - square, bias_w, bias_a
    for i in range(k):
        out[i] = 0.0
        if second:
            jacobian[i] = 0.0
    for c in range(4):
        if _has_nodes(c, memory):
            _add_class_to_flow(c, square, gamma, a, step, memory, out)
            if second:
                _add_class_to_jacobian(
                    c, square, gamma, a, step, bias_e, bias_w, bias_a, memory, jacobian
                )
    if second:
        jacobian[1, 0] += 2.0 * out[1]
        jacobian[2, 0] += 2.0 * out[2]


@compiled(no_cpython_wrapper=True)
def _has_nodes(c, memory):
    """Return whether the law has nodes in class c; far out Σv underflows there, but not Σω."""
    place = SUMS + EACH * c
    return memory[place + 2] > 0.0 or memory[place] != 0.0


@compiled(no_cpython_wrapper=True)
def _add_class_to_flow(c, square, gamma, a, step, memory, out):
    """Add the share of class c in dy/dt to ``out`` (k,)."""
    o, half, gain = c % 2, c // 2 - 0.5, 1.0 + gamma * (c % 2)
    place = SUMS + EACH * c
    zeroth = memory[place] + step * memory[place + 2]
    first = memory[place + 1] + step * memory[place + 3]
    inner = half * zeroth + a * first
    out[0] -= 2.0 * gain * inner
    out[1] -= 8.0 * memory[SIGN] * square * o * inner
    out[2] -= square * gain * first
    if len(out) == 4:
        out[3] -= zeroth


@compiled(no_cpython_wrapper=True)
def _add_class_to_jacobian(c, square, gamma, a, step, bias_e, bias_w, bias_a, memory, jacobian):
    """Add the share of class c to ``jacobian``, but for ∂e²/∂log|e| in front of a sum."""
    k = len(jacobian)
    o, half, gain = c % 2, c // 2 - 0.5, 1.0 + gamma * (c % 2)
    place = SUMS + EACH * c
    v0, v1, v2 = memory[place + 2], memory[place + 3], memory[place + 4]
    by_w = 8.0 * memory[SIGN] * square * o
    for j in range(k):
        # ∂f = level + steep·m
        level, steep = 1.0, 0.0
        if j == 0:
            level, steep = 2.0 * square * gain * half + bias_e, 2.0 * square * gain * a
        elif j == 1:
            level, steep = 2.0 * square * gamma * o * half + bias_w, 2.0 * square * gamma * o * a
        elif j == 2:
            level, steep = bias_a, square * gain
        zeroth, first = v0 * level + v1 * steep, v1 * level + v2 * steep
        inner = half * zeroth + a * first
        jacobian[0, j] -= 2.0 * gain * inner
        jacobian[1, j] -= by_w * inner
        jacobian[2, j] -= square * gain * first
        if k == 4:
            jacobian[3, j] -= zeroth
    zeroth = memory[place] + step * v0
    first = memory[place + 1] + step * v1
    jacobian[0, 1] -= 4.0 * gamma * o * (half * zeroth + a * first)
    jacobian[0, 2] -= 2.0 * gain * first
    jacobian[1, 2] -= by_w * first
    jacobian[2, 1] -= 2.0 * square * gamma * o * first


@compiled
def loss(y, reals, ints, memory):
    """Return the loss in nats at y; NaN where it cannot be evaluated."""
    return reals[ENTROPY_RATE] + excess(y, reals, ints, memory)


@compiled
def excess(y, reals, ints, memory):
    """Return the loss above the entropy rate in nats at y; NaN where it cannot be evaluated."""
    square, gamma = math.exp(2.0 * y[0]), _gamma(y, memory)
    if _sums_at(y, square, gamma, reals, ints, memory)[0] != 0:
        return math.nan
    shift = y[3] - square / 2 if ints[DYNAMIC] == 1 else memory[SHIFT]
    return excess_of_ranges(square, gamma, y[2], shift, reals, memory)


@compiled(no_cpython_wrapper=True)
def _velocity(y, reals, ints, memory, out):
    """Write dy/dt at y to ``out`` (k,); return the status of ``write_flow``."""
    return write_flow(y, reals, ints, memory, out, memory[:1].reshape((1, 1)), 0.0)


@compiled(no_cpython_wrapper=True)
def _linearise(row):
    """Write dy/dt and its Jacobian at ``row.y`` to the row; return the status of ``write_flow``."""
    given = row.y, row.reals, row.ints, row.memory, row.velocity, row.derivative
    return write_flow(*given, 1.0)


@compiled(no_cpython_wrapper=True)
def _rates_at_corner(row, y, corner):
    """Return da/dt at a corner that y has reached, from above and from below; NaN if not finite."""
    memory, slope = row.memory, row.point
    a, low, high, slides = y[2], memory[LOW], memory[HIGH], memory[SLIDES]
    y[2], memory[SLIDES], above = corner, 0.0, math.nan
    for side in range(2):
        above = slope[2] if side == 1 else math.nan
        write_corners_beside(corner, 1.0 - 2.0 * side, memory)
        if _velocity(y, row.reals, row.ints, memory, slope) != 0:
            slope[2] = math.nan
    y[2], memory[LOW], memory[HIGH], memory[SLIDES] = a, low, high, slides
    return above, slope[2]


@compiled(no_cpython_wrapper=True)
def _handle_event(row):
    """Let the row cross the corner it has reached, slide along it, or leave it to the faster side.

    It slides, a staying, where the rates of a point towards the corner from both sides. Returns 1,
    0 where no corner is reached, −1 where a rate is not finite.
    """
    y, memory = row.y, row.memory
    corner = corner_reached(y[2], memory)
    if corner == math.inf:
        return 0
    above, below = _rates_at_corner(row, y, corner)
    if not above + below < math.inf:
        return -1
    y[2] = corner
    write_corners_beside(corner, 1.0 if above + below > 0.0 else -1.0, memory)
    memory[SLIDES] = 1.0 if above < 0.0 < below or above == 0.0 == below else 0.0
    return 1


@compiled(no_cpython_wrapper=True)
def _begin(row, at_zero, signs):
    """Write the sign of w and the corners beside a to memory, and handle a start on a corner.

    Returns a status.
    """
    memory = row.memory
    memory[SIGN], memory[HELD] = signs[1], at_zero
    memory[ORDER] = min(MOST, row.ints[LENGTH])
    write_corners_beside(row.y[2], 1.0, memory)
    status = _linearise(row)
    return status if status != 0 else min(_handle_event(row), 0)


@compiled(no_cpython_wrapper=True)
def _event_function(row, y):
    """Return the distance of a from the next corner; of a sliding row, from the end of sliding."""
    memory = row.memory
    if memory[SLIDES] == 1.0:
        above, below = _rates_at_corner(row, y, corner_reached(y[2], memory))
        return min(-above, below)
    low, high = memory[LOW], memory[HIGH]
    before = y[2] - low + WIDTH * abs(low) if low > -math.inf else math.inf
    return min(before, high - y[2] + WIDTH * abs(high)) if high < math.inf else before


@compiled(no_cpython_wrapper=True)
def _missed_crossing(row, h):
    """Return the first fraction of a step h at which a is furthest beyond a corner, else 1."""
    memory, fraction = row.memory, 1.0
    if memory[SLIDES] == 1.0:
        return fraction
    for side in (1.0, -1.0):
        corner = memory[LOW] if side > 0.0 else memory[HIGH]
        fall, rise = side * h * row.velocity[2], side * h * row.slope[2]
        if abs(corner) < math.inf and fall < 0.0 < rise:
            before, after = side * (row.y[2] - corner), side * (row.new[2] - corner)
            place, least = lowest_between(before, after, fall, rise)
            if least < -WIDTH * abs(corner) and 0.0 < place < fraction:
                fraction = place
    return fraction


@compiled(no_cpython_wrapper=True)
def _slides(row):
    """Return whether the row slides along a corner, a staying."""
    return row.memory[SLIDES] == 1.0


HOOKS = {
    "begin": _begin,
    "velocity": _velocity,
    "linearise": _linearise,
    "loss": loss,
    "event_function": _event_function,
    "missed_crossing": _missed_crossing,
    "handle_event": _handle_event,
    "slides": _slides,
}
