"""Rows of S states with uniform attention: labels, limits, paths and times."""

import numpy as np
import pytest
import torch

from flowsim import (
    Label,
    MarkovChain,
    find_limits,
)
from flowsim.models import StatesAttentionModel, StatesModel

CHAINS = {"above": (3, 0.8), "below": (3, 0.5)}


def build(name, length=4):
    return StatesAttentionModel(MarkovChain.symmetric(*CHAINS[name]), length, 4)


def starts(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-2, 2, (count, 3)))


@pytest.mark.parametrize("name", CHAINS)
def test_at_v_zero_labels_and_limits_are_the_planes(name):
    reduced, theta = build(name), starts(8)
    theta[:, 2] = 0
    plane = StatesModel(reduced.chain, 4)
    limits, wanted = find_limits(reduced, theta), find_limits(plane, theta[:, :2])
    assert (limits.label == wanted.label).all()
    assert {Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM} <= set(limits.label.tolist())
    assert torch.allclose(limits.theta[:, :2], wanted.theta, atol=2e-5)
    assert not limits.theta[:, 2].any()


@pytest.mark.slow
def test_rows_learn_at_v_zero_or_are_trapped():
    reduced = build("above")
    limits = find_limits(reduced, starts(5)[[1, 2, 4]])
    learned = limits.label == Label.GLOBAL_MINIMUM
    assert (limits.label != Label.UNRESOLVED).sum() >= 2
    assert (limits.loss[learned] - reduced.chain.entropy_rate).abs().max() < 1e-10
    assert float(limits.theta[learned][:, 2].abs().max()) < 1e-3
    assert float(limits.theta[limits.label == Label.LOCAL_MINIMUM][:, 0].abs().max()) < 1e-4


def test_a_start_on_the_critical_plane_stays():
    reduced = build("above")
    limits = find_limits(reduced, [[0.0, 1.0, 0.5], [0.0, -1.5, 0.5]])
    assert limits.label.tolist() == [Label.LOCAL_MINIMUM, Label.SADDLE]
    assert limits.theta.tolist() == [[0.0, 1.0, 0.5], [0.0, -1.5, 0.5]]
