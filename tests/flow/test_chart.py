"""The coordinates of the reference: there and back, vectors, tolerances, and what stays zero."""

import math

import torch
from conftest import rows

from flowsim import BinaryChain, CanonicalModel, LinearAttentionModel, UntiedModel
from flowsim.flow.chart import Chart

CHAIN = BinaryChain(0.5, 0.8)
THETA = rows((1.5, -0.2, 0.7), (-0.3, 4.0, -2.0), (0.0, 0.5, 0.1))


def test_there_and_back_with_zeros_that_stay():
    for model in (LinearAttentionModel(CHAIN), UntiedModel(CHAIN)):
        chart = Chart.at(model, THETA)
        y = chart.to_chart(THETA)
        torch.testing.assert_close(chart.to_theta(y), THETA, rtol=1e-15, atol=0)
        logarithmic = torch.tensor(model.keeps_sign)
        assert chart.held == (model.name == "linear") and y.isfinite().all()
        plain = THETA[:, ~logarithmic]
        assert torch.equal(y[:, ~logarithmic], plain) and plain.numel()
        sizes = torch.where(THETA == 0, 1.0, THETA.abs()).log()
        assert torch.equal(y[:, logarithmic], sizes[:, logarithmic])
    canonical = Chart.at(CanonicalModel(CHAIN), THETA[:, :2])
    torch.testing.assert_close(canonical.to_theta(canonical.to_chart(THETA[:, :2])), THETA[:, :2])
    assert canonical.to_chart(rows((-1.5, -0.2), (-0.3, 4.0), (0.0, 0.5)))[0].isnan().tolist() == [
        True, False,
    ]  # fmt: skip
    chosen = canonical.select(torch.tensor([2]))
    assert torch.equal(chosen.signs, canonical.signs[2:]) and chosen.held


def test_nothing_underflows():
    chart = Chart.at(CanonicalModel(CHAIN), rows((1.0, -1.0)))
    found = chart.to_theta(rows((-5000.0, -1000.0)))
    assert torch.equal(found, rows((math.exp(-700), -math.exp(-700))))
    assert torch.equal(chart.to_chart(rows((1e-320, -1e-320))), rows((-700.0, -700.0)))


def test_tangent_vectors_and_tolerances():
    model, vector = LinearAttentionModel(CHAIN), rows((3.0, 4.0, 5.0)).expand(3, 3)
    chart = Chart.at(model, THETA)
    expected = vector / THETA
    expected[2, 0], expected[:, 2] = 0.0, vector[:, 2]
    assert torch.equal(chart.push(THETA, vector), expected)
    assert torch.equal(chart.select(torch.tensor([0])).push(THETA[:1], vector[:1]), expected[:1])
    no_zero = Chart.at(CanonicalModel(CHAIN), THETA[:2, :2])
    assert not no_zero.held
    assert torch.equal(no_zero.push(THETA[:2, :2], vector[:2, :2]), (vector / THETA)[:2, :2])
    allowed = chart.scale(rows((-2.0, 3.0, -4.0)), 1e-3, 1e-2)
    torch.testing.assert_close(allowed, rows((1e-3, 1e-3, 1e-2 + 4e-3)), rtol=1e-10, atol=0)
    tight = chart.scale(rows((-2.0, 3.0, -4.0)), 1e-20, 0.0)
    torch.testing.assert_close(tight, rows((2e-15, 3e-15, 4e-20)), rtol=1e-4, atol=0)
