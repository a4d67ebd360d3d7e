"""Labels of any loss and any field say what was seen: known ends of each kind."""

import math

import numpy as np
import pytest
import torch

import flowsim
from flowsim import Label, Rule, Status
from flowsim.landscape.critical import curvatures
from flowsim.landscape.ends import Ends
from flowsim.landscape.stability import stability

PERIODIC, INFINITY = [Label.PERIODIC], [Label.INFINITY]


class Field(flowsim.Model):
    """A field that is written as a formula of its coordinates."""

    def __init__(self, names, formula):
        self.coordinates, self.formula = tuple(names), formula

    def loss(self, theta):
        return (theta**2).sum(-1)

    def field(self, theta):
        return torch.stack(self.formula(*theta.unbind(-1)), -1)


class Relu(flowsim.Model):
    """A ReLU unit that shall learn a ReLU; where it is dead the loss is 0.7."""

    coordinates = ("w", "b")

    def loss(self, theta):
        w, b = theta.unbind(-1)
        x = torch.linspace(-2, 2, 41, dtype=theta.dtype)
        out = torch.relu(w[..., None] * x + b[..., None])
        return ((out - torch.relu(x)) ** 2).mean(-1)


def labels(found):
    return [Label(int(code)) for code in np.unique(found.label)]


@pytest.mark.parametrize(
    ("formula", "starts", "period"),
    [
        (lambda x, v: [v, -x], [[1.0, 0.0], [0.3, 2.0]], 2 * math.pi),
        (lambda x, v: [v, (1 - x**2) * v - x], [[0.1, 0.0], [3.0, 1.0]], 6.6632868593),
        (lambda x, v: [-v * (1 + x**2 + v**2), x * (1 + x**2 + v**2)], [[1.0, 0.0]], math.pi),
    ],
)
def test_closed_orbits_and_cycles_are_periodic(formula, starts, period):
    found = flowsim.find_limits(Field("xv", formula), starts)
    assert labels(found) == PERIODIC and (found.rule == Rule.RETURNS).all()
    assert np.abs(found.period / period - 1).max() < 1e-5


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: [-0.1 * x - 5 * y, 5 * x - 0.1 * y],
        lambda x, v: [v, -x - 0.005 * v],
        lambda x, v: [v, -x.sin() - 0.02 * v],
    ],
)
def test_slow_spirals_end_in_their_sink(formula):
    found = flowsim.find_limits(Field("xy", formula), [[1.0, 0.0], [0.2, -0.5]])
    assert labels(found) == [Label.LOCAL_MINIMUM] and np.abs(found.theta).max() < 1e-9


@pytest.mark.parametrize("inner", [1.0, pytest.param(0.98, marks=pytest.mark.slow)])
def test_no_row_is_taken_through_a_cycle_between_it_and_a_sink(inner):
    def field(x, y):
        fall = (x**2 + y**2 - 1) * (x**2 + y**2 - inner)
        return [-2 * y - x * fall, 2 * x - y * fall]

    model = Field("xy", field)
    found = flowsim.find_limits(model, [[-1.85, -1.55], [0.5, 0.2]])
    assert found.label.tolist() == [Label.PERIODIC, Label.LOCAL_MINIMUM]
    assert found.period[0] == pytest.approx(math.pi, rel=1e-2)


@pytest.mark.slow
def test_cycles_are_seen_after_few_turns_also_where_they_relax():
    model = Field("xv", lambda x, v: [v, 10 * (1 - x**2) * v - x])
    found = flowsim.find_limits(model, [[0.1, 0.3]])
    assert labels(found) == PERIODIC and found.evaluations.max() < 7000
    assert np.abs(found.period / 19.07837 - 1).max() < 1e-5


@pytest.mark.parametrize(
    ("growth", "starts"), [(1.0, [[1.0, 0.0], [0.3, 2.0], [-1.0, 0.5]]), (0.01, [[0.3, 2.0]])]
)
def test_a_spiral_outwards_has_one_end_without_a_direction_or_a_loss(growth, starts):
    model = Field("xv", lambda x, v: [v, growth * v - 2 * x])
    found = flowsim.find_limits(model, starts).tensors()
    assert labels(found) == INFINITY and found.theta.isnan().all() and found.loss.isnan().all()
    ends = Ends(model)
    ends.identify(found)
    captions = [end.caption(model.coordinates) for end in ends.found]
    assert captions == ["to infinity: |x| → ∞ back and forth, |v| → ∞ back and forth"]


@pytest.mark.parametrize(
    ("loss", "end"),
    [
        (lambda x, y: -(x**4) / 4 + y**2 / 2, -math.inf),
        pytest.param(lambda x, y: -x.exp() + y**2 / 2, -math.inf, marks=pytest.mark.slow),
        (lambda x, y: torch.exp(-torch.exp(x)) + y**2 / 2, 0.0),
    ],
)
def test_growth_in_no_time_and_growth_that_hardly_goes_on_lead_to_infinity(loss, end):
    found = flowsim.find_limits(flowsim.from_loss(loss), [[1.0, 1.0], [0.5, -0.3]])
    assert labels(found) == INFINITY and (found.theta[:, 0] == math.inf).all()
    assert (found.status == Status.DIVERGED).all()
    assert np.isfinite(found.theta[:, 1]).all()  # it does not grow, however far it has come
    assert found.loss == pytest.approx(end, abs=1e-6)


@pytest.mark.parametrize("radius", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_ring_of_minima_far_away_is_reached(radius):
    size = radius**-4.0
    ring = flowsim.from_loss(lambda x, y: 1 / (1 + x**2 + y**2) + size * (x**2 + y**2))
    found = flowsim.find_limits(ring, [[1.0, 0.3]])
    assert labels(found) == [Label.LOCAL_MINIMUM]
    assert np.linalg.norm(found.theta[0]) == pytest.approx(math.sqrt(radius**2 - 1), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "size"),
    [
        (lambda x, a, b: (x - 1) ** 2 / 2 + (1 - a * b) ** 2 / 2, 1e-30),
        (lambda x, a, b, c: (x - 1) ** 2 / 2 + (1 - a * b * c) ** 2 / 2, 1e-20),
    ],
)
def test_first_weights_leave_a_saddle_though_another_coordinate_came_there_long_before(loss, size):
    model = flowsim.from_loss(loss, "beside")
    start = size * torch.tensor([1.0, 0.7, 1.2, -0.8], dtype=torch.float64)
    found = flowsim.find_limits(model, start[: len(model.coordinates)])
    assert found.label == Label.LOCAL_MINIMUM and abs(float(found.loss)) < 1e-9


@pytest.mark.slow
def test_a_minimum_is_reached_from_far_away():
    well = flowsim.from_loss(lambda x, y: y**2 / 2 - torch.exp(-(x**2) / 2))
    far = flowsim.find_limits(well, [[8.0, 0.5]])
    assert labels(far) == [Label.LOCAL_MINIMUM] and np.abs(far.theta).max() < 1e-6


def test_a_flat_region_is_a_minimum_and_is_entered_at_its_edge():
    dead = flowsim.find_limits(Relu(), [[0.0, -2.0], [-1.0, -1.5]])
    assert labels(dead) == [Label.LOCAL_MINIMUM] and (dead.status == Status.CONVERGED).all()
    assert dead.theta[1] == pytest.approx([-0.8013, -1.6026], abs=1e-3)
    assert dead.loss == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (lambda x, y: x**3 + x**4 + y**2 / 2, Label.SADDLE),
        (lambda x, y: x**5 + x**6 + y**2 / 2, Label.SADDLE),
        (lambda x, y: x**12 + y**4, Label.LOCAL_MINIMUM),
    ],
)
def test_higher_orders_than_the_second_decide_where_a_row_slows_down(loss, label):
    found = flowsim.find_limits(flowsim.from_loss(loss), [[1.0, 0.5], [0.4, -0.2]])
    assert labels(found) == [label] and np.abs(found.theta).max() < 1e-2


@pytest.mark.parametrize(
    ("loss", "at", "label"),
    [
        (lambda x, y: 0 * x + 0 * y + 1, [0.3, 2.0], Label.LOCAL_MINIMUM),
        (lambda x, y: (1 - x * y) ** 2, [2.0, 0.5], Label.LOCAL_MINIMUM),
        (lambda x, y: x**4 + 5 * (y - x**2) ** 2, [0.0, 0.0], Label.LOCAL_MINIMUM),
        (lambda x, y: 5 * (y - x**2) ** 2 - x**4, [0.0, 0.0], Label.SADDLE),
        (lambda x, y: x**5 + 5 * (y - x**2) ** 2, [0.0, 0.0], Label.SADDLE),
        (lambda x, y: x**4 + y**4 - 6 * x**2 * y**2, [0.0, 0.0], Label.SADDLE),
    ],
)
def test_the_flow_beside_a_flat_point_says_what_it_is(loss, at, label):
    place = torch.tensor([at], dtype=torch.float64)
    assert stability(flowsim.from_loss(loss), place, decisive=False) == label


def test_a_centre_is_no_end():
    model = Field("xy", lambda x, y: [0.7 * x - 0.3 * x * y, 0.11 * x * y - 0.9 * y])
    assert labels(flowsim.find_limits(model, [[0.9 / 0.11, 0.7 / 0.3]])) == [Label.UNRESOLVED]


@pytest.mark.slow
def test_chaos_is_bounded():
    lorenz = Field("xyz", lambda x, y, z: [10 * (y - x), x * (28 - z) - y, x * y - 8 * z / 3])
    found = flowsim.find_limits(lorenz, [[1.0, 2.0, 3.0]], max_steps=3000)
    assert labels(found) == [Label.BOUNDED]


def test_rounding_sends_nothing_to_infinity():
    """Robertson's kinetics near their line of rest, of which the other side blows up."""
    field = Field("abc", lambda a, b, c: (
        -0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - 3e7 * b**2, 3e7 * b**2))  # fmt: skip
    mixed = np.array([[1.0, 0, 0], [0.5, 1e-5, 0.5]])
    starts = np.concatenate([mixed * (1 + k * 1e-15) for k in range(-3, 3)])
    found = flowsim.find_limits(field, starts)
    assert not {Label.INFINITY, Label.SADDLE} & {*labels(found)}


def test_a_minimum_whose_slowest_curvatures_vanish_beside_stiff_ones_is_reached():
    def powell(a, b, c, d):
        return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4

    found = flowsim.find_limits(flowsim.from_loss(powell), [[0.1, -0.1, 0.6, 0.1]])
    assert labels(found) == [Label.LOCAL_MINIMUM] and np.abs(found.theta).max() < 1e-5


def test_rates_are_found_where_products_of_slopes_are_below_all_numbers():
    draws = np.random.default_rng(1)
    slopes = 10.0 ** draws.uniform(-320, 0, (400, 3, 3)) * draws.choice([-1.0, 1.0], (400, 3, 3))
    slopes = torch.from_numpy(slopes)
    with pytest.raises(RuntimeError, match="converge"):  # or there would be nothing to guard
        torch.linalg.eigvals(slopes)

    class Many(Field):
        def jacobian(self, theta):
            return slopes

    model, at = Many("xyz", lambda x, y, z: [x, y, z]), torch.zeros(400, 3, dtype=torch.float64)
    stability(model, at, decisive=False)
    assert curvatures(model, at).isfinite().all()


def test_a_region_that_is_flat_by_underflow_is_unresolved():
    well = flowsim.from_loss(lambda x, y: -torch.exp(-(x**2 + y**2) / 2))
    assert flowsim.find_limits(well, [[40.0, 1.0], [0.0, -60.0]]).label.tolist() == [0, 0]


def test_what_turns_back_far_away_is_not_infinity():
    dip = flowsim.from_loss(
        lambda x, y: 1 / (1 + x**2) - 1e-3 * torch.exp(-(((x - 3000) / 50) ** 2)) + y**2 / 2
    )
    found = flowsim.find_limits(dip, [[10.0, 0.5]])
    assert labels(found)[0] in (Label.UNRESOLVED, Label.LOCAL_MINIMUM)


def test_rows_that_get_no_further_do_not_spend_their_steps():
    """A cone, a well of infinite slope, and a loss that is not defined where all starts lead."""
    cone = flowsim.from_loss(lambda x, y: torch.sqrt((x - 5) ** 2 + 4 * (y + 3) ** 2))
    steep = flowsim.from_loss(lambda x, y: x.abs().sqrt() + y**2)
    direction = flowsim.from_loss(lambda x, y: x**2 / (x**2 + y**2) + 0.05 * (x**2 + y**2))
    labels = {flowsim.Label.LOCAL_MINIMUM, flowsim.Label.UNRESOLVED}
    for model, start in ((cone, [3.0, 0.5]), (steep, [1.0, 0.7]), (direction, [1.0, 1.0])):
        found = flowsim.find_limits(model, [start])
        assert int(found.label[0]) in labels and found.evaluations[0] < 8 * 600
    assert flowsim.find_limits(cone, [[3.0, 0.5]]).label[0] == flowsim.Label.LOCAL_MINIMUM


def test_a_softmax_leads_to_infinity_though_rounding_shortens_its_steps():
    gains = torch.tensor([1.0, 0.8, 0.5], dtype=torch.float64)

    def lost(a, b, c):
        return -(torch.softmax(torch.stack([a, b, c], -1), -1) * gains).sum(-1)

    found = flowsim.find_limits(flowsim.from_loss(lost), [[0.0, 0.0, 0.0], [1.0, -1.0, 0.5]])
    assert (found.label == flowsim.Label.INFINITY).all()
    assert found.theta.tolist() == [[math.inf, -math.inf, -math.inf]] * 2
