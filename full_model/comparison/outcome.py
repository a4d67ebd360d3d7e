"""Outcome of a training run, from its own loss, gradient and curvature; never guessed.

The weights with e = 0 and b = log(π₁/π₀) predict the unigram and are critical (AM Thm. 2's θ_π),
whatever the other weights. A run that falls there stays if the loss curves upward in (e, b),

    H = [[c, sᵀ], [s, V]],  c = π₀π₁,  smallest eigenvalue μ > 0,  S = V − s sᵀ/c > 0,

if it is still that parabola where the run is, and if the other weights come to rest before they can
change it: near e = 0 their gradient is ½ eᵀ(∂S)e, so that what they still move changes S by about
‖∂S‖‖∂L/∂rest‖/(2μ), less than a quarter where ‖∂L/∂rest‖² ≤ ¼ μ eᵀSe (own derivation).

With S logits, weights whose embeddings are all one vector c predict the unigram and are critical,
whatever the other weights; c only shifts the positions. A run that falls there, in Ẽ = E − mean,
b̃ = b − mean, stays under the same conditions with (Ẽ, b̃) in place of (e, b): for the uniform law
the Hessian in b̃ is 1/S. On the plane of S states itself positions are zero, and E = 0 lies on the
kink of every ReLU. There

    L − log S = (|λ|/S) Σ_s ⟨Ẽ_s, Ẽ_s + W_2 ReLU(W_1 Ẽ_s)⟩ + …,  λ < 0,

for all small Ẽ of mean zero, at least (|λ|/S)(1 + min(0, m w₁w₂)) |Ẽ|², with equality along the
plane where w₁w₂ < 0 (docs/derivations/13.md): a trap iff 1 + m w₁w₂ > 0, and none for λ > 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import torch
from scipy.linalg import helmert
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.labels import Label
from flowsim.markov import GapChain, SymmetricChain
from full_model.lift.states import StatesProjection
from full_model.model.architecture import Weights

#: Share of the gap between unigram and bigram loss still open where a run of descent or of the flow
#: has learned the bigram: its loss is exact and never rises again.
LEARNED_EXACT = 0.01
#: The same for sampled batches: at the minimum their noise keeps some percent of the gap open.
LEARNED_SAMPLED = 0.1
#: Between which open shares of that gap a run is looked at for having fallen into the bowl.
NEAR = (0.5, 2.0)
#: Share of the bowl's own pull that the other weights' gradient may have.
AT_REST = 0.5
#: Share of the bowl's pull by which the gradient on the way to its bottom may differ from it.
PARABOLA = 0.5

Gradient = Callable[[Weights], Weights]
#: Labels and smallest curvatures near the unigram's loss, of rows, their weights, the gradient
#: and the metric.
AtUnigram = Callable[[Tensor, Weights, Gradient, Weights], tuple[Tensor, Tensor]]


class EndReason(IntEnum):
    """Why a run was moved no further."""

    DECIDED = 0
    CREEPS_ALONG_A_KINK = 1  # its steps are used up, and it crosses a ReLU's kink again and again
    STEPS_USED_UP = 2
    HORIZON_REACHED = 3
    NOT_FINITE = 4


@dataclass
class Outcome:
    """One entry per run.

    Attributes:
        label: ``Label`` values, int8.
        open_share: (L − entropy rate)/(h(π₁) − entropy rate), 1 on the unigram plateau.
        curvature: μ where the run is at the unigram loss, else NaN.
    """

    label: Tensor
    open_share: Tensor
    curvature: Tensor


def open_gap(chain: GapChain, loss: Any) -> Any:
    """Return the open share of the gap, (L − entropy rate)/(h(π₁) − entropy rate), for each loss L.

    For tensors and arrays alike.
    """
    gap = max(chain.mutual_information, 1e-6)  # p + q = 1: nothing to learn, and no bad minimum
    return (loss - chain.entropy_rate) / gap


def classify(
    chain: GapChain,
    loss: Tensor,
    weights: Weights,
    gradient: Gradient,
    metric: Weights,
    unigram: AtUnigram | None = None,
) -> Outcome:
    """Label runs by what their weights show; all that is not shown is unresolved.

    global_minimum: at most ``LEARNED_EXACT`` of the gap is open (the loss is that of the bigram; no
    run of descent climbs back). local_minimum: the loss is within ``NEAR``, e has fallen into the
    bowl around the unigram and the other weights' gradient is too small to change it.
    saddle: at the unigram, at rest for good (gradient zero), and some direction does not curve
    upward.

    Args:
        chain: the data.
        loss: (M,) exact population loss.
        weights: (M, *shape); of untied ones nothing is decided near the unigram, since there
            e = u = 0 is no minimum (AM Thm. 3).
        gradient: the population loss's gradient at weights.
        metric: by which the gradients are divided, per name, broadcastable.
        unigram: what decides near the unigram, by default for the binary logit.

    >>> import flowsim, full_model, torch
    >>> chain, arch = flowsim.BinaryChain(0.5, 0.8), full_model.Architecture(d=2, length=2)
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0])
    >>> learned = torch.tensor([chain.entropy_rate])
    >>> full_model.classify(chain, learned, weights, lambda some: some, weights).label
    tensor([1], dtype=torch.int8)
    """
    if unigram is None:
        assert isinstance(chain, BinaryChain)
        unigram = partial(_at_unigram, chain)
    share = open_gap(chain, loss)
    learned = share <= LEARNED_EXACT
    label = torch.where(learned, Label.GLOBAL_MINIMUM, Label.UNRESOLVED).to(torch.int8)
    curvature = torch.full_like(loss, torch.nan)
    near = (share > NEAR[0]) & (share < NEAR[1]) & (chain.mutual_information > 0)
    rows = near.nonzero()[:, 0]
    if len(rows) and "unembedding" not in weights:
        part = {name: w[rows] for name, w in weights.items()}
        part_label, curvature[rows] = unigram(rows, part, gradient, metric)
        label[rows] = part_label
    return Outcome(label, share, curvature)


def _at_unigram(
    chain: BinaryChain, rows: Tensor, weights: Weights, gradient: Gradient, metric: Weights
) -> tuple[Tensor, Tensor]:
    """Label runs with a binary logit whose loss is near h(π₁); labels and μ, each (M,)."""
    curved, lowest, along = _curvature(
        unigram_block(chain, weights, gradient), 1, weights["embedding"]
    )
    level, curvature = math.log(chain.p / chain.q), math.prod(chain.stationary)
    bowl = curved & _rises(along, weights, gradient, level=level, curvature=curvature)
    rest, total = _squares(gradient(weights), metric)
    return labels_near_unigram(bowl, along, lowest, rest, total), lowest


def _squares(gradient: Weights, metric: Weights) -> tuple[Tensor, Tensor]:
    """Return the squared norms (M,) of the gradient by all weights but e and b, and by all.

    Squares are divided by the metric.
    """
    size = {n: (g.square() / metric[n]).reshape(len(g), -1).sum(1) for n, g in gradient.items()}
    rest = [square for name, square in size.items() if name not in ("embedding", "bias")]
    return torch.stack(rest).sum(0), torch.stack([*size.values()]).sum(0)


def _curvature(hessian: Tensor, k: int, e: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether Hessians (M, n, n) are positive definite, their smallest eigenvalues, ⟨e, Se⟩.

    Each is (M,). S is the Hessian that remains for the embeddings e when the first k rows, the
    biases, are at their optimum (its Schur complement); it must be positive definite too.
    """
    rise = hessian[:, :1, :1]
    schur = hessian[:, k:, k:] - hessian[:, k:, :k] @ hessian[:, :k, k:] / rise
    lowest, effective = (torch.linalg.eigvalsh(part)[:, 0] for part in (hessian, schur))
    along = (e * (schur @ e.unsqueeze(-1)).squeeze(-1)).sum(1)
    return (lowest > 0) & (effective > 0), lowest, along


def _rises(
    along: Tensor, weights: Weights, gradient: Gradient, middle: Tensor | float = 0.0,
    level: float = 0.0, curvature: float = 1.0,
) -> Tensor:  # fmt: skip
    """Return whether the loss, with the best bias, rises like a parabola up to each run, (M,).

    Its slope is compared with the parabola's, ``along`` = ⟨e, Se⟩ at the run, at a third, at two
    thirds and at the end of the way, where a ReLU may have opened. ``middle`` and ``level`` are the
    embedding and the bias at the bottom.
    """
    e, inside = weights["embedding"] - middle, torch.ones_like(along, dtype=torch.bool)
    for share in (1 / 3, 2 / 3, 1.0):
        at = {**weights, "embedding": middle + share * e}
        at["bias"] = torch.full_like(weights["bias"], level)
        for _ in range(6):
            at["bias"] = at["bias"] - gradient(at)["bias"] / curvature
        pull = (gradient(at)["embedding"] * share * e).flatten(1).sum(1)
        inside &= (pull - share**2 * along).abs() <= PARABOLA * share**2 * along
    return inside


def labels_near_unigram(
    bowl: Tensor, along: Tensor, lowest: Tensor, rest: Tensor, total: Tensor
) -> Tensor:
    """Label runs whose loss is near the unigram's, (M,) int8.

    Local minimum: in a bowl, and the other weights' gradient is too small to move the run out.
    Saddle: outside a bowl, and the whole gradient is zero. Else unresolved. ``along`` and
    ``lowest`` are ⟨e, curvature e⟩ and the smallest curvature there, ``rest`` and ``total`` squares
    of the gradient by the other weights and by all; each (M,).
    """
    pull = along.clamp(min=0) * lowest.clamp(min=0)
    trapped = bowl & (rest <= AT_REST**2 * pull)
    stuck = ~bowl & (total.sqrt() <= 1e-14)
    label = torch.where(trapped, Label.LOCAL_MINIMUM, Label.UNRESOLVED)
    return torch.where(stuck, Label.SADDLE, label).to(torch.int8)


def unigram_block(chain: BinaryChain, weights: Weights, gradient: Gradient) -> Tensor:
    """Compute Hessians by (b, e) at e = 0, b = log(π₁/π₀), (M, 1+d, 1+d), by differences."""
    e = weights["embedding"]
    d = e.shape[1]
    step = 1e-6
    centre = math.log(chain.p / chain.q)
    columns = []
    for i in range(d + 1):
        moved = dict(weights)
        moved["embedding"] = torch.zeros_like(e)
        moved["bias"] = torch.full_like(weights["bias"], centre)
        if i:
            moved["embedding"][:, i - 1] = step
        else:
            moved["bias"] = moved["bias"] + step
        found = gradient(moved)
        columns.append(torch.cat([found["bias"].unsqueeze(-1), found["embedding"]], -1) / step)
    block = torch.stack(columns, dim=-1)
    return (block + block.mT) / 2


#: Relative distance from the plane up to which a run counts as on it, moved by rounding alone.
ON_PLANE = 1e-6
#: Displacement of E and b in the differences of gradients; both signs of it must give the same
#: curvature to this share, or a ReLU's kink lies between.
_STEP, _SAME = 1e-6, 1e-2


def at_unigram_of_states(
    chain: SymmetricChain, nearest: StatesProjection, rows: Tensor, weights: Weights,
    gradient: Gradient, metric: Weights,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Label runs with S logits near the unigram's loss; labels and smallest curvatures, each (m,).

    ``weights`` are of these m runs; ``rows`` says which they are of all those in ``nearest``.
    """
    found = gradient(weights)
    rest, total = _squares(found, metric)
    rest = rest + found["embedding"].sum(1).square().sum(1) / chain.states  # of its mean
    basis, level = torch.from_numpy(helmert(chain.states)), 1 / chain.states
    # off the plane: from the Hessian in (b̃, Ẽ) at Ẽ = 0, which must be smooth there
    block, smooth = hessian_block(basis, weights, gradient)
    mean = weights["embedding"].mean(1, keepdim=True)
    entries = (basis @ (weights["embedding"] - mean)).flatten(1)
    curved, lowest, along = _curvature(block, chain.states - 1, entries)
    bowl = curved & _rises(along, weights, gradient, mean, curvature=level) & smooth
    # on it, from the gain
    gain, slope = nearest.gain[rows], -2 * chain.second_eigenvalue / chain.states
    rising = slope * gain * weights["embedding"].square().sum((1, 2))
    inside = (slope > 0) & (gain > 0) & _rises(rising, weights, gradient, curvature=level)
    on_plane = nearest.relative_distance[rows] <= ON_PLANE
    bowl, along = torch.where(on_plane, inside, bowl), torch.where(on_plane, rising, along)
    lowest = torch.where(on_plane, (slope * gain.clamp(max=1.0)).clamp(max=level), lowest)
    return labels_near_unigram(bowl, along, lowest, rest, total), lowest


def hessian_block(basis: Tensor, weights: Weights, gradient: Gradient) -> tuple[Tensor, Tensor]:
    """Compute Hessians by (b̃, Ẽ) at Ẽ = 0, (M, n, n), and whether no kink is within a step, (M,).

    ``basis`` (S − 1, S) is orthonormal, and orthogonal to constants.
    """
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
