"""Minima at kinks are decided; a kink that leads elsewhere, or a slope without bound, is not."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim import Label, Rule
from flowsim.flow.nonsmooth_minima import kink_minimum


def lowest(theta, place):
    return np.abs(theta - np.array(place)).max()


@pytest.mark.parametrize(
    ("loss", "place"),
    [
        (lambda x, y: x.abs() + y**2, (0.0, 0.0)),
        (lambda x, y: torch.relu(1 - x - y) + 0.2 * (x**2 + 2 * y**2), (2 / 3, 1 / 3)),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                (lambda x, y: (x - 0.3).abs() + 2 * (y + 0.4).abs(), (0.3, -0.4)),
                (lambda x, y: torch.maximum(x**2 + y, y**2 - y), (0.0, 0.0)),
                (lambda x, y: (x + y).abs() + (y - 1) ** 2, (-1.0, 1.0)),
            )
        ),
    ],
)
def test_a_row_that_creeps_along_a_kink_ends_in_the_minimum_it_leads_to(loss, place):
    found = flowsim.find_limits(flowsim.from_loss(loss), [[1.5, 0.7], [-0.8, 1.9]])
    decided = found.label == Label.LOCAL_MINIMUM
    assert decided.all() and (found.label[~decided] == Label.UNRESOLVED).all()
    assert (found.rule[decided] == Rule.KINK).all()
    assert lowest(found.theta[decided], place) < 1e-6


def test_a_unit_of_the_coordinates_and_a_metric_change_nothing():
    def loss(x, y):
        return (x / 1e-9 + y / 1e-9).abs() + (y / 1e-9 - 1) ** 2

    tiny = flowsim.from_loss(loss, "tiny")
    end = kink_minimum(tiny, 1e-9 * torch.tensor([-0.4, 0.4]).double(), 1e-9)
    assert lowest(end.numpy(), (-1e-9, 1e-9)) < 1e-15
    heavy = flowsim.from_loss(lambda x, y: (x + y).abs() + (y - 1) ** 2, "heavy", (1.0, 9.0))
    end = kink_minimum(heavy, torch.tensor([-0.4, 0.4]).double(), 1.0)
    assert lowest(end.numpy(), (-1, 1)) < 1e-6


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: x.abs() - y,  # the kink leads to infinity
        lambda x, y: x.abs() + 1e-6 * y,
        lambda x, y: x.abs() + torch.exp(-y - 10),  # the slope along it fades
        lambda x, y: (x**2 + y**2) / 2 + 1e-3 * x,  # no kink
        lambda x, y: 100 * (y - x**2 / 100).abs().sqrt() + (x + 10).abs() / 100,  # no bound
        lambda x, y: -x.abs() + y**2,  # a ridge
    ],
)
def test_nothing_else_is_called_a_minimum_at_a_kink(loss):
    model = flowsim.from_loss(loss)
    for start in ([1e-9, 0.3], [-2e-7, -0.6], [0.2, 1e-9]):
        assert kink_minimum(model, torch.tensor(start).double(), 1.0) is None


@pytest.mark.parametrize("height", np.linspace(-0.5, 0.5, 7))
def test_no_valley_along_a_kink_is_crossed_back_and_forth(height):
    model = flowsim.from_loss(lambda x, y: x.abs() + y**2)
    end = kink_minimum(model, torch.tensor([-2.6e-12, height]).double(), 1.2)
    assert end is not None and lowest(end.numpy(), (0, 0)) < 1e-7


def test_two_minima_at_kinks_are_two_ends():
    model = flowsim.from_loss(lambda x, y: (x.abs() - 1).abs() + y.abs())
    found = flowsim.find_limits(
        model, torch.tensor([[1.4, 0.3], [-0.7, 0.2], [0.6, -1.0]]).double()
    )
    codes = flowsim.landscape.Ends(model).identify(found).tolist()
    assert codes[0] == codes[2] != codes[1]


class SignFlow(flowsim.Model):
    coordinates = ("a", "b")

    def loss(self, theta):
        return (theta.prod(-1) - 1) ** 2 / 2

    def field(self, theta):
        return -self.gradient(theta).sign()


@pytest.mark.slow
def test_where_a_field_jumps_branches_are_two_curves_and_the_point_between_them_a_saddle():
    starts = [[0.1, 0.1], [1.9, 0.3], [0.4, 1.7], [-0.2, -0.3], [-1.6, 0.3], [0.7, -0.7], [2, 2.5]]
    model, ends = SignFlow(), flowsim.landscape.Ends(SignFlow())
    found = flowsim.find_limits(model, torch.tensor(starts, dtype=torch.float64))
    assert ends.identify(found).tolist() == [2, 2, 2, 1, 1, 3, 2]
    assert [(end.kind, end.dimension) for end in ends.found] == [
        ("minimum", 1),
        ("minimum", 1),
        ("saddle", 0),
    ]
    assert found.theta[5].abs().max() < 1e-6
    kept = found.theta[[1, 2]].abs().diff(dim=1)[:, 0]  # |b| − |a|
    assert kept.tolist() == pytest.approx([-1.6, 1.3], abs=1e-9)


def test_a_pole_of_the_loss_is_no_minimum():
    pole = flowsim.from_loss(lambda x, y: torch.log(x**2 + y**2) + x**2 + y**2)
    assert kink_minimum(pole, torch.tensor([9e-12, 4.6e-12]).double(), 1.0) is None
