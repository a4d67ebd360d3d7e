"""Gap models whose bias is a coordinate: field, Jacobian and loss of one row, limits and paths."""

import numpy as np
import pytest
import torch

from flowsim import (
    BinaryChain,
    CanonicalModel,
    Label,
    LinearAttentionModel,
    Rule,
    UntiedModel,
    find_limits,
    integrate,
    trajectories,
)
from flowsim.flow.rows.smooth import dynamic_bias as dynamic_bias

MODELS = {
    "canonical": (CanonicalModel, dynamic_bias.CANONICAL),
    "linear": (LinearAttentionModel, dynamic_bias.LINEAR),
    "untied": (UntiedModel, dynamic_bias.UNTIED),
}


def starts(model, n, generator, size=1.5):
    k = len(model.coordinates)
    return size * (2 * torch.rand(n, k, dtype=torch.float64, generator=generator) - 1)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3)])
def test_one_pass_agrees_with_the_model(name, p, q, generator):
    kind, which = MODELS[name]
    model = kind(BinaryChain(p, q), bias="dynamic")
    reals, ints, room = dynamic_bias.constants(model.chain, which)
    k, logs = len(model.coordinates), np.array(model.keeps_sign)
    theta = starts(model, 30, generator, 2.5)
    slopes = torch.func.vmap(torch.func.jacrev(model.gradient))(theta).numpy()
    gradients, losses = model.gradient(theta).numpy(), model.loss(theta).numpy()
    for row, gradient, hessian, loss in zip(theta.numpy(), gradients, slopes, losses, strict=True):
        y = np.where(logs, np.log(np.abs(row)), row)
        memory, field, jacobian = np.zeros(room), np.empty(k), np.empty((k, k))
        memory[dynamic_bias.SIGN] = np.sign(row[model.coordinates.index("w")])
        arguments = y, reals, ints, memory
        assert dynamic_bias.expand(*arguments, field, jacobian, 1.0) == 0
        scale = np.where(logs, row, 1.0)
        expected = -hessian * scale / scale[:, None] + np.diag(np.where(logs, gradient / scale, 0))
        assert np.abs(field * scale + gradient).max() <= 1e-12 * np.abs(gradient).max()
        assert np.abs(jacobian - expected).max() <= 1e-11 * np.abs(expected).max()
        assert abs(dynamic_bias.loss(*arguments) - loss) < 1e-13


@pytest.mark.parametrize("name", list(MODELS))
def test_limits_and_paths(name, generator):
    model = MODELS[name][0](BinaryChain(0.5, 0.8), bias="dynamic")
    start = starts(model, 40, generator)
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
