"""Projection of a two-layer transformer onto the plane (α, β) of the reduced induction head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from flowsim.errors import InputError
from full_model.model.architecture import Architecture, Weights
from full_model.model.transformer import forward


@dataclass(frozen=True)
class InductionFit:
    """The reduced coordinates of M models, each of shape (M,), float64.

    Attributes:
        alpha: mean log of attention to the symbol before over that to the own one, first layer.
        beta: score of a match in the second layer, by least squares.
        explained: share that β explains of the variance of the second layer's log attention, of
            what in it depends on symbols.
        previous: mean attention to the symbol before, first layer.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(4, 8, layers=2, output="states", positions="relative")
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0, 1])
    >>> fit = full_model.fit_induction(arch, weights, torch.tensor([[0, 1, 0, 0, 1, 1, 0, 1]]))
    >>> tuple(fit.alpha.shape), tuple(fit.explained.shape)
    ((2,), (2,))
    """

    alpha: Tensor
    beta: Tensor
    explained: Tensor
    previous: Tensor


def fit_induction(arch: Architecture, weights: Weights, tokens: Tensor) -> InductionFit:
    """The nearest induction head: α from the first layer's attention, β from the second's.

    The reduced head has u_i = s e_{x_{i−1}} + (1 − s) e_{x_i}, s = σ(α), and attends with scores
    β⟨u_i, e_{x_n}⟩. So α is log att_{i,i−1}/att_{i,i} of the first layer, and β the slope of the
    second layer's log att_{n,i} against ⟨u_i, e_{x_n}⟩ over 2 ≤ i ≤ n, both less what depends on
    the positions (n, i) or on the sequence and n alone: relative positions and the softmax's sum
    (own derivation, docs/derivations/19.md). For the head itself both are exact; what the slope
    leaves unexplained says how far a model is from one.

    Args:
        arch, weights: two layers of one softmax head, weights of shape (M, *shape).
        tokens: (B, N) with N ≥ 3, or (M, B, N).

    Raises:
        InputError: another number of layers or heads, other attention, or too short sequences.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(4, 8, layers=2, output="states", positions="relative")
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0, 1])
    >>> fit = full_model.fit_induction(arch, weights, torch.tensor([[0, 1, 0, 0, 1, 1, 0, 1]]))
    >>> fit.previous.numpy().round(2)
    array([0.25, 0.24])
    """
    if (arch.layers, arch.heads, arch.attention) != (2, 1, "softmax"):
        raise InputError("an induction head is read off two layers of one softmax head")
    if tokens.shape[-1] < 3:
        raise InputError(f"an induction head needs 3 symbols or more, not {tokens.shape[-1]}")
    trace: dict[str, Tensor] = {}
    with torch.no_grad():
        forward(arch, weights, tokens, trace)
    first, second = (
        trace[f"{layer}.pattern"][..., 0, :, :].double().clamp(min=1e-300) for layer in (0, 1)
    )
    before, own = first.diagonal(-1, -2, -1), first.diagonal(0, -2, -1)[..., 1:]
    alpha = (before.log() - own.log()).mean((-2, -1))
    symbols = one_hot(tokens.long(), arch.states).double()
    share = alpha.sigmoid()[:, None, None, None]
    u = share * symbols[..., :-1, :] + (1 - share) * symbols[..., 1:, :]  # of i = 2, …, N
    match = symbols @ u.mT  # (M, B, n, i)
    n = tokens.shape[-1]
    seen = torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril()[:, 1:]
    log = second[..., 1:].log()
    x, y = (_content(values.expand(log.shape), seen) for values in (match, log))
    beta = (x * y).sum((1, 2, 3)) / x.square().sum((1, 2, 3))
    explained = beta * (x * y).sum((1, 2, 3)) / y.square().sum((1, 2, 3))
    return InductionFit(alpha, beta, explained, before.mean((-2, -1)))


def _content(values: Tensor, seen: Tensor) -> Tensor:
    """Subtract from values (M, B, n, i) their means over i, then over B; zero if not ``seen``."""
    kept = torch.where(seen, values, 0.0)
    count = seen.sum(-1, keepdim=True).clamp(min=1)
    kept = torch.where(seen, kept - kept.sum(-1, keepdim=True) / count, 0.0)
    return kept - kept.mean(1, keepdim=True)
