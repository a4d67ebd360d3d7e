"""Measurements of a transformer while it trains."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from full_model.lift.projection import project
from full_model.model.architecture import Architecture, Weights
from full_model.model.transformer import forward

#: Distances at which attention is measured.
DISTANCES = 16


def matrix_names(arch: Architecture) -> list[str]:
    """Names of the weights that are matrices, in the architecture's order."""
    return [name for name, shape in arch.shapes.items() if len(shape) == 2]


def leading_shares(arch: Architecture, weights: Weights) -> Tensor:
    """σ₁²/Σσ² of every matrix among the weights, (..., matrices); NaN for a zero matrix.

    LG calls it the rank-one energy.
    """
    squares = [torch.linalg.svdvals(weights[k].detach()).square() for k in matrix_names(arch)]
    return torch.stack([s[..., 0] / s.sum(-1) for s in squares], dim=-1)


class Pass(NamedTuple):
    """A forward pass of the models over sequences, and what it left."""

    arch: Architecture  # of the models
    tokens: Tensor  # (batch, n) or (M, batch, n)
    logits: Tensor  # as of ``forward``, like the trace
    trace: dict[str, Tensor]

    @classmethod
    def of(cls, arch: Architecture, weights: Weights, tokens: Tensor) -> Pass:
        """Run the models over the tokens, without gradients, and keep logits and trace."""
        trace: dict[str, Tensor] = {}
        with torch.no_grad():
            logits = forward(arch, weights, tokens, trace)
        return cls(arch, tokens, logits, trace)


def attention_share(seen: Pass) -> Tensor:
    """Mean over tokens of ‖attention_n‖/‖y_n‖ in each layer, shape (..., layers).

    attention_n = W_O Σ_i att_{n,i} W_V x_i. Zero without attention. AM App. D reports about 0.01 at
    convergence for the single layer.
    """
    shares = []
    for layer in range(seen.arch.layers):
        y = vector_norm(seen.trace[f"{layer}.y"], dim=-1)
        attended = seen.trace.get(f"{layer}.attention")
        size = torch.zeros_like(y) if attended is None else vector_norm(attended, dim=-1)
        share = torch.where(size > 0, size / y, 0.0)
        shares.append(share.mean((-2, -1)))
    return torch.stack(shares, dim=-1)


def looks_back(seen: Pass) -> Tensor:
    """Mean attention to the symbol i positions before, (..., layers, heads, distances).

    For i = 0, …, at most 15; the mean is over the sequences and the positions that have i before
    them. Of softmax attention alone.
    """
    distances = range(min(seen.tokens.shape[-1], DISTANCES))
    layers = []
    for layer in range(seen.arch.layers):
        pattern = seen.trace[f"{layer}.pattern"]  # (..., batch, heads, n, n)
        means = [pattern.diagonal(-i, -2, -1).mean(-1).mean(-2) for i in distances]
        layers.append(torch.stack(means, dim=-1))
    return torch.stack(layers, dim=-3)


def predicted_kernel(seen: Pass) -> Tensor:
    """Mean predicted law of the next symbol over the positions of each symbol, (..., S, S).

    The target on a first-order chain is its kernel; a symbol that does not occur in ``tokens``
    gives a row of NaN.
    """
    if seen.arch.output == "binary":
        one = seen.logits.sigmoid()
        predicted = torch.stack([1 - one, one], dim=-1)
    else:
        predicted = seen.logits.softmax(-1)
    rows = []
    for symbol in range(seen.arch.states):
        here = (seen.tokens == symbol).to(predicted.dtype).expand(predicted.shape[:-1])
        whole = (predicted * here[..., None]).sum((-3, -2))
        rows.append(whole / here.sum((-2, -1))[..., None])
    return torch.stack(rows, dim=-2)


def measure(weights: Weights, seen: Pass) -> dict[str, Tensor]:
    """Measure an ensemble of M models by all probes at once.

    Args:
        weights: of shape (M, *shape).
        seen: a pass with them.

    Returns:
        "attention_share" (M, layers), "leading_share" (M, matrices, in the order of the weights),
        of softmax attention "looks_back" (M, layers, heads, distances), for two states
        "probability" (M, 2) and for more "predicted_kernel" (M, S, S), and for two
        states and hidden units "canonical" (M, 3), the projected (e, w, a), "distance" and
        "relative_distance" (M,) from the rank-one family, "bias" (M,), "position" (M,) and
        "position_spread" (M,): mean and standard deviation of ρ_n over n.

    >>> import full_model, torch
    >>> from full_model.training.probes import Pass
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0])
    >>> probes = full_model.measure(weights, Pass.of(arch, weights, torch.tensor([[0, 1, 1, 0]])))
    >>> {name: tuple(probes[name].shape) for name in ("probability", "canonical")}
    {'probability': (1, 2), 'canonical': (1, 3)}
    """
    arch = seen.arch
    found = {
        "attention_share": attention_share(seen),
        "leading_share": leading_shares(arch, weights),
    }
    if arch.attention == "softmax":
        found["looks_back"] = looks_back(seen)
    if arch.states == 2:
        found["probability"] = predicted_kernel(seen)[..., 1]
    else:
        found["predicted_kernel"] = predicted_kernel(seen)
    if arch.states == 2 and arch.width and not arch.is_recurrent:
        projection = project(arch, weights)
        found |= {
            "canonical": projection.canonical,
            "distance": projection.distance,
            "relative_distance": projection.relative_distance,
            "bias": projection.point.b,
            "position": projection.point.rho.mean(-1),
            "position_spread": projection.point.rho.std(-1, correction=0),
        }
    return found


def plateau(
    steps: Tensor, losses: Tensor, unigram: Tensor, least: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find from loss histories when each model is at the unigram loss: start, escape and length.

    With δ = (L − least)/(unigram − least), the share of the gap still open, the plateau
    is entered at the first time δ ≤ 1.05, escape is the first later time at which δ ≤ ½ for good,
    and the length is what lies between them (own definition; the papers show curves only).

    Args:
        steps: (T,) increasing.
        losses: (T, M) exact or held-out losses.
        unigram, least: (M,) or (1,), the loss of the plateau and the least possible one; of a chain
            its stationary entropy and its entropy rate.

    Returns:
        (start, escape, length), each (M,) float64; escape and length NaN for a model still on the
        plateau at the end, all NaN for one that never came near it.

    >>> import full_model, torch
    >>> steps, losses = torch.arange(4.0), torch.tensor([[0.7], [0.6], [0.6], [0.5]])
    >>> levels = torch.tensor([0.6]), torch.tensor([0.5])
    >>> [float(time) for time in full_model.plateau(steps, losses, *levels)]
    [1.0, 3.0, 2.0]
    """
    least = least.to(losses)
    open_share = (losses - least) / (unigram.to(losses) - least)
    steps = steps.to(torch.float64)
    nan = torch.full((losses.shape[1],), torch.nan, dtype=torch.float64)
    near = (open_share <= 1.05).cpu()
    below = (open_share <= 0.5).cpu().flip(0).to(torch.uint8).cumprod(0).flip(0).bool()
    start = torch.where(near.any(0), steps[near.to(torch.uint8).argmax(0)], nan)
    escape = torch.where(below.any(0), steps[below.to(torch.uint8).argmax(0)], nan)
    return start, escape, escape - start
