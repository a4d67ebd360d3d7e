"""Labels of runs of the rank-one model, from exact losses and the end; never guessed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.labels import Label, Rule, Status
from flowsim.models.rank_one.point import WIDTH_RATIO
from flowsim.training.optimizer_choice import OptimizerChoice
from flowsim.training.trained import AT_UNIGRAM, LEARNED_POPULATION, LEARNED_SAMPLED, Trained

#: Steps at the end of which each is looked at, so that no short period is missed.
LAST = 8


def judged(
    model: Any,
    optimizer: OptimizerChoice,
    theta: Tensor,
    losses: np.ndarray,
    looks: np.ndarray,
) -> Trained:
    """The ends ``theta`` with labels, from exact losses (looks, n) after the steps ``looks``."""
    chain = model.chain
    gap = chain.mutual_information if chain.second_eigenvalue else np.nan
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        share = (losses - chain.entropy_rate) / gap
    sampled = optimizer.recipe.loss == "sampled"
    below = share <= (LEARNED_SAMPLED if sampled else LEARNED_POPULATION)
    for_good = np.flip(np.logical_and.accumulate(np.flip(below, 0)), 0)
    last = looks > looks[-1] - LAST
    learned = for_good[last].all(axis=0)
    first = np.where(learned, looks[for_good.argmax(axis=0)], np.nan)
    finite = np.isfinite(losses[-1]) & torch.isfinite(theta).all(dim=1).numpy()
    learned &= finite
    kept = trapped(model, optimizer, theta).numpy() & finite & ~learned
    label = np.where(learned, Label.GLOBAL_MINIMUM, Label.UNRESOLVED)
    rule = np.where(learned, Rule.LEARNED, Rule.NONE)
    label[kept], rule[kept] = Label.LOCAL_MINIMUM, Rule.TRAPPED_BY_PLANE
    status = np.where(learned | kept, Status.CONVERGED, Status.TIMED_OUT)
    status[~finite] = Status.DIVERGED
    plateau = finite & (np.abs(share[-1] - 1) <= AT_UNIGRAM)
    return Trained(
        theta,
        label=torch.from_numpy(label.astype(np.int8)),
        status=torch.from_numpy(status.astype(np.int8)),
        rule=torch.from_numpy(rule.astype(np.int8)),
        loss=torch.from_numpy(losses[-1].copy()),
        open_share=torch.from_numpy(share[-1].copy()),
        on_plateau_at_end=torch.from_numpy(plateau.astype(np.int8)),
        learned_step=torch.from_numpy(first),
    )


def trapped(model: Any, optimizer: OptimizerChoice, theta: Tensor) -> Tensor:
    """Return whether descent goes on from θ (n, k) to the unigram for certain, bool (n,).

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
