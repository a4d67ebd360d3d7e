"""The nearest rank-one weights to any weights, and how far off they are.

Signs and, where several fits are equally good, the fit itself follow a convention, so that every
linear-algebra library gives the same numbers:

- α: ε ≥ 0. Where ε is negligible beside the largest of ε, ρ_n, w₁, w₂, c (a share of 1e-12), the
  first of ρ_1 … ρ_N, w₁, w₂, c that is not decides; where all are, the first entry of α that is at
  least half as large as its largest one is positive.
- β: v ≥ 0, see ``RankOnePoint.standard``.
- Equal leading eigenvalues: α is the unit vector of their space nearest to (1 … 1)/√d, β the one
  nearest to α; if that is orthogonal to the space, the nearest to the first coordinate axis that is
  not. Zero weights have α = β = (1 … 1)/√d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm

from flowsim.errors import InputError
from flowsim.models.rank_one.point import NEGLIGIBLE, RankOnePoint
from full_model.lift.lifting import rank_one_weights, unit_vector
from full_model.model.architecture import Architecture, Weights, check_weights

#: Eigenvalues within this share of the largest count as equal to it.
_EQUAL = 1e-9
#: A unit vector with a smaller part than this in a space counts as orthogonal to it.
_ORTHOGONAL = 1e-3


@dataclass(frozen=True)
class Projection:
    """The rank-one point nearest to some weights, and how far it is.

    Attributes:
        point: its coordinates, shapes (...) and (..., N), in the signs of this module's convention.
        canonical: (..., 3), (e, w, a) as ``RankOnePoint.to_canonical``.
        alpha, beta: the fitted unit vectors, (..., d).
        distance: (...), Euclidean over all weights, to the nearest rank-one weights with η = 1.
        relative_distance: (...), that divided by the norm of all weights; 0 for zero weights.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.lift_canonical(torch.tensor([1.0, -0.5], dtype=torch.float64), arch)
    >>> seen = full_model.project(arch, weights)
    >>> seen.canonical.numpy().round(6), bool(seen.distance < 1e-7)
    (array([ 1. , -0.5,  0. ]), True)
    """

    point: RankOnePoint
    canonical: Tensor
    alpha: Tensor
    beta: Tensor
    distance: Tensor
    relative_distance: Tensor


def project(
    arch: Architecture,
    weights: Weights,
    alpha: Tensor | None = None,
    hidden_signs: Tensor | None = None,
    rounds: int = 30,
) -> Projection:
    """Find the nearest point of the rank-one family to weights from anywhere.

    For given (α, β) the nearest coordinates are inner products; the squared length they capture is
    a quadratic form in α for fixed β and in β for fixed α, so the two leading eigenvectors are
    taken in turn, which never loses length (own derivation). Weights with k = 2 logits are read as
    the binary model with the same predictions, e = e₁ − e₀ and p_n + e₀; layers beyond the first,
    queries, keys and layer-norm scales count as distance.

    Args:
        arch, weights: any model with two states; weights of shape (..., *shape).
        alpha: (d,) or (..., d): take this unit vector, with its sign, instead of fitting one.
        hidden_signs: η, as in ``lift_rank_one``.
        rounds: alternations.

    Raises:
        InputError: more than two states, a state-space layer, or weights that do not fit ``arch``.

    >>> import full_model
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0])
    >>> bool(full_model.project(arch, weights).relative_distance > 0.5)
    True
    """
    check_weights(arch, weights)
    if arch.states != 2:
        raise InputError(f"only two states project to (e, w, a), not {arch.states}")
    if arch.is_recurrent:
        raise InputError("a state-space layer has no attention a to project to")
    if not arch.width:
        raise InputError("a model without hidden units has no w to project to")
    parts = {name: w.detach() for name, w in weights.items()}
    if arch.output == "states":  # as the binary logit with the same predictions
        e0, e1 = parts["embedding"].unbind(-2)
        start = e0.new_zeros(*e0.shape[:-1], arch.length, arch.d)
        parts["embedding"] = e1 - e0
        parts["positions"] = parts.get("positions", start) + e0.unsqueeze(-2)
        if "unembedding" in parts:
            parts["unembedding"] = parts["unembedding"].diff(dim=-2).squeeze(-2)
        parts["bias"] = parts["bias"].diff(dim=-1).squeeze(-1)
    e = parts["embedding"]
    eta = e.new_ones(arch.width) if hidden_signs is None else hidden_signs.to(e)
    if alpha is None:
        alpha = _fit_alpha(parts, eta, rounds)
        point = _coordinates(parts, alpha, _fit_beta(parts, alpha), eta, arch)
        numbers = torch.stack([point.w1, point.w2, point.c], dim=-1)
        numbers = torch.cat([point.eps.unsqueeze(-1), point.rho, numbers], dim=-1)
        sign = first_sign(numbers, NEGLIGIBLE, first_sign(alpha, 0.5))  # the module's convention
        alpha = sign.unsqueeze(-1) * alpha
    else:
        alpha = unit_vector(alpha, arch.d, e, "alpha").expand_as(e)
    beta = _fit_beta(parts, alpha)
    raw = _coordinates(parts, alpha, beta, eta, arch)
    point = raw.standard()
    turned = (point.v != raw.v) | (point.o != raw.o)
    beta = torch.where(turned.unsqueeze(-1), -beta, beta)
    nearest = rank_one_weights(point, alpha, beta, eta)
    distance, relative = distance_from(nearest, parts, point.b.ndim)
    return Projection(point, point.to_canonical(), alpha, beta, distance, relative)


def _fit_alpha(parts: Weights, eta: Tensor, rounds: int) -> Tensor:
    """Fit the unit vector α (..., d) of most captured length, up to its sign; ``eta`` is η."""
    e = parts["embedding"]
    unit = eta / math.sqrt(eta.shape[-1])
    rows = [e.unsqueeze(-2), unit.unsqueeze(-2) @ parts["0.up"]]
    rows.append((parts["0.down"] @ unit.unsqueeze(-1)).mT)
    if "positions" in parts:
        rows.append(parts["positions"])
    if "unembedding" in parts:
        rows.append(parts["unembedding"].unsqueeze(-2))
    plain = torch.cat(rows, dim=-2)
    value, out = _attention_matrices(parts)
    start = torch.full_like(e, 1 / math.sqrt(e.shape[-1]))
    alpha = leading_direction(torch.cat([plain, value, out.mT], dim=-2), start)
    for _ in range(rounds):
        beta = _fit_beta(parts, alpha)
        seen = torch.stack([_apply(value.mT, beta), _apply(out, beta)], dim=-2)
        alpha = leading_direction(torch.cat([plain, seen], dim=-2), start)
    return alpha


def _fit_beta(parts: Weights, alpha: Tensor) -> Tensor:
    """Fit the unit vector β (..., d) of most captured length for this α, up to its sign."""
    value, out = _attention_matrices(parts)
    return leading_direction(torch.stack([_apply(value, alpha), _apply(out.mT, alpha)], -2), alpha)


def _attention_matrices(parts: Weights) -> tuple[Tensor, Tensor]:
    """Return W_V and W_O, (..., d, d), zero where the model has none."""
    e = parts["embedding"]
    zero = e.new_zeros(*e.shape, e.shape[-1])
    return parts.get("0.value", zero), parts.get("0.out", zero)


def _coordinates(
    parts: Weights, alpha: Tensor, beta: Tensor, eta: Tensor, arch: Architecture
) -> RankOnePoint:
    """Compute the nearest rank-one coordinates for given α, β and η: inner products."""
    scale = math.sqrt(arch.d) / arch.width
    value, out = _attention_matrices(parts)
    eps = (parts["embedding"] * alpha).sum(-1)
    zero = eps.new_zeros(*eps.shape, arch.length)
    return RankOnePoint(
        eps=eps,
        rho=_apply(parts["positions"], alpha) if "positions" in parts else zero,
        w1=(eta * _apply(parts["0.up"], alpha)).sum(-1) * scale,
        w2=(eta * _apply(parts["0.down"].mT, alpha)).sum(-1) * scale,
        o=(_apply(out, beta) * alpha).sum(-1),
        v=(_apply(value, alpha) * beta).sum(-1),
        b=parts["bias"],
        c=(parts["unembedding"] * alpha).sum(-1) if "unembedding" in parts else eps,
    )


def distance_from(nearest: Weights, weights: Weights, axes: int) -> tuple[Tensor, Tensor]:
    """Return the distance (...) of all weights to ``nearest``, and that over the weights' norm.

    ``nearest`` counts as zero where it has no such weight; ``axes`` is the number of ensemble axes.
    """

    def length(parts: Weights) -> Tensor:
        """The Euclidean norm (...) over all weights of a model."""
        rows = [w.reshape(*w.shape[:axes], -1).square().sum(-1) for w in parts.values()]
        return torch.stack(rows).sum(0).sqrt()

    distance = length({name: w - nearest.get(name, 0.0) for name, w in weights.items()})
    norm = length(weights)
    return distance, distance / norm.clamp(min=torch.finfo(norm.dtype).tiny)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply matrices (..., i, k) by vectors (..., k)."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def leading_direction(rows: Tensor, reference: Tensor) -> Tensor:
    """Find the unit vector (..., d) of largest Σ⟨row, ·⟩² over rows (..., k, d), up to its sign.

    If a space of them is equally good, the one nearest to ``reference`` (..., d), or, if that
    is orthogonal to it, to the first coordinate axis that is not.
    """
    values, vectors = torch.linalg.eigh(rows.mT @ rows)
    best = vectors[..., -1]
    equal = values >= (1 - _EQUAL) * values[..., -1:]
    several = equal.sum(-1) > 1
    if not bool(several.any()):
        return best
    basis = vectors * equal.unsqueeze(-2)
    axes = torch.eye(rows.shape[-1], dtype=rows.dtype, device=rows.device)
    wanted = torch.cat([reference.unsqueeze(-2), axes.expand_as(vectors)], dim=-2)
    nearest = wanted @ basis @ basis.mT
    length = vector_norm(nearest, dim=-1)
    first = (length > _ORTHOGONAL).to(torch.uint8).argmax(-1)[..., None]
    chosen = nearest.gather(-2, first[..., None].expand_as(best.unsqueeze(-2))).squeeze(-2)
    chosen = chosen / length.gather(-1, first).clamp(min=_ORTHOGONAL)
    return torch.where(several.unsqueeze(-1), chosen, best)


def first_sign(numbers: Tensor, share: float, otherwise: Tensor | None = None) -> Tensor:
    """Return the sign (...) of the first of (..., k) numbers above a share of the largest in size.

    It is ``otherwise`` (...), if given, where none does.
    """
    size = numbers.abs()
    counts = size > share * size.amax(-1, keepdim=True)
    first = counts.to(torch.uint8).argmax(-1, keepdim=True)
    sign = torch.where(numbers.gather(-1, first).squeeze(-1) < 0, -1.0, 1.0).to(numbers)
    return sign if otherwise is None else torch.where(counts.any(-1), sign, otherwise)
