"""The induction model for the rows engine: field, Jacobian, loss and termination.

The hooks are those of ``flow.rows.hooks``. Coordinates are α and β. The loss is one number on β =
0, so that a row has its end when it falls below that within |β| ≤ 8: each side of β = 0 has one end
(docs/derivations/19.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flowsim.compiled import compiled
from flowsim.flow.return_codes import BELOW_PLATEAU, GOING
from flowsim.interface import CompiledModel
from flowsim.models.induction.ends import STRIP, place_ends
from flowsim.models.induction.field import loss_and_derivatives

#: Below the plateau by this: losses are right to 1e-15.
_BELOW = 1e-12
#: Places in ``reals``: the loss to fall below, the width of the strip, and the first count.
_LOSS, _STRIP, _COUNTS = 0, 1, 2


def constants(model: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the arrays ``reals`` and ``ints`` for the hooks, and the length of a row's memory.

    ``ints`` has the number of classes of sequences.
    """
    first = np.array([model.plateau - _BELOW, STRIP])
    reals = np.concatenate([first, *(part.ravel() for part in model.terms)])
    return reals, np.array([len(model.terms.weight)], dtype=np.int64), 1


@compiled(no_cpython_wrapper=True, nrt=True)
def _classes(reals, ints):
    """Return the classes of sequences in ``reals``: counts (4, A), weight (A,) and chance (A,)."""
    many = ints[0]
    weight = _COUNTS + 4 * many
    counts = reals[_COUNTS:weight].reshape((4, many))
    return counts, reals[weight : weight + many], reals[weight + many : weight + 2 * many]


@compiled(no_cpython_wrapper=True)
def _sigmoid(alpha):
    """σ(α)."""
    return 0.0 if alpha < -700.0 else 1.0 / (1.0 + math.exp(-alpha))


@compiled(nrt=True)
def write_flow(y, reals, ints, memory, out, jacobian, second):
    """Write dy/dt to ``out``, and with ``second`` its derivative; return 0, or −1 if not finite."""
    counts, weight, chance = _classes(reals, ints)
    s = _sigmoid(y[0])
    _, by_share, by_beta, by_ss, by_sb, by_bb = loss_and_derivatives(
        counts, weight, chance, s, y[1], 1, 2 if second else 1
    )
    rate = s * (1.0 - s)
    out[0], out[1] = -rate * by_share, -by_beta
    if not (math.isfinite(out[0]) and math.isfinite(out[1])):
        return -1
    if second:
        jacobian[0, 0] = -rate * (rate * by_ss + (1.0 - 2.0 * s) * by_share)
        jacobian[0, 1] = jacobian[1, 0] = -rate * by_sb
        jacobian[1, 1] = -by_bb
    return 0


@compiled(nrt=True)
def loss(y, reals, ints, memory):
    """Return the loss in nats at y = (α, β)."""
    counts, weight, chance = _classes(reals, ints)
    return loss_and_derivatives(counts, weight, chance, _sigmoid(y[0]), y[1], 0, 0)[0]


@compiled(no_cpython_wrapper=True)
def _velocity(y, reals, ints, memory, out):
    """Write dy/dt at y to ``out`` (2,); return the status of ``write_flow``."""
    return write_flow(y, reals, ints, memory, out, memory[:1].reshape((1, 1)), 0.0)


@compiled(no_cpython_wrapper=True)
def _linearise(row):
    """Write dy/dt and its Jacobian at ``row.y`` to the row; return the status of ``write_flow``."""
    given = row.y, row.reals, row.ints, row.memory, row.velocity, row.derivative
    return write_flow(*given, 1.0)


@compiled(no_cpython_wrapper=True)
def _check_termination(row):
    """Return BELOW_PLATEAU once the row is below the plateau within the strip, else GOING."""
    y, reals = row.y, row.reals
    if abs(y[1]) <= reals[_STRIP] and loss(y, reals, row.ints, row.memory) < reals[_LOSS]:
        return BELOW_PLATEAU
    return GOING


@compiled(no_cpython_wrapper=True)
def _is_terminal(rule, timed, wanted):
    """Return whether a row ends below the plateau; not if followed to given times or to a loss."""
    return not timed and not wanted


HOOKS = {
    "velocity": _velocity,
    "linearise": _linearise,
    "loss": loss,
    "check_termination": _check_termination,
    "is_terminal": _is_terminal,
}


def compiled_model_of(model: Any) -> CompiledModel:
    """Return the hooks and constants by which the rows engine follows an induction model."""

    return CompiledModel(
        "induction",
        HOOKS,
        lambda: constants(model),
        rtol=1e-8,
        resolution=48,
        scale=lambda loss: model.plateau - loss,  # from the plateau to the end
        place_ends=lambda *rows: place_ends(model, *rows),
    )
