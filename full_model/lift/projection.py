"""The nearest rank-one weights to any weights, and how far off they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.lift.rank_one_point import RankOnePoint, unit_vector
from full_model.model.transformer import Architecture, Weights, check_weights


@dataclass(frozen=True)
class Projection:
    """The rank-one point nearest to some weights, and how far it is.

    Attributes:
        point: its coordinates, shapes (...) and (..., N).
        canonical: (..., 3), (e, w, a) as ``RankOnePoint.to_canonical``.
        alpha, beta: the fitted unit vectors, (..., d); ε ≥ 0 unless a reference α was given.
        distance: (...), Euclidean over all weights, to the nearest rank-one weights with η = 1.
        relative_distance: (...), that divided by the norm of all weights; 0 for zero weights.
        open_share: (...), share of the rows of W_1 that point along +sign(w₁)α.
        opens: (...), the symbol that opens the ReLU of those rows: sign(ε w₁), 1 for the symbol 1.
    """

    point: RankOnePoint
    canonical: Tensor
    alpha: Tensor
    beta: Tensor
    distance: Tensor
    relative_distance: Tensor
    open_share: Tensor
    opens: Tensor


def project(
    arch: Architecture,
    weights: Weights,
    alpha: Tensor | None = None,
    hidden_signs: Tensor | None = None,
    rounds: int = 30,
) -> Projection:
    """The nearest point of the rank-one family, for weights from anywhere.

    For given (α, β) the nearest coordinates are inner products; the squared length they capture is
    a quadratic form in α for fixed β and in β for fixed α, so the two leading eigenvectors are
    taken in turn, which never loses length (own derivation). Weights with k = 2 logits are read as
    the binary model with the same predictions, e = e₁ − e₀ and p_n + e₀; layers beyond the first,
    queries, keys and layer-norm scales count as distance.

    Args:
        arch, weights: any model with two states; weights of shape (..., *shape).
        alpha: (d,) or (..., d): take this unit vector instead of fitting one.
        hidden_signs: η, as in ``lift_rank_one``.
        rounds: alternations.

    Raises:
        InputError: more than two states, or weights that do not fit ``arch``.
    """
    check_weights(arch, weights)
    if arch.states != 2:
        raise InputError(f"only two states project to (e, w, a), not {arch.states}")
    d, r, n = arch.d, arch.width, arch.length
    parts = _binary_parts(arch, {name: w.detach() for name, w in weights.items()})
    e = parts["embedding"]
    eta = e.new_ones(r) if hidden_signs is None else hidden_signs.to(e)
    zero_matrix = e.new_zeros(*e.shape, d)
    rows = [e.unsqueeze(-2)]
    if "positions" in parts:
        rows.append(parts["positions"])
    rows.append((eta / math.sqrt(r)).unsqueeze(-2) @ parts["0.up"])
    rows.append((parts["0.down"] @ (eta / math.sqrt(r)).unsqueeze(-1)).mT)
    if "unembedding" in parts:
        rows.append(parts["unembedding"].unsqueeze(-2))
    plain = torch.cat(rows, dim=-2)
    value, out = parts.get("0.value", zero_matrix), parts.get("0.out", zero_matrix)
    if alpha is not None:
        alpha = unit_vector(alpha, d, e, "alpha").expand_as(e)
        beta = _leading(torch.stack([_apply(value, alpha), _apply(out.mT, alpha)], -2))
    else:
        alpha = _leading(torch.cat([plain, value, out.mT], dim=-2))
        for _ in range(rounds):
            beta = _leading(torch.stack([_apply(value, alpha), _apply(out.mT, alpha)], -2))
            seen = torch.stack([_apply(value.mT, beta), _apply(out, beta)], dim=-2)
            alpha = _leading(torch.cat([plain, seen], dim=-2))
        alpha = torch.where(((e * alpha).sum(-1, keepdim=True)) < 0, -alpha, alpha)
        beta = _leading(torch.stack([_apply(value, alpha), _apply(out.mT, alpha)], -2))
    scale = math.sqrt(d) / r
    up_row = _apply(parts["0.up"], alpha)
    eps = (e * alpha).sum(-1)
    rho = _apply(parts["positions"], alpha) if "positions" in parts else e.new_zeros(*eps.shape, n)
    c = (parts["unembedding"] * alpha).sum(-1) if "unembedding" in parts else eps
    point = RankOnePoint(
        eps,
        rho,
        (eta * up_row).sum(-1) * scale,
        (eta * _apply(parts["0.down"].mT, alpha)).sum(-1) * scale,
        (_apply(out, beta) * alpha).sum(-1),
        (_apply(value, alpha) * beta).sum(-1),
        parts["bias"],
        c,
    )
    distance, norm = _distance(parts, point, alpha, beta, eta, d)
    along = up_row * torch.where(point.w1 < 0, -1.0, 1.0).to(e).unsqueeze(-1)
    return Projection(
        point,
        point.to_canonical(),
        alpha,
        beta,
        distance,
        torch.where(norm > 0, distance / norm.clamp(min=torch.finfo(norm.dtype).tiny), 0.0),
        (along > 0).to(e.dtype).mean(-1),
        (point.eps * point.w1).sign(),
    )


def _distance(
    parts: Weights, point: RankOnePoint, alpha: Tensor, beta: Tensor, eta: Tensor, d: int
) -> tuple[Tensor, Tensor]:
    """Euclidean distance of all weights to the lift of ``point``, and their norm."""
    up = (eta / math.sqrt(d)).unsqueeze(-1) * alpha.unsqueeze(-2)
    inner = beta.unsqueeze(-1) * alpha.unsqueeze(-2)
    nearest = {
        "embedding": point.eps[..., None] * alpha,
        "positions": point.rho.unsqueeze(-1) * alpha.unsqueeze(-2),
        "0.up": point.w1[..., None, None] * up,
        "0.down": point.w2[..., None, None] * up.mT,
        "0.value": point.v[..., None, None] * inner,
        "0.out": point.o[..., None, None] * inner.mT,
        "unembedding": point.c[..., None] * alpha,
        "bias": point.b,
    }
    square, total = torch.zeros_like(point.b), torch.zeros_like(point.b)
    for name, weight in parts.items():
        axes = tuple(range(point.b.ndim, weight.ndim))
        off = weight - nearest[name] if name in nearest else weight
        square = square + (off.square().sum(axes) if axes else off.square())
        total = total + (weight.square().sum(axes) if axes else weight.square())
    return square.sqrt(), total.sqrt()


def _binary_parts(arch: Architecture, weights: Weights) -> Weights:
    """Weights of the binary-logit model with the same predictions (k = 2)."""
    if arch.output == "binary":
        return dict(weights)
    parts = dict(weights)
    embedding = parts["embedding"]
    parts["embedding"] = embedding[..., 1, :] - embedding[..., 0, :]
    start = embedding[..., 0, :].unsqueeze(-2)
    like = embedding.new_zeros(*embedding.shape[:-2], arch.length, arch.d)
    parts["positions"] = parts.get("positions", like) + start
    if "unembedding" in parts:
        parts["unembedding"] = parts["unembedding"][..., 1, :] - parts["unembedding"][..., 0, :]
    parts["bias"] = parts["bias"][..., 1] - parts["bias"][..., 0]
    return parts


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _leading(rows: Tensor) -> Tensor:
    """The unit vector (..., d) of largest Σ⟨row, ·⟩² over the rows (..., k, d)."""
    return torch.linalg.eigh(rows.mT @ rows).eigenvectors[..., -1]
