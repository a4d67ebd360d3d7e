"""The rank-one flow without attention for the rows engine: its surfaces are the ReLUs' kinks."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.return_codes import FAR, IF_CHANGED, NEAR, TRAPPED
from flowsim.interface import CompiledModel
from flowsim.models.on_chain import beyond_targets, unigram_logit
from flowsim.models.rank_one.field import (
    CLOSED,
    LENGTH,
    OPEN,
    SLIDING,
    excess,
    jacobian,
    loss,
    residual_at,
    velocity,
)
from flowsim.models.rank_one.slow_manifold import (
    from_step_coordinates,
    to_slow_manifold,
    to_step_coordinates,
    velocity_in_step_coordinates,
)
from flowsim.models.rank_one.switching_surfaces import (
    UNIT0,
    UNIT1,
    choose_modes,
    event_function,
    is_kinked,
    missed_crossing,
    project,
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


def constants(model: Any, origin: float = 0.0) -> tuple[np.ndarray, np.ndarray, int]:
    """``reals``, ``ints`` and the size of a row's memory; b is counted from ``origin``."""
    chain = model.chain
    p, q, (pi0, pi1) = chain.p, chain.q, chain.stationary
    reals = [p, 1 - q, 1 - p, q, pi0, pi1, model.length, unigram_logit(chain) - origin]
    reals += [*beyond_targets(chain), chain.entropy_rate, chain.mutual_information]
    reals.append(chain.second_eigenvalue)
    return np.array(reals, dtype=np.float64), np.zeros(_MODES, dtype=np.int64), _MEMORY


@compiled(no_cpython_wrapper=True)
def _embedding_balance(y, length):
    """e² + Nρ² − c², which an untied row keeps; 0 of a tied one."""
    return y[0] * y[0] + length * y[1] * y[1] - y[5] * y[5] if len(y) == 6 else 0.0


@compiled(no_cpython_wrapper=True)
def _begin(row, at_zero, signs):
    y, memory = row.y, row.memory
    memory[FEED_FORWARD_BALANCE] = y[2] * y[2] - y[3] * y[3]
    memory[EMBEDDING_BALANCE] = _embedding_balance(y, row.reals[LENGTH])
    memory[AMPLITUDE] = sqrt(y[0] * y[0] + y[1] * y[1])
    memory[NARROWEST] = memory[CENTRE] = -1.0
    choose_modes(y, row.ints, is_kinked(memory), row.reals)
    return 0


@compiled(no_cpython_wrapper=True)
def _velocity(y, reals, ints, memory, out):
    velocity(y, ints, reals, out)
    return 0


@compiled(no_cpython_wrapper=True)
def _linearise(row):
    velocity(row.y, row.ints, row.reals, row.velocity)
    jacobian(row.y, row.ints, row.reals, row.derivative)
    to_slow_manifold(row)
    return 0


@compiled(no_cpython_wrapper=True)
def _loss_of(y, reals, ints, memory):
    return loss(y, ints, reals)


@compiled(no_cpython_wrapper=True)
def _relative_change(y, change):
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


@compiled(no_cpython_wrapper=True)
def _error_ratio(y, new, error, absolute, relative):
    return _relative_change(y, error) / relative[0]


@compiled(no_cpython_wrapper=True)
def _is_critical(row):
    return _relative_change(row.y, row.velocity) <= _NO_SPEED


@compiled(no_cpython_wrapper=True)
def _is_terminal(rule, timed, wanted):
    return not timed or rule != TRAPPED


@compiled(no_cpython_wrapper=True)
def _conserve(row, time):
    """Put the row back on w₁² − w₂², on e² + Nρ² − c² and on its surfaces.

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
    """At a kink that the row has just landed on: go on in the right modes; whether it is new.

    A row that stops sliding leaves to the side whose velocity has turned, which is zero here: its
    sign is rounding, and so is that of Y.
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
    choose_modes(y, mode, is_kinked(row.memory), row.reals)
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
    """Go on from a slide that has begun to repel on both sides.

    The flow is not unique from here. Below h(π₁) every way leads to the global minima, and the
    faster one is taken; a row above is given up.
    """
    y, mode = row.y, row.ints
    if not is_below_unigram(excess(y, mode, row.reals), row.reals):
        return -1
    mode[UNIT1] = OPEN if abs(1.0 + 4.0 * y[2] * y[3]) >= 1.0 else CLOSED
    return 0


@compiled(no_cpython_wrapper=True)
def _slides(row):
    return row.ints[0] == SLIDING or row.ints[1] == SLIDING or row.ints[2] == 1


@compiled(no_cpython_wrapper=True)
def _saddle_distance(row, out):
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


def counted_from(model: Any, bias: float) -> tuple[float, ...]:
    """Origin of the coordinates of rows: 0, and ``bias`` of b."""
    return tuple(bias if name == "b" else 0.0 for name in model.coordinates)


def rows_of(model: Any) -> CompiledModel:
    """Compiled functions and constants of the model."""

    def near_saddles(near: np.ndarray, rtol: float) -> np.ndarray:
        """Untied rows are never in doubt: their bad minima are saddles."""
        narrow, central = near[:, 0] ** 2 < _NARROW * rtol, near[:, 1] < _CENTRAL
        found = np.where(narrow, NEAR, np.where(central, IF_CHANGED, FAR))
        return found * (model.tied and model.chain.mutual_information > 0)

    bias = unigram_logit(model.chain)
    return CompiledModel(
        tag="rank_one",
        hooks=HOOKS,
        constants=lambda: constants(model, bias),
        origin=counted_from(model, bias),
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
