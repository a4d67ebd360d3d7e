"""Baselines of a loss: predictors from the last symbols, and their exact losses."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from flowsim.chains.exact_losses import counts_inside, prior_losses
from flowsim.chains.higher_order import OrderChain
from flowsim.chains.priors import Prior
from flowsim.errors import InputError
from flowsim.markov import MarkovChain


def order_name(order: int) -> str:
    """Return the name of the predictor from the last ``order`` symbols."""
    return {0: "unigram", 1: "bigram"}.get(order, f"order {order}")


def baselines(data: MarkovChain | OrderChain | Prior, length: int) -> dict[str, float]:
    """Return losses by name, in nats, exact means over the predictions after 1, …, N symbols.

    For a chain: "uniform", log S; "unigram", "bigram", "order 2", …, the best predictors from that
    many symbols, fewer where fewer are known; and "kernel", the least possible loss. Of a prior the
    n-grams are counted in context, one added to every count; "Bayes" knows the prior, and "kernel"
    the kernel of each sequence. Before k symbols are known they predict uniformly.

    Args:
        data: a chain, or a law of kernels.
        length: N, of a chain at least the order k, of a prior above it.

    Raises:
        InputError: a smaller N; of a prior too many classes of sequences (with their number), or no
            known Bayes predictor.

    >>> import flowsim
    >>> losses = flowsim.chains.baselines.baselines(flowsim.BinaryChain(0.5, 0.8), length=4)
    >>> {name: round(loss, 4) for name, loss in losses.items()}
    {'uniform': 0.6931, 'unigram': 0.6663, 'bigram': 0.619, 'kernel': 0.619}
    """
    return dict(_baselines(data, length))


@lru_cache(maxsize=16)
def _baselines(data: MarkovChain | OrderChain | Prior, length: int) -> dict[str, float]:
    """Return what ``baselines`` does, keeping the last 16 results."""
    order, uniform = data.order, math.log(data.states)
    if isinstance(data, Prior):
        late = prior_losses(data, length)
        whole: dict[str, float] = {}
        for name in ("bayes", "kernel", *map(str, range(order + 1))):
            before = range(1, late.first)
            early = [uniform] * len(before)
            if name.isdigit():
                early = [_early_counting(data.states, n, int(name)) for n in before]
            values = [*early, *late.by_position[name].tolist()]
            whole[name] = math.fsum(values) / len(values)
        grams = {order_name(j): whole[str(j)] for j in range(order + 1)}
        return {"uniform": uniform, **grams, "Bayes": whole["bayes"], "kernel": whole["kernel"]}
    if length < order:
        raise InputError(f"length must be at least the order {order}, not {length}")
    known = [data.ngram_loss(n + 1) for n in range(order + 1)]  # by symbols known
    found = {"uniform": uniform}
    for j in range(order + 1):
        early = known[1:j]
        rest = known[j] * (length - len(early))
        found[order_name(j)] = known[j] if not early else math.fsum([*early, rest]) / length
    return {**found, "kernel": found[order_name(order)]}


def _early_counting(states: int, known: int, order: int) -> float:
    """Return the loss of add-one counting among n ≤ k uniform symbols, the next one uniform too."""
    if order >= known:
        return math.log(states)
    words = torch.arange(states**known)
    counts = counts_inside(known, order, states)[words, words % states**order] + 1
    return -float((counts / counts.sum(-1, keepdim=True)).log().mean())
