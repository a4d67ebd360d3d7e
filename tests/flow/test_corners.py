"""Rows that meet the corners of a: paths against scipy's in a rounded field, and labels."""

import numpy as np
import pytest
import torch
from rounded_kinks import uniform
from scipy.integrate import solve_ivp

from flowsim import BinaryChain, Label, Rule, Status, find_limits, trajectories
from flowsim.models import UniformAttentionModel


@pytest.mark.parametrize("length", [1, 3])
def test_paths_slide_where_an_independent_integration_slides(length, generator):
    chain, times = BinaryChain(0.5, 0.8), np.array([0.0, 0.5, 2.0, 8.0, 25.0])
    model, rate = UniformAttentionModel(chain, length, "dynamic"), uniform(chain, length, 1e-8)
    start = 5 * torch.rand(8, 4, dtype=torch.float64, generator=generator) - 2.5
    start[:, 2] = -1.2 + 0.6 * torch.rand(8, dtype=torch.float64, generator=generator)
    start = start[::7]  # of which one or both slide
    paths = trajectories(model, start, times, rtol=1e-9).numpy()
    for row, path in zip(start.numpy(), np.moveaxis(paths, 1, 0), strict=True):
        known = solve_ivp(rate, (0, times[-1]), row, "BDF", times, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(path, known.y.T, rtol=1e-5, atol=1e-5)
    a, corners = paths[..., 2], -1 - 2 * np.arange(length)  # where ½ + a m = 0 at some m
    assert (np.isclose(a[1:], a[:-1], rtol=0, atol=1e-12) & np.isin(a[1:], corners)).any()


def test_a_row_that_counts_ones_ever_more_drifts():
    """Its loss stays above the entropy rate, e²a tends to a constant and |a| grows like t^⅓."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), length=2, bias="dynamic")
    start = torch.tensor([[0.9, -0.3, -1.9, 0.0]], dtype=torch.float64)
    found = find_limits(model, start)
    assert found.label == Label.LOCAL_MINIMUM
    assert found.rule == Rule.DRIFTS
    path = trajectories(model, start, [0.0, 1e6, 1e9, 1e12])[1:, 0]
    e, a = path[:, 0], path[:, 2]
    assert (a[1:] / a[:-1]).tolist() == pytest.approx([10.0, 10.0], rel=0.04)
    assert (e * e * a)[2].item() == pytest.approx((e * e * a)[1].item(), rel=0.04)
    excess = model.loss(path) - model.chain.entropy_rate
    assert (excess > 0.2 * model.chain.mutual_information).all()
    assert (excess.diff() < 0).all()


def test_a_row_whose_best_bias_follows_drifts_too_and_needs_time_to_be_labelled():
    """A valley of the loss leads to a → −∞ while e²|a| stays bounded."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 2)
    start = torch.tensor([[2.2563, 1.8470, -0.7001]], dtype=torch.float64)
    found = find_limits(model, start, max_steps=60)
    assert found.label == Label.UNRESOLVED and found.status == Status.TIMED_OUT
    assert found.theta[0, 2] < -2 and found.loss < model.loss(start)
    found = find_limits(model, start)
    assert found.label == Label.LOCAL_MINIMUM and found.rule == Rule.DRIFTS
    assert found.theta[0, 2] < -20
