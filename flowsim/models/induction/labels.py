"""Labels of induction orbits by the sign of β."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from flowsim.labels import Label, Rule
from flowsim.models.induction.ends import induction_landscape

#: Distance of an orbit of torchdiffeq from its end's loss, in parts of the drop to it from
#: the plateau.
_NEAR = 0.01


def name_ends(model: Any, fell: Tensor, theta: Tensor, label: Tensor, loss: Tensor) -> Tensor:
    """Give the rows that fell below the plateau their ends, in place; the rules, shape (n,).

    The loss is one number on β = 0, so that an orbit below it never changes sides, and each side
    has one end. The lower end is the global minimum, the other one a local one; an end at s = 0 or
    1 has α = ∓∞ and the rule DRIFTS.

    Args:
        fell: which rows did, (n,).
        theta, label, loss: of the rows where they stopped, (n, 2), (n,) and (n,).
    """
    landscape, rule = induction_landscape(model), torch.full_like(label, Rule.NONE)
    for side, end in landscape.ends.items():
        here = fell & (theta[:, 1].sign() == side)
        theta[here] = torch.tensor([end.alpha, end.beta], dtype=theta.dtype)
        loss[here] = end.loss
        best = side == landscape.best
        label[here] = Label.GLOBAL_MINIMUM if best else Label.LOCAL_MINIMUM
        rule[here] = Rule.DRIFTS if math.isinf(end.alpha) else Rule.REACHED_MINIMA
    return rule


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
