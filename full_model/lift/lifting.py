"""Full weights at reduced points; the way back is projection.py."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import torch
from torch import Tensor
from torch.linalg import vector_norm

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.rank_one.model import RankOneModel
from flowsim.models.rank_one.point import RankOnePoint
from full_model.model.architecture import Architecture, Weights


def lift_canonical(
    theta: Tensor,
    arch: Architecture,
    bias: Tensor | float = 0.0,
    alpha: Tensor | None = None,
) -> Weights:
    """Full weights of canonical points (e, w) or (e, w, a); see ``RankOnePoint.from_canonical``.

    Args:
        theta: (..., 2) or (..., 3); the leading axes become the ensemble.
        arch: one layer, one head, binary logit (see ``lift_rank_one``).
        bias: b, broadcastable to (...); a reduced model's ``optimal_bias(theta)`` for instance.
        alpha: see ``lift_rank_one``.

    Raises:
        InputError: as ``RankOnePoint.from_canonical`` and ``lift_rank_one``.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=4, length=3)
    >>> weights = full_model.lift_canonical(torch.tensor([1.0, -0.5]), arch)
    >>> weights["embedding"], weights["positions"][0]
    (tensor([0.5000, 0.5000, 0.5000, 0.5000]), tensor([-0.2500, -0.2500, -0.2500, -0.2500]))
    """
    point = RankOnePoint.from_canonical(theta, arch.length, bias)
    return lift_rank_one(point, arch, alpha)


def lift_held(
    theta: Tensor,
    arch: Architecture,
    chain: BinaryChain,
    unembedding: float | None = None,
    bias: float | None = None,
) -> Weights:
    """Full weights of canonical points (e, w) or (e, w, a) with the best bias on a chain.

    Args:
        theta: (n, 2), or (n, 3) with attention, float64.
        arch: see ``lift_rank_one``.
        chain: the data, for which the bias is best unless given.
        unembedding: c of an untied transformer; e unless given.
        bias: b.

    Raises:
        InputError: as ``lift_rank_one``.

    >>> import flowsim, full_model, torch
    >>> arch, chain = full_model.Architecture(d=4, length=3), flowsim.BinaryChain(0.5, 0.8)
    >>> theta = torch.tensor([[1.0, -1.2]], dtype=torch.float64)
    >>> full_model.lift_held(theta, arch, chain)["bias"].numpy().round(4)
    array([0.63])
    """
    model = RankOneModel(chain, arch.length, attention=theta.shape[-1] == 3, tied=arch.tied)
    lifted = model.from_canonical(theta)
    if unembedding is not None:
        lifted[:, -1] = unembedding
    best = model.optimal_bias(lifted)
    held = best if bias is None else torch.full_like(best, bias)
    return lift_rank_one(replace(model.point(lifted), b=held), arch)


def lift_rank_one(
    point: RankOnePoint,
    arch: Architecture,
    alpha: Tensor | None = None,
    hidden_signs: Tensor | None = None,
    beta: Tensor | None = None,
) -> Weights:
    """Compute the full weights (..., *shape) at rank-one coordinates.

    Args:
        point: coordinates with any leading axes, which become the ensemble.
        arch: one layer, one head, binary logit, learned positions, ReLU, no layer norm.
        alpha: unit vector (d,) or (..., d); all entries 1/√d if None.
        hidden_signs: η, ±1 of shape (r,) or (..., r); all +1 if None.
        beta: unit vector (d,) or (..., d); equal to α if None.

    Raises:
        InputError: another architecture; c ≠ ε where tied; o v ≠ 0 without attention; a vector that
            is not of unit length; a sign that is not ±1; a number that is not finite.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=4, length=3)
    >>> point = full_model.RankOnePoint.from_canonical(torch.tensor([1.0, -0.5]), length=3)
    >>> float(full_model.lift_rank_one(point, arch)["0.up"].abs().max())
    0.125
    """
    check_carries(arch, "reduced points lift", output="binary", positions="learned")
    if arch.is_recurrent:
        raise InputError("these reduced points have no memory: lift (e, w, v, α) by lift_states")
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
    alpha = unit_vector(alpha, d, like, "alpha")
    beta = alpha if beta is None else unit_vector(beta, d, like, "beta")
    eta = like.new_ones(r) if hidden_signs is None else hidden_signs.to(like)
    if eta.shape[-1] != r or (eta.abs() != 1).any():
        raise InputError(f"hidden_signs must hold {r} entries of ±1")

    weights = rank_one_weights(point, alpha, beta, eta)
    for name in ("0.query", "0.key"):
        weights[name] = like.new_zeros(*like.shape, d, d)
    return {
        name: weights[name].clone(memory_format=torch.contiguous_format) for name in arch.shapes
    }


def unit_vector(vector: Tensor | None, d: int, like: Tensor, argument: str) -> Tensor:
    """Return the vector in the number type of ``like``, (1 … 1)/√d if None.

    InputError unless it is a unit vector, (..., d).
    """
    if vector is None:
        return like.new_full((d,), 1 / math.sqrt(d))
    vector = vector.to(like)
    if vector.shape[-1:] != (d,) or ((vector_norm(vector, dim=-1) - 1).abs() > 1e-6).any():
        raise InputError(f"{argument} must be a unit vector of {d} entries")
    return vector


def rank_one_weights(point: RankOnePoint, alpha: Tensor, beta: Tensor, eta: Tensor) -> Weights:
    """Compute the rank-one weights of a point by name, (..., *shape), all but queries and keys."""

    def scaled(number: Tensor, tensor: Tensor) -> Tensor:
        """Multiply each model's tensor by its number (...)."""
        return number.reshape(*number.shape, *[1] * (tensor.ndim - number.ndim)) * tensor

    vector = alpha.expand(*point.eps.shape, alpha.shape[-1])
    up = eta.unsqueeze(-1) * vector.unsqueeze(-2) / math.sqrt(alpha.shape[-1])
    inner = beta.unsqueeze(-1) * vector.unsqueeze(-2)
    return {
        "embedding": scaled(point.eps, vector),
        "positions": point.rho.unsqueeze(-1) * vector.unsqueeze(-2),
        "0.up": scaled(point.w1, up),
        "0.down": scaled(point.w2, up.mT),
        "0.value": scaled(point.v, inner),
        "0.out": scaled(point.o, inner.mT),
        "unembedding": scaled(point.c, vector),
        "bias": point.b,
    }


def check_carries(arch: Architecture, what: str, **wanted: object) -> None:
    """InputError unless it is one ReLU layer and head that also has what else is wanted."""
    plain = {"layers": 1, "heads": 1, "activation": "relu", "layer_norm": False, "window": None,
             "convolution": None, "channel_activation": None, "gated": False}  # fmt: skip
    for name, value in (plain | wanted).items():
        if getattr(arch, name) != value:
            raise InputError(f"{what} to a model with {name} = {value}, not {getattr(arch, name)}")
    if not arch.width:
        raise InputError(f"{what} to a model with hidden units, not hidden = 0")
