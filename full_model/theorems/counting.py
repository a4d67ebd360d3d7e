"""Transformers that count in context, weight by weight: three layers, or attention alone.

Both read their logits as the probabilities #{i ≤ n : x_i = x, k symbols before i equal the last k}
over #{i ≤ n : k symbols before i equal the last k}, wherever that context was seen before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from flowsim.chains.counting import in_context
from flowsim.chains.paths import sample_kernels
from flowsim.chains.priors import DirichletPrior
from flowsim.errors import InputError, require_integer
from full_model.model.architecture import Architecture, Weights
from full_model.model.transformer import forward
from full_model.theorems.verify import Claim, equal, generator_of

#: Score by which what does not count lies below what does: e^−36 is a unit of the last place.
_APART = 36.0
#: Score of distances that a layer does not look at, below those it does.
_OUTSIDE = -60.0
#: Contexts S^k whose pairs are compared to find how sharp attention must be.
_MOST_CONTEXTS = 20_000


def constant_depth(order: int, states: int, length: int) -> tuple[Architecture, Weights]:
    """Three layers, one head each, relative positions and layer norm.

    The residual stream has blocks [flag | e_x | u | û | v | v̂ | out].

    1. Scores i log 3 at distances i = 0 … k − 1 make u = Σ 3^i e_{x_{n−i}} / Σ 3^i; the
       feed-forward layer receives (u, −u), whose layer norm is of constant length, and writes û.
    2. The same at i = 1 … k gives v and v̂. The value of distance k writes the flag: it is
       positive where k symbols lie before, else zero.
    3. Scores 2κ⟨v̂_i, û_n⟩ + (flag's share), that is −κ‖v̂_i − û_n‖² up to a constant, and values
       e_{x_i} written to out.

    κ is taken from the nearest two contexts, so that a wrong one is 36 below. With exact
    arithmetic the error would be e^−36; what remains is the rounding of scores as large as κ:
    measured 1e-14 at k = 3 and 9e-8 at k = 8 (S = 2 and 3, N = 400).

    Args:
        order: k, at least 1.
        states: S, at least 2.
        length: N, more than k.

    Raises:
        InputError: sizes out of range, or more than 20000 contexts.

    Source: arXiv 2407.17686, the three-layer theorem, in our own blocks and with our own κ. Read
    differently: (1) eqs. 50-53 scale the scores of the first two layers by κ, which leaves the
    farthest symbol alone in u and v; the predictions of k = 2 are then off by 0.71. Here they are
    i log 3. (2) A flag that grows as 3^k κ makes scores of 2.5e12 at k = 8, whose neighbours in
    float64 are 5e-4 apart: on one processor the predictions were off by 2e-4, on another by
    nothing. Here it is at most 54. The usual ε = 1e-5 of the layer norm does no harm up to k = 8,
    since contexts that lie close have u of nearly one length. These numbers are of S = 2, N = 400;
    without the flag k = 2 is off by 0.67.

    >>> import full_model
    >>> arch, weights = full_model.constant_depth(order=2, states=2, length=10)
    >>> arch.layers, arch.heads
    (3, 1)
    """
    _check(order, states, length)
    sharpness = _APART / (nearest_contexts(order, states) ** 2)  # κ
    d = 1 + 6 * states
    symbol, u, u_hat, v, v_hat, out = (
        slice(1 + i * states, 1 + (i + 1) * states) for i in range(6)
    )
    arch = _architecture(d, length, 3, states, hidden=2 * states, layer_norm=True,
                         norm_at="hidden")  # fmt: skip
    weights, eye = zero_weights(arch), torch.eye(states, dtype=torch.float64)
    weights["embedding"][:, symbol] = eye
    weights["unembedding"][:, out] = eye
    for layer, (first, raw, unit) in enumerate(((0, u, u_hat), (1, v, v_hat))):
        reach = torch.arange(first, min(first + order, length))
        weights[f"{layer}.relative"][:] = _OUTSIDE
        weights[f"{layer}.relative"][0, reach] = reach.double() * math.log(3)
        weights[f"{layer}.value"][raw, symbol] = eye
        weights[f"{layer}.up"][:states, raw] = eye
        weights[f"{layer}.up"][states:, raw] = -eye
        weights[f"{layer}.norm2"][:] = 1
        weights[f"{layer}.down"][unit, :states] = eye / math.sqrt(states)
    weights["1.relative_value"][order, 0] = 1
    powers = 3.0 ** torch.arange(order, dtype=torch.float64)
    share = float(powers[-1] / powers.sum())  # of distance k, where the flag is not zero
    size = math.sqrt(d)  # scores are divided by it
    weights["2.query"][u_hat, u_hat] = 2 * sharpness * size * eye
    weights["2.key"][u_hat, v_hat] = eye
    weights["2.query"][0, symbol] = size  # one, whatever the symbol
    weights["2.key"][0, 0] = _APART / share
    weights["2.value"][out, symbol] = eye
    for layer in range(3):
        weights[f"{layer}.out"][:] = torch.eye(d, dtype=torch.float64)
    return arch, weights


def log_depth(order: int, states: int, length: int) -> tuple[Architecture, Weights]:
    """⌈log₂(k + 1)⌉ layers of attention that gather k + 1 symbols, and one that matches and counts.

    Block j of the residual stream holds the symbol j places back. The layer of hop h = 1, 2, 4, …
    looks at distance h alone and copies blocks j < h there to blocks j + h here. Where the hop
    leads before the sequence the copy is wrong; so every hop on the way to block k adds one to a
    flag, by the value of its distance, and all lie inside the sequence iff the flag is full. The
    last layer's scores are 36 for every symbol that agrees and for every hop in the flag, so that
    rounding stays near 1e-14 for every k. The feed-forward layers are zero.

    Args:
        order, states, length: as of ``constant_depth``.

    Raises:
        InputError: sizes out of range.

    Source: arXiv 2407.17686, attention-only theorem; the flag is our own.

    >>> import full_model
    >>> arch, weights = full_model.log_depth(order=3, states=2, length=10)
    >>> arch.layers
    3
    """
    _check(order, states, length)
    hops = [2**i for i in range(order.bit_length())]
    way = [hop for hop in hops if order & hop]
    d = states * (order + 2) + len(way)
    block = [slice(j * states, (j + 1) * states) for j in range(order + 2)]
    out, flags = block[-1], {hop: states * (order + 2) + i for i, hop in enumerate(way)}
    arch = _architecture(d, length, len(hops) + 1, states, hidden=1)
    weights, eye = zero_weights(arch), torch.eye(states, dtype=torch.float64)
    weights["embedding"][:, block[0]] = eye
    weights["unembedding"][:, out] = eye
    before = None  # the flag of the hops so far on the way to block k
    for layer, hop in enumerate(hops):
        weights[f"{layer}.relative"][:] = _OUTSIDE
        weights[f"{layer}.relative"][0, hop] = 0
        value = weights[f"{layer}.value"]
        for j in range(min(hop, order - hop + 1)):
            value[block[j + hop], block[j]] = eye
        if hop in flags:
            weights[f"{layer}.relative_value"][hop, flags[hop]] = 1
            if before is not None:
                value[flags[hop], before] = 1
            before = flags[hop]
    last, size = len(hops), _APART * math.sqrt(d)
    assert before is not None
    for j in range(order):
        weights[f"{last}.query"][block[j], block[j]] = size * eye
        weights[f"{last}.key"][block[j], block[j + 1]] = eye
    weights[f"{last}.query"][before, block[0]] = size  # one, whatever the symbol
    weights[f"{last}.key"][before, before] = 1
    weights[f"{last}.value"][out, block[0]] = eye
    for layer in range(last + 1):
        weights[f"{layer}.out"][:] = torch.eye(d, dtype=torch.float64)
    return arch, weights


def nearest_contexts(order: int, states: int) -> float:
    """The least distance of unit vectors û of two different contexts, of weights 3^i.

    Raises:
        InputError: more than 20000 contexts.
    """
    count = states**order
    if count > _MOST_CONTEXTS:
        raise InputError(
            f"order {order} on {states} states has {count:.3g} contexts, and all pairs of at most "
            f"{_MOST_CONTEXTS} are compared to choose the sharpness of attention"
        )
    place = torch.arange(count)
    u = torch.zeros(count, states, dtype=torch.float64)
    for i in range(order):
        u[place, place // states**i % states] += 3.0**i
    u = u / u.norm(dim=1, keepdim=True)
    least = math.inf
    for start in range(0, count, 256):
        part = u[start : start + 256]
        squared = sum((part[:, None, s] - u[:, s]).square() for s in range(states))
        assert isinstance(squared, Tensor)
        squared[torch.arange(len(part)), torch.arange(start, start + len(part))] = math.inf
        least = min(least, float(squared.min()))
    return math.sqrt(least)


def _architecture(
    d: int, length: int, layers: int, states: int, hidden: int, **norm: bool | str | float
) -> Architecture:
    return Architecture(d, length, layers, 1, hidden, states, "states", tied=False,
                        positions="relative-values", **norm)  # type: ignore[arg-type] # fmt: skip


def zero_weights(arch: Architecture) -> Weights:
    """Weights of a transformer of this shape, all zero."""
    return {name: torch.zeros(shape, dtype=torch.float64) for name, shape in arch.shapes.items()}


def _check(order: int, states: int, length: int) -> None:
    require_integer("order", order, 1)
    require_integer("states", states, 2)
    if isinstance(length, bool) or not isinstance(length, int) or length <= order:
        raise InputError(f"length must be above the order {order}, not {length!r}")


CONSTRUCTIONS = {"constant-depth": constant_depth, "log-depth": log_depth}
#: Errors allowed up to order 3, and beyond, where attention's scores are large.
_TOLERANCE = {True: 1e-9, False: 1e-5}


def verify_counting(
    construction: str,
    order: int,
    states: int,
    length: int,
    seeds: Iterable[int] = range(8),
    progress: Callable[[int], object] | None = None,
) -> list[Claim]:
    """Compare a transformer that was built with counting in context.

    Args:
        construction: "constant-depth" or "log-depth".
        order: k, at least 1.
        states: S, at least 2.
        length: N, more than k.
        seeds: for each, a sequence of a kernel with nearly certain rows, whose contexts return
            often, and one of a kernel with Dirichlet(1) rows.
        progress: called with the number of sequences compared, ``sequences`` in all.

    Returns:
        One claim for drawn sequences and one for those of a single symbol with at most one other
        among the first k + 2, which tell apart contexts that lie before the sequence. Compared are
        all positions whose context has been seen, since elsewhere counting is undefined. The error
        may be 1e-9 for k ≤ 3 and 1e-5 beyond.

    Raises:
        InputError: an unknown construction, no seed, or sizes that it does not have.

    >>> import full_model
    >>> [claim.passed for claim in full_model.verify_counting("constant-depth", 1, 2, 6, seeds=[0])]
    [True, True]
    """
    seeds = list(seeds)
    if construction not in CONSTRUCTIONS:
        raise InputError(
            f"construction must be one of {', '.join(CONSTRUCTIONS)}, not {construction!r}"
        )
    if not seeds:
        raise InputError("verify needs at least one seed")
    arch, weights = CONSTRUCTIONS[construction](order, states, length)
    claims = []
    for kind, drawn in (
        ("drawn", _drawn(order, states, length, seeds)),
        ("edge", _at_the_edge(order, length).split(1)),
    ):
        errors, compared = [], 0
        for sequence in drawn:
            said = forward(arch, weights, sequence)
            counted = in_context(sequence, order, states)
            seen = ~counted.isnan().any(-1)
            compared += int(seen.sum())
            errors.append(float((said - counted)[seen].abs().max()) if seen.any() else 0.0)
            if progress is not None:
                progress(1)
        name = (
            f"{construction}, k = {order}, S = {states}, N = {length}, {arch.layers} layers, "
            f"{kind} sequences: error at {compared} of {len(errors) * length} positions"
        )
        claims.append(equal(name, 0.0, errors, _TOLERANCE[order <= 3]))
    return claims


def sequences(order: int, length: int, seeds: int) -> int:
    """Number of sequences that ``verify_counting`` compares with so many seeds."""
    return 2 * seeds + 1 + min(order + 2, length)


def _drawn(order: int, states: int, length: int, seeds: list[int]) -> Iterator[Tensor]:
    """Two sequences for every seed, each of shape (1, N)."""
    for seed in seeds:
        g = generator_of(seed)
        kernels = [DirichletPrior(states, order, beta).draw(1, g) for beta in (0.05, 1.0)]
        yield from sample_kernels(torch.cat(kernels), None, length, g)[0].split(1)


def _at_the_edge(order: int, length: int) -> Tensor:
    """All zeros; and all zeros but for a one at one of the first k + 2 places."""
    places = min(order + 2, length)
    return torch.cat([torch.zeros(1, length), torch.eye(places, length)]).long()
