"""The rank-one flow without attention for the rows engine: its surfaces are the ReLUs' kinks.

The hooks are those of ``flow.rows.hooks``. The field jumps on Y_0 = 0, on Y_1 = 0 and, where w₁² <
w₂², on w₁ = 0. On a surface the velocities across it, taken from both sides, say what happens: both
to one side, the row crosses; towards each other, it slides; away from each other, it leaves to the
faster side. A mode lasts while its *margins* are positive: the distance to the surface for a unit
that is open or closed, and for one that slides both velocities, counted towards the surface.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.return_codes import FAR, IF_CHANGED, NEAR, TRAPPED
from flowsim.flow.rows.vectors import lowest_between
from flowsim.interface import CompiledModel
from flowsim.models.on_chain import beyond_targets, unigram_logit
from flowsim.models.rank_one.field import (
    CLOSED,
    LENGTH,
    OPEN,
    PI0,
    PI1,
    SLIDING,
    excess,
    jacobian,
    loss,
    residual_at,
    velocity,
)
from flowsim.models.rank_one.slow_manifold import (
    PIVOT,
    from_step_coordinates,
    to_slow_manifold,
    to_step_coordinates,
    velocity_in_step_coordinates,
)
from flowsim.models.rank_one.termination import (
    AMPLITUDE,
    CENTRE,
    EMBEDDING_BALANCE,
    FEED_FORWARD_BALANCE,
    NARROWEST,
    check_termination,
    is_below_unigram,
)

#: Numbers of ``ints``: units 0 and 1, w₁ held at 0, sign of w₁; then the coordinates of a step.
_MODES, _MEMORY = 6, 5
#: A start that moves slower than this, relative to its size, is critical.
_NO_SPEED = 1e-15
#: A row that passed a saddle within the root of this many tolerances, or a central one within this
#: part of its start, is followed again.
_NARROW, _CENTRAL = 1e3, 1e-2
#: A row this near to a surface, relative to its size, is on it: the rounding of Y.
_NEAR = 1e-15

#: Surfaces: of the two units, and w₁ = 0.
UNIT0, UNIT1, WEIGHT = range(3)


def constants(model: Any, origin: float = 0.0) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the arrays ``reals`` and ``ints`` for the hooks, and the length of a row's memory.

    The row's coordinate for the bias is b − ``origin``.
    """
    chain = model.chain
    p, q, (pi0, pi1) = chain.p, chain.q, chain.stationary
    reals = [p, 1 - q, 1 - p, q, pi0, pi1, model.length, unigram_logit(chain) - origin]
    reals += [*beyond_targets(chain), chain.entropy_rate, chain.mutual_information]
    reals.append(chain.second_eigenvalue)
    return np.array(reals, dtype=np.float64), np.zeros(_MODES, dtype=np.int64), _MEMORY


@compiled(no_cpython_wrapper=True)
def inner_velocities(y, slope0, slope1, reals):
    """Return the rates Y_0′ and Y_1′ at y if the units' outputs had these slopes over Y."""
    tied = len(y) == 5
    u = y[0] if tied else y[5]
    out0, out1 = y[1] * slope0, (y[0] + y[1]) * slope1
    omega0 = reals[PI0] * residual_at(u * out0, y, 0, reals)
    omega1 = reals[PI1] * residual_at(u * out1, y, 1, reals)
    rho = -u * (omega0 * slope0 + omega1 * slope1) / reals[LENGTH]
    e = -u * omega1 * slope1
    if tied:
        e -= omega0 * out0 + omega1 * out1
    return rho, e + rho


@compiled(no_cpython_wrapper=True)
def _output_slope(unit_mode, gain):
    """Return the slope of a unit's output over Y: the gain 1 + 4w₁w₂ if it is open, else 1."""
    return gain if unit_mode == OPEN else 1.0


@compiled(no_cpython_wrapper=True)
def unit_velocities(y, mode, unit, reals):
    """Return dY/dt of a unit towards its open side, first with the unit open, then closed."""
    gain = 1.0 + 4.0 * y[2] * y[3]
    if unit == UNIT0:
        other = _output_slope(mode[1], gain)
        opened = inner_velocities(y, gain, other, reals)[0]
        closed = inner_velocities(y, 1.0, other, reals)[0]
    else:
        other = _output_slope(mode[0], gain)
        opened = inner_velocities(y, other, gain, reals)[1]
        closed = inner_velocities(y, other, 1.0, reals)[1]
    return mode[3] * opened, mode[3] * closed


@compiled(no_cpython_wrapper=True)
def weight_velocities(y, reals):
    """Return dw₁/dt at w₁ = 0, as if w₁ were positive and as if it were negative."""
    u = y[0] if len(y) == 5 else y[5]
    inner0, inner1 = y[1], y[0] + y[1]
    omega0 = reals[PI0] * residual_at(u * inner0, y, 0, reals)
    omega1 = reals[PI1] * residual_at(u * inner1, y, 1, reals)
    factor = -u * y[3]
    positive = factor * (omega0 * max(inner0, 0.0) + omega1 * max(inner1, 0.0))
    negative = factor * (omega0 * min(inner0, 0.0) + omega1 * min(inner1, 0.0))
    return positive, negative


@compiled(no_cpython_wrapper=True)
def _loss_rise(y, mode, unit, reals):
    """Return a number that is positive while the loss rises with |Y| of ``unit``, at Y_0 = Y_1 = 0.

    There e = ρ = 0 and only b moves. To first order the loss is u Σ_x ω_x s_x Y_x, where s_x is
    1 + 4w₁w₂ < 0 on the open side and 1 on the other.
    """
    u = y[0] if len(y) == 5 else y[5]
    omega = residual_at(0.0, y, 0 if unit == UNIT0 else 1, reals)
    return mode[3] * u * omega * 4.0 * y[2] * y[3]


@compiled(no_cpython_wrapper=True)
def _rounding(y, mode):
    """Return the rounding error that a step may leave in a unit's Y where Y should be 0.

    If e or ρ follows from a logit, as in ``slow_manifold``, it includes the rounding of b.
    """
    return _NEAR * (abs(y[0]) + abs(y[1]) + (abs(y[4]) if mode[PIVOT] < 2 else 0.0))


@compiled(no_cpython_wrapper=True)
def w1_can_vanish(memory):
    """Return whether w₁ can reach 0."""
    return memory[FEED_FORWARD_BALANCE] < 0.0


@compiled(no_cpython_wrapper=True)
def event_function(row, y):
    """Write two margins for each surface at y to ``row.margins`` (6,) and return the smallest.

    A margin is positive while the mode lasts, as at the top of this file; infinite where none is.
    """
    mode, reals, margins = row.ints, row.reals, row.margins
    for i in range(6):
        margins[i] = inf
    for unit in range(2):
        inner = y[1] if unit == UNIT0 else y[0] + y[1]
        if mode[2] == 1:
            continue  # w₁ = 0: units do not matter
        if mode[unit] == SLIDING:
            if mode[1 - unit] == SLIDING:
                margins[2 * unit] = _loss_rise(y, mode, unit, reals)
                continue
            opened, closed = unit_velocities(y, mode, unit, reals)
            margins[2 * unit], margins[2 * unit + 1] = -opened, closed
        else:
            side = mode[3] if mode[unit] == OPEN else -mode[3]
            margins[2 * unit] = side * inner + _rounding(y, mode)
    if mode[2] == 1:
        positive, negative = weight_velocities(y, reals)
        margins[4], margins[5] = -positive, negative
    elif w1_can_vanish(row.memory):
        margins[4] = mode[3] * y[2] + _NEAR * abs(y[3])
    smallest = margins[0]
    for i in range(1, 6):
        if margins[i] < smallest:
            smallest = margins[i]
    return smallest


@compiled(no_cpython_wrapper=True)
def project(y, mode):
    """Put the row exactly on the surfaces on which it slides or is held."""
    if mode[0] == SLIDING:
        y[1] = 0.0
        if mode[1] == SLIDING:
            y[0] = 0.0
    elif mode[1] == SLIDING:
        y[1] = -y[0]
    if mode[2] == 1:
        y[2] = 0.0


@compiled(no_cpython_wrapper=True)
def choose_modes(y, mode, kinked, reals):
    """Write the modes in which the row goes on from y, which may lie on any of the surfaces.

    They go to ``mode``; ``kinked`` says whether w₁ = 0 is a surface.
    """
    mode[2] = 0
    if y[2] != 0.0:
        mode[3] = 1 if y[2] > 0.0 else -1
    elif kinked:
        positive, negative = weight_velocities(y, reals)
        if positive < 0.0 < negative:
            mode[2] = 1
        else:
            mode[3] = 1 if positive + negative >= 0.0 else -1
    else:
        mode[3] = 1
    inner0, inner1 = y[1], y[0] + y[1]
    mode[0] = OPEN if mode[3] * inner0 > 0.0 else CLOSED
    mode[1] = OPEN if mode[3] * inner1 > 0.0 else CLOSED
    if mode[2] == 1:
        return
    if inner0 == 0.0 and inner1 == 0.0:
        _choose_both_modes(y, mode, reals)
        return
    for unit in range(2):
        if (inner0 if unit == UNIT0 else inner1) == 0.0:
            mode[unit] = _mode_on_surface(y, mode, unit, reals)


@compiled(no_cpython_wrapper=True)
def _mode_on_surface(y, mode, unit, reals):
    """Return the mode of a unit on its surface while the other one is off its own."""
    opened, closed = unit_velocities(y, mode, unit, reals)
    if opened < 0.0 < closed:
        return SLIDING
    return OPEN if opened + closed >= 0.0 else CLOSED


@compiled(no_cpython_wrapper=True)
def _choose_both_modes(y, mode, reals):
    """Write the modes of both units at e = ρ = 0: the first pair that agrees with its velocities.

    A unit that may leave to both sides leaves to the faster one.

    With the outputs zero both velocities are linear in the slopes, so that the slopes that keep a
    unit on its surface follow from a linear equation.
    """
    u = y[0] if len(y) == 5 else y[5]
    omega0 = reals[PI0] * residual_at(0.0, y, 0, reals)
    omega1 = reals[PI1] * residual_at(0.0, y, 1, reals)
    gain = 1.0 + 4.0 * y[2] * y[3]
    low, high = min(1.0, gain), max(1.0, gain)
    ratio = 1.0 / reals[LENGTH]
    order = (OPEN, CLOSED, SLIDING) if abs(gain) >= 1.0 else (CLOSED, OPEN, SLIDING)
    for pair in range(9):
        first, second = order[pair % 3], order[pair // 3]
        slope0, slope1 = _output_slope(first, gain), _output_slope(second, gain)
        if first == SLIDING and second == SLIDING:
            slope0 = slope1 = 0.0
        elif first == SLIDING:
            slope0 = -omega1 * slope1 / omega0
        elif second == SLIDING:
            slope1 = -omega0 * slope0 * ratio / (omega1 * (1.0 + ratio))
        drift = -u * ratio * (omega0 * slope0 + omega1 * slope1)
        toward0, toward1 = mode[3] * drift, mode[3] * (drift - u * omega1 * slope1)
        fits0 = low <= slope0 <= high if first == SLIDING else _stays_on_side(first, toward0)
        fits1 = low <= slope1 <= high if second == SLIDING else _stays_on_side(second, toward1)
        if fits0 and fits1:
            mode[0], mode[1] = first, second
            return


@compiled(no_cpython_wrapper=True)
def _stays_on_side(unit_mode, toward_open):
    """Return whether a unit on its surface that counts as open, or as closed, stays so."""
    return toward_open >= 0.0 if unit_mode == OPEN else toward_open <= 0.0


@compiled(no_cpython_wrapper=True)
def missed_crossing(row, h):
    """Return the first fraction of a step h at which the row is furthest beyond a surface, else 1.

    The step begins and ends inside its mode; between, the distance is taken as the cubic through
    its values and slopes at both ends.
    """
    y, velocity, new, slope, mode = row.y, row.velocity, row.new, row.slope, row.ints
    fraction = 1.0
    if mode[2] == 1:
        return fraction
    for surface in range(3):
        if surface == WEIGHT:
            if not w1_can_vanish(row.memory):
                continue
            side = mode[3]
            before, after = y[2], new[2]
            fall, rise = velocity[2], slope[2]
        else:
            if mode[surface] == SLIDING:
                continue
            side = mode[3] if mode[surface] == OPEN else -mode[3]
            share = 1.0 if surface == UNIT1 else 0.0
            before, after = share * y[0] + y[1], share * new[0] + new[1]
            fall, rise = share * velocity[0] + velocity[1], share * slope[0] + slope[1]
        before, after, fall, rise = side * before, side * after, side * h * fall, side * h * rise
        if not (fall < 0.0 < rise):
            continue
        place, least = lowest_between(before, after, fall, rise)
        near = _NEAR * abs(y[3]) if surface == WEIGHT else _rounding(y, mode)
        if least < -near and 0.0 < place < fraction:
            fraction = place
    return fraction


@compiled(no_cpython_wrapper=True)
def _embedding_balance(y, length):
    """Return e² + Nρ² − c², which the flow of an untied row conserves; 0 for a tied one."""
    return y[0] * y[0] + length * y[1] * y[1] - y[5] * y[5] if len(y) == 6 else 0.0


@compiled(no_cpython_wrapper=True)
def _begin(row, at_zero, signs):
    """Write what the flow conserves and the modes of the start ``row.y`` to the row; return 0."""
    y, memory = row.y, row.memory
    memory[FEED_FORWARD_BALANCE] = y[2] * y[2] - y[3] * y[3]
    memory[EMBEDDING_BALANCE] = _embedding_balance(y, row.reals[LENGTH])
    memory[AMPLITUDE] = sqrt(y[0] * y[0] + y[1] * y[1])
    memory[NARROWEST] = memory[CENTRE] = -1.0
    choose_modes(y, row.ints, w1_can_vanish(memory), row.reals)
    return 0


@compiled(no_cpython_wrapper=True)
def _velocity(y, reals, ints, memory, out):
    """Write dy/dt at y to ``out`` (k,), and return the status 0."""
    velocity(y, ints, reals, out)
    return 0


@compiled(no_cpython_wrapper=True)
def _linearise(row):
    """Evaluate dy/dt and its Jacobian at ``row.y``, also in the coordinates of a step; return 0."""
    velocity(row.y, row.ints, row.reals, row.velocity)
    jacobian(row.y, row.ints, row.reals, row.derivative)
    to_slow_manifold(row)
    return 0


@compiled(no_cpython_wrapper=True)
def _loss_of(y, reals, ints, memory):
    """Return the loss in nats at y."""
    return loss(y, ints, reals)


@compiled(no_cpython_wrapper=True)
def _relative_change(y, change):
    """Return the size of a change of y relative to y, (e, ρ, c) and (w₁, w₂) each taken together.

    Next to 0 the flow is homogeneous in either, so that nothing absolute would do.
    """
    inner, inner_change = y[0] * y[0] + y[1] * y[1], change[0] * change[0] + change[1] * change[1]
    if len(y) == 6:
        inner += y[5] * y[5]
        inner_change += change[5] * change[5]
    outer, outer_change = y[2] * y[2] + y[3] * y[3], change[2] * change[2] + change[3] * change[3]
    ratio = max(inner_change / (inner + 1e-300), outer_change / (outer + 1e-300))
    return sqrt(max(ratio, change[4] * change[4] / (1.0 + y[4] * y[4])))


@compiled(no_cpython_wrapper=True)
def _error_ratio(y, new, error, absolute, relative):
    """Return the error of a step relative to y, in units of the relative tolerance."""
    return _relative_change(y, error) / relative[0]


@compiled(no_cpython_wrapper=True)
def _is_critical(row):
    """Return whether the start is critical: it moves too slowly relative to its size."""
    return _relative_change(row.y, row.velocity) <= _NO_SPEED


@compiled(no_cpython_wrapper=True)
def _is_terminal(rule, timed, wanted):
    """Return whether a row ends at the code ``rule``; one that is timed goes on in a trap."""
    return not timed or rule != TRAPPED


@compiled(no_cpython_wrapper=True)
def _conserve(row, time):
    """Put ``row.y`` back on w₁² − w₂², on e² + Nρ² − c² and on its surfaces.

    The shortest way in the metric to first order, far below the step's error.
    """
    y, memory, length = row.y, row.memory, row.reals[LENGTH]
    size = y[2] * y[2] + y[3] * y[3]
    if size > 0.0 and row.ints[2] == 0:
        part = y[2] * y[2] - y[3] * y[3] - memory[FEED_FORWARD_BALANCE]
        y[2] *= 1.0 - part / (2.0 * size)
        y[3] *= 1.0 + part / (2.0 * size)
    if len(y) == 6:
        size = y[0] * y[0] + length * y[1] * y[1] + y[5] * y[5]
        if size > 0.0:
            part = (_embedding_balance(y, length) - memory[EMBEDDING_BALANCE]) / (2.0 * size)
            y[0] *= 1.0 - part
            y[1] *= 1.0 - part
            y[5] *= 1.0 + part
    project(y, row.ints)


@compiled(no_cpython_wrapper=True)
def _handle_event(row):
    """Choose the modes in which the row goes on from the kink it has just reached.

    Returns 1 if it meets the kink anew, 0 if not, −1 if it is given up. A row that stops sliding
    leaves to the side whose velocity has turned, which is zero here: its sign is rounding, and so
    is that of Y.
    """
    y, mode, margins = row.y, row.ints, row.margins
    event_function(row, y)
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
            if leaves and unit == UNIT1 and _is_ridge(row):
                return _leave_ridge(row)
    choose_modes(y, mode, w1_can_vanish(row.memory), row.reals)
    if leaves and mode[2] == 0:
        mode[unit] = OPEN if met % 2 == 0 else CLOSED
    return 1 if fresh else 0


@compiled(no_cpython_wrapper=True)
def _is_ridge(row):
    """Return whether a slide along Y_1 = 0 has begun to repel on both sides.

    At N = 1 the velocities across it are −2eω₁(1 + 4w₁w₂) and −2eω₁: both turn where ω₁ = 0, only
    the first where 1 + 4w₁w₂ = 0.
    """
    y, reals = row.y, row.reals
    omega = residual_at(0.0, y, 1, reals)
    tied = len(y) == 5 and reals[LENGTH] == 1.0
    return tied and abs(omega) < abs(1.0 + 4.0 * y[2] * y[3])


@compiled(no_cpython_wrapper=True)
def _leave_ridge(row):
    """Choose the mode of unit 1 after a slide that now repels on both sides; return 0 or −1.

    The flow is not unique from here. Below h(π₁) every way leads to the global minima, and the
    faster one is taken; a row above is given up (−1).
    """
    y, mode = row.y, row.ints
    if not is_below_unigram(excess(y, mode, row.reals), row.reals):
        return -1
    mode[UNIT1] = OPEN if abs(1.0 + 4.0 * y[2] * y[3]) >= 1.0 else CLOSED
    return 0


@compiled(no_cpython_wrapper=True)
def _slides(row):
    """Return whether the row slides along the surface of a unit, or is held at w₁ = 0."""
    return row.ints[0] == SLIDING or row.ints[1] == SLIDING or row.ints[2] == 1


@compiled(no_cpython_wrapper=True)
def _saddle_distance(row, out):
    """Write the row's distances from both kinds of saddles to ``out`` (2,); −1 where not known."""
    out[0], out[1] = row.memory[NARROWEST], row.memory[CENTRE]


HOOKS = {
    "begin": _begin,
    "velocity": _velocity,
    "linearise": _linearise,
    "loss": _loss_of,
    "check_termination": check_termination,
    "error_ratio": _error_ratio,
    "is_critical": _is_critical,
    "is_terminal": _is_terminal,
    "conserve": _conserve,
    "event_function": event_function,
    "missed_crossing": missed_crossing,
    "handle_event": _handle_event,
    "slides": _slides,
    "saddle_distance": _saddle_distance,
    "to_step_coordinates": to_step_coordinates,
    "stage_rhs": velocity_in_step_coordinates,
    "from_step_coordinates": from_step_coordinates,
}


def origin_of(model: Any, bias: float) -> tuple[float, ...]:
    """Return the θ at which a row's coordinates are 0: ``bias`` for b, and 0 for the others."""
    return tuple(bias if name == "b" else 0.0 for name in model.coordinates)


def compiled_model_of(model: Any) -> CompiledModel:
    """Return the hooks and constants for the rows engine of a rank-one model without attention."""

    def near_saddles(near: np.ndarray, rtol: float) -> np.ndarray:
        """Return FAR, IF_CHANGED or NEAR for each row; ``near`` (n, 2) is by ``_saddle_distance``.

        Untied rows are far, having no bad minima.
        """
        narrow, central = near[:, 0] ** 2 < _NARROW * rtol, near[:, 1] < _CENTRAL
        found = np.where(narrow, NEAR, np.where(central, IF_CHANGED, FAR))
        return found * (model.tied and model.chain.mutual_information > 0)

    bias = unigram_logit(model.chain)
    return CompiledModel(
        tag="rank_one",
        hooks=HOOKS,
        constants=lambda: constants(model, bias),
        origin=origin_of(model, bias),
        own_steps=True,
        rtol=1e-8,
        time_rtol=1e-10,
        max_steps=30_000,
        long=100_000,
        at_once=2048,
        count_kinks=True,
        finer=1e-4,
        finest=1e-13,
        more=5,
        near_saddles=near_saddles,
    )
