"""Plateau, saddles and ends of the induction model's plane, found on a lattice and refined.

Trajectories have the end of the sign of β with which they fell below the plateau.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import logit
from torch import Tensor

#: The type is in ``model.py``, which imports this file.
InductionModel = Any
#: |β| of the strip in which ends are known: far beyond, near s = 1, a second valley begins.
STRIP = 8.0
#: Shares s and sizes of β on which critical points are looked for.
_SHARES = np.linspace(0, 1, 101)
_SIZES = np.geomspace(1e-3, STRIP, 160)
#: Losses closer to the plateau's than this count as equal to it.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class InductionEnd:
    """Ends of orbits on one side of β = 0."""

    share: float  # s in [0, 1]; at 0 and 1 the orbit creeps to α = ∓∞
    beta: float
    loss: float  # below the plateau's

    @property
    def alpha(self) -> float:
        """log s/(1 − s), infinite at both ends of the shares."""
        return float(logit(self.share))


@dataclass(frozen=True)
class InductionLandscape:
    """The critical set of the plane."""

    plateau: float  # the loss on β = 0
    #: The α at which ∂L/∂β vanishes on β = 0; elsewhere on it orbits leave at once.
    saddles: tuple[float, ...]
    #: By side of β, −1 and 1, the one end of all orbits that come below the plateau there, within
    #: |β| ≤ 8; absent where no point lies below it, or where there may be several ends.
    ends: dict[int, InductionEnd]

    @property
    def best(self) -> int:
        """The side of the lower end; 0 if there is none."""
        return min(self.ends, key=lambda side: self.ends[side].loss, default=0)


@lru_cache(maxsize=8)
def induction_landscape(model: InductionModel) -> InductionLandscape:
    """Plateau, saddles and ends of an induction model.

    The landscapes of the last eight models are kept.

    L is one number on β = 0, so that no orbit below the plateau's loss crosses it again: it ends
    on its own side at a critical point of that side, or creeps to s = 0 or 1. At |β| = 8 the flow
    points inwards, so that orbits stay in the strip. There, for every share, the places with
    ∂L/∂β = 0 below the plateau are counted on a lattice. Where there is at most one, g(s) =
    min_β L is followed, and where g has a single minimum it is the only end.

    Args:
        model: an ``InductionModel``, or another model in (α, β).

    Returns:
        InductionLandscape: ``plateau``, the loss in nats on β = 0; ``saddles``, their α; and
        ``ends`` by the sign of β, each with its share s, its β and its loss.

    Source: own derivation, docs/derivations/19.md.

    >>> import flowsim
    >>> landscape = flowsim.models.induction_landscape(flowsim.models.InductionModel(length=6))
    >>> {side: round(end.loss, 4) for side, end in landscape.ends.items()}
    {-1: 0.6348, 1: 0.6206}
    """
    plateau = model.plateau
    ends = {side: _end_on_side(model, side, plateau) for side in (-1, 1)}
    known = {side: end for side, end in ends.items() if end is not None}
    shares, saddles = torch.from_numpy(_SHARES), []
    slope = model.by_share(shares, torch.zeros_like(shares))[2].numpy()
    for i in np.flatnonzero(slope[:-1] * slope[1:] < 0):
        low, high = _SHARES[i], _SHARES[i + 1]
        saddles.append(
            float(
                logit(brentq(lambda s: _loss_and_slopes(model, s, 0.0)[2], low, high, xtol=1e-14))
            )
        )
    return InductionLandscape(plateau, tuple(saddles), known)


def valley(model: InductionModel, side: int, shares: np.ndarray) -> np.ndarray | None:
    """Return the β of least loss on one side at every share, NaN where none lies below the plateau.

    None if some share has several such places within |β| ≤ 8, or the flow leaves this strip.
    """
    plateau = model.plateau
    s, size = (torch.from_numpy(x) for x in np.meshgrid(shares, _SIZES, indexing="ij"))
    loss, _, slope = (x.numpy() for x in model.by_share(s, side * size))
    outward = side * slope
    turns = (outward[:, :-1] < -_ROUNDING) & (outward[:, 1:] >= -_ROUNDING)
    turns &= np.minimum(loss[:, :-1], loss[:, 1:]) < plateau - _ROUNDING
    escapes = (outward[:, -1] <= 0) & (loss[:, -1] < plateau)
    if (turns.sum(1) > 1).any() or escapes.any():
        return None
    found = np.full(len(shares), np.nan)
    for i in np.flatnonzero(turns.any(1)):
        j = int(turns[i].argmax())
        found[i] = side * brentq(
            lambda b, share=shares[i]: side * _loss_and_slopes(model, share, side * b)[2],
            _SIZES[j], _SIZES[j + 1], xtol=1e-13,
        )  # fmt: skip
    return found


def _end_on_side(model: InductionModel, side: int, plateau: float) -> InductionEnd | None:
    """Return the end on one side of β = 0; None if there is none, or may be several."""
    beta = valley(model, side, _SHARES)
    if beta is None:
        return None
    there = np.isfinite(beta)
    loss = np.full(len(_SHARES), np.inf)
    loss[there] = model.by_share(*map(torch.from_numpy, (_SHARES[there], beta[there])))[0]
    around = np.concatenate([[np.inf], loss, [np.inf]])
    lowest = np.flatnonzero(there & (loss < around[:-2]) & (loss <= around[2:]))
    if len(lowest) != 1:
        return None
    i = int(lowest[0])
    outward = _loss_and_slopes(model, _SHARES[i], beta[i])[1] * (1 if i == 0 else -1)
    if i in (0, len(_SHARES) - 1) and outward > 0:  # the loss falls towards s = 0 or 1
        return InductionEnd(float(_SHARES[i]), float(beta[i]), float(loss[i]))
    low, high = _SHARES[max(i - 1, 0)], _SHARES[min(i + 1, len(_SHARES) - 1)]
    share = brentq(
        lambda s: _loss_and_slopes(model, s, _valley_at(model, side, s))[1], low, high, xtol=1e-14
    )  # g′(s) = ∂L/∂s at the valley's β
    here = _valley_at(model, side, share)
    return InductionEnd(share, here, _loss_and_slopes(model, share, here)[0])


def _loss_and_slopes(
    model: InductionModel, share: float, beta: float
) -> tuple[float, float, float]:
    """Return L, ∂L/∂s and ∂L/∂β at one point."""
    point = (torch.tensor(x, dtype=torch.float64) for x in (share, beta))
    loss, by_share, by_beta = (float(x) for x in model.by_share(*point))
    return loss, by_share, by_beta


def _valley_at(model: InductionModel, side: int, share: float) -> float:
    """Return the β of least loss on one side at one share."""
    found = valley(model, side, np.array([share]))
    assert found is not None
    return float(found[0])


def place_ends(model: Any, fell: Tensor, theta: Tensor, loss: Tensor) -> Tensor:
    """Move rows that fell below the plateau to their ends, in place; return a mask of the moved.

    ``fell`` (n,) says which did; ``theta`` (n, 2) and ``loss`` (n,) are changed.
    """
    known = torch.zeros_like(fell)
    for side, end in induction_landscape(model).ends.items():
        here = fell & (theta[:, 1].sign() == side)
        theta[here] = torch.tensor([end.alpha, end.beta], dtype=theta.dtype)
        loss[here] = end.loss
        known |= here
    return known
