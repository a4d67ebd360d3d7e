"""Closed forms: separatrix, minima curve and basins of the models that have them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.markov import GapChain
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel, energy, feed_forward_gain
from flowsim.models.linear import LinearAttentionModel
from flowsim.models.states.states_plane import StatesModel

#: The saddle (e, w) = (0, −1/√2) of the canonical model and its energy −(1 + log 2)/2.
SADDLE_W = -math.sqrt(0.5)
SADDLE_ENERGY = -(1 + math.log(2)) / 2


@accepts_arrays
def separatrix(chain: GapChain, w: Tensor) -> Tensor:
    """The e ≥ 0 of the basin boundary E(e, w) = E_s above each w.

    e² = w² − log|w| + E_s on the branch that flows into the saddle: −1/√2 ≤ w < 0 for p + q > 1,
    w ≤ −1/√2 for p + q < 1. Source: LG (energy); docs/derivations.md, 3.

    Args:
        chain: the data; only the sign of 1 − p − q matters.
        w: any shape.

    Returns:
        e, shape of ``w``; NaN off that branch, and everywhere when p + q = 1 (no bad minima).
    """
    if chain.second_eigenvalue == 0:
        return torch.full_like(w, torch.nan)
    on_branch = w >= SADDLE_W if chain.second_eigenvalue < 0 else w <= SADDLE_W
    squared = w.square() - w.abs().log() + SADDLE_ENERGY
    return torch.where(on_branch & (w < 0), squared.clamp_min(0).sqrt(), torch.nan)


@accepts_arrays
def minima_curve(chain: GapChain, w: Tensor) -> Tensor:
    """The e > 0 of the global minima above each w: e² = Δ*/(1 + 2w|w|), NaN where there is none.

    For p + q = 1 the minima are the two lines e = 0 and w = −1/√2 instead.
    Source: docs/derivations.md, 3.
    """
    squared = chain.target_logit_gap / (1 + 2 * w * w.abs())
    return torch.where(squared > 0, squared.sqrt(), torch.nan)


@accepts_arrays
def reaches_global_minimum(chain: GapChain, theta: Tensor) -> Tensor:
    """The analytic basin of the global minima in the canonical model, the oracle of the tests.

    p + q < 1: w > −1/√2, or E > E_s. p + q > 1: w < −1/√2, or w < 0 and E > E_s. p + q = 1:
    everything. The line e = 0 never moves and belongs to no basin unless p + q = 1.

    Args:
        chain: the data.
        theta: (e, w), shape (..., 2).

    Returns:
        bool, shape (...). Source: docs/derivations.md, 3 (E is conserved, one saddle).
    """
    e, w = theta[..., 0], theta[..., 1]
    if chain.second_eigenvalue == 0:
        return torch.ones_like(e, dtype=torch.bool)
    above = energy(theta) > SADDLE_ENERGY
    if chain.second_eigenvalue > 0:
        return (e != 0) & ((w > SADDLE_W) | ((w <= SADDLE_W) & above))
    return (e != 0) & ((w < SADDLE_W) | ((w < 0) & above))


def linear_reaches_global_minimum(chain: GapChain, theta: Tensor) -> Tensor:
    """The analytic basin of the global minima of the linear-attention model, the tests' oracle.

    Write c = 1 + a and g = 1 + 2w|w|. Where cgΔ* > 0 an orbit is on the side of Δ*, which it
    reaches. Elsewhere e falls, and the orbit changes side iff it meets c = 0 or g = 0 before
    e = 0: at e² = E₂ = e² − 2c² if that is positive, or at e² = E − E_s if w < 0 and that is
    positive (w = 0 is invariant). Source: own derivation from the two conserved quantities.

    Args:
        chain: the data.
        theta: (e, w, a), shape (..., 3).

    Returns:
        bool, shape (...); the plane e = 0 never moves and counts only for p + q = 1.
    """
    e, w, a = theta[..., 0], theta[..., 1], theta[..., 2]
    if chain.second_eigenvalue == 0:
        return torch.ones_like(e, dtype=torch.bool)
    side = (1 + a) * feed_forward_gain(w) * chain.second_eigenvalue > 0
    through_attention = e.square() > 2 * (1 + a).square()
    through_feed_forward = (w < 0) & (energy(theta) > SADDLE_ENERGY)
    return (e != 0) & (side | through_attention | through_feed_forward)


def analytic_basin(model: ReducedModel) -> Callable[[Tensor], Tensor] | None:
    """The closed form of the basin of the global minima, θ (..., k) → bool (...), or None.

    The canonical model has one, and the one with linear attention, bias minimised out; and the
    model of S states, in whose canonical coordinates it is that of the canonical model.
    """
    if isinstance(model, StatesModel):
        return lambda theta: reaches_global_minimum(model.chain, model.canonical(theta))
    if isinstance(model, CanonicalModel) and not model.dynamic_bias:
        return lambda theta: reaches_global_minimum(model.chain, theta)
    if isinstance(model, LinearAttentionModel) and not model.dynamic_bias:
        return lambda theta: linear_reaches_global_minimum(model.chain, theta)
    return None
