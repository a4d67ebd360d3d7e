"""The baselines of training against all sequences one by one."""

import itertools
import math

import pytest
import torch

from flowsim import InputError
from flowsim.chains import (
    DirichletPrior,
    DoublyStochasticPrior,
    MixturePrior,
    OrderChain,
    in_context,
)
from flowsim.chains.baselines import baselines

ROWS = [[0.1, 0.9], [0.3, 0.7], [1.0, 0.0], [0.6, 0.4]]


@pytest.mark.parametrize(
    ("prior", "length"),
    [
        (DirichletPrior(2), 6),
        (DirichletPrior(2, 3), 6),
        (DirichletPrior(3, 2), 4),
        (MixturePrior([DoublyStochasticPrior(2), DirichletPrior(2)], [0.75, 0.25]), 6),
    ],
    ids=str,
)
def test_a_prior_against_all_sequences(prior, length):
    k, s = prior.order, prior.states
    words = torch.tensor(list(itertools.product(range(s), repeat=length + 1)))
    counts = torch.zeros(len(words), s**k, s, dtype=torch.float64)
    every = torch.arange(len(words))
    for n in range(k, length + 1):
        context = sum(words[:, n - k + i] * s ** (k - 1 - i) for i in range(k))
        counts[every, context, words[:, n]] += 1
    law = prior.log_evidence(counts).exp() / s**k
    assert float(law.sum()) == pytest.approx(1)
    found = baselines(prior, length)
    assert found["uniform"] == math.log(s)
    for j, name in enumerate(["unigram", "bigram", "order 2", "order 3"][: k + 1]):
        said = in_context(words[:, :-1], j, s, 1.0).gather(-1, words[:, 1:, None])[..., 0]
        assert found[name] == pytest.approx(-float((law * said.log().mean(1)).sum()), abs=1e-12)
    # Bayes's loss is the entropy of a sequence of N + 1 symbols given its first one
    entropy = -float((law * law.log()).sum()) - math.log(s)
    assert found["Bayes"] == pytest.approx(entropy / length, abs=1e-12)
    assert found["kernel"] < found["Bayes"] <= found["unigram"]


def test_a_chain_of_order_2_sees_one_symbol_first():
    chain, length = OrderChain(ROWS), 5
    found = baselines(chain, length)
    assert list(found) == ["uniform", "unigram", "bigram", "order 2", "kernel"]
    first, rest = chain.ngram_loss(2), chain.ngram_loss(3)
    assert found["order 2"] == found["kernel"] == pytest.approx((first + 4 * rest) / 5)
    assert found["bigram"] == first and found["unigram"] == chain.stationary_entropy


def test_what_is_not_known_is_one_sentence():
    with pytest.raises(InputError, match="at least the order 2"):
        baselines(OrderChain(ROWS), 1)
    with pytest.raises(InputError, match="above the order"):
        baselines(DirichletPrior(2, 4), 4)
    with pytest.raises(InputError, match="two states only"):
        baselines(DoublyStochasticPrior(3), 4)
    with pytest.raises(InputError, match="classes of sequences"):
        baselines(DirichletPrior(3), 100)
