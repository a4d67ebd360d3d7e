"""The population loss: enumeration against recursion, the chain's own numbers, and sampling."""

import itertools
import math

import pytest
import torch
from weights import normal_weights

from flowsim.chain import BinaryChain
from flowsim.markov import MarkovChain
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    cross_entropy,
    forward,
)
from full_model.model import population


def test_source_agrees_with_the_chain():
    chains = [BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3), BinaryChain(1e-6, 0.5)]
    source = MarkovSource.of(chains)
    general = MarkovSource([MarkovChain(kernel) for kernel in source.kernel.numpy()])
    for i, chain in enumerate(chains):
        assert source.stationary[i].tolist() == pytest.approx(chain.stationary, rel=1e-14)
        assert float(general.entropy_rate[i]) == pytest.approx(chain.entropy_rate, rel=1e-12)
        assert float(general.stationary_entropy[i]) == pytest.approx(chain.stationary_entropy)
    five = MarkovSource.of(MarkovChain.symmetric(5, 0.8))
    assert five.stationary[0].tolist() == pytest.approx([0.2] * 5)
    assert float(five.stationary_entropy[0]) == pytest.approx(math.log(5))
    rate = -0.2 * math.log(0.2) - 0.8 * math.log(0.2)
    assert float(five.entropy_rate[0]) == pytest.approx(rate)


@pytest.mark.parametrize("output", ["binary", "states"])
def test_enumeration_is_the_expectation_written_out(output):
    """Every sequence and every next symbol, one at a time, weighed with its probability."""
    chain = BinaryChain(0.3, 0.9)
    arch = Architecture(4, 5, output=output, tied=False)
    weights = normal_weights(arch)
    kernel = [[0.7, 0.3], [0.9, 0.1]]
    expected = 0.0
    for symbols in itertools.product((0, 1), repeat=6):
        law = chain.stationary[symbols[0]]
        for now, following in itertools.pairwise(symbols):
            law *= kernel[now][following]
        tokens, targets = torch.tensor([symbols[:-1]]), torch.tensor([symbols[1:]])
        logits = forward(arch, weights, tokens)
        expected += law * float(cross_entropy(arch, logits, targets).mean())
    found = PopulationLoss(arch, MarkovSource.of(chain))(weights)
    assert float(found) == pytest.approx(expected, abs=1e-13)


def test_gradient_is_autograds_in_one_chunk_or_many(monkeypatch):
    arch = Architecture(4, 6)
    source = MarkovSource.of([BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3), BinaryChain(0.9, 0.9)])
    weights = normal_weights(arch, ensemble=(3,))
    loss = PopulationLoss(arch, source)
    free = {name: w.clone().requires_grad_() for name, w in weights.items()}
    value = loss(free)
    grads = torch.autograd.grad(value.sum(), list(free.values()))
    value = value.detach()
    monkeypatch.setattr(population, "CHUNK_NUMBERS", 3 * 6 * 5 * (arch.width + 4 * arch.d + 6))
    found, gradient = loss.value_and_gradient(weights)
    assert (found - value).abs().max() < 1e-14
    for name, grad in zip(free, grads, strict=True):
        assert (gradient[name] - grad).abs().max() < 1e-14
    monkeypatch.undo()
    bias = PopulationLoss(arch, source).optimal_bias(weights)
    monkeypatch.setattr(population, "CHUNK_NUMBERS", 1)
    assert (loss.optimal_bias(weights) - bias).abs().max() < 1e-12
    for i in range(3):
        alone = {name: w[i] for name, w in weights.items()}
        one = MarkovSource(source.chains[i : i + 1])
        assert abs(float(PopulationLoss(arch, one)(alone)) - float(value[i])) < 1e-14


def test_sampling_agrees_with_enumeration_at_twelve():
    source = MarkovSource.of([BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3)])
    arch = Architecture(4, 12)
    weights = normal_weights(arch, scale=0.8, ensemble=(2,))
    exact = PopulationLoss(arch, source)(weights)
    tokens, laws = source.held_out(4000, 12, torch.Generator().manual_seed(3))
    losses = cross_entropy(arch, forward(arch, weights, tokens), laws[..., 1]).mean(-1)
    mean, error = losses.mean(-1), losses.std(-1) / 4000**0.5
    assert ((mean - exact).abs() < 4 * error).all()
    assert (error < 0.02).all()
