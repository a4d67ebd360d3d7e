"""Termination of rank-one rows with attention, also at infinity, and the hooks of these rows.

Many orbits creep: the loss falls like a power of time along a valley that leads to infinity (with
e → 0 and |o v| → ∞, attention counts the past; with positions that have shut their units, |w| → ∞).
Therefore the loss is recorded twice a decade of time, and its limit is extrapolated from the
geometric series of its falls (Aitken). Such a row is decided where two successive extrapolations
agree, the remaining fall is far less than the distance to the entropy rate, and the valley
attracts: along the surface of constant w₁² − w₂² and o² − v² no curvature is below −0.3/t, so that
nothing grows by more than a small power of time. Source: own derivation.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.return_codes import DRIFTS, GOING, MINIMA, REST, STUCK, TRAPPED
from flowsim.interface import CompiledModel
from flowsim.models.on_chain import unigram_logit
from flowsim.models.rank_one.attention.field import (
    ENTROPY_RATE,
    INFORMATION,
    LAMBDA,
    LENGTH,
    ORIGIN,
    UNTIED,
    constants,
    excess,
    linearise,
    loss,
    velocity,
)
from flowsim.models.rank_one.rows import origin_of

#: Places in a row's memory: w₁² − w₂² and o² − v² at its start, the time, the last mark, the last
#: extrapolation of the excess loss, steps since headway was last checked, the time and the excess
#: loss then, and the excess losses at the marks, two for each decade of time from 1.
BALANCE, TIME, MARK, LIMIT, STEPS, SINCE, LEVEL, EXCESSES = 0, 2, 3, 4, 5, 6, 7, 8
_MARKS = 48
#: A row is at rest once no coordinate moves faster than this times λ², as saddles repel, or than
#: rounding lets it, which is a part of λ.
_STATIONARY, _NOISE = 1e-12, 1e-15
#: An excess below this part of the mutual information is none, nor is one that rounding may leave.
_NONE, _ROUNDING = 1e-9, 1e-30
#: The first time at which a row may be found to creep, as a mark, and in units of 1/λ²: saddles at
#: which an excess is left repel as slowly as 1/λ², and later.
_FIRST_MARK, _FIRST_TIME = 6, 1e3
#: Ratios of successive falls, per decade, of a power law; slower ones cannot be extrapolated.
_FASTEST, _SLOWEST = 1e-3, 0.8
#: Largest difference of two extrapolations, and largest remaining fall, relative to the excess.
_AGREEMENT, _LEFT = 0.005, 0.005
#: An excess below this share of the mutual information, of which nothing is left but this part when
#: its fall is extrapolated, twice, tends to zero.
_SMALL, _WHOLE = 1e-6, 0.1
#: A row is stuck where in so many steps neither its time has grown by this factor nor its excess
#: loss fallen by it: its steps jump across the edge of a rounded kink again and again, their errors
#: being larger than its distance from there.
_PATIENCE, _HEADWAY = 2000.0, 1.01
#: Curvatures above −this/t count as none.
_GROWTH = 0.3
#: With limits above this share of h(π₁) the plane e = 0 must attract, too.
_PLANE = 0.9


@compiled
def begin(row, at_zero, signs):
    """Write w₁² − w₂² and o² − v² of the start, which the flow conserves, to memory; return 0."""
    y, memory, n = row.y, row.memory, row.ints[LENGTH]
    memory[BALANCE] = y[n + 1] * y[n + 1] - y[n + 2] * y[n + 2]
    memory[BALANCE + 1] = y[n + 3] * y[n + 3] - y[n + 4] * y[n + 4]
    memory[TIME], memory[MARK], memory[LIMIT] = 0.0, -1.0, math.inf
    return 0


@compiled
def conserve(row, time):
    """Put y back on its conserved quantities, to first order, and write ``time`` to memory.

    The change is far below the step's error.
    """
    y, memory = row.y, row.memory
    memory[TIME] = time
    for pair in range(2):
        i = row.ints[LENGTH] + 1 + 2 * pair
        size = y[i] * y[i] + y[i + 1] * y[i + 1]
        if size > 0.0:
            part = (y[i] * y[i] - y[i + 1] * y[i + 1] - memory[BALANCE + pair]) / (2.0 * size)
            y[i] *= 1.0 - part
            y[i + 1] *= 1.0 + part


@compiled
def check_termination(row):
    """Return GOING, or the code with which the row ends."""
    y, jacobian, work = row.y, row.derivative, row.work
    reals, ints, memory = row.reals, row.ints, row.memory
    information, speed = reals[INFORMATION], 0.0
    for value in row.velocity:
        speed = max(speed, abs(value))
    if speed <= _STATIONARY and _is_least(excess(y, reals, ints, memory), reals):
        return MINIMA
    least = abs(reals[LAMBDA])
    if speed <= max(_STATIONARY * least, _NOISE) * least:
        return _at_rest(y, jacobian, reals, ints, memory, work)
    time = memory[TIME]
    memory[STEPS] += 1.0
    if memory[STEPS] >= _PATIENCE:
        value = excess(y, reals, ints, memory)
        if time < _HEADWAY * memory[SINCE] and memory[LEVEL] < _HEADWAY * value:
            return STUCK
        memory[STEPS], memory[SINCE], memory[LEVEL] = 0.0, time, value
    mark = math.floor(2.0 * math.log10(time)) if time >= 1.0 else -1
    if mark <= memory[MARK] or mark >= _MARKS:
        return GOING
    value = excess(y, reals, ints, memory)
    for m in range(int(memory[MARK]) + 1, mark + 1):
        memory[EXCESSES + m] = value
    memory[MARK] = mark
    if _is_least(value, reals):
        return MINIMA
    if mark < _FIRST_MARK:
        return GOING
    before = memory[EXCESSES + mark - 4] - memory[EXCESSES + mark - 2]
    fall = memory[EXCESSES + mark - 2] - value
    if not (before > 0.0 and _FASTEST * before < fall < _SLOWEST * before):
        return GOING
    left = fall * fall / (before - fall)
    limit, last = value - left, memory[LIMIT]
    memory[LIMIT] = limit
    if value <= _SMALL * information:
        return MINIMA if max(abs(limit), abs(last)) <= _WHOLE * value else GOING
    if time * reals[LAMBDA] ** 2 < _FIRST_TIME:
        return GOING
    if left > _LEFT * value or abs(limit - last) > _AGREEMENT * limit:
        return GOING
    if not attracts(y, jacobian, _GROWTH / time, ints, work[0]):
        return GOING
    if limit > _PLANE * information and not _plane_attracts(
        y, jacobian, _GROWTH / time, reals, ints, memory, work
    ):
        return GOING
    return DRIFTS


@compiled
def end_loss(row, rule):
    """Return the loss at the end of a row; where it creeps (DRIFTS), the extrapolated loss."""
    if rule == DRIFTS:
        return row.reals[ENTROPY_RATE] + row.memory[LIMIT]
    return loss(row.y, row.reals, row.ints, row.memory)


@compiled(no_cpython_wrapper=True)
def _is_least(value, reals):
    """Return whether an excess loss counts as zero; at p + q = 1 every orbit's tends to it."""
    if reals[LAMBDA] == 0.0:
        return value <= 1e-15
    return value <= max(_NONE * reals[INFORMATION], _ROUNDING)


@compiled(no_cpython_wrapper=True)
def _at_rest(y, jacobian, reals, ints, memory, work):
    """Return TRAPPED or REST, the code with which a row without velocity at y ends."""
    value, information = excess(y, reals, ints, memory), reals[INFORMATION]
    if ints[UNTIED] == 0 and abs(value - information) <= _NONE * information:
        largest = 0.0
        for i in range(len(y)):
            largest = max(largest, abs(jacobian[i, i]))
        growth = (1e-9 * abs(reals[LAMBDA]) + 1e-15) * (1.0 + largest)
        if attracts(y, jacobian, growth, ints, work[0]):
            return TRAPPED
    return REST


@compiled(no_cpython_wrapper=True, nrt=True)
def _plane_attracts(y, jacobian, growth, reals, ints, memory, work):
    """Return whether the plane e = 0 attracts at the point of it below y with the optimal bias."""
    point = y.copy()
    point[0], point[ints[LENGTH] + 5] = 0.0, reals[ORIGIN]
    if linearise(point, reals, ints, memory, work[0, 0], work[1]) != 0:
        return False
    return attracts(point, work[1], growth, ints, work[0])


@compiled(no_cpython_wrapper=True)
def attracts(y, jacobian, growth, ints, work):
    """Return whether no curvature of the loss is below −``growth`` where conserved quantities stay.

    By Cholesky's factors of G^½(−J)G^−½ + growth, with the normals of the surface lifted. With
    e² + Σρ² − c² too, where untied, more is asked than needed. ``work`` (k, k) is overwritten.
    """
    k, first = len(y), ints[LENGTH] + 1
    largest = 0.0
    for i in range(k):
        root = 2.0 if i == first or i == first + 1 else 1.0
        for j in range(i + 1):
            other = 2.0 if j == first or j == first + 1 else 1.0
            upper, lower = jacobian[j, i] * other / root, jacobian[i, j] * root / other
            work[i, j] = -0.5 * (upper + lower)
        largest = max(largest, abs(work[i, i]))
        work[i, i] += growth
    for i in range(first, first + 3, 2):
        size = y[i] * y[i] + y[i + 1] * y[i + 1]
        if size > 0.0:
            work[i, i] += largest * y[i] * y[i] / size
            work[i + 1, i] -= largest * y[i] * y[i + 1] / size
            work[i + 1, i + 1] += largest * y[i + 1] * y[i + 1] / size
    for i in range(k):
        for j in range(i + 1):
            value = work[i, j]
            for m in range(j):
                value -= work[i, m] * work[j, m]
            if j < i:
                work[i, j] = value / work[j, j]
            elif value > 0.0:
                work[i, i] = math.sqrt(value)
            else:
                return False
    return True


@compiled(no_cpython_wrapper=True)
def _linearise(row):
    """Write dy/dt and its Jacobian at ``row.y`` to the row; return the status of ``linearise``."""
    return linearise(row.y, row.reals, row.ints, row.memory, row.velocity, row.derivative)


HOOKS = {
    "begin": begin,
    "velocity": velocity,
    "linearise": _linearise,
    "loss": loss,
    "check_termination": check_termination,
    "end_loss": end_loss,
    "conserve": conserve,
}


@lru_cache(maxsize=8)
def _constants(model: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Return what ``constants`` does for a model; the last eight models' are kept."""
    return constants(model.chain, model.length, model.tied, origin=unigram_logit(model.chain))


def compiled_model_of(model: Any) -> CompiledModel:
    """Return the hooks and constants for the rows engine of a rank-one model with attention."""
    return CompiledModel(
        "rank_one_attention",
        HOOKS,
        lambda: _constants(model),
        origin=origin_of(model, unigram_logit(model.chain)),
        max_steps=30_000,
        at_once=32,
        cost=4e-3,
        count_kinks=True,
    )
