"""Counting in context: how often each symbol followed the present context so far."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.errors import InputError, require_integer


def successor_counts(tokens: Tensor, order: int, states: int) -> Tensor:
    """#{i ≤ n : x_i = s, the k symbols before i equal the k last at n}, at every n and s.

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
    batch, length = tokens.shape
    tokens, contexts = tokens.long(), states**order
    table = torch.zeros(batch, contexts, states, dtype=torch.float64, device=tokens.device)
    found = torch.zeros(batch, length, states, dtype=torch.float64, device=tokens.device)
    every = torch.arange(batch, device=tokens.device)
    context = torch.zeros(batch, dtype=torch.long, device=tokens.device)
    for n in range(length):
        if n >= order:
            table[every, context, tokens[:, n]] += 1
        context = (context * states + tokens[:, n]) % contexts
        if n + 1 >= order:
            found[:, n] = table[every, context]
    return found


def in_context(tokens: Tensor, order: int, states: int, beta: float = 0.0) -> Tensor:
    """The in-context estimator of order k, (count + β)/(all counts + Sβ), shape (B, N, S).

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
