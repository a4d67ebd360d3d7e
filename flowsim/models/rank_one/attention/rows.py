"""The rank-one flow with attention for the rows engine."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from flowsim.compiled import compiled
from flowsim.interface import CompiledModel
from flowsim.models.on_chain import unigram_logit
from flowsim.models.rank_one.attention import field, jacobian, termination
from flowsim.models.rank_one.attention.termination import TIME
from flowsim.models.rank_one.rows import counted_from

_jacobian, _begin_row, _back = jacobian.linearise, termination.begin, termination.conserve


@compiled(no_cpython_wrapper=True)
def _begin(row, at_zero, signs):
    _begin_row(row.y, row.ints, row.memory)
    return 0


@compiled(no_cpython_wrapper=True)
def _linearise(row):
    return _jacobian(row.y, row.reals, row.ints, row.memory, row.velocity, row.derivative)


@compiled(no_cpython_wrapper=True)
def _conserve(row, time):
    row.memory[TIME] = time
    _back(row.y, row.ints, row.memory)


HOOKS = {
    "begin": _begin,
    "velocity": field.velocity,
    "linearise": _linearise,
    "loss": field.loss,
    "check_termination": termination.check_termination,
    "end_loss": termination.end_loss,
    "conserve": _conserve,
}


@lru_cache(maxsize=8)
def _constants(model: Any) -> tuple[np.ndarray, np.ndarray, int]:
    return field.constants(model.chain, model.length, model.tied, origin=unigram_logit(model.chain))


def rows_of(model: Any) -> CompiledModel:
    """Compiled functions and constants of the model."""
    return CompiledModel(
        "rank_one_attention",
        HOOKS,
        lambda: _constants(model),
        origin=counted_from(model, unigram_logit(model.chain)),
        max_steps=30_000,
        at_once=32,
        cost=4e-3,
        count_kinks=True,
    )
