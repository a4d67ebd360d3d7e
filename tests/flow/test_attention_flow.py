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
from flowsim.landscape import search_critical_points
from flowsim.landscape.critical import curvatures
from flowsim.models import CanonicalModel, LinearAttentionModel, UniformAttentionModel
from flowsim.models.canonical.basins import SADDLE_W


def starts(n, generator, width=(2.5, 2.5, 0.9)):
    box = torch.tensor(width, dtype=torch.float64)
    return box * (2 * torch.rand(n, 3, dtype=torch.float64, generator=generator) - 1)


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3), (0.3, 0.7)])
def test_dynamic_bias_finds_critical_points_of_the_same_kinds(p, q, generator):
    chain = BinaryChain(p, q)
    model = CanonicalModel(chain, bias="dynamic")
    start = starts(80, generator, (1.5, 1.5, 1.0))
    limit = find_limits(model, start)
    assert (limit.label != Label.UNRESOLVED).double().mean() >= 0.95
    for code, loss in ((1, chain.entropy_rate), (2, chain.stationary_entropy)):
        assert ((limit.loss - loss).abs()[limit.label == code] < 1e-9).all()
    assert ((limit.label == Label.LOCAL_MINIMUM).any()) == (p + q != 1)


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


def test_saddle_of_the_plane_without_attention_is_the_canonical_one():
    w = torch.linspace(-2, 2, 30, dtype=torch.float64)
    for model in (
        UniformAttentionModel(BinaryChain(0.5, 0.8), 8),
        LinearAttentionModel(BinaryChain(0.5, 0.8)),
    ):
        assert model.plane.saddles(w, {})[0].item() == pytest.approx(SADDLE_W, abs=1e-9)


def test_search_reports_its_extent_and_what_it_found(generator):
    linear = LinearAttentionModel(BinaryChain(0.2, 0.3))
    search = search_critical_points(linear, generator, starts=14)
    assert search.on_plane + search.global_minima + search.not_found + len(search.theta) <= 14
    assert search.global_minima > 0
    assert search.on_plane > 0
    assert len(search.theta) == 0


def test_a_further_saddle_of_uniform_attention_far_out():
    """Its loss is below h(π₁), and it is unstable."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 64)
    point = torch.tensor([[0.3008858503554205, -0.5184497793621894, -21.312965179425067]]).double()
    assert model.gradient(point).norm() < 1e-9
    low, middle, high = curvatures(model, point)[0]
    assert low < -1e-6 < 0 < middle < high
    assert model.chain.entropy_rate < model.loss(point).item() < model.chain.stationary_entropy
