"""The ends of the induction model's trajectories, by the sign of β with which they fell."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flowsim.labels import Label
from flowsim.models.induction.ends import induction_landscape

#: Distance of an orbit of torchdiffeq from its end's loss, in parts of the drop to it from
#: the plateau.
_NEAR = 0.01


def place_ends(model: Any, fell: Tensor, theta: Tensor, loss: Tensor) -> Tensor:
    """Move the rows that fell below the plateau to their ends, in place; which these are, (n,).

    The loss is one number on β = 0, so that an orbit below it never changes sides, and each side
    has one end; an end at s = 0 or 1 has α = ∓∞.

    Args:
        fell: which rows did, (n,).
        theta, loss: of the rows where they stopped, (n, 2) and (n,).
    """
    known = torch.zeros_like(fell)
    for side, end in induction_landscape(model).ends.items():
        here = fell & (theta[:, 1].sign() == side)
        theta[here] = torch.tensor([end.alpha, end.beta], dtype=theta.dtype)
        loss[here] = end.loss
        known |= here
    return known


def settled_sides(model: Any, theta: Tensor) -> Tensor:
    """Labels of rows (n, 2) whose loss has come close to that of their side's end, int8 (n,)."""
    landscape, loss = induction_landscape(model), model.loss(theta)
    label = torch.full_like(loss, Label.UNRESOLVED, dtype=torch.int8)
    for side, end in landscape.ends.items():
        near = loss - end.loss <= _NEAR * (landscape.plateau - end.loss)
        best = side == landscape.best
        kind = Label.GLOBAL_MINIMUM if best else Label.LOCAL_MINIMUM
        label[near & (theta[:, 1].sign() == side)] = kind
    return label
