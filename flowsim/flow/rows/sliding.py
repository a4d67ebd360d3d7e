"""Rank-one orbits that slide along a ReLU's kink, where methods of high order stall.

When the embedding reaches −ρ, the field on either side of the kink can point towards it: the orbit
then stays on the kink and moves along it, driven by a mean of both sides. Small steps of gradient
descent chatter about that orbit within a step's length (``descent``) and follow it to first order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.flow.rows.descent import ReducedField, advance
from flowsim.landscape.curvature import classify_critical
from flowsim.landscape.labels import Label
from flowsim.models.rank_one import RankOneModel

#: Shares of the largest stable step: both have to come to the global minima.
_SHARES = (0.8, 0.2)
#: Physical time of the first stretch; each next one is twice as long.
_FIRST_TIME = 10.0


def slide(model: RankOneModel, theta: Tensor, max_steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Follow orbits by gradient descent, with two lengths of step, as far as the global minima.

    Only these can be recognised by the loss alone, so that nothing else is decided here.

    Args:
        model: the rank-one model.
        theta: where other methods stalled, shape (n, k).
        max_steps: of descent, per row.

    Returns:
        Ends with the shorter steps, right to first order in the step, shape (n, k); whether both
        lengths of step led to the global minima, bool (n,); evaluations, int64 (n,).
    """
    reached = torch.ones(len(theta), dtype=torch.bool, device=theta.device)
    evaluations = torch.zeros(len(theta), dtype=torch.int64, device=theta.device)
    end = theta
    for share in _SHARES:
        end, arrived, steps = _descend(model, theta, reached, share, max_steps)
        reached = reached & arrived
        evaluations += steps
    return end, reached, evaluations


def _descend(
    model: RankOneModel, theta: Tensor, active: Tensor, share: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Ends, whether at the global minima, and steps of the active rows."""
    field, state, until = ReducedField(model), theta.clone(), _FIRST_TIME
    clock, steps = torch.zeros_like(theta[:, 0]), torch.zeros_like(active, dtype=torch.int64)
    arrived = torch.zeros_like(active)
    while bool((moving := active & ~arrived & (steps < max_steps)).any()):
        advance(field, state, clock, steps, until, moving, share=share, most=max_steps)
        label = classify_critical(model, state[moving], decisive=True)
        arrived[moving] = label == Label.GLOBAL_MINIMUM
        until *= 2
    return state, arrived, steps
