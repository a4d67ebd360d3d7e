"""The flow of models without a logit gap: uniform attention, dynamic bias, rank-one."""

import pytest
import torch

from flowsim import (
    BinaryChain,
    Label,
    Rule,
    Status,
    find_limits,
)
from flowsim.landscape.critical import curvatures
from flowsim.models import UniformAttentionModel


def test_orbits_that_run_off_to_infinity_need_time_to_be_labelled():
    """With N = 2 a valley of the loss leads to a → −∞ while e²|a| stays bounded."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 2)
    start = torch.tensor([[2.2563, 1.8470, -0.7001]], dtype=torch.float64)
    limit = find_limits(model, start, max_steps=60)
    assert limit.label == Label.UNRESOLVED
    assert limit.status == Status.TIMED_OUT
    assert limit.theta[0, 2] < -2
    assert limit.loss < model.loss(start)
    later = find_limits(model, start)
    assert later.label == Label.LOCAL_MINIMUM
    assert later.rule == Rule.DRIFTS
    assert later.theta[0, 2] < -20


@pytest.mark.parametrize("length", [1, 5, 64])
def test_plane_curvature_is_minus_twice_lambda_c(length):
    model = UniformAttentionModel(BinaryChain(0.35, 0.8), length)
    w = torch.linspace(-2, 2, 23, dtype=torch.float64)
    for a in (-0.8, 0.3, 1.7):
        line = torch.stack([torch.zeros_like(w), w, torch.full_like(w, a)], dim=-1)
        expected = -2 * model.chain.second_eigenvalue * model.plane_covariance(w, line[:, 2])
        assert (model.plane.curvature(w, {"a": a}) - expected).abs().max() < 1e-8
        saddle = model.plane.saddles(w, {"a": a})
        assert saddle.shape == (1,)
        assert model.plane_covariance(saddle, torch.full_like(saddle, a)).abs() < 1e-8
        inside = line[1:-1]
        curvature = model.hessian(inside)[:, 0, 0]
        assert (curvature - expected[1:-1]).abs().max() < 1e-8


def test_a_further_saddle_of_uniform_attention_far_out():
    """Its loss is below h(π₁), and it is unstable."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 64)
    point = torch.tensor([[0.3008858503554205, -0.5184497793621894, -21.312965179425067]]).double()
    assert model.gradient(point).norm() < 1e-9
    low, middle, high = curvatures(model, point)[0]
    assert low < -1e-6 < 0 < middle < high
    assert model.chain.entropy_rate < model.loss(point).item() < model.chain.stationary_entropy
