"""Full weights on the plane of S states, which gradient descent never leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.model.architecture import Architecture, Weights


def lift_states(theta: Tensor, arch: Architecture) -> Weights:
    """Full weights at points (e, w) of the model ``states``.

    With unit vectors v_s of sum zero (``simplex``) and s(t) the state that a hidden unit belongs
    to, e ≥ 0: embeddings e v_s, rows of W_1 |w| v_{s(t)}, columns of W_2 w v_{s(t)}; for e < 0 both
    are multiplied by −1, so that a unit opens at its own state. Positions, bias, values and the
    attention's other weights are zero.

    Args:
        theta: (e, w), shape (..., 2); the leading axes become the ensemble.
        arch: one tied layer and head without layer norm or window, ReLU, S logits, d ≥ S − 1,
            positions learned or none, r a multiple of S: m = r/S units for each state.

    Raises:
        InputError: another architecture, or numbers that are not finite.

    Source: own derivation, docs/derivations.md, 13.
    """
    _check_architecture(arch)
    if theta.shape[-1:] != (2,) or not bool(theta.isfinite().all()):
        raise InputError("points to be lifted need shape (..., 2) = (e, w), all finite")
    corners = simplex(arch.states, arch.d).to(theta)
    units = corners.repeat_interleave(arch.width // arch.states, dim=0)
    e, w = theta[..., 0, None, None], theta[..., 1, None, None]
    side = torch.where(e < 0, -1.0, 1.0).to(theta)
    filled = {
        "embedding": e * corners,
        "0.up": side * w.abs() * units,
        "0.down": side * w * units.mT,
    }
    zeros = {
        name: theta.new_zeros(*theta.shape[:-1], *shape) for name, shape in arch.shapes.items()
    }
    return {name: filled.get(name, zero).clone() for name, zero in zeros.items()}


def simplex(states: int, d: int) -> Tensor:
    """S unit vectors with sum zero and inner products −1/(S − 1), shape (S, d), float64.

    The coordinates are those of Helmert's matrix, in the first S − 1 of the d dimensions.
    """
    if d < states - 1:
        raise InputError(f"{states} states need d of at least {states - 1}, not {d}")
    corners = torch.zeros(states, d, dtype=torch.float64)
    for k in range(1, states):
        scale = (states / ((states - 1) * k * (k + 1))) ** 0.5
        corners[:k, k - 1] = scale
        corners[k, k - 1] = -k * scale
    return corners


def _check_architecture(arch: Architecture) -> None:
    wanted = {
        "layers": 1,
        "heads": 1,
        "output": "states",
        "tied": True,
        "activation": "relu",
        "layer_norm": False,
        "window": None,
    }
    for name, value in wanted.items():
        if getattr(arch, name) != value:
            raise InputError(
                f"the plane of S states lifts to {name} = {value}, not {getattr(arch, name)}"
            )
    if arch.has_relative:
        raise InputError("the plane of S states has no relative positions")
    if arch.width % arch.states or not arch.width:
        raise InputError(f"hidden must be a multiple of the {arch.states} states, not {arch.width}")
