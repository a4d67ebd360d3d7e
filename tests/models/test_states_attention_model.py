"""S states with uniform attention: the law of the shares, and the plane without attention."""

import itertools
import math

import numpy as np
import pytest
import torch

from flowsim import MarkovChain
from flowsim.models import StatesAttentionModel, StatesModel
from flowsim.models.states.distribution import share_law

#: S, p, N, m.
CASES = [(2, 0.65, 6, 1), (3, 0.8, 4, 2), (5, 0.7, 3, 4), (3, 0.3, 1, 3)]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: f"S{c[0]}-N{c[2]}")


def build(case):
    states, p, length, m = case
    return StatesAttentionModel(MarkovChain.symmetric(states, p), length, m)


def words(case):
    """Every sequence with its probability."""
    states, p, length, _ = case
    kernel = MarkovChain.symmetric(states, p).kernel
    for word in itertools.product(range(states), repeat=length):
        chance = 1 / states
        for i, j in itertools.pairwise(word):
            chance *= kernel[i, j]
        yield word, chance


@every_case
def test_the_law_is_that_of_all_sequences(case):
    states, p, length, _ = case
    distribution = share_law(MarkovChain.symmetric(states, p), length)
    wanted = {}
    for word, chance in words(case):
        for n in range(1, length + 1):
            counts = [word[:n].count(t) / n for t in range(states)]
            own = counts.pop(word[n - 1])
            key = round(own, 12), *(round(x, 12) for x in sorted(counts))
            wanted[key] = wanted.get(key, 0) + chance / length
    found = {}
    for weight, share, many in zip(*distribution, strict=True):
        others = np.repeat(share[1:], many[1:].astype(int))
        found[round(share[0], 12), *(round(x, 12) for x in sorted(others))] = weight
    assert found == pytest.approx(wanted, rel=1e-12)
    assert math.fsum(distribution.weight) == pytest.approx(1, rel=1e-14)


@every_case
def test_it_is_the_plane_at_v_zero(case):
    reduced = build(case)
    plane = StatesModel(reduced.chain, case[3])
    theta = torch.from_numpy(np.random.default_rng(1).uniform(-2, 2, (20, 3)))
    theta[:, 2] = 0
    assert torch.allclose(reduced.loss(theta), plane.loss(theta[:, :2]), rtol=1e-13, atol=0)
    gradient = reduced.gradient(theta)
    assert torch.allclose(gradient[:, :2], plane.gradient(theta[:, :2]), rtol=1e-10, atol=1e-13)
    assert not gradient[:, 2].any()
    assert reduced.metric[:2] == plane.metric
