"""The forward pass in loops of numpy: one model, one sequence and one position at a time."""

import math

import numpy as np
import torch


def drawn(arch, seed=0, ensemble=()):
    """Normal weights of deviation 0.7."""
    rng = np.random.default_rng(seed)
    return {
        name: torch.from_numpy(np.asarray(0.7 * rng.standard_normal((*ensemble, *shape))))
        for name, shape in arch.shapes.items()
    }


def norm(w, v, name):
    """Layer norm, where the model has one of that name."""
    if name not in w:
        return v
    v = v - v.mean()
    return w[name] * v / math.sqrt((v * v).mean() + 1e-5)


def active(arch, v):
    if arch.activation == "relu":
        return np.maximum(v, 0)
    return np.array([x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in v])


def read(w, layer, kind, x):
    """A projection of every position, and its convolution over the positions before it."""
    plain = [w[f"{layer}.{kind}"] @ norm(w, v, f"{layer}.norm1") for v in x]
    taps = w.get(f"{layer}.{kind}_taps", [])
    return [u + sum(t * plain[n - j] for j, t in enumerate(taps) if j <= n)
            for n, u in enumerate(plain)]  # fmt: skip


def attended(arch, w, layer, x):
    """What the heads of softmax or uniform attention bring to every position."""
    m, softmax, found = arch.d // arch.heads, arch.attention == "softmax", []
    value = read(w, layer, "value", x)
    query, key = (read(w, layer, kind, x) if softmax else value for kind in ("query", "key"))
    for n in range(len(x)):
        first, mixed = max(0, n - (arch.window or len(x)) + 1), np.zeros(arch.d)
        for h in range(arch.heads):
            part = slice(h * m, (h + 1) * m)
            score = np.array([query[n][part] @ k[part] for k in key[first : n + 1]])
            score = score * softmax / math.sqrt(m)
            if f"{layer}.relative" in w:
                score += [w[f"{layer}.relative"][h, n - i] for i in range(first, n + 1)]
            share = np.exp(score - score.max())
            for i, part_of_i in zip(range(first, n + 1), share / share.sum(), strict=True):
                v = value[i][part]
                if arch.positions == "relative-values":
                    v = v + w[f"{layer}.relative_value"][n - i][part]
                mixed[part] += part_of_i * v
        found.append(mixed)
    return found


def remembered(arch, w, layer, x):
    """What a recurrence brings to every position: one decay a channel, or one that is selected."""
    value, found, h = read(w, layer, "value", x), [], 0.0

    def channel(v):
        return np.maximum(v, 0) if arch.channel_activation else v

    raw = w[f"{layer}.decay"]
    if arch.attention == "ssm":
        decay = np.tanh(raw) if arch.decay == "signed" else 1 / (1 + np.exp(-raw))
        for u in value:
            h = decay * h + channel(u)
            found.append(h)
    else:
        key, query = (read(w, layer, kind, x) for kind in ("key", "query"))
        for u, k, q, v in zip(value, key, query, x, strict=True):
            gate = w[f"{layer}.gate"] @ norm(w, v, f"{layer}.norm1") + raw
            h = h / (1 + np.exp(-gate)) + np.outer(channel(u), channel(k))
            found.append(h @ channel(q))
    if not arch.gated:
        return found
    gates = [w[f"{layer}.output_gate"] @ norm(w, v, f"{layer}.norm1") for v in x]
    return [u * z / (1 + np.exp(-z)) for u, z in zip(found, gates, strict=True)]


def hidden(arch, w, layer, v):
    """What the hidden units of a layer add."""
    if not arch.width:
        return 0.0
    inputs, name = arch.norm_at == "inputs", f"{layer}.norm2"
    up = w[f"{layer}.up"] @ (norm(w, v, name) if inputs else v)
    return w[f"{layer}.down"] @ active(arch, up if inputs else norm(w, up, name))


def by_loops(arch, weights, tokens):
    """Logits (batch, n, …)."""
    w, found = {name: x.numpy() for name, x in weights.items()}, []
    for sequence in tokens.tolist():
        x = [s * w["embedding"] if arch.output == "binary" else w["embedding"][s] for s in sequence]
        if arch.positions == "learned":
            x = [v + p for v, p in zip(x, w["positions"], strict=False)]
        for layer in range(arch.layers):
            if arch.attention != "none":
                mixes = remembered if arch.attention in ("ssm", "selective") else attended
                mixed = mixes(arch, w, layer, x)
                x = [v + w[f"{layer}.out"] @ u for v, u in zip(x, mixed, strict=True)]
            x = [v + hidden(arch, w, layer, v) for v in x]
        reader = w["embedding"] if arch.tied else w["unembedding"]
        found.append([reader @ norm(w, v, "norm") + w["bias"] for v in x])
    return np.array(found)
