"""What became of a training run with S logits, read off its own loss, gradient and curvature.

Weights whose embeddings are all one vector c predict the unigram and are critical, whatever the
other weights; c only shifts the positions. A run that falls there, in Ẽ = E − mean, b̃ = b − mean,
stays under the conditions of ``outcome``, with (Ẽ, b̃) in place of (e, b): for the uniform law the
Hessian in b̃ is 1/S.

On the plane of S states itself positions are zero, and E = 0 lies on the kink of every ReLU. There

    L − log S = (|λ|/S) Σ_s ⟨Ẽ_s, Ẽ_s + W_2 ReLU(W_1 Ẽ_s)⟩ + …,  λ < 0,

for all small Ẽ of mean zero, at least (|λ|/S)(1 + min(0, m w₁w₂)) |Ẽ|², with equality along the
plane where w₁w₂ < 0 (docs/derivations.md, 13): a trap iff 1 + m w₁w₂ > 0, and none for λ > 0.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from flowsim.markov import SymmetricChain
from full_model.comparison.outcome import PARABOLA, Gradient, Outcome, classify, verdict
from full_model.lift.states import StatesProjection
from full_model.model.architecture import Weights

#: Relative distance from the plane up to which a run counts as on it, moved by rounding alone.
ON_PLANE = 1e-6
#: Displacement of E and b in the differences of gradients; both signs of it must give the same
#: curvature to this share, or a ReLU's kink lies between.
_STEP, _SAME = 1e-6, 1e-2


def classify_states(
    chain: SymmetricChain,
    loss: Tensor,
    weights: Weights,
    gradient: Gradient,
    metric: Weights,
    nearest: StatesProjection,
) -> Outcome:
    """``classify`` for S logits.

    Args:
        nearest: the weights' nearest points of the plane.
    """
    unigram = partial(_at_unigram, chain, nearest)
    return classify(chain, loss, weights, gradient, metric, unigram)


def _at_unigram(
    chain: SymmetricChain,
    nearest: StatesProjection,
    rows: Tensor,
    weights: Weights,
    gradient: Gradient,
    metric: Weights,
) -> tuple[Tensor, Tensor]:
    """Label and smallest curvature of runs near the unigram's loss."""
    found = gradient(weights)
    total = torch.zeros_like(nearest.relative_distance[rows])
    rest = torch.zeros_like(total)
    for name, g in found.items():
        square = (g.square() / metric[name]).reshape(len(g), -1).sum(1)
        total = total + square
        if name == "embedding":
            square = g.sum(1).square().sum(1) / chain.states  # of its mean
        rest = rest + (0 if name == "bias" else square)
    on_plane = nearest.relative_distance[rows] <= ON_PLANE
    bowl, lowest, along = _bowl_beside(chain, weights, gradient)
    plane = _bowl_of_plane(chain, weights, gradient, nearest.gain[rows])
    bowl = torch.where(on_plane, plane[0], bowl)
    lowest = torch.where(on_plane, plane[1], lowest)
    along = torch.where(on_plane, plane[2], along)
    return verdict(bowl, along, lowest, rest, total), lowest


def _bowl_of_plane(
    chain: SymmetricChain, weights: Weights, gradient: Gradient, gain: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Whether runs on the plane are in a bowl, its smallest curvature, ⟨Ẽ, curvature Ẽ⟩."""
    slope = -2 * chain.second_eigenvalue / chain.states
    e = weights["embedding"]
    lowest = (slope * gain.clamp(max=1.0)).clamp(max=1 / chain.states)
    along = slope * gain * e.square().sum((1, 2))
    inside = torch.ones_like(gain, dtype=torch.bool)
    for share in (1 / 3, 2 / 3, 1.0):
        at = share * e
        pull = (gradient({**weights, "embedding": at})["embedding"] * at).sum((1, 2))
        parabola = share**2 * along
        inside &= (pull - parabola).abs() <= PARABOLA * parabola
    return (slope > 0) & (gain > 0) & inside, lowest, along


def _bowl_beside(
    chain: SymmetricChain, weights: Weights, gradient: Gradient
) -> tuple[Tensor, Tensor, Tensor]:
    """The same off the plane, from the Hessian in (b̃, Ẽ) at Ẽ = 0, which must be smooth there."""
    basis = mean_free_basis(chain.states)
    block, smooth = hessian_block(basis, weights, gradient)
    k = chain.states - 1
    schur = block[:, k:, k:] - block[:, k:, :k] @ block[:, :k, k:] * chain.states
    lowest = torch.linalg.eigvalsh(block)[:, 0]
    effective = torch.linalg.eigvalsh(schur)[:, 0]
    mean = weights["embedding"].mean(1, keepdim=True)
    e = weights["embedding"] - mean
    entries = (basis @ e).flatten(1)
    along = (entries * (schur @ entries.unsqueeze(-1)).squeeze(-1)).sum(1)
    inside = torch.ones_like(along, dtype=torch.bool)
    for share in (1 / 3, 2 / 3, 1.0):
        at = {**weights, "embedding": mean + share * e}
        b = torch.zeros_like(weights["bias"])
        for _ in range(6):  # Newton's method with the curvature at Ẽ = 0
            b = b - chain.states * gradient({**at, "bias": b})["bias"]
        pull = (gradient({**at, "bias": b})["embedding"] * share * e).sum((1, 2))
        parabola = share**2 * along
        inside &= (pull - parabola).abs() <= PARABOLA * parabola
    return (lowest > 0) & (effective > 0) & inside & smooth, lowest, along


def hessian_block(basis: Tensor, weights: Weights, gradient: Gradient) -> tuple[Tensor, Tensor]:
    """The Hessian in (b̃, Ẽ) at Ẽ = 0, (M, n, n), and whether no kink lies within a step of it."""
    k, states = basis.shape
    d = weights["embedding"].shape[2]
    mean = weights["embedding"].mean(1, keepdim=True).expand_as(weights["embedding"])
    level = torch.zeros_like(weights["bias"])
    columns: list[Tensor] = []
    for i in range(k * (d + 1)):
        ends = []
        for step in (_STEP, -_STEP):
            moved = {**weights, "embedding": mean, "bias": level}
            if i < k:
                moved["bias"] = level + step * basis[i]
            else:
                shift = torch.zeros(states, d, dtype=level.dtype)
                shift[:, (i - k) % d] = step * basis[(i - k) // d]
                moved["embedding"] = mean + shift
            found = gradient(moved)
            by_bias, by_e = found["bias"] @ basis.T, (basis @ found["embedding"]).flatten(1)
            ends.append(torch.cat([by_bias, by_e], dim=1) / step)
        columns.append(torch.stack(ends))
    block = torch.stack(columns, dim=-1)
    size = block[0].flatten(1).norm(dim=1)
    smooth = (block[0] - block[1]).flatten(1).norm(dim=1) <= _SAME * size
    both = (block[0] + block[1]) / 2
    return (both + both.mT) / 2, smooth


def mean_free_basis(states: int) -> Tensor:
    """An orthonormal basis of what is orthogonal to constants, (S − 1, S)."""
    rows = torch.zeros(states - 1, states, dtype=torch.float64)
    for k in range(1, states):
        rows[k - 1, :k], rows[k - 1, k] = 1.0, -float(k)
        rows[k - 1] /= math.sqrt(k * (k + 1))
    return rows
