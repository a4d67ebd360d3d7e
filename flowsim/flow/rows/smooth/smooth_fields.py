"""The models with a smooth field that rows are followed in: one dispatch on ``kind``.

numba keeps compiled code on disk only for calls by global names, so the model of a row is chosen
here and not passed as a function. ``kind`` is one of ``codes``: five places, all None but one, of
uniform attention, gap models with a bias, induction, S states with attention, and the rank-one
model with attention. They are handed on one by one (``*kind``), since numba leaves out what an
argument that is None cannot enter: a process compiles the code of the models that it follows, and
of no other. Whether the derivative is wanted is 1.0 or 0.0, since numba would compile a field once
more for True and for False.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.flow.rows import induction_rows as induction
from flowsim.flow.rows.codes import GOING
from flowsim.flow.rows.corners import MOST, ORDER, enclose
from flowsim.flow.rows.smooth import attention, attention_jacobian, attention_verdict, dynamic_bias
from flowsim.flow.rows.smooth import states_rows as states
from flowsim.flow.rows.smooth import uniform_rows as uniform
from flowsim.flow.rows.smooth import uniform_verdict as of_uniform
from flowsim.models.uniform.table import LENGTH as _LENGTH

_uniform, _uniform_loss, _uniform_verdict = uniform.expand, uniform.loss, of_uniform.verdict
_dynamic, _dynamic_loss = dynamic_bias.expand, dynamic_bias.loss
_dynamic_verdict = dynamic_bias.verdict
_induction, _induction_loss = induction.expand, induction.loss
_induction_verdict = induction.verdict
_states, _states_loss, _states_verdict = states.expand, states.loss, states.verdict
_attention, _attention_jacobian = attention.velocity, attention_jacobian.linearise
_attention_loss, _attention_verdict = attention.loss, attention_verdict.verdict
_attention_begin, _attention_conserve = attention_verdict.begin, attention_verdict.conserve
_TIME = attention_verdict.TIME
_SIGN, _HELD = uniform.SIGN, uniform.HELD
_DYNAMIC_SIGN, _DYNAMIC_HELD = dynamic_bias.SIGN, dynamic_bias.HELD
_LINEAR, _UNTIED = dynamic_bias.LINEAR, dynamic_bias.UNTIED
_SIGN_W, _SIGN_V, _STATES_HELD = states.SIGN_W, states.SIGN_V, states.HELD


@compiled(late=True)
def velocity(y, reals, ints, memory, out, *kind):
    """dy/dt at y into ``out``; 0, or −1 where not finite, or 1 + a level the table lacks."""
    return _expand(y, reals, ints, memory, out, memory[:1].reshape((1, 1)), 0.0, *kind)


@compiled(late=True)
def linearise(y, reals, ints, memory, out, jacobian, *kind):
    """The same with the derivative into ``jacobian``."""
    return _expand(y, reals, ints, memory, out, jacobian, 1.0, *kind)


@compiled(late=True)
def _expand(
    y, reals, ints, memory, out, jacobian, second, uniform, gap, heads, of_states, rank_one
):
    given = y, reals, ints, memory, out, jacobian
    if uniform is not None:
        return _uniform(*given, second)
    if gap is not None:
        return _dynamic(*given, second)
    if heads is not None:
        return _induction(*given, second)
    if of_states is not None:
        return _states(*given, second)
    if rank_one is not None:
        return _attention_jacobian(*given) if second else _attention(y, reals, ints, memory, out)
    return -1


@compiled(late=True)
def loss(y, reals, ints, memory, uniform, gap, heads, of_states, rank_one):
    """The loss at y in nats."""
    if uniform is not None:
        return _uniform_loss(y, reals, ints, memory)
    if gap is not None:
        return _dynamic_loss(y, reals, ints, memory)
    if heads is not None:
        return _induction_loss(y, reals, ints, memory)
    if of_states is not None:
        return _states_loss(y, reals, ints, memory)
    if rank_one is not None:
        return _attention_loss(y, reals, ints, memory)
    return math.nan


@compiled(late=True)
def begin(kind, y, held, signs, ints, memory):
    """Prepare a row's memory at its start y.

    ``signs`` (k,) are those of its coordinates, and ``held`` whether e is 0 for ever, where log|e|
    is a coordinate.
    """
    memory[:] = 0.0
    _begin(kind[0], kind[1], kind[3], kind[4], y, held, signs, ints, memory)


@compiled(late=True)
def _begin(uniform, gap, of_states, rank_one, y, held, signs, ints, memory):
    if uniform is not None:
        memory[_SIGN], memory[_HELD] = signs[1], held
        memory[ORDER] = min(MOST, ints[_LENGTH])
        enclose(y[2], 1.0, memory)
    if gap is not None:
        memory[_DYNAMIC_SIGN] = signs[2] if ints[0] == _UNTIED else signs[1]
        memory[_DYNAMIC_HELD] = held
        memory[ORDER] = 1.0 if ints[0] == _LINEAR else 0.0
        enclose(y[len(y) - 2], 1.0, memory)
    if of_states is not None:
        memory[_SIGN_W], memory[_SIGN_V], memory[_STATES_HELD] = signs[1], signs[2], held
    if rank_one is not None:
        _attention_begin(y, ints, memory)


@compiled(late=True)
def conserve(kind, y, time, ints, memory):
    """Put a row on its conserved quantities after a step to ``time``."""
    _conserve(kind[4], y, time, ints, memory)


@compiled(late=True)
def _conserve(rank_one, y, time, ints, memory):
    if rank_one is not None:
        memory[_TIME] = time
        _attention_conserve(y, ints, memory)


@compiled(late=True)
def verdict(
    y, field, jacobian, reals, ints, memory, work, uniform, gap, heads, of_states, rank_one
):
    """GOING, or the rule that ends a row at y."""
    given = y, field, jacobian, reals, ints, memory, work
    if uniform is not None:
        return _uniform_verdict(*given)
    if gap is not None:
        return _dynamic_verdict(*given)
    if heads is not None:
        return _induction_verdict(y, reals, ints, memory)
    if of_states is not None:
        return _states_verdict(*given)
    if rank_one is not None:
        return _attention_verdict(*given)
    return GOING
