"""The loss of S logits on a symmetric chain, compiled: ℓ of the gap in the canonical plane.

There the orbits are the canonical model's, and the gap is Δ over ``gap_factor``.
"""

from __future__ import annotations

import math

from flowsim.compiled import compiled
from flowsim.elementary import cross_entropy
from flowsim.models.canonical.compiled import HOOKS as CANONICAL
from flowsim.models.gap_family.compiled import LossParameters


@compiled
def gap_factor(states: float) -> float:
    """Return the ratio of Δ to the gap of the canonical plane, 4S/(S − 1)."""
    return 4.0 * states / (states - 1.0)


@compiled
def slope(params: LossParameters, beyond: float) -> float:
    """Return ℓ′ by the plane's gap, at a gap of the plane ``beyond`` its target.

    It is the factor times p(1 − p)(x − 1)/((1 − p)x + p), log x = Δ − Δ*.
    """
    _, p, states = params
    factor = gap_factor(states)
    beyond = min(max(factor * beyond, -600.0), 600.0)
    return factor * p * (1.0 - p) * math.expm1(beyond) / ((1.0 - p) * math.exp(beyond) + p)


@compiled
def loss(params: LossParameters, gap: float) -> float:
    """Return ℓ in nats at a ``gap`` of the canonical plane; no term of its sum is negative."""
    _, p, states = params
    others = math.log(states - 1.0)
    beyond = gap_factor(states) * gap - others
    return cross_entropy(beyond, 1.0 - p, p) + p * others


HOOKS = (*CANONICAL, loss, slope)
