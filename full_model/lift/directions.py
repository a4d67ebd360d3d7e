"""Unit vectors and signs, chosen by a convention where a linear-algebra library is free."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm

from flowsim.errors import InputError

#: Eigenvalues within this share of the largest count as equal to it.
_EQUAL = 1e-9
#: A unit vector with a smaller part than this in a space counts as orthogonal to it.
_ORTHOGONAL = 1e-3


def unit_vector(vector: Tensor | None, d: int, like: Tensor, name: str) -> Tensor:
    """The vector like ``like``, (1 … 1)/√d if None; InputError if no unit vector (d,)."""
    if vector is None:
        return like.new_full((d,), 1 / math.sqrt(d))
    vector = vector.to(like)
    if vector.shape[-1:] != (d,) or ((vector_norm(vector, dim=-1) - 1).abs() > 1e-6).any():
        raise InputError(f"{name} must be a unit vector of {d} entries")
    return vector


def leading_direction(rows: Tensor, reference: Tensor) -> Tensor:
    """The unit vector (..., d) of largest Σ⟨row, ·⟩² over the rows (..., k, d), up to its sign.

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
    """Sign (...) of the first of (..., k) numbers above a share of the largest; else another."""
    size = numbers.abs()
    counts = size > share * size.amax(-1, keepdim=True)
    first = counts.to(torch.uint8).argmax(-1, keepdim=True)
    sign = torch.where(numbers.gather(-1, first).squeeze(-1) < 0, -1.0, 1.0).to(numbers)
    return sign if otherwise is None else torch.where(counts.any(-1), sign, otherwise)
