"""Architecture of a transformer: sizes and choices, and the names and shapes of its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.errors import InputError, require_integer

Weights = dict[str, Tensor]

_LEAST = {
    "d": 1, "length": 1, "layers": 1, "heads": 1, "hidden": 0, "states": 2, "window": 1,
    "channels": 1, "convolution": 1,
}  # fmt: skip
_OPTIONAL = ("hidden", "window", "channels", "convolution")
_CHOICES = {
    "output": ("binary", "states"),
    "attention": ("softmax", "uniform", "none", "ssm", "selective"),
    "activation": ("relu", "gelu"),
    "positions": ("learned", "relative", "relative-values", "none"),
    "norm_at": ("inputs", "hidden"),
    "decay": (None, "signed", "positive"),
    "channel_activation": (None, "relu"),
}


@dataclass(frozen=True)
class Architecture:
    """Sizes and choices of a transformer, validated.

    Args:
        d: embedding dimension, at least 1 and divisible by ``heads``.
        length: context length N, at least 1; shorter sequences are accepted too.
        layers: number of blocks, at least 1.
        heads: attention heads, at least 1.
        hidden: feed-forward width r; 4d if None, and 0 for attention alone.
        states: number of symbols k, at least 2.
        output: "binary" (one logit of x = 1, embedding x·e) or "states" (k logits).
        tied: the last linear map reads with the embedding, u = e.
        attention: "softmax"; "uniform" (W_Q = W_K = 0 for good); "none" (no attention weights);
            or in its place "ssm", a diagonal linear recurrence (a state-space layer), or
            "selective", a recurrence whose decay depends on the symbol.
        activation: "relu", or "gelu" (exact, by the error function).
        positions: "learned" vectors p_n; "relative", a learned number per head and distance added
            to the attention scores; "relative-values", the same with a learned vector per distance
            added to the values; or "none".
        layer_norm: use layer norms; scale, no shift.
        norm_at: "inputs", what each sub-layer and the last linear map read; or "hidden", what the
            hidden units receive, W_1 y.
        window: how many symbols, its own included, a position attends to; all if None.
        channels: m of "ssm", d if None; 2d − 1 give it 4d² − 1 numbers, softmax attention has 4d².
        decay: of "ssm", how its numbers α become decays: "signed", a = tanh α in (−1, 1), the
            default; or "positive", a = σ(α) in (0, 1).
        convolution: w, of a causal convolution over the last w positions, behind W_V and, of
            softmax attention, behind W_Q and W_K; none if None.
        channel_activation: of "ssm" and "selective", "relu" behind W_V and the convolution, and
            behind W_Q and W_K; none if None.
        gated: of "ssm" and "selective", what W_O reads is multiplied by silu(W_G x).

    Raises:
        InputError: a size or choice outside the above, or an inconsistent pair of them.

    Source: AM Sec. 2 and App. A; the convolution and the gate of arXiv 2502.10178. The relative
    positions are our own choice among several in use; the layer norm "inputs" stands where AM's
    public code has it, "hidden" where the three-layer construction of arXiv 2407.17686 needs it.

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
    channels: int | None = None
    decay: str | None = None
    convolution: int | None = None
    channel_activation: str | None = None
    gated: bool = False

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                require_integer(name, value, least)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                words = ", ".join(choice for choice in choices if choice)
                raise InputError(f"{name} must be one of {words}, not {getattr(self, name)!r}")
        for name in ("tied", "layer_norm", "gated"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if self.d % self.heads:
            raise InputError(f"d must be a multiple of heads, and {self.d} is none of {self.heads}")
        if self.output == "binary" and self.states != 2:
            raise InputError(f"a binary logit needs states = 2, not {self.states}")
        if not self.width and self.attention == "none":
            raise InputError("a model without attention needs hidden units, not hidden = 0")
        if self.attention == "ssm":
            if self.heads != 1 or self.window is not None:
                raise InputError("a state-space layer has neither heads nor a window")
            object.__setattr__(self, "decay", self.decay or "signed")
        elif (self.channels, self.decay) != (None, None):
            raise InputError("channels and their decay are of a state-space layer")
        elif self.attention == "selective" and (self.heads != 1 or self.window is not None):
            raise InputError("a selective recurrence has neither heads nor a window")
        elif self.attention != "selective" and (self.channel_activation or self.gated):
            raise InputError("an activation and a gate of channels are of a state-space layer")
        if self.attention == "none" and self.convolution is not None:
            raise InputError("a convolution stands before attention or a recurrence, and is none")
        if self.has_relative and self.attention != "softmax":
            raise InputError(f"relative positions need softmax attention, not {self.attention}")

    @property
    def width(self) -> int:
        """r, the feed-forward width."""
        return 4 * self.d if self.hidden is None else self.hidden

    @property
    def states_kept(self) -> int:
        """m, the channels of a state-space layer; d of attention."""
        return self.channels or self.d

    @property
    def is_recurrent(self) -> bool:
        """Return whether a recurrence stands in place of attention."""
        return self.attention in ("ssm", "selective")

    @property
    def logits(self) -> int:
        """1 of a binary logit, else k."""
        return 1 if self.output == "binary" else self.states

    @property
    def has_relative(self) -> bool:
        """Return whether attention scores depend on distances."""
        return self.positions in ("relative", "relative-values")

    @property
    def plain_softmax(self) -> bool:
        """Return whether it is one ReLU layer with one softmax head and learned positions."""
        return (
            (self.layers, self.heads) == (1, 1)
            and (self.attention, self.activation) == ("softmax", "relu")
            and self.positions == "learned"
            and not self.layer_norm
            and self.window is None
            and self.convolution is None
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
            if self.attention in ("softmax", "selective"):
                block |= {"query": (d, d), "key": (d, d)}
            m = self.states_kept
            if self.attention != "none":
                block |= {"value": (m, d), "out": (d, m)}
            if self.attention == "ssm":
                block["decay"] = (m,)
            if self.attention == "selective":
                block |= {"gate": (d,), "decay": (1,)}
            if self.gated:
                block["output_gate"] = (m, d)
            if self.convolution is not None:
                convolved = [name for name in ("query", "key", "value") if name in block]
                block |= {f"{name}_taps": (self.convolution, m) for name in convolved}
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
    """Return the weights (M, *shape) as rows (M, K), a model each, in the order of ``shapes``."""
    return torch.cat([weights[name].reshape(len(weights[name]), -1) for name in shapes], dim=1)


def unflatten(shapes: Mapping[str, tuple[int, ...]], rows: Tensor) -> Weights:
    """Return the weights by name, views (M, *shape) of rows (M, K): the inverse of ``flatten``."""
    parts = rows.split([math.prod(shape) for shape in shapes.values()], dim=1)
    pairs = zip(shapes.items(), parts, strict=True)
    return {name: part.reshape(-1, *shape) for (name, shape), part in pairs}


def check_weights(arch: Architecture, weights: Weights) -> tuple[int, ...]:
    """Return the sizes of the ensemble axes, () without; InputError for weights that do not fit."""
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
