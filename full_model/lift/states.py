"""Full weights on the plane of S states, which gradient descent never leaves, and back to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.lift.lifting import check_carries
from full_model.lift.projection import distance_from
from full_model.model.architecture import Architecture, Weights


def lift_states(theta: Tensor, arch: Architecture) -> Weights:
    """Full weights at points (e, w) or (e, w, v) of ``states``, or (e, w, v, α) of ``memory``.

    With unit vectors v_s of sum zero (``simplex``) and s(t) the state that a hidden unit belongs
    to, e ≥ 0: embeddings e v_s, rows of W_1 |w| v_{s(t)}, columns of W_2 w v_{s(t)}; for e < 0 both
    are multiplied by −1, so that a unit opens at its own state. With P the projector onto the
    simplex's span, W_V = |v| P and W_O = v P. A state-space layer has α in each of S − 1 channels,
    and P's columns or rows are cut to the channels. Positions, bias and all other weights are zero.

    Args:
        theta: shape (..., 2, 3 or 4); the leading axes become the ensemble.
        arch: one tied layer and head without layer norm or window, ReLU, S logits, d ≥ S − 1,
            positions learned or none, r a multiple of S: m = r/S units for each state.

    Raises:
        InputError: another architecture, v without attention, α without a state-space layer of at
            least S − 1 channels or the other way round, or numbers that are not finite.

    Source: own derivation, docs/derivations/13.md, 20.md and 21.md.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=2, length=4, hidden=12, states=3, output="states")
    >>> full_model.lift_states(torch.tensor([1.0, 0.5]), arch)["embedding"].numpy().round(3)
    array([[ 0.866,  0.5  ],
           [-0.866,  0.5  ],
           [ 0.   , -1.   ]], dtype=float32)
    """
    _check_architecture(arch)
    if theta.shape[-1:] not in ((2,), (3,), (4,)) or not bool(theta.isfinite().all()):
        raise InputError("points to be lifted need shape (..., 2 to 4) = (e, w, v, α), all finite")
    if (theta.shape[-1] == 4) != (arch.attention == "ssm"):
        raise InputError("points (e, w, v, α) are lifted to a state-space layer, and only they")
    if arch.attention == "ssm" and arch.states_kept < arch.states - 1:
        raise InputError(f"{arch.states} states need {arch.states - 1} channels or more")
    if theta.shape[-1] == 3 and arch.attention == "none":
        raise InputError("points (e, w, v) are lifted to a transformer with attention")
    corners = simplex(arch.states, arch.d).to(theta)
    units = corners.repeat_interleave(arch.width // arch.states, dim=0)
    e, w = theta[..., 0, None, None], theta[..., 1, None, None]
    side = torch.where(e < 0, -1.0, 1.0).to(theta)
    filled = {
        "embedding": e * corners,
        "0.up": side * w.abs() * units,
        "0.down": side * w * units.mT,
    }
    if theta.shape[-1] > 2:
        v, onto = theta[..., 2, None, None], (arch.states - 1) / arch.states * corners.mT @ corners
        m = arch.states_kept
        into = torch.nn.functional.pad(onto, (0, 0, 0, m - arch.d))  # cuts rows where m < d
        filled |= {"0.value": v.abs() * into, "0.out": v * into.mT}
    if theta.shape[-1] == 4:
        used = (torch.arange(arch.states_kept) < arch.states - 1).to(theta)
        filled["0.decay"] = theta[..., 3, None] * used
    zeros = {
        name: theta.new_zeros(*theta.shape[:-1], *shape) for name, shape in arch.shapes.items()
    }
    return {name: filled.get(name, zero).clone() for name, zero in zeros.items()}


@dataclass(frozen=True)
class StatesProjection:
    """The point of the plane nearest to some weights, and how far it is."""

    canonical: Tensor  # (..., 2), (e, w): w = sign(w₁w₂) √|w₁w₂|, e with its sign in the frame
    gain: Tensor  # (...), 1 + m w₁w₂
    relative_distance: Tensor  # (...), Euclidean over all weights, over their norm


def project_states(arch: Architecture, weights: Weights, turns: int = 0) -> StatesProjection:
    """Find the nearest point (e, w₁, w₂) of the plane to weights (..., *shape) from anywhere.

    For a given frame, the unit vectors v_s, the nearest coordinates are inner products; for given
    coordinates the nearest frame is a polar factor, taken ``turns`` times from that of
    ``lift_states``.
    """
    _check_architecture(arch)
    m = arch.width // arch.states
    e_rows, up = weights["embedding"], weights["0.up"]
    down = weights["0.down"].mT
    by_state = [part.unflatten(-2, (arch.states, m)).sum(-2) for part in (up, down)]
    plain = simplex(arch.states, arch.d).to(e_rows)
    frame = plain.expand_as(e_rows)
    for turn in range(turns + 1):
        e = (e_rows * frame).sum((-2, -1)) / arch.states
        w1, w2 = ((part * frame).sum((-2, -1)) / arch.width for part in by_state)
        if turn < turns:
            drawn = [
                x[..., None, None] * part
                for x, part in zip((e, w1, w2), (e_rows, *by_state), strict=True)
            ]
            left, _, right = torch.linalg.svd(plain.mT @ sum(drawn))
            frame = plain @ left @ right
    units = frame.repeat_interleave(m, dim=-2)
    nearest = {
        "embedding": e[..., None, None] * frame,
        "0.up": w1[..., None, None] * units,
        "0.down": w2[..., None, None] * units.mT,
    }
    product = w1 * w2
    canonical = torch.stack([e, product.sign() * product.abs().sqrt()], dim=-1)
    return StatesProjection(canonical, 1 + m * product, distance_from(nearest, weights, e.ndim)[1])


def simplex(states: int, d: int) -> Tensor:
    """S unit vectors with sum zero, (S, d), by Helmert's matrix in the first S − 1 dimensions."""
    if d < states - 1:
        raise InputError(f"{states} states need d of at least {states - 1}, not {d}")
    corners = torch.zeros(states, d, dtype=torch.float64)
    for k in range(1, states):
        scale = (states / ((states - 1) * k * (k + 1))) ** 0.5
        corners[:k, k - 1] = scale
        corners[k, k - 1] = -k * scale
    return corners


def _check_architecture(arch: Architecture) -> None:
    """InputError unless the architecture can carry points of the plane, see ``lift_states``."""
    check_carries(arch, "the plane of S states lifts", output="states", tied=True)
    if arch.has_relative:
        raise InputError("the plane of S states has no relative positions")
    if arch.width % arch.states:
        raise InputError(f"hidden must be a multiple of the {arch.states} states, not {arch.width}")
