"""The transformer of the papers as one function of a dictionary of weights.

One layer, one head, no layer norm, embedding tied to the last linear map is the model the theorems
speak of; depth, heads, states, layer norm, activation, positions and attention window are settings.

Every weight may carry leading ensemble axes, written (...): then one call computes many models.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import (
    gelu,
    logsigmoid,
    one_hot,
    pad,
    scaled_dot_product_attention,
    silu,
)

from flowsim.errors import InputError
from flowsim.models.memory.model import DECAYS
from full_model.model.architecture import Architecture, Weights

_NORM_EPSILON = 1e-5


def forward(
    arch: Architecture, weights: Weights, tokens: Tensor, trace: dict[str, Tensor] | None = None
) -> Tensor:
    """Logits of the next symbol at every position.

        x_n = x_n e + p_n,   y_n = x_n + W_O Σ_{i≤n} att_{n,i} W_V x_i,
        z_n = y_n + W_2 φ(W_1 y_n),   logit_n = ⟨u, z_n⟩ + b,

    att_{n,·} the softmax of ⟨W_Q x_n, W_K x_i⟩/√m over the visible i, m = d/heads; z of one layer
    is x of the next. Without hidden units z_n = y_n. With k logits x_n e becomes the row e_{x_n}
    and the last line reads every row. Relative positions add a number of n − i to the scores, and a
    vector of it to W_V x_i. A state-space layer has W_O h_n in place of W_O Σ…, with
    h_n = a ⊙ h_{n−1} + φ(u_n), u = W_V x, φ the identity or a ReLU. A selective recurrence keeps a
    matrix, H_n = a_n H_{n−1} + φ(u_n)φ(W_K x_n)ᵀ with a_n = σ(⟨g, x_n⟩ + α), and has
    W_O H_n φ(W_Q x_n). A gate multiplies what W_O reads by silu(W_G x_n). A convolution takes
    W_V x, and W_Q x and W_K x, to u_n + Σ_{j<w} K_j ⊙ u_{n−j}.

    Args:
        arch: the architecture.
        weights: one tensor per name of ``arch.shapes``, of shape (..., *shape).
        tokens: integers in [0, states), shape (batch, n) or (..., batch, n) with n ≤ N.
        trace: if given, filled with "<layer>.attention" (W_O Σ…) and "<layer>.y", both of shape
            (..., batch, n, d), and of softmax attention with "<layer>.pattern", att, of shape
            (..., batch, heads, n, n).

    Returns:
        (..., batch, n), with a last axis of k where ``output`` is "states".

    Raises:
        InputError: more than N symbols.

    Source: AM Sec. 2, App. A.

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0, 1, 2])
    >>> tuple(full_model.forward(arch, weights, torch.tensor([[0, 1, 1, 0]])).shape)
    (3, 1, 4)
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
            mix = _MIXERS.get(arch.attention, partial(_attention, traced=trace is not None))
            attended, pattern = mix(arch, block, _norm(x, block["norm1"]))
            y = x + attended
            if trace is not None:
                trace[f"{layer}.attention"] = attended
                if pattern is not None:
                    trace[f"{layer}.pattern"] = pattern
        if trace is not None:
            trace[f"{layer}.y"] = y
        x = y
        if arch.width:
            first = arch.norm_at == "inputs"
            hidden = _linear(_norm(y, block["norm2"]) if first else y, block["up"])
            hidden = hidden if first else _norm(hidden, block["norm2"])
            hidden = hidden.relu() if arch.activation == "relu" else gelu(hidden)
            x = y + _linear(hidden, block["down"])
    x = _norm(x, weights.get("norm"))
    reader = embedding if arch.tied else weights["unembedding"]
    if arch.output == "binary":
        return _linear(x, reader.unsqueeze(-2)).squeeze(-1) + weights["bias"][..., None, None]
    return _linear(x, reader) + weights["bias"][..., None, None, :]


_BLOCK = (
    *("query", "key", "value", "out", "up", "down"),
    *("relative", "relative_value", "norm1", "norm2"),
    *("gate", "decay", "output_gate", "query_taps", "key_taps", "value_taps"),
)


def _linear(x: Tensor, matrix: Tensor | None) -> Tensor:
    """Multiply x of shape (..., batch, n, in) by a matrix (..., out, in): (..., batch, n, out).

    On a GPU sequence by sequence: the gradient of one long product is a single block's work there.
    """
    assert matrix is not None
    if x.is_cuda:
        return x @ matrix.mT.unsqueeze(-3)
    return (x.flatten(-3, -2) @ matrix.mT).unflatten(-2, x.shape[-3:-1])


def _inputs(block: dict[str, Tensor | None], weight: str, x: Tensor) -> Tensor:
    """Multiply x by a weight of the block, and convolve over the last symbols if it has taps."""
    return convolve(block[f"{weight}_taps"], _linear(x, block[weight]))


def _norm(x: Tensor, scale: Tensor | None) -> Tensor:
    """Apply layer norm over the last axis, with a scale (..., d); return x itself without one."""
    if scale is None:
        return x
    x = x - x.mean(-1, keepdim=True)
    x = x * (x.square().mean(-1, keepdim=True) + _NORM_EPSILON).rsqrt()
    return x * scale[..., None, None, :]


def _attention(
    arch: Architecture, block: dict[str, Tensor | None], x: Tensor, traced: bool
) -> tuple[Tensor, Tensor | None]:
    """Return W_O Σ_i att_{n,i} W_V x_i, shaped as x, (..., batch, n, d), and att.

    att is (..., batch, heads, n, n), but None for uniform attention, and where torch's fused
    attention, which never writes it to memory, is taken: in single precision on a GPU, unless
    ``traced``.
    """
    n = x.shape[-2]
    visible = visible_positions(n, arch.window, x.device)
    if arch.attention == "uniform":
        mean = visible.to(x.dtype) / visible.sum(-1, keepdim=True)
        if arch.convolution is None:
            return _linear(_linear(mean @ x, block["value"]), block["out"]), None
        return _linear(mean @ _inputs(block, "value", x), block["out"]), None
    query, key, value = (  # (..., batch, heads, n, m)
        _inputs(block, name, x).unflatten(-1, (arch.heads, -1)).transpose(-3, -2)
        for name in ("query", "key", "value")
    )  # fmt: skip
    alone = arch.window is None and block["relative"] is None and block["relative_value"] is None
    if x.is_cuda and x.dtype == torch.float32 and alone and not traced:
        q, k, v = (u.flatten(0, -4) for u in (query, key, value))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.unflatten(0, query.shape[:-3])
        return _linear(mixed.transpose(-3, -2).flatten(-2), block["out"]), None
    scores = query @ key.mT / math.sqrt(arch.d // arch.heads)
    place = torch.arange(n, device=x.device)
    distance = (place[:, None] - place).clamp(min=0)
    if (relative := block["relative"]) is not None:
        scores = scores + relative[..., distance].unsqueeze(-4)
    attention = scores.masked_fill(~visible, -math.inf).softmax(-1)
    mixed = attention @ value
    if (shift := block["relative_value"]) is not None:
        # (..., 1, heads, n, i, m), what distance n − i adds to the values
        table = shift[..., distance, :].unflatten(-1, (arch.heads, -1)).movedim(-2, -4)
        mixed = mixed + (attention.unsqueeze(-2) @ table.unsqueeze(-5)).squeeze(-2)
    return _linear(mixed.transpose(-3, -2).flatten(-2), block["out"]), attention


def _state_space(
    arch: Architecture, block: dict[str, Tensor | None], x: Tensor
) -> tuple[Tensor, None]:
    """W_O h_n of a state-space layer, gated if it has a gate, for x of shape (..., batch, n, d)."""
    inputs = _inputs(block, "value", x)
    raw = block["decay"]
    assert arch.decay is not None and raw is not None
    h = scan(DECAYS[arch.decay](raw), inputs.relu() if arch.channel_activation else inputs)
    return _linear(_gated(block, x, h), block["out"]), None


def _selective(
    arch: Architecture, block: dict[str, Tensor | None], x: Tensor
) -> tuple[Tensor, None]:
    """W_O H_n φ(W_Q x_n) of a selective recurrence, gated if it has a gate, as sums over the past.

    For x of shape (..., batch, n, d).
    """
    query, key, value = (
        u.relu() if arch.channel_activation else u
        for u in (_inputs(block, name, x) for name in ("query", "key", "value"))
    )
    gate, raw = block["gate"], block["decay"]
    assert gate is not None and raw is not None
    kept = logsigmoid((x @ gate[..., None, :, None]).squeeze(-1) + raw.unsqueeze(-2)).cumsum(-1)
    visible = visible_positions(x.shape[-2], None, x.device)
    since = (kept.unsqueeze(-1) - kept.unsqueeze(-2)).masked_fill(~visible, -math.inf)
    read = (query @ key.mT * since.exp()) @ value
    return _linear(_gated(block, x, read), block["out"]), None


def _gated(block: dict[str, Tensor | None], x: Tensor, read: Tensor) -> Tensor:
    """Return ``read``, which W_O reads of a recurrence, times silu(W_G x) if the block is gated."""
    return read if block["output_gate"] is None else read * silu(_linear(x, block["output_gate"]))


_MIXERS = {"ssm": _state_space, "selective": _selective}


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

    >>> import full_model, torch
    >>> arch = full_model.Architecture(d=2, length=2)
    >>> full_model.cross_entropy(arch, torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    tensor([[0.6931, 0.6931]])
    """
    if arch.output == "binary":
        one = targets.to(logits.dtype)
        return -one * logsigmoid(logits) - (1 - one) * logsigmoid(-logits)
    if not targets.is_floating_point():
        targets = one_hot(targets.long(), arch.states)
    return -(targets.to(logits.dtype) * logits.log_softmax(-1)).sum(-1)


def scan(decay: Tensor, inputs: Tensor) -> Tensor:
    """h_n = a ⊙ h_{n−1} + u_n with h_0 = 0, for a (..., m) and u (..., batch, n, m), in log₂ N
    rounds.

    After the round with shift s, h_n is the sum of a^k u_{n−k} over k < 2s.

    >>> import torch
    >>> from full_model.model.transformer import scan
    >>> scan(torch.tensor([-0.5]), torch.ones(1, 4, 1)).flatten().tolist()
    [1.0, 0.5, 0.75, 0.625]
    """
    power, h, shift = decay[..., None, None, :], inputs, 1
    if h.shape[-2] == 1:
        return h + 0 * power  # differentiable by the decay, which a single position does not show
    while shift < h.shape[-2]:
        h = torch.cat([h[..., :shift, :], h[..., shift:, :] + power * h[..., :-shift, :]], dim=-2)
        power, shift = power * power, 2 * shift
    return h


def convolve(taps: Tensor | None, inputs: Tensor) -> Tensor:
    """u_n + Σ_{j<w} K_j ⊙ u_{n−j} for K (..., w, m), causal and by channels; u without taps."""
    if taps is None:
        return inputs
    found = inputs
    for j in range(min(taps.shape[-2], inputs.shape[-2])):
        late = taps[..., j, None, None, :] * inputs[..., : inputs.shape[-2] - j, :]
        found = found + pad(late, (0, 0, j, 0))
    return found
