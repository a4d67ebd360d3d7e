"""Chains of two states and of any number, against their definitions."""

import math

import numpy as np
import pytest
from conftest import REFERENCE, relative_error
from mpmath import log, mp, mpf

from flowsim import BinaryChain, InputError, MarkovChain
from flowsim.chains import SymmetricChain


@pytest.mark.parametrize("row", REFERENCE["chain"], ids=lambda r: f"{r['p']},{r['q']}")
def test_every_quantity_matches_the_reference(row):
    chain = BinaryChain(row["p"], row["q"])
    found = {
        "pi0": chain.stationary[0],
        "pi1": chain.stationary[1],
        "entropy_rate": chain.entropy_rate,
        "entropy_stationary": chain.stationary_entropy,
        "mutual_information": chain.mutual_information,
        "logit_gap": chain.target_logit_gap,
    }
    for name, value in found.items():
        assert relative_error(value, row[name]) <= 1e-12, name
    assert chain.switching_factor == pytest.approx(1 - row["lam"], rel=1e-15)


@pytest.mark.parametrize(
    ("p", "q"), [(1e-6, 0.3), (1e-6, 1e-6), (0.999999, 1e-6), (0.5, 0.50001), (0.31, 0.68)]
)
def test_second_set_by_the_definitions_in_40_digits(p, q):
    chain = BinaryChain(p, q)
    p, q = mpf(p), mpf(q)
    pi1 = p / (p + q)

    def entropy(x):
        return -x * log(x) - (1 - x) * log(1 - x)

    rate = (1 - pi1) * entropy(p) + pi1 * entropy(q)
    gap = log((1 - p) * (1 - q) / (p * q))
    assert relative_error(chain.entropy_rate, rate) < 1e-14
    assert relative_error(chain.stationary_entropy, entropy(pi1)) < 1e-14
    # 1 − (p + q) is rounded once: that is the accuracy of Δ*, and twice it of its square
    rounding = 2e-16 / abs(float(1 - p - q)) if abs(1 - p - q) < 0.1 else 1e-15
    assert relative_error(chain.target_logit_gap, gap) < 1e-13 + rounding
    assert relative_error(chain.mutual_information, entropy(pi1) - rate) < 1e-13 + 2 * rounding


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, math.nan, math.inf, "half", None])
def test_bad_probabilities_are_one_sentence(bad):
    for p, q in ((bad, 0.5), (0.5, bad)):
        with pytest.raises(InputError, match=r"^[pq] must be a number strictly between 0 and 1"):
            BinaryChain(p, q)


QUANTITIES = ("entropy_rate", "stationary_entropy", "mutual_information", "second_eigenvalue",
              "covariance_eigenvalue")  # fmt: skip
CHAINS = [BinaryChain(0.5, 0.8), BinaryChain(0.2, 0.3), BinaryChain(1e-6, 0.3),
          *(SymmetricChain(s, p) for s in (2, 3, 5, 10) for p in (0.05, 0.6, 0.97))]  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
def test_closed_forms_are_those_of_the_kernel(chain):
    general = MarkovChain(chain.kernel)
    assert general.states == chain.states
    assert general.stationary == pytest.approx(chain.stationary, rel=1e-13)
    for name in QUANTITIES:
        found, known = getattr(general, name), getattr(chain, name)
        assert found == pytest.approx(known, rel=1e-9, abs=1e-14), name
    assert (general.classes, general.period) == (chain.classes, chain.period)
    assert general.unigram == chain.unigram


@pytest.mark.parametrize("states", [3, 5, 10])
@pytest.mark.parametrize("off", [0.3, 1e-3, 1e-7, 1e-12])
def test_the_symmetric_chain_is_accurate_near_its_threshold(states, off):
    p = (states - 1) / states * (1 - off)
    chain = SymmetricChain(states, p)
    with mp.workdps(60):
        p, s = mpf(p), mpf(states)
        information = log(s) + (1 - p) * log(1 - p) + p * log(p / (s - 1))
        gap, second = log((1 - p) * (s - 1) / p), 1 - p * s / (s - 1)
    rounding = 1e-14 + 4e-16 / off  # 1 − pS/(S − 1) is rounded once
    assert chain.second_eigenvalue == pytest.approx(float(second), rel=rounding)
    assert chain.target_logit_gap == pytest.approx(float(gap), rel=rounding)
    assert chain.mutual_information == pytest.approx(float(information), rel=2 * rounding)


@pytest.mark.parametrize("states", [2, 3, 5, 10])
def test_the_threshold_changes_the_regime(states):
    threshold = (states - 1) / states
    at = [SymmetricChain(states, p) for p in (0.99 * threshold, threshold, 1.001 * threshold)]
    assert [c.unigram for c in at] == ["a saddle", "flat to second order", "a local minimum"]
    assert [c.regime[2] for c in at] == ["<", "=", ">"]
    assert at[1].threshold == threshold and at[1].mutual_information == 0
    assert MarkovChain.symmetric(states, 0.3) == SymmetricChain(states, 0.3)


def test_a_random_kernel_against_powers_and_singular_values():
    rng = np.random.default_rng(3)
    kernel = rng.dirichlet(np.ones(6), size=6)
    chain = MarkovChain(kernel)
    law = np.linalg.matrix_power(kernel, 400)[0]
    assert chain.stationary == pytest.approx(law, rel=1e-12)
    rate = -sum(law[i] * kernel[i, j] * math.log(kernel[i, j])
                for i in range(6) for j in range(6))  # fmt: skip
    assert chain.entropy_rate == pytest.approx(rate, rel=1e-12)
    assert chain.mutual_information == pytest.approx(chain.stationary_entropy - rate, rel=1e-10)
    losses = [chain.ngram_loss(n) for n in (1, 2, 3, 7)]
    assert losses == [chain.stationary_entropy] + 3 * [chain.entropy_rate]
    joint = law[:, None] * kernel
    covariance = (joint + joint.T) / 2 - np.outer(law, law)
    probe = rng.normal(size=(6, 4000))
    probe -= probe.mean(axis=0)
    quotients = (probe * (covariance @ probe)).sum(0) / (probe**2).sum(0)
    top = chain.covariance_eigenvalue
    assert quotients.max() <= top + 1e-15 and quotients.max() > 0.5 * top


def test_reducible_and_periodic_kernels_are_named():
    cycle = MarkovChain([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert cycle.structure == "irreducible, period 3"
    assert cycle.entropy_rate == 0 and cycle.stationary == pytest.approx([1 / 3] * 3)
    assert abs(cycle.second_eigenvalue) == pytest.approx(1)
    left = MarkovChain([[0.5, 0.5, 0], [0.4, 0.6, 0], [0.1, 0.1, 0.8]])
    assert left.structure == "reducible, transient states {2}, aperiodic"
    assert left.stationary[2] == 0 and left.second_eigenvalue == pytest.approx(0.8)
    assert left.covariance_eigenvalue == pytest.approx(
        MarkovChain([[0.5, 0.5], [0.4, 0.6]]).covariance_eigenvalue
    )
    parted = MarkovChain([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0]])
    assert parted.structure == (
        "reducible, closed classes {0, 1} and {2}, transient states {3}, aperiodic"
    )
    with pytest.raises(InputError, match=r"closed classes \{0, 1\} and \{2\} have laws"):
        _ = parted.entropy_rate


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ([[0.5, 0.5]], "square matrix"),
        ([], "square matrix"),
        ([[1.0]], "square matrix"),
        ([[0.5, 0.5], [0.5]], "rows of one length"),
        ([["a", "b"], ["c", "d"]], "matrix of numbers"),
        ([[0.5, 0.6], [0.5, 0.5]], "row 0 sums to 1.1"),
        ([[1.5, -0.5], [0.5, 0.5]], "column 1 is -0.5"),
        ([[math.nan, 1], [0.5, 0.5]], "column 0 is nan"),
        ([[math.inf, 1], [0.5, 0.5]], "row 0 sums to inf"),
    ],
)
def test_what_is_no_kernel_is_one_sentence(kernel, words):
    with pytest.raises(InputError, match=words):
        MarkovChain(kernel)


@pytest.mark.parametrize(("states", "p"), [(1, 0.5), (2.5, 0.5), (True, 0.5), (3, 0), (3, 1.0)])
def test_what_is_no_symmetric_chain_is_one_sentence(states, p):
    with pytest.raises(InputError, match=r"^(states|p) must be"):
        MarkovChain.symmetric(states, p)
