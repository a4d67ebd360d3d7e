"""Exact losses under a prior: Bayes, counting of any order, and an oracle with the kernel.

Sequences with the same first k symbols and the same counts of what followed each k symbols have
one probability and one prediction. So the sum over S^N sequences is one over such classes, of
which there are polynomially many in N; they are made from those of N − 1 symbols.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flowsim.chains.priors import Prior, row_of
from flowsim.errors import InputError, require_integer

#: Counts that are held at once, S^{m+1} for every class of sequences.
_MOST_COUNTS = 2_000_000


@dataclass(frozen=True)
class PriorLosses:
    """Expected losses in nats, means over the predictions after k, …, N symbols.

    Attributes:
        length: N.
        first: k, the symbols known at the first prediction that counts.
        uniform: log S.
        counting: order j of add-one counting in context → its loss; 0 is the unigram.
        bayes: the least possible loss without knowing the kernel.
        kernel: the loss of an oracle that knows the kernel of each sequence.
        by_position: the same by name ("bayes", "kernel", "0", "1", …), each of shape (N − k + 1,).

    >>> import flowsim
    >>> losses = flowsim.chains.prior_losses(flowsim.chains.DirichletPrior(2), length=6)
    >>> losses.kernel < losses.bayes < losses.counting[0] < losses.uniform
    True
    """

    length: int
    first: int
    uniform: float
    counting: dict[int, float]
    bayes: float
    kernel: float
    by_position: dict[str, np.ndarray]


def prior_losses(prior: Prior, length: int) -> PriorLosses:
    """Compute the exact losses of the predictors of ``PriorLosses`` on sequences of a prior.

    Args:
        prior: the law of kernels, of order k.
        length: N > k, symbols known at the last prediction.

    Raises:
        InputError: N ≤ k, too many classes (with their number), or a prior without a known Bayes
            predictor.

    >>> import flowsim
    >>> losses = flowsim.chains.prior_losses(flowsim.chains.DirichletPrior(2), length=6)
    >>> round(losses.bayes, 4), round(losses.kernel, 4)
    (0.6244, 0.4897)
    """
    order = prior.order
    _require_feasible(prior, length)
    found: dict[str, list[float]] = {}
    for classes in count_classes(prior, length):
        chance = prior.predict(classes.counts, classes.context)
        weight = classes.weight[:, None] * chance
        own = prior.row_entropy(classes.counts, classes.context)
        kernel = float((classes.weight * own).sum())
        line = {"bayes": _cross_entropy(weight, chance), "kernel": kernel}
        for j in range(order + 1):
            counts, context = classes.counts_of(j), classes.context % prior.states**j
            row = row_of(counts, context) + 1
            line[str(j)] = _cross_entropy(weight, row / row.sum(-1, keepdim=True))
        for name, value in line.items():
            found.setdefault(name, []).append(value)
    by_position = {name: np.array(values) for name, values in found.items()}
    mean = {name: math.fsum(values) / len(values) for name, values in found.items()}
    counting = {j: mean[str(j)] for j in range(order + 1)}
    uniform = math.log(prior.states)
    return PriorLosses(length, order, uniform, counting, mean["bayes"], mean["kernel"], by_position)


@dataclass(frozen=True)
class CountClasses:
    """All sequences of n symbols in classes of one prediction, the weights of sum one.

    A class has its first and its last k symbols, ``start`` and ``context`` (A,), the counts n_cb of
    order k, (A, S^k, S), and the probability of all its sequences.
    """

    states: int
    order: int
    start: Tensor
    counts: Tensor
    context: Tensor
    weight: Tensor

    def counts_of(self, order: int) -> Tensor:
        """Return the counts of a lower order j, (A, S^j, S), also among the first k symbols."""
        shape = (len(self.start), -1, self.states**order, self.states)
        return (
            self.counts.reshape(shape).sum(1)
            + counts_inside(self.order, order, self.states)[self.start]
        )


def counts_inside(order: int, lower: int, states: int) -> Tensor:
    """Return successor counts of order ``lower`` within every word of m = ``order`` symbols.

    Shape (S^m, S^lower, S).
    """
    words = torch.arange(states**order)
    table = torch.zeros(len(words), states**lower, states, dtype=torch.float64)
    for end in range(lower + 1, order + 1):  # the symbol at this place, and those before it
        prefix = words // states ** (order - end)
        table[words, prefix // states % states**lower, prefix % states] += 1
    return table


def count_classes(prior: Prior, length: int) -> Iterator[CountClasses]:
    """Yield the classes of sequences of k, of k + 1, …, of N symbols, under a prior of order k."""
    states, order, count = prior.states, prior.order, prior.states**prior.order
    start = torch.arange(count)
    counts = torch.zeros(count, count, states, dtype=torch.float64)
    weight = prior.log_evidence(counts).exp() / count
    found = CountClasses(states, order, start, counts, start, weight)
    yield found
    for _ in range(order, length):
        found = _with_next_symbol(prior, found)
        yield found


def _with_next_symbol(prior: Prior, classes: CountClasses) -> CountClasses:
    """Return the classes of one symbol more.

    Every class has every symbol appended, and equal ones are merged.
    """
    states, size = classes.states, len(classes.start)
    chance = prior.predict(classes.counts, classes.context)
    weight = (classes.weight[:, None] * chance).T.reshape(-1)
    counts = classes.counts.repeat(states, 1, 1)
    symbol = torch.arange(states).repeat_interleave(size)
    before = classes.context.repeat(states)
    counts[torch.arange(len(counts)), before, symbol] += 1
    after = (before * states + symbol) % states**classes.order
    whole = torch.cat([classes.start.repeat(states)[:, None], after[:, None],
                       counts.flatten(1).long()], dim=1)  # fmt: skip
    kept = weight > 0
    rows, which = _unique_rows(whole[kept].numpy())
    summed = np.bincount(which, weights=weight[kept].numpy(), minlength=len(rows))
    table = torch.from_numpy(rows)
    numbers = table[:, 2:].double().reshape(-1, *classes.counts.shape[1:])
    return CountClasses(
        states, classes.order, table[:, 0], numbers, table[:, 1], torch.from_numpy(summed)
    )


def _unique_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different rows of an array of integers, and which of them each row is.

    Rows are distinguished by a number of 64 bits each, and compared with the row found for it.
    """
    factors = np.random.default_rng(0).integers(1, 2**63, size=rows.shape[1], dtype=np.uint64)
    keys = (rows.astype(np.uint64) * (2 * factors + np.uint64(1))).sum(1, dtype=np.uint64)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    if (rows[first[which]] == rows).all():
        return rows[first], which
    found, which = np.unique(rows, axis=0, return_inverse=True)
    return found, which.reshape(-1)


def _cross_entropy(weight: Tensor, chance: Tensor) -> float:
    """Return −Σ weight·log chance in nats, without the terms of weight 0."""
    return abs(float(-torch.where(weight > 0, weight * chance.log(), 0.0).sum()))


def _require_feasible(prior: Prior, length: int) -> None:
    """Raise InputError where N is at most k, or where there are more classes than can be held."""
    require_integer("length", length, 0)
    order = prior.order
    if length <= order:
        raise InputError(f"length must be above the order {order}, not {length}")
    most = _MOST_COUNTS // prior.states ** (order + 1)
    room = math.log(most) if most else -math.inf
    size = log_class_bound(prior.states, order, length)
    if size <= room:
        return
    longest = order
    while log_class_bound(prior.states, order, longest + 1) <= room:
        longest += 1
    advice = f"choose at most {longest}" if longest > order else "choose a lower order"
    raise InputError(
        f"the exact losses of length {length} run through up to 10^{size / math.log(10):.0f} "
        f"classes of sequences, and {most} of order {order} are held at once: {advice}"
    )


def log_class_bound(states: int, order: int, length: int) -> float:
    """Return the log of an upper bound on the number of classes of N symbols.

    A class is its first and last context and S^m(S − 1) free counts (those of each context's
    successors that the balance of arrivals and departures leaves free), and no more than sequences.
    """
    free, rest = states**order * (states - 1), length - order
    by_counts = math.lgamma(rest + free + 1) - math.lgamma(rest + 1) - math.lgamma(free + 1)
    return min(length * math.log(states), 2 * order * math.log(states) + by_counts)
