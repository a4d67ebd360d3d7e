"""Gap models whose bias is a coordinate: limits and paths."""

import numpy as np
import pytest
import torch

from flowsim import (
    BinaryChain,
    Label,
    Rule,
    find_limits,
    trajectories,
)
from flowsim.models import CanonicalModel, LinearAttentionModel, UntiedModel
from flowsim.reference import integrate

MODELS = {"canonical": CanonicalModel, "linear": LinearAttentionModel, "untied": UntiedModel}


def starts(model, n, generator, size=1.5):
    k = len(model.coordinates)
    return size * (2 * torch.rand(n, k, dtype=torch.float64, generator=generator) - 1)


@pytest.mark.parametrize("name", list(MODELS))
def test_limits_and_paths(name, generator):
    model = MODELS[name](BinaryChain(0.5, 0.8), bias="dynamic")
    start = starts(model, 16, generator)
    default, finer = find_limits(model, start), find_limits(model, start, rtol=1e-10)
    assert torch.equal(default.label, finer.label)
    assert (default.label == Label.GLOBAL_MINIMUM).any()
    assert (default.label == Label.LOCAL_MINIMUM).any() == (name != "untied")
    assert (default.label != Label.UNRESOLVED).double().mean() > 0.9
    times = torch.tensor([0.0, 1.0, 10.0]).double()
    path = trajectories(model, start[:6], times)
    assert (path - integrate(model, start[:6], times, 1e-9, 1e-9)).abs().max() < 1e-6


def test_only_the_bias_moves_on_the_plane():
    model = CanonicalModel(BinaryChain(0.5, 0.8), bias="dynamic")
    start = torch.tensor([[0.0, -0.3, 2.0]]).double()
    found = find_limits(model, start)
    assert found.rule == Rule.CAME_TO_REST
    assert torch.equal(found.theta[:, :2], start[:, :2])
    assert found.theta[0, 2].item() == pytest.approx(np.log(0.5 / 0.8), abs=1e-6)
