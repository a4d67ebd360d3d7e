"""Sequences of chains of any order, many at once, and the laws of what follows in them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.chains.higher_order import OrderChain
from flowsim.chains.priors import Prior
from flowsim.errors import InputError
from flowsim.markov import MarkovChain

#: Counts that are held at once, S^{k+1} for every sequence.
_MOST_COUNTS = 2**24


def sample_chain(
    chain: MarkovChain | OrderChain, batch: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Independent stationary sequences of one chain, and their next symbols.

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
    """One sequence of each kernel, and its next symbols.

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
    """k with S^k = contexts."""
    order = 0
    while states**order < contexts:
        order += 1
    return order


def bayes_laws(prior: Prior, tokens: Tensor) -> Tensor:
    """Bayes's law of the next symbol at every position of tokens (B, N), shape (B, N, S).

    Uniform before k symbols are known.
    """
    size = max(1, _MOST_COUNTS // prior.states ** (prior.order + 1))
    return torch.cat([_bayes_laws(prior, part) for part in tokens.split(size)])


def kernel_laws(kernels: Tensor, tokens: Tensor) -> Tensor:
    """The same of an oracle that knows the kernel of each sequence, (B, S^k, S)."""
    contexts, states = kernels.shape[1:]
    every = torch.arange(len(tokens), device=tokens.device)
    return _along(tokens, states, order_of(contexts, states),
                  lambda context, _: kernels[every, context])  # fmt: skip


def _bayes_laws(prior: Prior, tokens: Tensor) -> Tensor:
    states, every = prior.states, torch.arange(len(tokens), device=tokens.device)
    table = torch.zeros(
        len(tokens), states**prior.order, states, dtype=torch.float64, device=tokens.device
    )
    before: list[Tensor] = []

    def predict(context: Tensor, symbol: Tensor) -> Tensor:
        if before:
            table[every, before.pop(), symbol] += 1
        before.append(context)
        return prior.predict(table, context)

    return _along(tokens, states, prior.order, predict)


def _along(
    tokens: Tensor, states: int, order: int, predict: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """``predict`` of the context and the symbol at every position, one after the other."""
    context, laws = torch.zeros_like(tokens[:, 0], dtype=torch.long), []
    for n in range(tokens.shape[1]):
        symbol = tokens[:, n].long()
        context = (context * states + symbol) % states**order
        unknown = torch.full((len(tokens), states), 1 / states, dtype=torch.float64)
        laws.append(predict(context, symbol) if n + 1 >= order else unknown.to(tokens.device))
    return torch.stack(laws, dim=1)
