"""Between the reduced models and the full weights: lift up, project down, measure the distance.

Unit vectors α (of the embedding space) and β (of the attention's inner space) and signs
η ∈ {±1}^r of the hidden units span the rank-one weights

    e = ε α,  p_n = ρ_n α,  W_1 = (w₁/√d) η αᵀ,  W_2 = (w₂/√d) α ηᵀ,
    W_V = v β αᵀ,  W_O = o α βᵀ,  W_Q = W_K = 0,  b,   untied: u = c α,

whose logits are, with X_i = ε x_i + ρ_i, Y_n = X_n + o v (1/n) Σ_{i≤n} X_i and φ the share of +1
in η,

    logit_n = c [Y_n + (r/d) w₂ (φ ReLU(w₁Y_n) − (1 − φ) ReLU(−w₁Y_n))] + b,   c = ε if tied.

Source: LG (canonical coordinates), AM App. D (signs of the hidden units, there φ = 5/16), the
rank-one coordinates by own derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.linalg import vector_norm

from flowsim.errors import InputError
from full_model.transformer import Architecture, Weights, check_weights


@dataclass(frozen=True)
class RankOnePoint:
    """Coordinates of rank-one weights; every tensor has shape (...), rho has shape (..., N).

    eps is ε, c the unembedding (equal to ε where tied), the rest as in the module's first lines.
    """

    eps: Tensor
    rho: Tensor
    w1: Tensor
    w2: Tensor
    o: Tensor
    v: Tensor
    b: Tensor
    c: Tensor

    def to_canonical(self) -> Tensor:
        """(e, w, a), shape (..., 3): e = ε, w = sign(w₁w₂) √|w₁w₂|, a = o v.

        w₁w₂ = w|w| is all that the logits see of w₁ and w₂ while the sign of w₁ stays that of ε.
        """
        product = self.w1 * self.w2
        return torch.stack([self.eps, product.sign() * product.abs().sqrt(), self.o * self.v], -1)


def canonical_point(theta: Tensor, length: int, bias: Tensor | float = 0.0) -> RankOnePoint:
    """The rank-one coordinates of a canonical point, tied.

    ε = e, ρ_n = −e/2, w₁ = sign(e)|w|, w₂ = sign(e) w and, for a, o = sign(a)√|a|, v = √|a|. The
    sign of e lets the symbol 1 open the ReLU for negative e too.

    Args:
        theta: (..., 2), (e, w), or (..., 3), (e, w, a).
        length: N.
        bias: b, broadcastable to (...).

    Raises:
        InputError: another number of coordinates, or one that is not finite.

    Source: LG (canonical parameters).
    """
    if theta.shape[-1] not in (2, 3):
        raise InputError(f"a canonical point is (e, w) or (e, w, a), not {theta.shape[-1]} numbers")
    e, w = theta[..., 0], theta[..., 1]
    a = theta[..., 2] if theta.shape[-1] == 3 else torch.zeros_like(e)
    opens = torch.where(e < 0, -1.0, 1.0).to(e)
    b = torch.as_tensor(bias, dtype=e.dtype, device=e.device).expand_as(e)
    rho = (-e / 2).unsqueeze(-1).expand(*e.shape, length)
    root = a.abs().sqrt()
    return RankOnePoint(e, rho, opens * w.abs(), opens * w, a.sign() * root, root, b, e)


def lift(
    theta: Tensor,
    arch: Architecture,
    bias: Tensor | float = 0.0,
    alpha: Tensor | None = None,
    hidden_signs: Tensor | None = None,
    beta: Tensor | None = None,
) -> Weights:
    """Full weights of canonical points (e, w) or (e, w, a); see ``canonical_point``.

    Args:
        theta: (..., 2) or (..., 3); the leading axes become the ensemble.
        arch: one layer, one head, binary logit (see ``lift_rank_one``).
        bias: b, broadcastable to (...); a reduced model's ``optimal_bias(theta)`` for instance.
        alpha, hidden_signs, beta: see ``lift_rank_one``.

    Raises:
        InputError: as ``canonical_point`` and ``lift_rank_one``; untied with e = 0 is no exception.
    """
    return lift_rank_one(canonical_point(theta, arch.length, bias), arch, alpha, hidden_signs, beta)


def lift_rank_one(
    point: RankOnePoint,
    arch: Architecture,
    alpha: Tensor | None = None,
    hidden_signs: Tensor | None = None,
    beta: Tensor | None = None,
) -> Weights:
    """Full weights at rank-one coordinates.

    Args:
        point: coordinates with any leading axes, which become the ensemble.
        arch: one layer, one head, binary logit, learned positions, ReLU, no layer norm.
        alpha: unit vector (d,) or (..., d); all entries 1/√d if None.
        hidden_signs: η, ±1 of shape (r,) or (..., r); all +1 if None.
        beta: unit vector (d,) or (..., d); equal to α if None.

    Raises:
        InputError: another architecture; c ≠ ε where tied; o v ≠ 0 without attention; a vector that
            is not of unit length; a sign that is not ±1; a number that is not finite.
    """
    _check_rank_one_architecture(arch)
    for field in fields(point):
        if not torch.isfinite(getattr(point, field.name)).all():
            raise InputError(f"the coordinate {field.name} to be lifted is not finite")
    if arch.tied and (point.c != point.eps).any():
        raise InputError("tied weights have c = ε, and the point to be lifted has not")
    if arch.attention == "none" and ((point.o * point.v) != 0).any():
        raise InputError("a model without attention cannot carry a point with o v ≠ 0")
    if point.rho.shape[-1] != arch.length:
        raise InputError(f"ρ needs {arch.length} positions, not {point.rho.shape[-1]}")
    d, r, like = arch.d, arch.width, point.eps
    alpha = _unit(alpha, d, like, "alpha")
    beta = alpha if beta is None else _unit(beta, d, like, "beta")
    eta = like.new_ones(r) if hidden_signs is None else hidden_signs.to(like)
    if eta.shape[-1] != r or (eta.abs() != 1).any():
        raise InputError(f"hidden_signs must hold {r} entries of ±1")

    def scaled(number: Tensor, tensor: Tensor, axes: int) -> Tensor:
        return number[(..., *[None] * axes)] * tensor

    up = eta.unsqueeze(-1) * alpha.unsqueeze(-2) / math.sqrt(d)
    inner = beta.unsqueeze(-1) * alpha.unsqueeze(-2)
    weights = {
        "embedding": scaled(point.eps, alpha, 1),
        "positions": point.rho.unsqueeze(-1) * alpha.unsqueeze(-2),
        "0.up": scaled(point.w1, up, 2),
        "0.down": scaled(point.w2, up.mT, 2),
        "0.value": scaled(point.v, inner, 2),
        "0.out": scaled(point.o, inner.mT, 2),
        "unembedding": scaled(point.c, alpha, 1),
        "bias": point.b,
    }
    for name in ("0.query", "0.key"):
        weights[name] = like.new_zeros(*like.shape, d, d)
    return {name: weights[name].contiguous().clone() for name in arch.shapes}


def reduced_logits(
    point: RankOnePoint, tokens: Tensor, width_ratio: float = 4.0, open_share: float = 1.0
) -> Tensor:
    """Logits of the rank-one model from its coordinates alone, shape (..., batch, n).

    Args:
        point: coordinates with leading axes (...).
        tokens: zeros and ones, (batch, n) or (..., batch, n).
        width_ratio: r/d.
        open_share: φ, the share of hidden signs that are +1.
    """
    n = tokens.shape[-1]

    def wide(number: Tensor) -> Tensor:
        return number[..., None, None]

    x = wide(point.eps) * tokens + point.rho[..., None, :n]
    count = torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
    y = x + wide(point.o * point.v) * x.cumsum(-1) / count
    up = wide(point.w1) * y
    hidden = open_share * up.relu() - (1 - open_share) * (-up).relu()
    return wide(point.c) * (y + width_ratio * wide(point.w2) * hidden) + wide(point.b)


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
        alpha = _unit(alpha, d, e, "alpha").expand_as(e)
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


def _check_rank_one_architecture(arch: Architecture) -> None:
    wanted = {
        "layers": 1,
        "heads": 1,
        "output": "binary",
        "activation": "relu",
        "positions": "learned",
        "layer_norm": False,
        "window": None,
    }
    for name, value in wanted.items():
        if getattr(arch, name) != value:
            raise InputError(
                f"reduced points lift to a model with {name} = {value}, not {getattr(arch, name)}"
            )


def _unit(vector: Tensor | None, d: int, like: Tensor, name: str) -> Tensor:
    if vector is None:
        return like.new_full((d,), 1 / math.sqrt(d))
    vector = vector.to(like)
    if vector.shape[-1:] != (d,) or ((vector_norm(vector, dim=-1) - 1).abs() > 1e-6).any():
        raise InputError(f"{name} must be a unit vector of {d} entries")
    return vector


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _leading(rows: Tensor) -> Tensor:
    """The unit vector (..., d) of largest Σ⟨row, ·⟩² over the rows (..., k, d)."""
    return torch.linalg.eigh(rows.mT @ rows).eigenvectors[..., -1]
