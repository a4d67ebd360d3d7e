"""Minima at kinks are decided; a kink that leads elsewhere, or a slope without bound, is not."""

import numpy as np
import pytest
import torch

import flowsim
from flowsim.flow.nonsmooth_minima import attracts, held_at_jump, kink_minimum, slide


def lowest(theta, place):
    return np.abs(theta - np.array(place)).max()


def test_a_unit_of_the_coordinates_and_a_metric_change_nothing():
    def loss(x, y):
        return (x / 1e-9 + y / 1e-9).abs() + (y / 1e-9 - 1) ** 2

    tiny = flowsim.from_loss(loss, "tiny")
    end = kink_minimum(tiny, 1e-9 * torch.tensor([-0.4, 0.4]).double(), 1e-9)
    assert lowest(end.numpy(), (-1e-9, 1e-9)) < 1e-15
    heavy = flowsim.from_loss(lambda x, y: (x + y).abs() + (y - 1) ** 2, "heavy", (1.0, 9.0))
    end = kink_minimum(heavy, torch.tensor([-0.4, 0.4]).double(), 1.0)
    assert lowest(end.numpy(), (-1, 1)) < 1e-6


def test_units_that_differ_by_1e5_change_no_label():
    units = (3e-3, 300.0)
    bent = flowsim.from_loss(
        lambda x, y: (x / units[0] - 0.3).abs() + ((y / units[1]) ** 2 - 1) ** 2 / 4,
        "bent",
        tuple(unit**-2 for unit in units),
    )
    limits = flowsim.find_limits(bent, [[-1.3 * units[0], 1.9 * units[1]]])
    assert limits.label.tolist() == [flowsim.Label.LOCAL_MINIMUM]
    np.testing.assert_allclose(limits.theta[0] / units, [0.3, 1], atol=1e-6)


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


def test_a_pole_of_the_loss_is_no_minimum():
    pole = flowsim.from_loss(lambda x, y: torch.log(x**2 + y**2) + x**2 + y**2)
    assert kink_minimum(pole, torch.tensor([9e-12, 4.6e-12]).double(), 1.0) is None


class Jumps(flowsim.Model):
    """A field of the distances from (½, ½)."""

    coordinates = ("x", "y")

    def __init__(self, formula):
        self.formula = formula

    def loss(self, theta):
        return theta.square().sum(-1)

    def field(self, theta):
        return torch.stack(self.formula(*(theta - 0.5).unbind(-1)), -1)


@pytest.mark.parametrize(("signs", "held"), [((-1, -1), True), ((1, -1), False), ((1, 1), False)])
def test_a_jump_holds_and_attracts_where_velocities_point_to_it_from_both_sides(signs, held):
    model = Jumps(lambda x, y: [signs[0] * x.sign(), signs[1] * y.sign()])
    near = torch.tensor([[0.5 + 3e-7, 0.5 - 2e-7]], dtype=torch.float64)
    (place,) = held_at_jump(model, near, torch.ones(1).double())
    assert (place is not None) == held and (not held or (place - 0.5).abs().max() < 1e-6)
    radius = torch.full((1,), 1e-4).double()
    assert attracts(model, torch.full((1, 2), 0.5).double(), radius).tolist() == [held]


@pytest.mark.parametrize(("formula", "rests"), [
    (lambda x, y: [-x.sign(), -y.sign()], True),
    (lambda x, y: [-x.sign(), 1 + 0 * y], False),  # the jump leads on
    (lambda x, y: [-1e6 * x, -y], False),  # there is none
])  # fmt: skip
def test_what_creeps_on_a_jump_slides_along_it_to_where_it_rests(formula, rests):
    slid = slide(Jumps(formula), torch.tensor([[0.5, 0.9]]).double(), torch.ones(1).double())
    assert bool((slid - 0.5).abs().max() < 1e-6) == rests
