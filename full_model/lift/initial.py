"""Initial weights: Gaussian, rank one, LG's recommendation, balanced, or a lifted point."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.lift.lifting import lift_canonical
from full_model.model.architecture import Architecture, Weights

KINDS = ("gaussian", "rank-one", "recommended", "balanced", "lifted")
#: W_2 W_1 of the balanced start along 1/√d, for c = 1, where one half of its units is open.
_BALANCED = -4.0


def initial_weights(
    arch: Architecture,
    kind: str,
    seeds: Sequence[int],
    std: float = 0.02,
    theta: Tensor | None = None,
    bias: Tensor | float = 0.0,
    noise: float = 0.0,
    excess: Tensor | float = 1.0,
    value: float = 1.0,
) -> Weights:
    """Weights of one model per seed, float64 on the CPU; each depends on its own seed alone.

    Args:
        arch: the architecture.
        kind: one of ``KINDS``.

            - "gaussian": every weight N(0, std²), biases 0 and layer-norm scales 1, except W_O and
              W_2, whose deviation is std/√(2·layers) as in GPT-2 and the authors' public code.
            - "rank-one": the canonical point (e, w, a) drawn from N(0, std²), α from {±1}^d/√d.
            - "recommended": Gaussian, and W_1 = c, W_2 = −sign(p + q − 1)·c in every entry and
              layer: the rank-one feed-forward layer with α = 1/√d and |w| = c·d on the side of the
              reduced basin that LG favours. The constant start is what the authors' public code
              does for p + q > 1; the sign for p + q < 1 is our reading of LG.
            - "balanced": Gaussian, and in the first layer W_1 has rows c·s·(1, …, 1) of alternating
              sign, W_2 = −W_1ᵀ, s = √(8/(r d)). Every nonzero multiple of 1/√d opens one half of
              the units, so that the layer adds −4c² times what it reads along 1/√d, and nothing
              across: e = 0 is a saddle on both sides of p + q = 1, and no position is dead (own
              derivation, docs/derivations/17.md).
            - "lifted": ``theta``, with bias ``bias``.
        seeds: one integer per model.
        std: Gaussian deviation, positive. AM Table 2: 0.02. With tied weights and p + q > 1 more
            runs learn from 1/√d, in 16 of 16 also with layer norm, where descent from "balanced"
            and "recommended" learns in none (docs/howto/choose_start.md).
        theta: (M, 2 or 3) or (2 or 3,) canonical points for "lifted".
        bias: b of "lifted", broadcastable to (M,).
        noise: deviation of Gaussian noise added to every weight of any kind, at least 0.
        excess: p + q − 1, broadcastable to (M,), for "recommended".
        value: c of "recommended" and "balanced", positive.

    Raises:
        InputError: unknown kind, no seed, a number out of range, ``theta`` missing or misshaped, or
            an architecture that cannot carry the lift.

    >>> import full_model
    >>> arch = full_model.Architecture(d=4, length=8)
    >>> weights = full_model.initial_weights(arch, "recommended", seeds=[0, 1], excess=0.3)
    >>> tuple(weights["0.up"].shape), float(weights["0.up"].min()), float(weights["0.down"].max())
    ((2, 16, 4), 1.0, -1.0)
    """
    if kind not in KINDS:
        raise InputError(f"init must be one of {', '.join(KINDS)}, not {kind!r}")
    if kind != "gaussian" and not arch.width:
        raise InputError(f"a {kind} start sets hidden units, and hidden is 0")
    if not seeds:
        raise InputError("an initialization needs at least one seed")
    for name, number in (("std", std), ("init value", value)):
        if not (math.isfinite(number) and number > 0):
            raise InputError(f"{name} must be a positive number, not {number!r}")
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"noise must be a number of at least 0, not {noise!r}")
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    if kind == "rank-one":
        draws = torch.stack([normal(g, 3) * std for g in generators])
        signs = torch.stack([normal(g, arch.d) for g in generators])
        alpha = torch.where(signs < 0, -1.0, 1.0).double() / math.sqrt(arch.d)
        draws = draws[:, :2] if arch.attention == "none" else draws
        weights = lift_canonical(draws, arch, alpha=alpha)
    elif kind == "lifted":
        members = len(seeds)
        if theta is None or theta.ndim not in (1, 2) or theta.shape[:-1] not in ((), (members,)):
            shape = None if theta is None else tuple(theta.shape)
            raise InputError(
                f"a lifted start needs one point for each of {members} models: {shape}"
            )
        weights = lift_canonical(theta.double().expand(members, -1), arch, bias)
    else:
        weights = _gaussian(arch, generators, std)
    if kind == "recommended":
        side = -torch.as_tensor(excess, dtype=torch.float64).sign().expand(len(seeds))
        for layer in range(arch.layers):
            up, down = weights[f"{layer}.up"], weights[f"{layer}.down"]
            weights[f"{layer}.up"] = torch.full_like(up, value)
            weights[f"{layer}.down"] = value * side[:, None, None].expand_as(down)
    if kind == "balanced":  # in one layer only: two negative gains would multiply to a positive one
        r = arch.width
        if r % 2:
            raise InputError(f"a balanced start needs an even number of hidden units, not {r}")
        rows = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(r // 2)
        rows *= value * math.sqrt(-2 * _BALANCED / (r * arch.d))
        weights["0.up"] = rows[:, None].expand_as(weights["0.up"])
        weights["0.down"] = (-rows).expand_as(weights["0.down"])
    if noise > 0:
        weights = with_noise(arch, weights, noise, generators)
    return {k: w.clone(memory_format=torch.contiguous_format) for k, w in weights.items()}


def with_noise(
    arch: Architecture, weights: Weights, noise: float, generators: Sequence[torch.Generator]
) -> Weights:
    """Return the weights with N(0, noise²) added to each, by a generator for every model.

    Args:
        arch: the architecture.
        weights: each of shape (models, *shape), or (1, *shape) for all models.
        noise: the deviation.
        generators: one for each model.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.initial_weights(arch, "rank-one", seeds=[0])
    >>> noisy = full_model.with_noise(arch, weights, 0.1, [torch.Generator().manual_seed(1)])
    >>> bool((noisy["embedding"] != weights["embedding"]).all())
    True
    """
    return {
        name: weights[name] + noise * torch.stack([normal(g, *shape) for g in generators])
        for name, shape in arch.shapes.items()
    }


def _gaussian(arch: Architecture, generators: list[torch.Generator], std: float) -> Weights:
    """Draw the weights of the "gaussian" start, (M, *shape), a model from each generator."""
    weights = {}
    for name, shape in arch.shapes.items():
        kind = name.split(".")[-1]
        if kind == "bias":
            weights[name] = torch.zeros(len(generators), *shape, dtype=torch.float64)
        elif kind in ("norm", "norm1", "norm2"):
            weights[name] = torch.ones(len(generators), *shape, dtype=torch.float64)
        else:
            scale = std / math.sqrt(2 * arch.layers) if kind in ("out", "down") else std
            weights[name] = torch.stack([scale * normal(g, *shape) for g in generators])
    return weights


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw from N(0, 1) in that shape, float64."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)
