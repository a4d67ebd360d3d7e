"""The models with a smooth field that rows are followed in: one dispatch on ``kind``.

numba keeps compiled code on disk only for calls by global names, so the model of a row is chosen
here and not passed as a function. ``kind`` is None for uniform attention and else an integer: numba
leaves out the branches that a None, or an integer, cannot enter, so that no process waits for the
code of uniform attention and of the other two.
"""

from __future__ import annotations

from flowsim.compiled import compiled
from flowsim.flow.rows import induction_rows as induction
from flowsim.flow.rows.codes import DYNAMIC_BIAS, INDUCTION, RANK_ONE_ATTENTION
from flowsim.flow.rows.smooth import attention, attention_jacobian, attention_verdict, dynamic_bias
from flowsim.flow.rows.smooth import uniform_rows as uniform
from flowsim.flow.rows.smooth import uniform_verdict as of_uniform

_uniform, _uniform_loss, _uniform_verdict = uniform.expand, uniform.loss, of_uniform.verdict
_dynamic, _dynamic_loss = dynamic_bias.expand, dynamic_bias.loss
_dynamic_verdict = dynamic_bias.verdict
_induction, _induction_loss = induction.expand, induction.loss
_induction_verdict = induction.verdict
_attention, _attention_jacobian = attention.velocity, attention_jacobian.linearise
_attention_loss, _attention_verdict = attention.loss, attention_verdict.verdict
_attention_begin, _attention_conserve = attention_verdict.begin, attention_verdict.conserve
_TIME = attention_verdict.TIME
_SIGN, _HELD = uniform.SIGN, uniform.HELD
_DYNAMIC_SIGN, _DYNAMIC_HELD = dynamic_bias.SIGN, dynamic_bias.HELD


@compiled
def velocity(kind, y, reals, ints, memory, out):
    """dy/dt at y into ``out``; 0, or −1 where not finite, or 1 + a level the table lacks."""
    if kind is None:
        return _uniform(y, reals, ints, memory, out, memory[:1].reshape((1, 1)), False)
    if kind == DYNAMIC_BIAS:
        return _dynamic(y, reals, ints, memory, out, memory[:1].reshape((1, 1)), False)
    if kind == INDUCTION:
        return _induction(y, reals, ints, memory, out, memory[:1].reshape((1, 1)), False)
    return _attention(y, reals, ints, memory, out)


@compiled
def linearise(kind, y, reals, ints, memory, out, jacobian):
    """The same with the derivative into ``jacobian``."""
    if kind is None:
        return _uniform(y, reals, ints, memory, out, jacobian, True)
    if kind == DYNAMIC_BIAS:
        return _dynamic(y, reals, ints, memory, out, jacobian, True)
    if kind == INDUCTION:
        return _induction(y, reals, ints, memory, out, jacobian, True)
    return _attention_jacobian(y, reals, ints, memory, out, jacobian)


@compiled
def loss(kind, y, reals, ints, memory):
    """The loss at y in nats."""
    if kind is None:
        return _uniform_loss(y, reals, ints, memory)
    if kind == DYNAMIC_BIAS:
        return _dynamic_loss(y, reals, ints, memory)
    if kind == INDUCTION:
        return _induction_loss(y, reals, ints, memory)
    return _attention_loss(y, reals, ints, memory)


@compiled
def begin(kind, y, held, sign, ints, memory):
    """Prepare a row's memory at its start y.

    ``sign`` is that of w, where log|w| is a coordinate, and ``held`` whether e is 0 for ever, where
    log|e| is one.
    """
    memory[:] = 0.0
    if kind is None:
        memory[_SIGN], memory[_HELD] = sign, held
    elif kind == DYNAMIC_BIAS:
        memory[_DYNAMIC_SIGN], memory[_DYNAMIC_HELD] = sign, held
    elif kind == RANK_ONE_ATTENTION:
        _attention_begin(y, ints, memory)


@compiled
def conserve(kind, y, time, ints, memory):
    """Put a row on its conserved quantities after a step to ``time``."""
    if kind is None:
        return
    if kind == RANK_ONE_ATTENTION:
        memory[_TIME] = time
        _attention_conserve(y, ints, memory)


@compiled
def verdict(kind, y, field, jacobian, reals, ints, memory, work):
    """GOING, or the rule that ends a row at y."""
    if kind is None:
        return _uniform_verdict(y, field, jacobian, reals, ints, memory, work)
    if kind == DYNAMIC_BIAS:
        return _dynamic_verdict(y, field, jacobian, reals, ints, memory, work)
    if kind == INDUCTION:
        return _induction_verdict(y, reals, ints, memory)
    return _attention_verdict(y, field, jacobian, reals, ints, memory, work)
