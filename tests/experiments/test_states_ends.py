"""Descent of the script beside the library's own loss, losses and cosines of splits."""

import numpy as np
import pytest
import states_ends as ends

from flowsim import MarkovChain
from full_model import Architecture, MarkovSource, PopulationLoss, initial_weights


@pytest.mark.parametrize(
    "descend",
    [pytest.param(ends.descend.py_func, id="plain"),
     pytest.param(ends.descend, id="compiled", marks=pytest.mark.slow)],
)  # fmt: skip
def test_descent_is_that_of_the_population_loss(descend):
    arch = Architecture(5, 1, hidden=8, states=4, output="states", attention="none")
    weights = initial_weights(arch, "gaussian", [3], std=0.7)
    loss = PopulationLoss(arch, MarkovSource.of(MarkovChain.symmetric(4, 0.6)))
    own = [
        weights[n][0].numpy().copy() for n in ("embedding", "positions", "0.up", "0.down", "bias")
    ]
    own[1], own[3] = own[1][0], np.ascontiguousarray(own[3].T)
    found, size = descend(*own, ends.symmetric_law(4, 0.6), 0.1, 50)
    for _ in range(50):
        gradient = loss.value_and_gradient(weights)[1]
        weights = {name: w - 0.1 * gradient[name] for name, w in weights.items()}
    value, gradient = loss.value_and_gradient(weights)
    assert found == pytest.approx(float(value), rel=1e-12)
    assert size == pytest.approx(sum(float(g.square().sum()) for g in gradient.values()) ** 0.5)
    np.testing.assert_allclose(own[3].T, weights["0.down"][0].numpy(), rtol=1e-12)


def test_losses_of_splits():
    """One simplex is the bigram, lone states the unigram; the best of every rank is a split."""
    chain = MarkovChain.symmetric(6, 0.7)
    assert ends.split_loss(((6, 5),), 0.7) == pytest.approx(chain.entropy_rate)
    assert ends.split_loss(((1, 0),) * 6, 0.7) == pytest.approx(np.log(6))
    for blocks in (((2, 1),) * 3, ((3, 2), (3, 2)), ((5, 2), (1, 0))):
        best = ends.rank_losses(6, 0.7, sum(rank for _, rank in blocks), tries=6)[0]
        assert best == pytest.approx(ends.split_loss(blocks, 0.7), abs=2e-6)


def test_cosines_tell_a_ring_from_pairs():
    """At five states both have rank 2, and their losses differ by 0.03 % of the gap."""
    ring, pairs = ((5, 2),), ((2, 1), (2, 1), (1, 0))
    share = ends.partition_losses(5)[ring]
    assert {ring, pairs} == set(ends.nearest(5, 2, share))
    order = [3, 0, 4, 2, 1]
    mixed = ends.cosines_of(ring)[np.ix_(order, order)]
    assert ends.apart(mixed, ring) < 1e-12
    assert ends.apart(mixed, pairs) > 0.5
