"""Chains of order k against first-order ones, powers of their kernel, and long samples."""

import itertools
import math

import numpy as np
import pytest
import torch

from flowsim import BinaryChain, InputError, MarkovChain
from flowsim.chains import OrderChain, sample_chain


def random_kernel(states, order):
    return np.random.default_rng(states + 10 * order).dirichlet(np.ones(states), size=states**order)


@pytest.mark.parametrize(("states", "order"), [(2, 2), (2, 3), (3, 2)])
def test_ngram_losses_are_block_entropies(states, order):
    chain = OrderChain(random_kernel(states, order))
    words = itertools.product(range(states), repeat=order)
    law = dict(zip(words, np.linalg.matrix_power(chain.contexts.kernel, 500)[0], strict=True))

    def block(n):
        chances = {}
        for word in itertools.product(range(states), repeat=max(n, order)):
            chance = law[word[:order]]
            for i in range(order, len(word)):
                row = sum(s * states**j for j, s in enumerate(reversed(word[i - order : i])))
                chance *= chain.kernel[row, word[i]]
            chances[word[:n]] = chances.get(word[:n], 0) + chance
        return -sum(x * math.log(x) for x in chances.values())

    for n in range(1, order + 4):
        past = block(n - 1) if n > 1 else 0
        assert chain.ngram_loss(n) == pytest.approx(block(n) - past, abs=1e-12)
    assert chain.entropy_rate == chain.ngram_loss(order + 5)


@pytest.mark.parametrize(
    "chain",
    [OrderChain(random_kernel(2, 3)), OrderChain(random_kernel(3, 2)), BinaryChain(0.5, 0.8),
     MarkovChain(random_kernel(4, 1))],
    ids=repr,
)  # fmt: skip
def test_samples_follow_the_kernel_up_to_the_last_target(chain):
    whole = OrderChain(chain.kernel)
    k, states, batch, length = whole.order, whole.states, 40_000, 6
    g = torch.Generator().manual_seed(1)
    inputs, targets = sample_chain(chain, batch, length, g)
    assert inputs.shape == targets.shape == (batch, length) and inputs.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    context = torch.zeros(batch, dtype=torch.long)
    for i in range(length - k, length):
        context = context * states + inputs[:, i]
    for first in (True, False):
        place = context if first else sum(
            inputs[:, i] * states ** (k - 1 - i) for i in range(k))  # fmt: skip
        share = torch.bincount(place, minlength=states**k) / batch
        law = torch.tensor(whole.contexts.stationary)
        assert (share - law).abs().max() < 5 * math.sqrt(0.25 / batch)
    for row in range(states**k):  # the last target, after every context
        found = torch.bincount(targets[context == row, -1], minlength=states)
        size = int(found.sum())
        law = torch.tensor(whole.kernel[row])
        assert (found / size - law).abs().max() < 5 * math.sqrt(0.25 / size)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ([[0.5, 0.5]] * 3, "S\\^k rows of S probabilities"),
        ([[0.5, 0.5]], "S\\^k rows"),
        ([0.5, 0.5], "S\\^k rows"),
        ([[1.0]], "S\\^k rows"),
        ([], "S\\^k rows"),
        ([[0.5, 0.5]] * 3 + [[0.5, 0.6]], "row 3 sums to 1.1"),
        ([[0.5, 0.5]] * 3 + [[-0.5, 1.5]], "row 3, column 0 is -0.5"),
        (np.full((2**11, 2), 0.5), "2048 contexts, and at most 2000"),
    ],
)
def test_what_is_no_kernel_of_order_k_is_one_sentence(kernel, words):
    with pytest.raises(InputError, match=words):
        OrderChain(kernel)
