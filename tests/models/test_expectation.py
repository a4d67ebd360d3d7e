"""The exact law against enumeration of sequences, its compression against the law itself."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

from flowsim import BinaryChain
from flowsim.errors import InputError
from flowsim.models.past_law import Atoms, joint_law, running_mean_law
from flowsim.models.uniform.quadrature import GaussTree

CHAINS = [BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3), BinaryChain(0.97, 0.04)]


def sequences(chain, length):
    """Every sequence of a length with its probability."""
    transition = [[1 - chain.p, chain.p], [chain.q, 1 - chain.q]]
    for symbols in itertools.product((0, 1), repeat=length):
        probability = chain.stationary[symbols[0]]
        for now, after in itertools.pairwise(symbols):
            probability *= transition[now][after]
        yield symbols, probability


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_joint_law_is_that_of_all_sequences(chain, length):
    expected = np.zeros((length, 2, length + 1))
    for symbols, probability in sequences(chain, length):
        for n in range(length):
            expected[n, symbols[n], sum(symbols[: n + 1])] += probability
    np.testing.assert_allclose(joint_law(chain, length), expected, rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize("length", [1, 6, 50])
def test_equal_running_means_are_one_atom(length):
    chain = CHAINS[0]
    law = joint_law(chain, length)
    fractions = {s / n for n in range(1, length + 1) for s in range(1, n + 1)}
    for x, atoms in enumerate(running_mean_law(chain, length)):
        assert np.all(np.diff(atoms.m) > 0) and np.all(atoms.weight > 0)
        assert atoms.weight.sum() == pytest.approx(chain.stationary[x], rel=1e-15)
        n, total = np.arange(1, length + 1)[:, None], np.arange(length + 1)[None, :]
        mean = (law[:, x] * (total / n - 0.5)).sum() / length
        assert (atoms.m * atoms.weight).sum() == pytest.approx(mean, rel=1e-13)
    np.testing.assert_allclose(atoms.m + 0.5, sorted(fractions), atol=1e-16)


def test_a_law_too_large_for_the_memory_is_refused_with_its_size():
    with pytest.raises(InputError, match=r"N = 10000000 needs at least 5\.22e\+06 GiB"):
        running_mean_law(CHAINS[0], 10**7)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("kappa", [1.0, 8.0, 64.0, 256.0])
def test_rules_integrate_sigmoids_of_their_slope(chain, kappa):
    for law in running_mean_law(chain, 300):
        tree = GaussTree(law)
        assert kappa <= 2**tree.depth
        rule = tree.rule(kappa)
        assert len(rule.smooth.m) <= len(rule.binned.m) < len(law.m) / 8
        for c in np.linspace(-0.55, 0.55, 67):
            expected = mean_sigmoid(law, kappa, c)
            assert mean_sigmoid(rule.smooth, kappa, c) == pytest.approx(expected, abs=5e-14)
            assert mean_sigmoid(rule.binned, kappa, c) == pytest.approx(expected, abs=5e-14)


def mean_sigmoid(law: Atoms, kappa: float, c: float) -> float:
    return float((law.weight * expit(kappa * (law.m - c))).sum())
