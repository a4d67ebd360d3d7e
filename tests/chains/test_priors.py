"""Priors, counting, exact losses and baselines, against enumeration and quadrature."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from flowsim import BinaryChain, InputError
from flowsim.chains import (
    DirichletPrior,
    DoublyStochasticPrior,
    FinitePrior,
    MixturePrior,
    OrderChain,
    in_context,
    prior_losses,
    successor_counts,
)
from flowsim.chains.baselines import baselines
from flowsim.chains.exact_losses import log_class_bound


def counted(word, order, states):
    """n_cb of a word, by its definition."""
    table = torch.zeros(1, states**order, states, dtype=torch.float64)
    for i in range(order, len(word)):
        row = sum(s * states**j for j, s in enumerate(reversed(word[i - order : i])))
        table[0, row, word[i]] += 1
    return table


TWO = FinitePrior([BinaryChain(0.5, 0.8), [[0.9, 0.1], [1.0, 0.0]]], [0.25, 0.75])
PRIORS = {
    "dirichlet": DirichletPrior(2),
    "half": DirichletPrior(2, 1, 0.5),
    "order two": DirichletPrior(2, 2),
    "three states": DirichletPrior(3),
    "doubly stochastic": DoublyStochasticPrior(2),
    "finite": TWO,
    "mixture": MixturePrior([DoublyStochasticPrior(2), DirichletPrior(2)], [0.75, 0.25]),
    "nested": MixturePrior([TWO, DirichletPrior(2)]),
}


def probability(prior, word):
    """S^{−k} E Π P."""
    counts = counted(word, prior.order, prior.states)
    return float(prior.log_evidence(counts).exp()) / prior.states**prior.order


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_all_sequences_have_probability_one_and_bayes_is_their_ratio(prior):
    states, k = prior.states, prior.order
    words = list(itertools.product(range(states), repeat=k + 4))
    assert math.fsum(probability(prior, w) for w in words) == pytest.approx(1, abs=1e-13)
    for word in words[:: max(1, len(words) // 20)]:
        before = probability(prior, word[:-1])
        if before == 0:
            continue
        row = sum(s * states**j for j, s in enumerate(reversed(word[-1 - k : -1])))
        said = prior.predict(counted(word[:-1], k, states), torch.tensor([row]))[0, word[-1]]
        assert float(said) == pytest.approx(probability(prior, word) / before, abs=1e-13)


def test_the_kernels_own_loss_by_quadrature_and_as_a_limit():
    """E h(p) = 1/2 for uniform p; and Bayes's loss comes down to the kernel's own."""
    assert quad(lambda p: -p * math.log(p) - (1 - p) * math.log(1 - p), 0, 1)[0] == (
        pytest.approx(0.5)
    )
    for prior in (DirichletPrior(2), DoublyStochasticPrior(2)):
        found = prior_losses(prior, 60)
        ahead = found.by_position["bayes"] - found.by_position["kernel"]
        assert (np.diff(ahead) < 0).all() and ahead[-1] < 0.03
        assert found.by_position["kernel"][0] == pytest.approx(0.5, abs=1e-12)
    # both rows of a doubly stochastic kernel have one entropy, wherever the chain is
    assert found.by_position["kernel"] == pytest.approx(np.full(60, 0.5), abs=1e-12)
    # Dirichlet(1): Bayes is add-one counting
    dirichlet = prior_losses(DirichletPrior(2), 60)
    assert dirichlet.bayes == pytest.approx(dirichlet.counting[1], rel=1e-13)
    assert dirichlet.counting[0] > dirichlet.bayes + 0.05


@pytest.mark.parametrize("order", [0, 1, 2])
def test_counting_in_context_by_its_definition(order):
    states, g = 3, torch.Generator().manual_seed(2)
    tokens = torch.randint(states, (4, 25), generator=g)
    found = successor_counts(tokens, order, states)
    for b, n in itertools.product(range(4), range(25)):
        word = tokens[b, : n + 1].tolist()
        wanted = torch.zeros(states, dtype=torch.float64)
        if n + 1 >= order:
            last = word[len(word) - order :]
            for i in range(order, n + 1):
                wanted[word[i]] += word[i - order : i] == last
        assert torch.equal(found[b, n], wanted)
    added = in_context(tokens, order, states, 1.0)
    assert torch.allclose(added, (found + 1) / (found.sum(-1, keepdim=True) + states))
    assert in_context(tokens, order, states).isnan().any(-1).equal(found.sum(-1) == 0)


@pytest.mark.parametrize("states", [2, 3, 4])
def test_doubly_stochastic_draws_are_uniform(states):
    kernels = DoublyStochasticPrior(states).draw(20_000, torch.Generator().manual_seed(0))
    assert torch.allclose(kernels.sum(1), torch.ones(20_000, states).double(), atol=1e-12)
    assert torch.allclose(kernels.sum(2), torch.ones(20_000, states).double(), atol=1e-12)
    assert (kernels >= 0).all()
    # every entry has the same law, by symmetry, under the uniform law of the polytope
    for power in (1, 2):
        moments = (kernels**power).mean(0)
        spread = float((kernels**power).std()) / math.sqrt(20_000)
        assert (moments - moments.mean()).abs().max() < 5 * spread


def test_dirichlet_draws_have_its_moments():
    kernels = DirichletPrior(3, 2, 0.5).draw(20_000, torch.Generator().manual_seed(0))
    assert kernels.shape == (20_000, 9, 3) and (kernels.mean(0) - 1 / 3).abs().max() < 0.01
    variance = (1 / 3) * (2 / 3) / (3 * 0.5 + 1)
    assert (kernels.var(0) - variance).abs().max() < 0.005


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda: DirichletPrior(1), "states must be"),
        (lambda: DirichletPrior(2, 0), "order must be"),
        (lambda: DirichletPrior(2, 1, 0.0), "beta must be"),
        (lambda: DoublyStochasticPrior(9), "2 to 8 states"),
        (lambda: FinitePrior([]), "at least one kernel"),
        (lambda: FinitePrior([np.eye(2), np.eye(3)]), "all of one order"),
        (lambda: FinitePrior([np.eye(2)], [0.5]), "positive numbers of sum one"),
        (lambda: MixturePrior([DirichletPrior(2), DirichletPrior(3)]), "all of one order"),
        (lambda: prior_losses(DoublyStochasticPrior(3), 5), "two states only"),
        (lambda: prior_losses(DirichletPrior(2, 2), 2), "above the order 2, not 2"),
        (lambda: prior_losses(DirichletPrior(2, 3), 200), r"10\^\d+ classes .* at most 1"),
        (lambda: prior_losses(DirichletPrior(3, 8), 20), "choose a lower order"),
        (lambda: prior_losses(DirichletPrior(2), 500), r"10\^6 classes .* at most 499"),
        (lambda: successor_counts(torch.tensor([[0, 2]]), 1, 2), r"lie in \[0, 2\)"),
        (lambda: in_context(torch.tensor([[0, 1]]), -1, 2), "order must be"),
    ],
)
def test_bad_input_is_one_sentence(what, words):
    with pytest.raises(InputError, match=words):
        what()


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("states", [2, 3, 5])
def test_the_bound_on_classes(states, order):
    free = states**order * (states - 1)
    for length in (order + 1, order + 2, 9, 40, 300):
        by_counts = states ** (2 * order) * math.comb(length - order + free, free)
        exact = math.log(min(states**length, by_counts))
        assert log_class_bound(states, order, length) == pytest.approx(exact, abs=1e-8)


ROWS = [[0.1, 0.9], [0.3, 0.7], [1.0, 0.0], [0.6, 0.4]]


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_exact_losses_and_baselines_are_those_of_all_sequences(prior):
    k, s, length = prior.order, prior.states, prior.order + 4
    words = torch.tensor(list(itertools.product(range(s), repeat=length + 1)))
    law = torch.from_numpy(np.array([probability(prior, word) for word in words.tolist()]))
    blocks = [law.reshape(s**n, -1).sum(1) for n in range(1, length + 2)]
    bayes = np.diff([-float(torch.xlogy(block, block).sum()) for block in blocks])
    exact, mean = prior_losses(prior, length), baselines(prior, length)
    assert mean["uniform"] == math.log(s)
    assert exact.by_position["bayes"] == pytest.approx(bayes[k - 1 :], rel=1e-12)
    assert mean["Bayes"] == pytest.approx(bayes.mean(), rel=1e-12)
    for j, name in enumerate(["unigram", "bigram", "order 2"][: k + 1]):
        said = in_context(words[:, :-1], j, s, 1.0).gather(-1, words[:, 1:, None])[..., 0]
        losses = -(law @ said.log()).numpy()
        assert exact.by_position[str(j)] == pytest.approx(losses[k - 1 :], rel=1e-12)
        assert mean[name] == pytest.approx(losses.mean(), rel=1e-12)
    assert exact.kernel <= exact.bayes <= min(exact.counting.values()) + 1e-12
    assert exact.bayes == pytest.approx(bayes[k - 1 :].mean())


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
