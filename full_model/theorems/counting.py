"""Constructed transformers beside counting, at every position of many sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from flowsim.chains.counting import in_context
from flowsim.chains.paths import sample_kernels
from flowsim.chains.priors import DirichletPrior
from flowsim.errors import InputError
from full_model.model.transformer import forward
from full_model.theorems.claims import Claim, equal, generator_of
from full_model.theorems.counting_weights import constant_depth, log_depth

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
        all positions whose context has been seen, since elsewhere counting says nothing. The error
        may be 1e-9 for k ≤ 3 and 1e-5 beyond.

    Raises:
        InputError: an unknown construction, no seed, or sizes that it does not have.
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
    """How many sequences ``verify_counting`` compares with so many seeds."""
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
