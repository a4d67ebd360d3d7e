"""The search for critical points, on losses whose critical points are known."""

import numpy as np
import pytest
import torch

from flowsim import Label, Model, from_loss
from flowsim.landscape import critical_points_in
from flowsim.landscape.critical import classify_critical


class Formula(Model):
    """A loss of x and y, or a flow that is no gradient flow."""

    coordinates = ("x", "y")

    def __init__(self, of):
        self.of = of

    def loss(self, theta):
        return self.of(*theta.unbind(-1))


class Slab(Formula):
    coordinates = ("x", "y", "z")


class VanDerPol(Formula):
    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([y, y - x - y * x**2], -1)


WELLS = sorted(np.roots([1, 0, -1, 0.2]).real)
IN_WINDOW = {
    "wells": (
        Formula(lambda x, y: (x**2 - 1) ** 2 / 4 + 0.2 * x + y**2 / 2),
        [(x, 0, unstable) for x, unstable in zip(WELLS, (0, 1, 0), strict=True)],
    ),
    "waves": (
        Formula(lambda x, y: x.cos() + y.cos()),
        [(i * np.pi, j * np.pi, 2 - i % 2 - j % 2) for i in (-1, 0, 1) for j in (-1, 0, 1)],
    ),
    "valley": (Formula(lambda x, y: (1 - x) ** 2 + 100 * (y - x**2) ** 2), [(1, 1, 0)]),
    # not the curve xy = 1 of minima
    "curve": (Formula(lambda x, y: (x * y - 1) ** 2), [(0, 0, 1)]),
    "slope": (Formula(lambda x, y: torch.nn.functional.softplus(-x) + y**2), []),
    "kink": (Formula(lambda x, y: x.abs() + y.abs()), []),
    "undefined beyond an edge": (Formula(lambda x, y: x.log() ** 2 + y**2), [(1, 0, 0)]),
    "cycle": (VanDerPol(lambda x, y: x + y), [(0, 0, 2)]),
}


@pytest.mark.parametrize("name", IN_WINDOW)
def test_the_critical_points_of_a_window(name):
    model, expected = IN_WINDOW[name]
    high = torch.tensor([4.0, 3.5]).double()
    points, unstable = critical_points_in(model, -high, high)
    assert unstable.tolist() == [kind for *_, kind in expected]
    places = torch.tensor([place for *place, _ in expected], dtype=torch.float64).reshape(-1, 2)
    torch.testing.assert_close(points, places, rtol=0, atol=1e-9)


def test_points_of_a_slice_are_critical_in_all_coordinates():
    """Two wells in x, z pushed off 0: at z = 0 the plane's three points, at z = 0.5 none."""
    model = Slab(lambda x, y, z: (x**2 - 1) ** 2 / 4 + y**2 - z**2 * (2 + y))
    for held, expected in ((0.0, [(-1.0, 1), (0.0, 2), (1.0, 1)]), (0.5, [])):
        low, high = torch.tensor([[-2.0, -2.0, held], [2.0, 2.0, held]]).double()
        points, unstable = critical_points_in(model, low, high)
        found = zip(points[:, 0].round(decimals=9).tolist(), unstable.tolist(), strict=True)
        assert list(found) == expected and (points[:, 2] == held).all()


@pytest.mark.parametrize(("sign", "label"), [(1, Label.LOCAL_MINIMUM), (-1, Label.SADDLE)])
def test_the_kind_of_a_point_does_not_depend_on_the_unit_of_the_loss(sign, label):
    for unit in (1e-6, 1.0, 1e6):
        bowl = from_loss(lambda x, y, u=unit: u * (x**2 + sign * 1e-4 * y**2), "bowl")
        for decisive in (False, True):
            assert classify_critical(bowl, torch.zeros(1, 2).double(), decisive) == label


def test_a_centre_is_neither_minimum_nor_maximum():
    class Predators(Formula):
        def field(self, theta):
            x, y = theta.unbind(-1)
            return torch.stack([0.7 * x - 0.3 * x * y, 0.11 * x * y - 0.9 * y], -1)

    low, high = torch.tensor([[0.5, 0.5], [20.0, 6.0]]).double()
    points, kind = critical_points_in(Predators(lambda x, y: x + y), low, high)
    assert kind.tolist() == [-1] and points[0].tolist() == pytest.approx([0.9 / 0.11, 0.7 / 0.3])
