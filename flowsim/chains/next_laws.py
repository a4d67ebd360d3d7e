"""Distribution of the next symbol in given sequences, by Bayes's predictor or a known kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.chains.paths import order_of
from flowsim.chains.priors import Prior

#: Counts that are held at once, S^{k+1} for every sequence.
_MOST_COUNTS = 2**24


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
