"""Where gradient descent with finite steps is trapped at the unigram, by explicit bounds.

With z = (e, b − log(π₁/π₀)), both units of one slope s and R = ρs, the loss has at z = 0 the
Hessian H = π₀π₁ [[R² + 2(p + q − 1)s, R], [R, 1]], and descent at the rate η maps z to
(1 − ηH)z + O(z²) while (ρ, w1, w2) move by O(z²). Where H is positive and ηH below 2, z shrinks by
(1 + r)/2 a step, r = ‖1 − ηH‖, provided that what follows is small enough; the constants bound the
derivatives. Source: own derivation, docs/derivations.md, 10.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowsim.models.rank_one.model import WIDTH_RATIO, RankOneModel
from flowsim.training.optimizer_choice import OptimizerChoice


def trapped(model: RankOneModel, optimizer: OptimizerChoice, theta: Tensor) -> Tensor:
    """Whether descent goes on from θ (n, k) to the unigram for certain, bool (n,).

    False wherever there is no proof: for other optimizers than plain gradient descent on the
    population loss at a constant rate, with attention, and untied (where all is saddles).
    """
    recipe, nowhere = optimizer.recipe, torch.zeros(len(theta), dtype=torch.bool)
    plain = optimizer.name == "gd" and recipe.loss == "population"
    steady = recipe.schedule == "constant" and not recipe.weight_decay
    if not (plain and steady and model.tied and not model.attention):
        return nowhere
    chain, rate = model.chain, recipe.rate(0)
    pi0, pi1 = chain.stationary
    e, rho, w1, w2, b = theta.unbind(1)
    shut = (w1 == 0) & (w2 == 0)
    s = 1 + WIDTH_RATIO * w1 * w2 * (w1 * rho > 0)
    z = torch.hypot(e, b - math.log(pi1 / pi0))
    flat, up = rho * s, 2 * (chain.switching_factor - 1) * s
    trace, det = pi0 * pi1 * (flat.square() + up + 1), (pi0 * pi1) ** 2 * up
    root = (trace.square() / 4 - det).clamp(min=0).sqrt()
    low, high = det / (trace / 2 + root), trace / 2 + root
    left = torch.minimum(rate * low, 2 - rate * high)  # 1 − r
    slope, weights = s.abs(), w1.abs() + w2.abs()
    reach = 1 + flat.abs() + slope  # bounds the derivatives of the logits in z
    drift = 4 * (slope * reach + weights * (rho.abs() * reach + 1)) * z.square()
    moved = 2 * rate * drift / left
    by_slope = WIDTH_RATIO * (weights + moved) * moved
    change = 2 * reach * (slope * moved + (rho.abs() + moved) * by_slope) + 2 * by_slope
    inside = (z + moved <= rho.abs() / 4) & (shut | (moved <= w1.abs() / 4)) & (z <= 0.5)
    small = (rate * reach**3 * z <= left / 8) & (rate * change <= left / 4)
    pull = 2 * high * z + drift
    unclipped = torch.ones_like(inside) if recipe.clip is None else pull <= recipe.clip
    return (low > 0) & (left > 0) & inside & small & unclipped
