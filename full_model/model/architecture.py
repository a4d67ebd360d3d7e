"""What a transformer is built of: sizes and choices, and the names and shapes of its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.errors import InputError, require_integer

Weights = dict[str, Tensor]

_LEAST = {"d": 1, "length": 1, "layers": 1, "heads": 1, "hidden": 0, "states": 2, "window": 1}
_CHOICES = {
    "output": ("binary", "states"),
    "attention": ("softmax", "uniform", "none"),
    "activation": ("relu", "gelu"),
    "positions": ("learned", "relative", "relative-values", "none"),
    "norm_at": ("inputs", "hidden"),
}


@dataclass(frozen=True)
class Architecture:
    """What is built: sizes and choices, validated.

    Args:
        d: embedding dimension, at least 1 and divisible by ``heads``.
        length: context length N, at least 1; shorter sequences are accepted too.
        layers: number of blocks, at least 1.
        heads: attention heads, at least 1.
        hidden: feed-forward width r; 4d if None, and 0 for attention alone.
        states: number of symbols k, at least 2.
        output: "binary" (one logit of x = 1, embedding x·e) or "states" (k logits).
        tied: the last linear map reads with the embedding, u = e.
        attention: "softmax"; "uniform" (W_Q = W_K = 0 for good); "none" (no attention weights).
        activation: "relu", or "gelu" (exact, by the error function).
        positions: "learned" vectors p_n; "relative", a learned number per head and distance added
            to the attention scores; "relative-values", the same with a learned vector per distance
            added to the values; or "none".
        layer_norm: use layer norms; scale, no shift.
        norm_at: "inputs", what each sub-layer and the last linear map read; or "hidden", what the
            hidden units receive, W_1 y.
        window: how many symbols, its own included, a position attends to; all if None.

    Raises:
        InputError: a size or choice outside the above, or an inconsistent pair of them.

    Source: AM Sec. 2 and App. A. The relative positions are our own choice among several in use;
    the layer norm "inputs" stands where AM's public code has it, "hidden" where the three-layer
    construction of arXiv 2407.17686 needs it.

    >>> import full_model
    >>> arch = full_model.Architecture(d=4, length=8)
    >>> arch.shapes["0.up"], arch.shapes["positions"]
    ((16, 4), (8, 4))
    """

    d: int
    length: int
    layers: int = 1
    heads: int = 1
    hidden: int | None = None
    states: int = 2
    output: str = "binary"
    tied: bool = True
    attention: str = "softmax"
    activation: str = "relu"
    positions: str = "learned"
    layer_norm: bool = False
    window: int | None = None
    norm_at: str = "inputs"

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in ("hidden", "window"):
                require_integer(name, value, least)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}"
                )
        for name in ("tied", "layer_norm"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if self.d % self.heads:
            raise InputError(f"d must be a multiple of heads, and {self.d} is none of {self.heads}")
        if self.output == "binary" and self.states != 2:
            raise InputError(f"a binary logit needs states = 2, not {self.states}")
        if not self.width and self.attention == "none":
            raise InputError("a model without attention needs hidden units, not hidden = 0")
        if self.has_relative and self.attention != "softmax":
            raise InputError(f"relative positions need softmax attention, not {self.attention}")

    @property
    def width(self) -> int:
        """r, the feed-forward width."""
        return 4 * self.d if self.hidden is None else self.hidden

    @property
    def logits(self) -> int:
        """1 of a binary logit, else k."""
        return 1 if self.output == "binary" else self.states

    @property
    def has_relative(self) -> bool:
        """Do attention scores depend on distances."""
        return self.positions in ("relative", "relative-values")

    @property
    def plain_softmax(self) -> bool:
        """Is it one ReLU layer with one softmax head and learned positions."""
        return (
            (self.layers, self.heads) == (1, 1)
            and (self.attention, self.activation) == ("softmax", "relu")
            and self.positions == "learned"
            and not self.layer_norm
            and self.window is None
            and self.width > 0
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight of one model, in a fixed order."""
        d, binary = self.d, self.output == "binary"
        inputs = self.layer_norm and self.norm_at == "inputs"
        shapes: dict[str, tuple[int, ...]] = {"embedding": (d,) if binary else (self.states, d)}
        if self.positions == "learned":
            shapes["positions"] = (self.length, d)
        for layer in range(self.layers):
            block: dict[str, tuple[int, ...]] = {}
            if self.attention == "softmax":
                block |= {"query": (d, d), "key": (d, d)}
            if self.attention != "none":
                block |= {"value": (d, d), "out": (d, d)}
            if self.width:
                block |= {"up": (self.width, d), "down": (d, self.width)}
            if self.has_relative:
                block["relative"] = (self.heads, self.length)
            if self.positions == "relative-values":
                block["relative_value"] = (self.length, d)
            if inputs and self.attention != "none":
                block["norm1"] = (d,)
            if self.layer_norm and self.width:
                block["norm2"] = (d if inputs else self.width,)
            shapes |= {f"{layer}.{name}": shape for name, shape in block.items()}
        if inputs:
            shapes["norm"] = (d,)
        if not self.tied:
            shapes["unembedding"] = shapes["embedding"]
        shapes["bias"] = () if binary else (self.states,)
        return shapes


def flatten(shapes: Mapping[str, object], weights: Weights) -> Tensor:
    """Weights (M, *shape) as rows (M, K), in the order of ``shapes``."""
    return torch.cat([weights[name].reshape(len(weights[name]), -1) for name in shapes], dim=1)


def unflatten(shapes: Mapping[str, tuple[int, ...]], rows: Tensor) -> Weights:
    """Views (M, *shape) of rows (M, K) by name."""
    parts = rows.split([math.prod(shape) for shape in shapes.values()], dim=1)
    pairs = zip(shapes.items(), parts, strict=True)
    return {name: part.reshape(-1, *shape) for (name, shape), part in pairs}


def check_weights(arch: Architecture, weights: Weights) -> tuple[int, ...]:
    """The ensemble axes of ``weights``; InputError if a name, shape, type or device is off."""
    if set(weights) != set(arch.shapes):
        odd = sorted(set(weights) ^ set(arch.shapes))
        raise InputError(f"weights missing or not of this architecture: {', '.join(odd)}")
    ensemble = tuple(weights["bias"].shape[: weights["bias"].ndim - len(arch.shapes["bias"])])
    like = weights["bias"]
    for name, shape in arch.shapes.items():
        if tuple(weights[name].shape) != (*ensemble, *shape):
            raise InputError(
                f"weight {name} must have shape {(*ensemble, *shape)}, not "
                f"{tuple(weights[name].shape)}"
            )
        if weights[name].dtype != like.dtype or weights[name].device != like.device:
            raise InputError(f"weight {name} differs from the bias in number type or device")
    return ensemble
