import math

import pytest
import torch
from conftest import REFERENCE, relative_error
from mpmath import log, mpf

from flowsim import BinaryChain, InputError


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


@pytest.mark.parametrize(("p", "q"), [(0.2, 0.3), (0.9, 0.7), (0.3, 0.7)])
def test_sample_is_stationary_and_targets_are_next_symbols(p, q, generator):
    chain = BinaryChain(p, q)
    batch, length = 4000, 60
    inputs, targets = chain.sample(batch, length, generator)
    assert inputs.shape == targets.shape == (batch, length)
    assert inputs.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    pi1 = chain.stationary[1]

    def assert_frequency(hits, expected):
        sigma = math.sqrt(expected * (1 - expected) / len(hits))
        assert abs(hits.double().mean() - expected) < 5 * sigma

    for position in (0, 1, length - 1):  # independent across the batch, so σ is binomial
        assert_frequency(inputs[:, position], pi1)
        here, then = inputs[:, position], targets[:, position]
        assert_frequency(then[here == 0], p)
        assert_frequency(1 - then[here == 1], q)
