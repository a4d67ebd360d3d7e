"""Closed forms of the canonical model: gain, energy, separatrix, minima curve and basin."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.errors import InputError
from flowsim.markov import GapChain

#: The saddle (e, w) = (0, −1/√2) of the canonical model and its energy −(1 + log 2)/2.
SADDLE_W = -math.sqrt(0.5)
SADDLE_ENERGY = -(1 + math.log(2)) / 2


def feed_forward_gain(w: Tensor) -> Tensor:
    """Return g = 1 + 2w|w|, by which the feed-forward layer multiplies the logit gap.

    Zero at w = −1/√2.
    """
    return 1.0 + 2.0 * w * w.abs()


@accepts_arrays
def energy(theta: Tensor) -> Tensor:
    """E(e, w) = e² − w² − sign(w) log|w|, conserved by the canonical flow for every p and q.

    Args:
        theta: shape (..., k) with e and w in the first two columns.

    Returns:
        E, shape (...); NaN at w = 0, which is invariant and carries no energy. Source: LG.

    >>> import flowsim, torch
    >>> flowsim.models.energy(torch.tensor([[1.0, -1.0], [1.0, 0.0]], dtype=torch.float64))
    tensor([0., nan], dtype=torch.float64)
    """
    e, w = theta[..., 0], theta[..., 1]
    value = e.square() - w.square() - torch.sign(w) * torch.log(w.abs())
    return torch.where(w == 0, torch.nan, value)


@accepts_arrays
def separatrix(chain: GapChain, w: Tensor) -> Tensor:
    """The e ≥ 0 of the basin boundary E(e, w) = E_s above each w.

    e² = w² − log|w| + E_s on the branch that flows into the saddle: −1/√2 ≤ w < 0 for p + q > 1,
    w ≤ −1/√2 for p + q < 1. Source: LG (energy); docs/derivations/03.md.

    Args:
        chain: the data; only the sign of 1 − p − q matters.
        w: any shape.

    Returns:
        e, shape of ``w``; NaN off that branch, and everywhere when p + q = 1 (no bad minima).

    >>> import flowsim, torch
    >>> flowsim.models.separatrix(flowsim.BinaryChain(0.5, 0.8), torch.tensor([-0.5, 0.5]))
    tensor([0.3108,    nan])
    """
    if chain.second_eigenvalue == 0:
        return torch.full_like(w, torch.nan)
    on_branch = w >= SADDLE_W if chain.second_eigenvalue < 0 else w <= SADDLE_W
    squared = w.square() - w.abs().log() + SADDLE_ENERGY
    return torch.where(on_branch & (w < 0), squared.clamp_min(0).sqrt(), torch.nan)


@accepts_arrays
def minima_curve(chain: GapChain, w: Tensor) -> Tensor:
    """The e > 0 of the global minima above each w: e² = Δ*/(1 + 2w|w|), NaN if there is none.

    For p + q = 1 the minima are the two lines e = 0 and w = −1/√2 instead.

    Args:
        chain: the data.
        w: feed-forward weights, any shape; e has the same.

    Source: docs/derivations/03.md.

    >>> import flowsim, torch
    >>> flowsim.models.minima_curve(flowsim.BinaryChain(0.5, 0.8), torch.tensor([-1.0, 1.0]))
    tensor([1.1774,    nan])
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
        bool, shape (...). Source: docs/derivations/03.md (E is conserved, one saddle).

    Raises:
        InputError: θ of another shape.

    >>> import flowsim, torch
    >>> starts = torch.tensor([[1.0, -1.2], [1.0, 1.2]])
    >>> flowsim.models.reaches_global_minimum(flowsim.BinaryChain(0.5, 0.8), starts)
    tensor([ True, False])
    """
    if theta.shape[-1:] != (2,):
        raise InputError(f"theta must have shape (..., 2) = (e, w), not {tuple(theta.shape)}")
    e, w = theta[..., 0], theta[..., 1]
    if chain.second_eigenvalue == 0:
        return torch.ones_like(e, dtype=torch.bool)
    above = energy(theta) > SADDLE_ENERGY
    if chain.second_eigenvalue > 0:
        return (e != 0) & ((w > SADDLE_W) | ((w <= SADDLE_W) & above))
    return (e != 0) & ((w < SADDLE_W) | ((w < 0) & above))
