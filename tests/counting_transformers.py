"""Transformers that count in context, weight by weight (docs/derivations/16.md; arXiv 2407.17686).

Both read their logits as the probabilities #{i ≤ n : x_i = x, k symbols before i equal the last k}
over #{i ≤ n : k symbols before i equal the last k}, wherever that context was seen before.
"""

import math

import torch

from full_model import Architecture

#: Score by which what does not count lies below what does: e^−36 is a unit of the last place.
APART = 36.0
#: Score of distances that a layer does not look at, below those it does.
OUTSIDE = -60.0


def zero_weights(d, length, layers, states, hidden, **norm):
    """An architecture with a vector per distance, and its weights: zero, with W_O = I."""
    arch = Architecture(d, length, layers, 1, hidden, states, "states", tied=False,
                        positions="relative-values", **norm)  # fmt: skip
    weights = {name: torch.zeros(shape).double() for name, shape in arch.shapes.items()}
    for layer in range(layers):
        weights[f"{layer}.out"][:] = torch.eye(d).double()
    return arch, weights


def constant_depth(order, states, length):
    """Three layers, one head each, relative positions and layer norm.

    The residual stream has blocks [flag | e_x | u | û | v | v̂ | out].

    1. Scores i log 3 at distances i = 0 … k − 1 make u = Σ 3^i e_{x_{n−i}} / Σ 3^i; the
       feed-forward layer receives (u, −u), whose layer norm is of constant length, and writes û.
    2. The same at i = 1 … k gives v and v̂. The value of distance k writes the flag: it is
       positive where k symbols lie before, else zero.
    3. Scores 2κ⟨v̂_i, û_n⟩ + (flag's share), that is −κ‖v̂_i − û_n‖² up to a constant, and values
       e_{x_i} written to out.

    κ is taken from the nearest two contexts, so that a wrong one is 36 below. What remains is the
    rounding of scores as large as κ: 1e-14 at k = 3, 9e-8 at k = 8 (S = 2 and 3, N = 400).

    The paper is read differently: (1) its eqs. 50-53 scale the scores of the first two layers by κ,
    which leaves the farthest symbol alone in u and v (k = 2 is then off by 0.71); here they are
    i log 3. (2) A flag that grows as 3^k κ makes scores of 2.5e12 at k = 8, whose neighbours in
    float64 are 5e-4 apart; here it is at most 54.
    """
    sharpness = APART / (nearest_contexts(order, states) ** 2)  # κ
    d = 1 + 6 * states
    symbol, u, u_hat, v, v_hat, out = (
        slice(1 + i * states, 1 + (i + 1) * states) for i in range(6)
    )
    arch, weights = zero_weights(d, length, 3, states, 2 * states, layer_norm=True,
                                 norm_at="hidden")  # fmt: skip
    eye = torch.eye(states).double()
    weights["embedding"][:, symbol] = eye
    weights["unembedding"][:, out] = eye
    for layer, (first, raw, unit) in enumerate(((0, u, u_hat), (1, v, v_hat))):
        reach = torch.arange(first, min(first + order, length))
        weights[f"{layer}.relative"][:] = OUTSIDE
        weights[f"{layer}.relative"][0, reach] = reach.double() * math.log(3)
        weights[f"{layer}.value"][raw, symbol] = eye
        weights[f"{layer}.up"][:states, raw] = eye
        weights[f"{layer}.up"][states:, raw] = -eye
        weights[f"{layer}.norm2"][:] = 1
        weights[f"{layer}.down"][unit, :states] = eye / math.sqrt(states)
    weights["1.relative_value"][order, 0] = 1
    powers = 3.0 ** torch.arange(order).double()
    share = float(powers[-1] / powers.sum())  # of distance k, where the flag is not zero
    size = math.sqrt(d)  # scores are divided by it
    weights["2.query"][u_hat, u_hat] = 2 * sharpness * size * eye
    weights["2.key"][u_hat, v_hat] = eye
    weights["2.query"][0, symbol] = size  # one, whatever the symbol
    weights["2.key"][0, 0] = APART / share
    weights["2.value"][out, symbol] = eye
    return arch, weights


def log_depth(order, states, length):
    """⌈log₂(k + 1)⌉ layers of attention that gather k + 1 symbols, and one that matches and counts.

    Block j of the residual stream holds the symbol j places back. The layer of hop h = 1, 2, 4, …
    looks at distance h alone and copies blocks j < h there to blocks j + h here. Where the hop
    leads before the sequence the copy is wrong; so every hop on the way to block k adds one to a
    flag of our own, by the value of its distance, and all lie inside the sequence iff the flag is
    full. The last layer's scores are 36 for every symbol that agrees and for every hop in the flag,
    so that rounding stays near 1e-14 for every k. The feed-forward layers are zero.
    """
    hops = [2**i for i in range(order.bit_length())]
    way = [hop for hop in hops if order & hop]
    block = [slice(j * states, (j + 1) * states) for j in range(order + 2)]
    out, flags = block[-1], {hop: states * (order + 2) + i for i, hop in enumerate(way)}
    last, d = len(hops), states * (order + 2) + len(way)
    arch, weights = zero_weights(d, length, last + 1, states, 1)
    eye = torch.eye(states).double()
    weights["embedding"][:, block[0]] = eye
    weights["unembedding"][:, out] = eye
    before = None  # the flag of the hops so far on the way to block k
    for layer, hop in enumerate(hops):
        weights[f"{layer}.relative"][:] = OUTSIDE
        weights[f"{layer}.relative"][0, hop] = 0
        value = weights[f"{layer}.value"]
        for j in range(min(hop, order - hop + 1)):
            value[block[j + hop], block[j]] = eye
        if hop in flags:
            weights[f"{layer}.relative_value"][hop, flags[hop]] = 1
            if before is not None:
                value[flags[hop], before] = 1
            before = flags[hop]
    size = APART * math.sqrt(d)
    for j in range(order):
        weights[f"{last}.query"][block[j], block[j]] = size * eye
        weights[f"{last}.key"][block[j], block[j + 1]] = eye
    weights[f"{last}.query"][before, block[0]] = size  # one, whatever the symbol
    weights[f"{last}.key"][before, before] = 1
    weights[f"{last}.value"][out, block[0]] = eye
    return arch, weights


def nearest_contexts(order, states):
    """The least distance of unit vectors û of two different contexts, of weights 3^i."""
    place = torch.arange(states**order)
    digits = place[:, None] // states ** torch.arange(order) % states
    u = (torch.eye(states).double()[digits] * 3.0 ** torch.arange(order)[:, None]).sum(1)
    u = u / u.norm(dim=1, keepdim=True)
    least = math.inf
    for part, at in zip(u.split(256), place.split(256), strict=True):
        squared = sum((part[:, None, s] - u[:, s]).square() for s in range(states))
        squared[torch.arange(len(part)), at] = math.inf
        least = min(least, float(squared.min()))
    return math.sqrt(least)
