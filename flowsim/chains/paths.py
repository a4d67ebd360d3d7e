"""Sequences of chains of any order, many at once: samples, counts, and laws of what follows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.chains.higher_order import OrderChain
from flowsim.chains.priors import Prior, row_of
from flowsim.errors import InputError, require_integer
from flowsim.markov import MarkovChain

#: Counts that are held at once, S^{k+1} for every sequence.
_MOST_COUNTS = 2**24


def sample_chain(
    chain: MarkovChain | OrderChain, batch: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw independent stationary sequences of one chain, and their next symbols.

    Args:
        chain: of any order; a binary one draws as ``BinaryChain.sample``.
        batch: number of sequences, at least 1.
        length: N, at least 1.
        generator: the only source of randomness; the sample lies on its device.

    Returns:
        (inputs, targets), int64 of shape (batch, N): targets[:, n] follows inputs[:, n], the last
        one drawn like every other.

    Raises:
        InputError: batch or length below 1, or a chain with no one stationary law.

    >>> import flowsim, torch
    >>> draws = torch.Generator().manual_seed(0)
    >>> inputs, targets = flowsim.chains.sample_chain(flowsim.BinaryChain(0.5, 0.8), 2, 5, draws)
    >>> bool((inputs[:, 1:] == targets[:, :-1]).all())
    True
    """
    if isinstance(chain, BinaryChain):
        return chain.sample(batch, length, generator)
    whole = chain if isinstance(chain, OrderChain) else OrderChain(chain.kernel)
    kernel = torch.from_numpy(whole.kernel)
    law = torch.tensor(whole.contexts.stationary, dtype=torch.float64)
    return sample_kernels(kernel.expand(max(batch, 0), -1, -1), law, length, generator)


def sample_kernels(
    kernels: Tensor, first: Tensor | None, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw one sequence from each of the given kernels, and its next symbols.

    Args:
        kernels: (B, S^k, S), rows as in ``OrderChain``.
        first: the law of the first k symbols, shape (S^k,) or (B, S^k); None for uniform.
        length: N, at least 1.
        generator: the only source of randomness; the sample lies on its device.

    Returns:
        (inputs, targets), int64 of shape (B, N), the first k symbols drawn together from ``first``
        and every other one, the last target included, from its kernel.

    Raises:
        InputError: no kernel, or length below 1.

    >>> import flowsim, torch
    >>> draws = torch.Generator().manual_seed(0)
    >>> kernels = flowsim.chains.DirichletPrior(2).draw(3, draws)
    >>> inputs, targets = flowsim.chains.sample_kernels(kernels, None, 8, draws)
    >>> tuple(inputs.shape)
    (3, 8)
    """
    device = generator.device
    batch, contexts, states = kernels.shape
    if batch < 1 or length < 1:
        raise InputError(f"a sample needs batch ≥ 1 and length ≥ 1, not {batch} and {length}")
    order = order_of(contexts, states)
    steps = kernels.to(device).cumsum(-1)[..., :-1].contiguous()
    u = torch.rand(batch, length + 1, dtype=torch.float64, device=device, generator=generator)
    if first is None:
        first = torch.full((contexts,), 1 / contexts, dtype=torch.float64)
    law = first.to(device).expand(batch, -1).cumsum(-1)[:, :-1].contiguous()
    context = torch.searchsorted(law, u[:, :1].contiguous(), right=True)[:, 0]
    every = torch.arange(batch, device=device)
    symbols = [context // states ** (order - 1 - i) % states for i in range(order)]
    for n in range(order, length + 1):
        symbol = (u[:, n, None] >= steps[every, context]).sum(-1)
        context = (context * states + symbol) % contexts
        symbols.append(symbol)
    paths = torch.stack(symbols[: length + 1], dim=1)
    return paths[:, :-1], paths[:, 1:]


def order_of(contexts: int, states: int) -> int:
    """Return the order k with S^k = ``contexts``."""
    order = 0
    while states**order < contexts:
        order += 1
    return order


def successor_counts(tokens: Tensor, order: int, states: int) -> Tensor:
    """Count how often each symbol followed the last k symbols so far, at every position.

    At n and s this is #{i ≤ n : x_i = s, the k symbols before i equal the k last at n}.

    Args:
        tokens: integers in [0, S), shape (B, N).
        order: k ≥ 0; with k = 0 all symbols so far are counted.
        states: S.

    Returns:
        (B, N, S), float64; zero where fewer than k symbols are known.

    Raises:
        InputError: another shape, other symbols, or an order that is not an integer of at least 0.

    >>> import flowsim, torch
    >>> flowsim.chains.successor_counts(torch.tensor([[0, 1, 0, 1]]), order=1, states=2)[0, -1]
    tensor([1., 0.], dtype=torch.float64)
    """
    require_integer("order", order, 0)
    require_integer("states", states, 2)
    tokens = torch.as_tensor(tokens)
    if tokens.ndim != 2 or tokens.is_floating_point():
        raise InputError(f"tokens must be integers of shape (B, N), not {tuple(tokens.shape)}")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < states:
        raise InputError(f"tokens must lie in [0, {states})")
    return _laws(tokens, order, states, row_of, unknown=0.0)


def in_context(tokens: Tensor, order: int, states: int, beta: float = 0.0) -> Tensor:
    """Return the in-context estimate of order k, (count + β)/(all counts + Sβ), (B, N, S).

    Args:
        tokens, order, states: as in ``successor_counts``.
        beta: added to every count, at least 0. With β = 0 the estimate is NaN where the context
            has not been seen.

    Raises:
        InputError: as ``successor_counts``, or β below 0.

    >>> import flowsim, torch
    >>> flowsim.chains.in_context(torch.tensor([[0, 1, 0, 1]]), order=1, states=2, beta=1.0)[0, -1]
    tensor([0.6667, 0.3333], dtype=torch.float64)
    """
    if not 0 <= beta < float("inf"):
        raise InputError(f"beta must be a number of at least 0, not {beta!r}")
    counts = successor_counts(tokens, order, states)
    return (counts + beta) / (counts.sum(-1, keepdim=True) + states * beta)


def bayes_laws(prior: Prior, tokens: Tensor) -> Tensor:
    """Return Bayes's distribution of the next symbol at every position of tokens (B, N).

    Shape (B, N, S); uniform before k symbols are known.
    """
    states, order = prior.states, prior.order
    parts = tokens.split(max(1, _MOST_COUNTS // states ** (order + 1)))
    return torch.cat([_laws(part, order, states, prior.predict, 1 / states) for part in parts])


def kernel_laws(kernels: Tensor, tokens: Tensor) -> Tensor:
    """Return the distribution of the next symbol by the kernel of each sequence, an oracle's.

    ``kernels`` are (B, S^k, S), ``tokens`` (B, N); shape (B, N, S), uniform before k symbols are
    known.
    """
    contexts, states = kernels.shape[1:]
    order = order_of(contexts, states)
    return _laws(tokens, order, states, lambda _, context: row_of(kernels, context), 1 / states)


def _laws(
    tokens: Tensor,
    order: int,
    states: int,
    predict: Callable[[Tensor, Tensor], Tensor],
    unknown: float,
) -> Tensor:
    """Return ``predict`` of the counts so far and the context at every position, (B, N, S).

    ``predict`` is given successor counts (B, S^k, S) and contexts (B,) and returns (B, S);
    ``unknown`` stands before k symbols are known.
    """
    (batch, length), device, contexts = tokens.shape, tokens.device, states**order
    tokens, every = tokens.long(), torch.arange(batch, device=device)
    counts = torch.zeros(batch, contexts, states, dtype=torch.float64, device=device)
    found = counts.new_full((batch, length, states), unknown)
    context = torch.zeros(batch, dtype=torch.long, device=device)
    for n in range(length):
        if n >= order:
            counts[every, context, tokens[:, n]] += 1
        context = (context * states + tokens[:, n]) % contexts
        if n + 1 >= order:
            found[:, n] = predict(counts, context)
    return found
