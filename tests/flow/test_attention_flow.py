"""The flow of models without a logit gap: uniform attention, dynamic bias, rank-one."""

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


def test_a_further_saddle_of_uniform_attention_far_out():
    """Its loss is below h(π₁), and it is unstable."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 64)
    point = torch.tensor([[0.3008858503554205, -0.5184497793621894, -21.312965179425067]]).double()
    assert model.gradient(point).norm() < 1e-9
    low, middle, high = curvatures(model, point)[0]
    assert low < -1e-6 < 0 < middle < high
    assert model.chain.entropy_rate < model.loss(point).item() < model.chain.stationary_entropy
