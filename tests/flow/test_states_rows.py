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

CHAINS = {"above": (3, 0.8), "below": (3, 0.5), "five": (5, 0.9)}


def build(name, length=4):
    return StatesAttentionModel(MarkovChain.symmetric(*CHAINS[name]), length, 4)


def starts(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-2, 2, (count, 3)))


@pytest.mark.parametrize("name", CHAINS)
def test_at_v_zero_labels_and_limits_are_the_planes(name):
    reduced, theta = build(name), starts(60)
    theta[:, 2] = 0
    plane = StatesModel(reduced.chain, 4)
    limits, wanted = find_limits(reduced, theta), find_limits(plane, theta[:, :2])
    assert (limits.label == wanted.label).all()
    assert {Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM} <= set(limits.label.tolist())
    assert torch.allclose(limits.theta[:, :2], wanted.theta, atol=2e-5)
    assert not limits.theta[:, 2].any()


@pytest.mark.parametrize(
    "name, rows",
    [("above", [1, 2, 4, 6]), pytest.param("below", [0, 1, 2], marks=pytest.mark.slow)],
)
def test_most_rows_are_decided_and_learn_at_v_zero(name, rows):
    reduced, theta = build(name, 8), starts(8)[rows]
    limits = find_limits(reduced, theta)
    assert int((limits.label == Label.UNRESOLVED).sum()) <= 1
    learned = limits.label == Label.GLOBAL_MINIMUM
    entropy = reduced.chain.entropy_rate
    assert torch.allclose(limits.loss[learned], torch.tensor(entropy).double(), atol=1e-10)
    assert float(limits.theta[learned][:, 2].abs().max()) < 1e-3
    trapped = limits.label == Label.LOCAL_MINIMUM
    # e has fallen to zero, or does so in a valley along which v runs away
    fallen = limits.theta[trapped][:, 0] == 0
    assert name == "below" or fallen.double().mean() > 0.6
    assert float(limits.theta[trapped][~fallen, 0].abs().max()) < 1e-4
    assert float(limits.theta[trapped][~fallen, 2].abs().min()) > 1e3
    mirrored = find_limits(reduced, theta[:3] * torch.tensor([-1, 1, 1]))
    assert (mirrored.label == limits.label[:3]).all()


def test_a_start_on_the_critical_plane_stays():
    reduced = build("above")
    limits = find_limits(reduced, [[0.0, 1.0, 0.5], [0.0, -1.5, 0.5]])
    assert limits.label.tolist() == [Label.LOCAL_MINIMUM, Label.SADDLE]
    assert limits.theta.tolist() == [[0.0, 1.0, 0.5], [0.0, -1.5, 0.5]]
