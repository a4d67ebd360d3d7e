"""The coordinates of the reference: there and back, vectors, and what stays zero."""

import math

import torch
from conftest import rows

from flowsim import BinaryChain
from flowsim.flow.chart import Chart
from flowsim.models import CanonicalModel, LinearAttentionModel, UntiedModel

CHAIN = BinaryChain(0.5, 0.8)
THETA = rows((1.5, -0.2, 0.7), (-0.3, 4.0, -2.0), (0.0, 0.5, 0.1))


def test_there_and_back_with_zeros_that_stay():
    for model in (LinearAttentionModel(CHAIN), UntiedModel(CHAIN)):
        chart = Chart.at(model, THETA)
        y = chart.to_chart(THETA)
        torch.testing.assert_close(chart.to_theta(y), THETA, rtol=1e-15, atol=0)
        logarithmic = torch.tensor(model.keeps_sign)
        assert chart.at_zero == (model.name == "linear") and y.isfinite().all()
        plain = THETA[:, ~logarithmic]
        assert torch.equal(y[:, ~logarithmic], plain) and plain.numel()
        sizes = torch.where(THETA == 0, 1.0, THETA.abs()).log()
        assert torch.equal(y[:, logarithmic], sizes[:, logarithmic])
    canonical = Chart.at(CanonicalModel(CHAIN), THETA[:, :2])
    torch.testing.assert_close(canonical.to_theta(canonical.to_chart(THETA[:, :2])), THETA[:, :2])
    assert canonical.to_chart(rows((-1.5, -0.2), (-0.3, 4.0), (0.0, 0.5)))[0].isnan().tolist() == [
        True, False,
    ]  # fmt: skip


def test_nothing_underflows():
    chart = Chart.at(CanonicalModel(CHAIN), rows((1.0, -1.0)))
    found = chart.to_theta(rows((-5000.0, -1000.0)))
    assert torch.equal(found, rows((math.exp(-700), -math.exp(-700))))
    assert torch.equal(chart.to_chart(rows((1e-320, -1e-320))), rows((-700.0, -700.0)))


def test_tangent_vectors():
    model, vector = LinearAttentionModel(CHAIN), rows((3.0, 4.0, 5.0)).expand(3, 3)
    chart = Chart.at(model, THETA)
    expected = vector / THETA
    expected[2, 0], expected[:, 2] = 0.0, vector[:, 2]
    assert torch.equal(chart.push(THETA, vector), expected)
    no_zero = Chart.at(CanonicalModel(CHAIN), THETA[:2, :2])
    assert not no_zero.at_zero
    assert torch.equal(no_zero.push(THETA[:2, :2], vector[:2, :2]), (vector / THETA)[:2, :2])
