"""Where gradient flow of the induction model ends, and the same by torchdiffeq alone."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor
from torchdiffeq import odeint

from flowsim.arrays import Numbers
from flowsim.compiled import compiled
from flowsim.flow.checks import check_starts
from flowsim.flow.ends import Limits
from flowsim.landscape.induction_ends import STRIP, InductionLandscape
from flowsim.landscape.labels import Label, Rule, Status
from flowsim.models.base import velocity
from flowsim.models.in_context.induction import InductionModel
from flowsim.models.in_context.induction_field import induction_loss, induction_slopes

#: A start and its shadows must fall to one side: displacements in α and β.
_SHADOWS = ((0.0, 0.0), (1e-5, 0.0), (-1e-5, 0.0), (0.0, 1e-5), (0.0, -1e-5))
_TOLERANCE, _MOST_STEPS = 1e-7, 5000
#: Below the plateau by this: losses are right to 1e-15.
_BELOW = 1e-12
#: Physical time given to torchdiffeq, and how near to its end's loss an orbit has to come then,
#: in parts of the drop from the plateau.
_HORIZON, _NEAR = 1e6, 0.01


def induction_limits(
    model: InductionModel, landscape: InductionLandscape, theta0: Numbers
) -> Limits:
    """Where orbits end, by the side of β = 0 on which they fall below the plateau.

    The loss is one number on β = 0, so that an orbit below it never changes sides, and each side
    has one end (``induction_landscape``). Orbits are followed by arc length, Bogacki-Shampine 3(2)
    with an error of 1e-7 per step, until then; a start whose shadows, 1e-5 off, fall to the other
    side is unresolved. The lower end is the global minimum, the other one a local one; an end at
    s = 0 or 1 has α = ∓∞ and the rule DRIFTS.

    Args:
        model, landscape: the model and what ``induction_landscape`` found.
        theta0: starts (α, β), shape (..., 2).

    Raises:
        InputError: another number of coordinates.
    """
    starts = check_starts(model, theta0, _TOLERANCE, _TOLERANCE)  # type: ignore[arg-type]
    points = starts.reshape(-1, 2).cpu()
    rows = points.numpy()
    side = np.zeros((len(_SHADOWS), len(rows)), dtype=np.int64)
    steps = np.zeros(len(rows), dtype=np.int64)
    for shadow, found in zip(_SHADOWS, side, strict=True):
        _fall(*model.terms, rows + shadow, landscape.plateau - _BELOW, found, steps)
    agreed = (side == side[0]).all(axis=0)
    side = np.where(agreed, side[0], 0)
    theta, label = rows.copy(), np.full(len(rows), int(Label.UNRESOLVED), dtype=np.int8)
    rule, loss = np.zeros_like(label), model.loss(points).numpy()
    for which, end in landscape.ends.items():
        here = side == which
        best = which == landscape.best
        theta[here], loss[here] = (end.alpha, end.beta), end.loss
        label[here] = Label.GLOBAL_MINIMUM if best else Label.LOCAL_MINIMUM
        rule[here] = Rule.DRIFTS if math.isinf(end.alpha) else Rule.REACHED_MINIMA
    known = label != Label.UNRESOLVED
    status = np.where(known, int(Status.CONVERGED), int(Status.TIMED_OUT)).astype(np.int8)
    norm = np.where(known, 0.0, model.gradient(points).norm(dim=1).numpy())
    parts = (theta, label, status, rule, loss, norm, steps)
    limits = Limits(*map(torch.from_numpy, parts))
    return Limits.joined([limits], starts.shape[:-1])


def confirm_induction(
    model: InductionModel, landscape: InductionLandscape, theta0: Tensor, labels: Tensor, count: int
) -> dict[str, int]:
    """How many labels of a random sample torchdiffeq finds again, as ``flowsim.confirm``.

    Each orbit is followed in physical time to t = 10⁶ by LSODA. It agrees when its loss has then
    come within a hundredth of the way from the plateau to the loss of its end.
    """
    rows, own = theta0.reshape(-1, 2), labels.reshape(-1)
    known = (own != Label.UNRESOLVED).nonzero()[:, 0].numpy()
    drawn = np.random.default_rng(0).choice(known, min(count, len(known)), replace=False)
    found = [_by_torchdiffeq(model, landscape, rows[i]) for i in drawn]
    undecided = found.count(int(Label.UNRESOLVED))
    agree = sum(int(own[i]) == label for i, label in zip(drawn, found, strict=True))
    return {
        "confirm_cells": len(drawn),
        "confirm_agree": agree,
        "confirm_disagree": len(drawn) - agree - undecided,
        "confirm_undecided": undecided,
    }


def _by_torchdiffeq(model: InductionModel, landscape: InductionLandscape, start: Tensor) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LSODA: "excess work", seen below
        path = odeint(
            lambda _, theta: velocity(model, theta),  # type: ignore[arg-type]
            start, torch.tensor([0.0, _HORIZON], dtype=torch.float64),
            rtol=1e-9, atol=1e-10, method="scipy_solver", options={"solver": "LSODA"},
        )  # fmt: skip
    last = path[-1]
    if len(path) < 2 or not bool(last.isfinite().all()):
        return int(Label.UNRESOLVED)
    loss, side = float(model.loss(last)), int(last[1].sign())
    end = landscape.ends.get(side)
    if end is None or loss - end.loss > _NEAR * (landscape.plateau - end.loss):
        return int(Label.UNRESOLVED)
    return int(Label.GLOBAL_MINIMUM if side == landscape.best else Label.LOCAL_MINIMUM)


@compiled
def _fall(
    counts: np.ndarray,
    weight: np.ndarray,
    chance: np.ndarray,
    rows: np.ndarray,
    below: float,
    side: np.ndarray,
    steps: np.ndarray,
) -> None:
    """The side of β on which each row falls below the loss within the strip; 0 if it does not.

    Bogacki-Shampine 3(2) along the unit field −∇L/|∇L|, whose independent variable is arc length.
    """
    slope = np.zeros((4, 2))
    for i in range(rows.shape[0]):
        alpha, beta, h = rows[i, 0], rows[i, 1], 0.1
        if not (math.isfinite(alpha) and math.isfinite(beta)):
            continue
        _unit_field(counts, weight, chance, alpha, beta, slope[0])
        for _ in range(_MOST_STEPS):
            loss = induction_loss(counts, weight, chance, _share(alpha), beta)
            if loss < below and abs(beta) <= STRIP:
                side[i] = 1 if beta > 0 else -1
                break
            if not math.isfinite(slope[0, 0]):
                break
            steps[i] += 1
            _unit_field(counts, weight, chance, alpha + h / 2 * slope[0, 0],
                        beta + h / 2 * slope[0, 1], slope[1])  # fmt: skip
            _unit_field(counts, weight, chance, alpha + 0.75 * h * slope[1, 0],
                        beta + 0.75 * h * slope[1, 1], slope[2])  # fmt: skip
            a = alpha + h / 9 * (2 * slope[0, 0] + 3 * slope[1, 0] + 4 * slope[2, 0])
            b = beta + h / 9 * (2 * slope[0, 1] + 3 * slope[1, 1] + 4 * slope[2, 1])
            _unit_field(counts, weight, chance, a, b, slope[3])
            error = 0.0
            for j in range(2):
                part = -5 * slope[0, j] + 6 * slope[1, j] + 8 * slope[2, j] - 9 * slope[3, j]
                error = max(error, abs(h / 72 * part))
            if error <= _TOLERANCE:
                alpha, beta = a, b
                slope[0] = slope[3]
            h *= min(5.0, max(0.2, 0.9 * (_TOLERANCE / max(error, 1e-300)) ** (1 / 3)))
            h = min(h, 1.0)


@compiled
def _unit_field(
    counts: np.ndarray,
    weight: np.ndarray,
    chance: np.ndarray,
    alpha: float,
    beta: float,
    out: np.ndarray,
) -> None:
    """``out`` becomes −∇L/|∇L|, NaN where the gradient vanishes."""
    s = _share(alpha)
    along_share, along_beta = induction_slopes(counts, weight, chance, s, beta)
    along_alpha = along_share * s * (1.0 - s)
    size = math.hypot(along_alpha, along_beta)
    out[0] = -along_alpha / size if size > 0 else math.nan
    out[1] = -along_beta / size if size > 0 else math.nan


@compiled
def _share(alpha: float) -> float:
    """σ(α)."""
    return 1.0 / (1.0 + math.exp(-alpha)) if alpha > -700.0 else 0.0
