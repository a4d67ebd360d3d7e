"""The transformer of the papers as one function of a dictionary of weights.

One layer, one head, no layer norm, embedding tied to the last linear map is the model the theorems
speak of; depth, heads, states, layer norm, activation, positions and attention window are settings.

Every weight may carry leading ensemble axes, written (...): then one call computes many models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, logsigmoid, one_hot

from flowsim.errors import InputError

Weights = dict[str, Tensor]

_CHOICES = {
    "output": ("binary", "states"),
    "attention": ("softmax", "uniform", "none"),
    "activation": ("relu", "gelu"),
    "positions": ("learned", "relative", "none"),
}
_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Architecture:
    """What is built: sizes and choices, validated.

    Args:
        d: embedding dimension, at least 1 and divisible by ``heads``.
        length: context length N, at least 1; shorter sequences are accepted too.
        layers: number of blocks, at least 1.
        heads: attention heads, at least 1.
        hidden: feed-forward width r, at least 1; 4d if None.
        states: number of symbols k, at least 2.
        output: "binary" (one logit of x = 1, embedding x·e) or "states" (k logits).
        tied: the last linear map reads with the embedding, u = e.
        attention: "softmax"; "uniform" (W_Q = W_K = 0 for good); "none" (no attention weights).
        activation: "relu", or "gelu" (exact, by the error function).
        positions: "learned" vectors p_n; "relative", a learned number per head and distance added
            to the attention scores; or "none".
        layer_norm: normalise what each sub-layer and the last linear map read; scale, no shift.
        window: how many symbols, its own included, a position attends to; all if None.

    Raises:
        InputError: a size or choice outside the above, or an inconsistent pair of them.

    Source: AM Sec. 2 and App. A. The relative positions are our own choice among several in use;
    the layer norm stands where the authors' public code has it.
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

    def __post_init__(self) -> None:
        sizes = {
            "d": 1,
            "length": 1,
            "layers": 1,
            "heads": 1,
            "hidden": 1,
            "states": 2,
            "window": 1,
        }
        for name, least in sizes.items():
            value = getattr(self, name)
            if value is None and name in ("hidden", "window"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be an integer of at least {least}, not {value!r}")
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
        if self.positions == "relative" and self.attention != "softmax":
            raise InputError(f"relative positions need softmax attention, not {self.attention}")

    @property
    def width(self) -> int:
        """r, the feed-forward width."""
        return 4 * self.d if self.hidden is None else self.hidden

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight of one model, in a fixed order."""
        d, binary = self.d, self.output == "binary"
        shapes: dict[str, tuple[int, ...]] = {"embedding": (d,) if binary else (self.states, d)}
        if self.positions == "learned":
            shapes["positions"] = (self.length, d)
        for layer in range(self.layers):
            block: dict[str, tuple[int, ...]] = {}
            if self.attention == "softmax":
                block |= {"query": (d, d), "key": (d, d)}
            if self.attention != "none":
                block |= {"value": (d, d), "out": (d, d)}
            block |= {"up": (self.width, d), "down": (d, self.width)}
            if self.positions == "relative":
                block["relative"] = (self.heads, self.length)
            if self.layer_norm:
                block |= {"norm1": (d,), "norm2": (d,)}
            shapes |= {f"{layer}.{name}": shape for name, shape in block.items()}
        if self.layer_norm:
            shapes["norm"] = (d,)
        if not self.tied:
            shapes["unembedding"] = shapes["embedding"]
        shapes["bias"] = () if binary else (self.states,)
        return shapes


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


def forward(
    arch: Architecture,
    weights: Weights,
    tokens: Tensor,
    trace: dict[str, Tensor] | None = None,
) -> Tensor:
    """Logits of the next symbol at every position.

        x_n = x_n e + p_n,   y_n = x_n + W_O Σ_{i≤n} att_{n,i} W_V x_i,
        z_n = y_n + W_2 φ(W_1 y_n),   logit_n = ⟨u, z_n⟩ + b,

    att_{n,·} the softmax of ⟨W_Q x_n, W_K x_i⟩/√m over the visible i, m = d/heads; z of one layer
    is x of the next. With k logits x_n e becomes the row e_{x_n} and the last line reads every row.

    Args:
        arch: the architecture.
        weights: one tensor per name of ``arch.shapes``, of shape (..., *shape).
        tokens: integers in [0, states), shape (batch, n) or (..., batch, n) with n ≤ N.
        trace: if given, filled with "<layer>.attention" (W_O Σ…) and "<layer>.y", both of shape
            (..., batch, n, d).

    Returns:
        (..., batch, n), with a last axis of k where ``output`` is "states".

    Source: AM Sec. 2, App. A.
    """
    n = tokens.shape[-1]
    if n > arch.length:
        raise InputError(f"sequences of {n} symbols do not fit a context of {arch.length}")
    embedding = weights["embedding"]
    if arch.output == "binary":
        x = tokens.to(embedding.dtype).unsqueeze(-1) * embedding[..., None, None, :]
    else:
        x = one_hot(tokens.long(), arch.states).to(embedding.dtype) @ embedding.unsqueeze(-3)
    if arch.positions == "learned":
        x = x + weights["positions"][..., None, :n, :]
    for layer in range(arch.layers):
        block = {name: weights.get(f"{layer}.{name}") for name in _BLOCK}
        y = x
        if arch.attention != "none":
            attended = _attention(arch, block, _norm(x, block["norm1"]))
            y = x + attended
            if trace is not None:
                trace[f"{layer}.attention"] = attended
        if trace is not None:
            trace[f"{layer}.y"] = y
        hidden = _linear(_norm(y, block["norm2"]), block["up"])
        hidden = hidden.relu() if arch.activation == "relu" else gelu(hidden)
        x = y + _linear(hidden, block["down"])
    x = _norm(x, weights.get("norm"))
    reader = embedding if arch.tied else weights["unembedding"]
    if arch.output == "binary":
        return _linear(x, reader.unsqueeze(-2)).squeeze(-1) + weights["bias"][..., None, None]
    return _linear(x, reader) + weights["bias"][..., None, None, :]


_BLOCK = ("query", "key", "value", "out", "up", "down", "relative", "norm1", "norm2")


def _linear(x: Tensor, matrix: Tensor | None) -> Tensor:
    """M x for x of shape (..., batch, n, in) and M of shape (..., out, in)."""
    assert matrix is not None
    return (x.flatten(-3, -2) @ matrix.mT).unflatten(-2, x.shape[-3:-1])


def _norm(x: Tensor, scale: Tensor | None) -> Tensor:
    """Layer norm over the last axis with a scale of shape (..., d); x itself without one."""
    if scale is None:
        return x
    x = x - x.mean(-1, keepdim=True)
    x = x * (x.square().mean(-1, keepdim=True) + _NORM_EPSILON).rsqrt()
    return x * scale[..., None, None, :]


def _attention(arch: Architecture, block: dict[str, Tensor | None], x: Tensor) -> Tensor:
    """W_O Σ_i att_{n,i} W_V x_i for x of shape (..., batch, n, d)."""
    n = x.shape[-2]
    visible = visible_positions(n, arch.window, x.device)
    if arch.attention == "uniform":
        mean = visible.to(x.dtype) / visible.sum(-1, keepdim=True)
        return _linear(_linear(mean @ x, block["value"]), block["out"])
    query, key, value = (  # (..., batch, heads, n, m)
        _linear(x, block[name]).unflatten(-1, (arch.heads, -1)).transpose(-3, -2)
        for name in ("query", "key", "value")
    )
    scores = query @ key.mT / math.sqrt(arch.d // arch.heads)
    if (relative := block["relative"]) is not None:
        place = torch.arange(n, device=x.device)
        distance = (place[:, None] - place).clamp(min=0)
        scores = scores + relative[..., distance].unsqueeze(-4)
    attention = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return _linear((attention @ value).transpose(-3, -2).flatten(-2), block["out"])


def visible_positions(n: int, window: int | None, device: torch.device) -> Tensor:
    """Boolean (n, n): may position n look at position i — i ≤ n, and n − i < window."""
    visible = torch.ones(n, n, dtype=torch.bool, device=device).tril()
    return visible if window is None else visible.triu(1 - window)


def cross_entropy(arch: Architecture, logits: Tensor, targets: Tensor) -> Tensor:
    """Next-symbol cross-entropy in nats at every position, shape (..., batch, n).

    Args:
        arch: the architecture.
        logits: what ``forward`` returned.
        targets: binary logit: the probability (or the bit) that the next symbol is one, any shape
            that broadcasts to the logits; k logits: the next symbols (batch, n) or (..., batch, n),
            or their probabilities with a last axis of k (floating point).

    Source: AM Sec. 2.
    """
    if arch.output == "binary":
        one = targets.to(logits.dtype)
        return -one * logsigmoid(logits) - (1 - one) * logsigmoid(-logits)
    if not targets.is_floating_point():
        targets = one_hot(targets.long(), arch.states)
    return -(targets.to(logits.dtype) * logits.log_softmax(-1)).sum(-1)


def probability_of_one(arch: Architecture, logits: Tensor) -> Tensor:
    """Predicted P(next symbol = 1), shape (..., batch, n)."""
    if arch.output == "binary":
        return logits.sigmoid()
    return logits.softmax(-1)[..., 1]
